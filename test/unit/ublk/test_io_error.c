/* io_error: which line a failed I/O leaves in the log, and how often. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ublk/queue/io_error.h"

static const struct backend top_ops = { .name = "throttle" }, low_ops = { .name = "file" };
static struct backend_device top_device = { .name = "db", .child_nr = 1, .ops = &top_ops },
			     low_device = { .name = "db", .ops = &low_ops, .node_idx = 1 };
static struct backend_queue top_queue = { .device = &top_device },
			    low_queue = { .device = &low_device };
static struct io_errors *errors;
static struct tag_io ios[4];
static struct backend_io low;
static struct queue queue;
static char text[4096];

static struct tag_io *request(uint8_t op, int top_result, int low_result)
{
	struct tag_io *io = &ios[3];

	queue = (struct queue){
		.ios = ios,
		.setup = { .device_name = "db", .dev_id = 7, .idx = 2, .errors = errors },
	};
	low = (struct backend_io){ .queue = &low_queue, .result = low_result };
	io->queue = &queue;
	io->request = (struct backend_io){
		.queue = &top_queue,
		.child = &low,
		.op = op,
		.offset_bytes = 40960,
		.length_bytes = 4096,
		.result = top_result,
	};
	return io;
}

/* What stands in the log behind its time, or "". */
static const char *told(struct tag_io *io, int err)
{
	int fd[2], saved = dup(STDERR_FILENO);
	ssize_t n = 0;

	assert_int_equal(pipe(fd), 0);
	dup2(fd[1], STDERR_FILENO);
	io_error_tell(io, err);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fd[1]);
	n = read(fd[0], text, sizeof(text) - 1);
	close(fd[0]);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? strstr(text, "level=") : "";
}

static void test_words(void **state)
{
	(void)state;
	assert_string_equal(
		told(request(BACKEND_WRITE, -ENOSPC, -ENOSPC), -ENOSPC),
		"level=warn msg=\"I/O failed\" device=db id=7 queue=2 tag=3 op=write sector=80 "
		"bytes=4096 error=ENOSPC by=file means=\"no space is left below: a full "
		"file "
		"system, pool or quota\" node=db dropped=0\n");
}

/* It is of the whole device: the sector that the driver says is none. */
static void test_flush(void **state)
{
	struct tag_io *io = request(BACKEND_FLUSH, -EIO, -EIO);

	(void)state;
	io->request.offset_bytes = UINT64_MAX << 9;
	io->request.length_bytes = 0;
	assert_non_null(strstr(told(io, -EIO), " tag=3 op=flush error=EIO by=file "));
}

static void test_who(void **state)
{
	struct tag_io *io = request(BACKEND_READ, -EIO, -EIO);

	(void)state;
	assert_non_null(strstr(told(io, -EIO), " by=file "));
	/* The one below has nothing to do with the next one, which the filter fails. */
	io->request.result = -ENODATA;
	assert_non_null(strstr(told(io, -ENODATA), " by=throttle "));
	io->request.result = 0;
	assert_non_null(strstr(told(io, -EOPNOTSUPP), " by=ublkd "));
}

/* The top node fails one of this kind. */
static const char *told_of(uint8_t op, int err)
{
	return told(request(op, err, 0), err);
}

static void test_once(void **state)
{
	(void)state;
	assert_non_null(strstr(told_of(BACKEND_FLUSH, -EIO), " dropped=0"));
	for (int i = 0; i < 9; i++)
		assert_string_equal(told_of(BACKEND_FLUSH, -EIO), "");
	/* Another errno, another kind: told at once. */
	assert_string_not_equal(told_of(BACKEND_FLUSH, -ENOLINK), "");
	assert_string_not_equal(told_of(BACKEND_DISCARD, -EIO), "");
	errors->node[0].limit[BACKEND_FLUSH][EIO].window_start_ns -= LOG_LIMIT_INTERVAL_NS + 1;
	assert_non_null(strstr(told_of(BACKEND_FLUSH, -EIO), " dropped=9"));
}

/* A child of a stripe that fails all the time does not hide that another one begins to. */
static void test_each_node(void **state)
{
	static struct backend_device stripe = { .name = "disk", .child_nr = 2, .ops = &top_ops };
	static struct backend_device child[2] = {
		{ .name = "disk/backends/0", .ops = &low_ops, .node_idx = 1 },
		{ .name = "disk/backends/1", .ops = &low_ops, .node_idx = 2 },
	};
	static struct backend_queue stripe_queue = { .device = &stripe },
				    child_queue[2] = { { .device = &child[0] },
						       { .device = &child[1] } };
	struct backend_io of_child[2] = { { .queue = &child_queue[0] },
					  { .queue = &child_queue[1] } };
	struct tag_io *io = request(BACKEND_WRITE, 0, 0);
	const char *line;

	(void)state;
	io->request.queue = &stripe_queue;
	io->request.child = of_child;
	for (int i = 0; i < 4; i++) {
		io->request.result = of_child[0].result = -EIO;
		line = told(io, -EIO);
		assert_int_equal(strstr(line, " node=disk/backends/0 dropped=0") != NULL, i == 0);
	}
	io->request.result = of_child[1].result = -EIO;
	assert_non_null(strstr(told(io, -EIO), " node=disk/backends/1 dropped=0"));
	/* Nor that the node above them fails a request by itself, or ublkd does. */
	io->request.result = -EIO;
	assert_non_null(strstr(told(io, -EIO), " by=throttle "));
	assert_non_null(strstr(told(io, -EIO), " by=ublkd "));
	/* Of each node, what was dropped of its own. */
	for (unsigned i = 0; i < errors->node_nr; i++)
		errors->node[i].limit[BACKEND_WRITE][EIO].window_start_ns -=
			LOG_LIMIT_INTERVAL_NS + 1;
	io->request.result = of_child[1].result = -EIO;
	assert_non_null(strstr(told(io, -EIO), " node=disk/backends/1 dropped=0"));
	io->request.result = of_child[0].result = -EIO;
	assert_non_null(strstr(told(io, -EIO), " node=disk/backends/0 dropped=3"));
}

static void test_unknown_errno(void **state)
{
	(void)state;
	assert_string_not_equal(told(request(BACKEND_READ, 0, 0), -4000), "");
	assert_string_equal(io_error_words(-ENOENT), "");
}

static int setup(void **state)
{
	(void)state;
	errors = io_errors_create(3);
	return errors ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(errors);
	return 0;
}

#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG(test_words), RIG(test_flush),     RIG(test_who),
		RIG(test_once),	 RIG(test_each_node), RIG(test_unknown_errno),
	};

	unsetenv("JOURNAL_STREAM");
	log_init(LOG_LEVEL_INFO);
	return cmocka_run_group_tests_name("io_error", tests, NULL, NULL);
}
