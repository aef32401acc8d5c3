/* zoned over zones below: what the next process finds, and requests that the driver sends again. */
#include "test/unit/filters/zone_drive.h"

/* ---- the next process ---- */

/* What it would find of this one now. */
static int memory_now(void)
{
	int from = backend_stored_fd(below.device, 0), fd = memfd_create("memory", MFD_CLOEXEC);
	static uint8_t bytes[1 << 20];
	ssize_t n = pread(from, bytes, sizeof(bytes), 0);

	assert_true(n > 0);
	assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
	return fd;
}

/* A write under way is sent again; so many bytes of it are there. */
static void again(uint32_t there_bytes)
{
	int fd;

	below_open(0);
	write_at(0, 1, 0, 4096);
	drive_write_ends();
	write_at(1, 1, 4096, 4096);
	fd = memory_now();
	drive_end(-EIO, there_bytes);
	turn();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
	/* Nobody had this one under way. */
	write_at(2, 1, 512, 512);
	is_answered(2, -EIO);
	write_at(3, 1, 4096, 4096);
	if (there_bytes < 4096) {
		drive_has(BACKEND_WRITE, at(1, 4096 + there_bytes), 4096 - there_bytes);
		assert_ptr_equal(drive.kept[0]->buf, below.buf + there_bytes);
		drive_write_ends();
	}
	is_answered(3, 0);
	assert_int_equal(drive.kept_nr, 0);
	/* Once. */
	write_at(3, 1, 4096, 4096);
	is_answered(3, -EIO);
	/* Whose answer may have been on its way. */
	write_at(3, 1, 0, 4096);
	is_answered(3, 0);
	write_at(4, 1, 8192, 512);
	drive_write_ends();
	is_answered(4, 0);
}

static void test_again(void **state)
{
	static const uint32_t there_bytes[] = { 512, 4096 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(there_bytes); i++) {
		again(there_bytes[i]);
		below_close();
		drive_make();
	}
}

/* What had not begun below is a write as any other, once. */
static void test_again_from_the_start(void **state)
{
	int fd;

	(void)state;
	below_open(0);
	write_at(0, 1, 0, 4096);
	fd = memory_now();
	drive_end(-EIO, 0);
	turn();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
	write_at(0, 1, 0, 4096);
	drive_write_ends();
	is_answered(0, 0);
	write_at(0, 1, 0, 4096);
	is_answered(0, -EIO);
}

/* The drive has these bytes in the page that is read from it. */
static void page_is(uint64_t bytes, uint8_t value)
{
	drive_has(BACKEND_READ, at(1, bytes), 4096);
	memset(drive.kept[0]->buf, value, 4096);
	drive_end(0, 0);
}

/* A write that fills its zone was under way; what is there of it then, and how the zone is. */
static void last_write_again(uint32_t there_bytes, unsigned cond, uint8_t value, int result)
{
	int fd;

	drive_set(1, BLK_ZONE_COND_CLOSED, BELOW_CAPACITY - 4096);
	below_open(0);
	memset(below.buf, 0x11, 4096);
	write_at(0, 1, BELOW_CAPACITY - 4096, 4096);
	fd = memory_now();
	drive_end(-EIO, there_bytes);
	turn();
	below_close();
	drive.zone[1].cond = (uint8_t)cond;
	assert_int_equal(below_open(fd), 0);
	close(fd);
	write_at(0, 1, BELOW_CAPACITY - 4096, 4096);
	page_is(BELOW_CAPACITY - 4096, value);
	is_answered(0, result);
	assert_int_equal(drive.kept_nr, 0);
	/* Once. */
	if (result == 0) {
		write_at(0, 1, BELOW_CAPACITY - 4096, 4096);
		is_answered(0, -EIO);
	}
}

static void test_last_write_again(void **state)
{
	(void)state;
	last_write_again(4096, BLK_ZONE_COND_FULL, 0x11, 0);
}

