/* reactor: the tables of registered files and buffers. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "reactor/reactor.h"

static struct reactor r;

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 64 };

	(void)state;
	assert_int_equal(reactor_init(&r, &params), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	reactor_fini(&r);
	return 0;
}

static void test_file_table(void **state)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int slot[REACTOR_FILE_NR];

	(void)state;
	reactor_file_remove(&r, -1); /* of a failed add: harmless */
	for (unsigned i = 0; i < REACTOR_FILE_NR; i++) {
		slot[i] = reactor_file_add(&r, null);
		assert_int_equal(slot[i], i);
	}
	assert_int_equal(reactor_file_add(&r, null), -ENOSPC);
	reactor_file_remove(&r, slot[700]);
	assert_int_equal(reactor_file_add(&r, null), 700);
	reactor_file_remove(&r, 3);
	assert_int_equal(reactor_file_add(&r, 19999), -EBADF);
	assert_int_equal(reactor_file_add(&r, null), 3);
	close(null);
}

static void test_buffer_table(void **state)
{
	(void)state;
	reactor_buffers_remove(&r, -1, 4); /* of a failed add: harmless */
	assert_int_equal(reactor_buffers_add(&r, 100), 0);
	assert_int_equal(reactor_buffers_add(&r, 100), 100);
	assert_int_equal(reactor_buffers_add(&r, REACTOR_BUFFER_NR), -ENOSPC);
	reactor_buffers_remove(&r, 0, 100);
	assert_int_equal(reactor_buffers_add(&r, 101), 200);
	assert_int_equal(reactor_buffers_add(&r, 100), 0);
	reactor_buffers_remove(&r, 0, 100);
	reactor_buffers_remove(&r, 100, 100);
	reactor_buffers_remove(&r, 200, 101);
	assert_int_equal(reactor_buffers_add(&r, REACTOR_BUFFER_NR), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_file_table, setup, teardown),
		cmocka_unit_test_setup_teardown(test_buffer_table, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
