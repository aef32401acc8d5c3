/*
 * A ublk server as beginners write it: it makes a device, sends FETCH_REQ for every tag with an
 * argument that the driver refuses, looks at no answer, and waits for START_DEV. Nothing says what
 * is wrong, and the device never comes: what `ublktrace control` is for.
 *
 *   bad_server SECONDS   does that, and ends after that time; prints the device's number
 *   bad_server del N     deletes device N
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ublk/ublk_abi.h"

#define DEPTH 4

static struct io_uring ring;
static int control_fd;

__attribute__((noreturn)) static void die(const char *what, int err)
{
	fprintf(stderr, "bad_server: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static struct io_uring_sqe *command(int fd, uint32_t cmd_op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	if (!sqe)
		die("no room for another command", ENOSPC);
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	memcpy(&sqe->off, &cmd_op, sizeof(cmd_op));
	sqe->user_data = cmd_op & 0xff;
	return sqe;
}

static void control(uint32_t cmd_op, uint32_t id, void *buf, uint16_t bytes, uint64_t data)
{
	struct ublksrv_ctrl_cmd cmd = { .dev_id = id,
					.queue_id = UINT16_MAX,
					.len = bytes,
					.addr = (uint64_t)(uintptr_t)buf,
					.data = { data } };
	struct io_uring_sqe *sqe = command(control_fd, cmd_op);

	memcpy((char *)sqe + 48, &cmd, sizeof(cmd));
	io_uring_submit(&ring);
}

static int answer(void)
{
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe(&ring, &cqe);

	if (ret)
		die("wait", ret);
	ret = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return ret;
}

static uint32_t add(void)
{
	static struct ublksrv_ctrl_dev_info info = { .nr_hw_queues = 1,
						     .queue_depth = DEPTH,
						     .max_io_buf_bytes = 65536,
						     .dev_id = UINT32_MAX,
						     .flags = UBLK_F_CMD_IOCTL_ENCODE };
	static struct ublk_params params = { .len = sizeof(params),
					     .types = UBLK_PARAM_TYPE_BASIC };
	int ret;

	info.ublksrv_pid = getpid();
	control(UBLK_U_CMD_ADD_DEV, UINT32_MAX, &info, sizeof(info), 0);
	ret = answer();
	if (ret)
		die("ADD_DEV", ret);
	params.basic.logical_bs_shift = params.basic.physical_bs_shift = 9;
	params.basic.io_opt_shift = params.basic.io_min_shift = 9;
	params.basic.max_sectors = 128;
	params.basic.dev_sectors = 2048;
	control(UBLK_U_CMD_SET_PARAMS, info.dev_id, &params, sizeof(params), 0);
	ret = answer();
	if (ret)
		die("SET_PARAMS", ret);
	return info.dev_id;
}

/* The buffer's address is forgotten: -EINVAL for all of them. */
static void fetch(int fd)
{
	for (uint16_t tag = 0; tag < DEPTH; tag++) {
		struct ublksrv_io_cmd cmd = { .tag = tag };
		struct io_uring_sqe *sqe = command(fd, UBLK_U_IO_FETCH_REQ);

		memcpy((char *)sqe + 48, &cmd, sizeof(cmd));
	}
	io_uring_submit(&ring);
}

static int serve_badly(unsigned seconds)
{
	uint32_t id = add();
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/ublkc%u", id);
	for (int i = 0; i < 200 && (fd = open(path, O_RDWR)) < 0; i++)
		usleep(50000);
	if (fd < 0)
		die(path, errno);
	printf("%u\n", id);
	fflush(stdout);
	fetch(fd);
	control(UBLK_U_CMD_START_DEV, id, NULL, 0, (uint64_t)getpid());
	sleep(seconds);
	return 0;
}

int main(int argc, char **argv)
{
	int ret = io_uring_queue_init(16, &ring, IORING_SETUP_SQE128);

	if (ret)
		die("io_uring", ret);
	control_fd = open("/dev/ublk-control", O_RDWR);
	if (control_fd < 0)
		die("/dev/ublk-control", errno);
	if (argc == 2)
		return serve_badly((unsigned)atoi(argv[1]));
	if (argc != 3 || strcmp(argv[1], "del") != 0) {
		fputs("usage: bad_server SECONDS | del N\n", stderr);
		return 2;
	}
	control(UBLK_U_CMD_DEL_DEV, (uint32_t)atoi(argv[2]), NULL, 0, 0);
	ret = answer();
	if (ret)
		die("DEL_DEV", ret);
	return 0;
}