static void test_write_to_what_is_read_only(void **state)
{
	(void)state;
	last_write_again(0, BLK_ZONE_COND_READONLY, 0, -EIO);
}

/* An append of two pages was under way, and is there as a whole. */
static void append_is_there(void)
{
	int fd;

	below_open(0);
	memset(below.buf, 0x11, 8192);
	append_to(0, 1, 8192);
	fd = memory_now();
	drive_write_ends();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
}

static void test_append_again(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	append_to(1, 1, 512);
	page_is(0, 0x11);
	page_is(4096, 0x11);
	appended(0, 1, 0);
	/* It waited for its turn. */
	drive_write_ends();
	appended(1, 1, 8192);
	/* Once. */
	append_to(0, 1, 8192);
	drive_write_ends();
	appended(0, 1, 8704);
}

/* Another one of the same length: it had not begun. The first one finds its place all the same. */
static void test_other_append(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	page_is(0, 0x11);
	page_is(4096, 0x12);
	drive_has(BACKEND_WRITE, at(1, 8192), 8192);
	drive_write_ends();
	appended(0, 1, 8192);
	append_to(0, 1, 8192);
	drive_end(-EIO, 0);
	drive_has(BACKEND_WRITE, at(1, 16384), 8192);
	drive_write_ends();
	appended(0, 1, 16384);
	append_to(0, 1, 8192);
	page_is(0, 0x11);
	page_is(4096, 0x11);
	appended(0, 1, 0);
	append_to(0, 1, 4096);
	drive_has(BACKEND_WRITE, at(1, 24576), 4096);
	drive_write_ends();
}

static void test_reset_while_compared(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	manage(1, BACKEND_ZONE_RESET, 1);
	assert_int_equal(drive.kept_nr, 1);
	page_is(0, 0);
	is_answered(0, -EIO);
	drive_has(BACKEND_ZONE_MANAGE, at(1, 0), 0);
	drive_end(0, 0);
	is_answered(1, 0);
	append_to(0, 1, 8192);
	drive_write_ends();
	appended(0, 1, 0);
}

/* No further page is read, and nothing is written, where nobody would cancel it. */
static void test_cancelled_while_compared(void **state)
{
	(void)state;
	append_is_there();
	append_to(0, 1, 8192);
	cancel(0);
	is_answered(0, -EIO);
	turn();
	assert_int_equal(drive.kept_nr, 0);
	/* A page that has come all the same, though not the last one. */
	drive.ignores_cancel = true;
	append_to(0, 1, 8192);
	cancel(0);
	page_is(0, 0x11);
	is_answered(0, -EIO);
	assert_int_equal(drive.kept_nr, 0);
	/* The last one: it has been found. */
	append_to(0, 1, 8192);
	page_is(0, 0x11);
	cancel(0);
	page_is(4096, 0x11);
	appended(0, 1, 0);
	/* It is a new one now, and goes on as any other. */
	append_to(0, 1, 8192);
	drive_write_ends();
	appended(0, 1, 8192);
}

/* Of one that is there in part nothing is kept. */
static void test_append_in_part(void **state)
{
	int fd;

	(void)state;
	below_open(0);
	append_to(0, 1, 4096);
	fd = memory_now();
	drive_end(-EIO, 512);
	turn();
	below_close();
	assert_int_equal(below_open(fd), 0);
	close(fd);
	append_to(0, 1, 4096);
	drive_write_ends();
	appended(0, 1, 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BELOW_TEST(test_again),
		BELOW_TEST(test_again_from_the_start),
		BELOW_TEST(test_last_write_again),
		BELOW_TEST(test_write_to_what_is_read_only),
		BELOW_TEST(test_append_again),
		BELOW_TEST(test_other_append),
		BELOW_TEST(test_reset_while_compared),
		BELOW_TEST(test_cancelled_while_compared),
		BELOW_TEST(test_append_in_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
