/*
 * Fires known events, one of each kind: what a trace of this machine must see.
 *
 * Happy path: each function fires and waits until its event is over. Failure modes: no io_uring, no
 * driver, no rights, a device that does not answer: an errno for each. Main thread.
 */
#include "ublktrace/selftest/selftest_fire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ublktrace/selftest/selftest.h"

#define READ_BYTES 4096
#define CONTROL_SECONDS 5

/* include/uapi/linux/ublk_cmd.h; the headers of Debian 12 are older than GET_FEATURES. */
struct control_cmd {
	uint32_t dev_id;
	uint16_t queue_id, len;
	uint64_t addr;
	uint64_t data[2];
};
#define CMD_GET_FEATURES _IOR('u', 0x13, struct control_cmd)

void fire_syscalls(void)
{
	syscall(SYS_getppid);
	usleep(1000);
}

static int fire_nop(struct io_uring *ring, uint64_t user_data, unsigned flags)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int ret;

	if (!sqe)
		return -EBUSY;
	io_uring_prep_nop(sqe);
	sqe->user_data = user_data;
	sqe->flags |= flags;
	ret = io_uring_submit_and_wait(ring, 1);
	if (ret < 0)
		return ret;
	ret = io_uring_peek_cqe(ring, &cqe);
	if (!ret)
		io_uring_cqe_seen(ring, cqe);
	return ret;
}

int fire_nops(void)
{
	struct io_uring ring;
	int ret = io_uring_queue_init(4, &ring, 0);

	if (ret)
		return ret;
	ret = fire_nop(&ring, SELFTEST_NOP, 0);
	if (!ret)
		ret = fire_nop(&ring, SELFTEST_WORK, IOSQE_ASYNC);
	io_uring_queue_exit(&ring);
	return ret;
}

static void control_sqe(struct io_uring_sqe *sqe, int fd, uint64_t *features)
{
	struct control_cmd cmd = {
		.dev_id = UINT32_MAX,
		.queue_id = UINT16_MAX,
		.len = sizeof(*features),
		.addr = (uint64_t)(uintptr_t)features,
	};
	uint32_t cmd_op = CMD_GET_FEATURES;

	memset(sqe, 0, 2 * sizeof(*sqe)); /* it is one of 128 bytes */
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	memcpy(&sqe->off, &cmd_op, sizeof(cmd_op));
	memcpy((char *)sqe + 48, &cmd, sizeof(cmd)); /* sqe->cmd */
}

static int control_send(struct io_uring *ring, int fd, uint64_t *features)
{
	struct __kernel_timespec limit = { .tv_sec = CONTROL_SECONDS };
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int ret;

	if (!sqe)
		return -EBUSY;
	control_sqe(sqe, fd, features);
	ret = io_uring_submit(ring);
	if (ret < 0)
		return ret;
	ret = io_uring_wait_cqe_timeout(ring, &cqe, &limit);
	return ret ? ret : cqe->res;
}

int fire_control(uint64_t *ret_features)
{
	static uint64_t features; /* the driver writes to it, even when we no longer wait */
	struct io_uring ring;
	int fd = open("/dev/ublk-control", O_RDWR | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = io_uring_queue_init(4, &ring, IORING_SETUP_SQE128);
	if (!ret) {
		ret = control_send(&ring, fd, &features);
		io_uring_queue_exit(&ring);
	}
	close(fd);
	if (!ret)
		*ret_features = features;
	return ret;
}

int fire_find_device(char *path, size_t bytes)
{
	DIR *dir = opendir("/dev");
	int first = -1, id, end;
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (sscanf(d->d_name, "ublkb%d%n", &id, &end) == 1 && !d->d_name[end] &&
		    (first < 0 || id < first))
			first = id;
	if (dir)
		closedir(dir);
	if (first < 0)
		return -ENOENT;
	snprintf(path, bytes, "/dev/ublkb%d", first);
	return 0;
}

/* In the process that reads: its exit code is the errno. */
static _Noreturn void read_and_exit(const char *path, int go_fd)
{
	int fd, null = open("/dev/null", O_RDWR);
	void *buf = aligned_alloc(READ_BYTES, READ_BYTES);
	ssize_t got;
	char go;

	/* This process may outlive ublktrace: it must not hold the other's output open. */
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (read(go_fd, &go, 1) != 1 || !buf)
		_exit(ECANCELED);
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		_exit(errno);
	got = pread(fd, buf, READ_BYTES, 0);
	_exit(got == READ_BYTES ? 0 : got < 0 ? errno : EIO);
}

static int wait_for_reader(pid_t pid, int timeout_ms)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), status;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int ready = fd < 0 ? -1 : poll(&p, 1, timeout_ms);

	if (fd >= 0)
		close(fd);
	if (ready == 0)
		return -ETIME;
	if (ready < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

int fire_read(const char *path, int timeout_ms, void (*armed)(pid_t pid, void *arg), void *arg)
{
	int go[2], ret = -ECANCELED;
	pid_t pid;

	if (pipe2(go, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid == 0)
		read_and_exit(path, go[0]);
	close(go[0]);
	if (pid > 0) {
		armed(pid, arg);
		if (write(go[1], "g", 1) == 1)
			ret = wait_for_reader(pid, timeout_ms);
	} else {
		ret = -errno;
	}
	close(go[1]);
	return ret;
}
