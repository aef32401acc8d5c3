/*
 * What drivers before Linux 6.16 (ctl_notices_end) need when a daemon dies. Owns nothing. Main
 * thread, but for the write to sysfs, which a helper does.
 *
 * Recovery: a child process fetches every tag of the device, and ends at once. It opens /dev/ublkcN
 * (again and again while the dead server has it), makes one ring, and submits a FETCH for each tag
 * of each queue. Tags that had been fetched before answer EBUSY or EINVAL, which is as good.
 *
 * Timeout: one write to sysfs, where it is needed: the value stays with the disk over recoveries.
 * The write freezes the disk's queue, that is, it waits uninterruptibly for all requests in flight
 * (queue_attr_store of Linux 6.12). A daemon killed there could neither end nor complete those
 * requests. So another process writes, which has nothing of ours open; if the daemon dies, that
 * process waits until the next daemon has served the requests.
 *
 * Failure modes: each is logged. The child exits with an errno; without rights, or with /sys
 * read-only, a crash means a longer pause.
 */
#include "daemon/devices/old_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "host/sysfs.h"

#define OPEN_TRIES 10000
#define OPEN_RETRY_US 1000
/* The command's payload is at byte 48 of the SQE. */
#define SQE_CMD_OFFSET 48
/* The block layer rounds up to whole seconds anyway (blk_add_timer). */
#define TIMEOUT_MS 1000

/* ---- a recovery that was cut short ---- */

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

void old_driver_clear_recovery(const struct ublksrv_ctrl_dev_info *info)
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

/* ---- the request timeout ---- */

static bool is_short(const char *path)
{
	char text[32];

	return sysfs_line(text, sizeof(text), "%s", path) && atoi(text) == TIMEOUT_MS;
}

static int write_timeout(const char *path)
{
	char command[128];
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, command, NULL };
	int status, ret;
	pid_t pid;

	snprintf(command, sizeof(command), "echo %d 2>/dev/null >%s", TIMEOUT_MS, path);
	ret = -posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);
	while (ret == 0 && waitpid(pid, &status, 0) < 0)
		ret = errno == EINTR ? 0 : -errno;
	if (ret == 0 && !is_short(path))
		ret = -EACCES;
	return ret;
}

struct shorten {
	struct helper_job job;
	char path[64];
};

/* By a helper. */
static void shorten(struct helper_job *job)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct shorten *s = container_of(job, struct shorten, job);
	int ret = is_short(s->path) ? 0 : write_timeout(s->path);

	if (ret < 0 && !atomic_flag_test_and_set(&told))
		log_warn("after a crash or in an upgrade requests may pause for 30 s",
			 "path=%s error=%s cure=\"Linux 6.16, or let the daemon write there\"",
			 s->path, errname(ret));
}

static void shorten_free(struct helper_job *job)
{
	free(container_of(job, struct shorten, job));
}

void old_driver_shorten_timeout(const struct device_host *host, const struct device *device)
{
	struct device_info info;
	struct shorten *s;

	if (ctl_notices_end(host->ctl) || !host->helpers)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		return;
	device_info(device, &info);
	/* For a longer time than that the driver would kill us: ublk_timeout. */
	if (ctl_wants_path(info.flags)) {
		free(s);
		return;
	}
	snprintf(s->path, sizeof(s->path), "/sys/block/ublkb%lld/queue/io_timeout",
		 (long long)info.id);
	s->job = (struct helper_job){ .work = shorten, .done = shorten_free, .drop = shorten_free };
	if (helper_start(host->helpers, &s->job) < 0)
		free(s);
}
