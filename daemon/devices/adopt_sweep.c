/*
 * Fetches every tag of a device in a process of its own, which ends at once. Main thread.
 *
 * Happy path: fork -> open /dev/ublkcN (again and again while the dead server has it) -> one ring,
 * one enter with a FETCH for each tag of each queue -> exit. Tags that had been fetched before
 * answer EBUSY or EINVAL, which is as good. Failure modes: each ends the child with a code of its
 * own.
 */
#include "daemon/devices/adopt_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"

#define OPEN_TRIES 10000
#define OPEN_RETRY_US 1000
/* The command's payload stands at byte 48 of the SQE. */
#define SQE_CMD_OFFSET 48

static int open_device(uint32_t dev_id)
{
	char path[32];
	int fd = -1;

	snprintf(path, sizeof(path), "/dev/ublkc%u", dev_id);
	for (int i = 0; i < OPEN_TRIES && fd < 0; i++) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0 && errno != EBUSY)
			break;
		if (fd < 0)
			usleep(OPEN_RETRY_US);
	}
	return fd;
}

static void prep_fetch(struct io_uring_sqe *sqe, int fd, unsigned queue, unsigned tag,
		       const void *buffer)
{
	struct ublksrv_io_cmd *cmd = (struct ublksrv_io_cmd *)((char *)sqe + SQE_CMD_OFFSET);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, NULL, 0, 0);
	sqe->cmd_op = UBLK_U_IO_FETCH_REQ;
	memset(cmd, 0, sizeof(*cmd));
	cmd->q_id = (uint16_t)queue;
	cmd->tag = (uint16_t)tag;
	cmd->addr = (uint64_t)(uintptr_t)buffer;
}

/* In the child: no memory is allocated, nobody else's lock is taken. Returns 0 or an errno. */
static int fetch_all(const struct ublksrv_ctrl_dev_info *info)
{
	static char page[4096];
	/* With user copy there must not be an address, without it there must be one. */
	const void *buffer = info->flags & UBLK_F_USER_COPY ? NULL : page;
	unsigned nr = (unsigned)info->nr_hw_queues * info->queue_depth;
	int fd = open_device(info->dev_id);
	struct io_uring ring;

	if (fd < 0)
		return errno;
	if (io_uring_queue_init(nr < 32768 ? nr : 32768, &ring, 0) < 0)
		return ENOMEM;
	for (unsigned i = 0; i < nr; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		if (!sqe) {
			io_uring_submit(&ring);
			sqe = io_uring_get_sqe(&ring);
		}
		if (!sqe)
			return EAGAIN;
		prep_fetch(sqe, fd, i / info->queue_depth, i % info->queue_depth, buffer);
	}
	return io_uring_submit(&ring) < 0 ? EIO : 0;
}

void adopt_sweep(const struct ublksrv_ctrl_dev_info *info)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(fetch_all(info));
	if (pid < 0) {
		log_error("cannot make a process", "error=%s", errname(errno));
		return;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		log_error("a recovery that was cut short could not be cleared", "id=%u error=%s",
			  info->dev_id,
			  WIFEXITED(status) ? errname(WEXITSTATUS(status)) : "a signal");
	else
		log_warn("a recovery that was cut short is begun anew", "id=%u", info->dev_id);
}
