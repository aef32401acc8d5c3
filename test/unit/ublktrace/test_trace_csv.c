/* The rows of the CSV, byte by byte: each kind of record, values that need care, a full disk. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ublktrace/output/sink.h"
#include "ublk/ublk_abi.h"

#define RING 0xffff888000001000ull
#define REQ 0xffff88810abcdef0ull

/* Monotonic 5.000123456 s is 2026-03-01 12:00:05.000123 UTC, and 7.000123456 s since the boot. */
static const struct trace_clock wall = {
	.wall_offset_ns = 1772366400000000000,
	.boot_offset_ns = 2000000000,
	.start_ns = 4000000000,
};

static char path[64];
static char *file;
static struct sink *sink;

static int set_up(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/test_trace_csv.XXXXXX.csv");
	fd = mkstemps(path, 4);
	if (fd < 0)
		return -1;
	close(fd);
	file = NULL;
	return sink_open(path, &wall, &sink);
}

static int tear_down(void **state)
{
	(void)state;
	free(file);
	return unlink(path);
}

/* Ends the file and reads it. */
static const char *written(void)
{
	struct losses none = { 0 };
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(sink->ops->close(sink, &none), 0);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	file = calloc(1, (size_t)st.st_size + 1);
	assert_non_null(file);
	assert_int_equal(read(fd, file, (size_t)st.st_size), st.st_size);
	close(fd);
	return file;
}

/* The n-th line behind the header, without its end. */
static const char *row(unsigned n)
{
	static char line[2048];
	const char *at = file ? file : written();
	unsigned commas = 0;
	const char *end;

	for (n++; n; n--) {
		at = strchr(at, '\n');
		assert_non_null(at);
		at++;
	}
	end = strchr(at, '\n');
	assert_non_null(end);
	assert_true((size_t)(end - at) < sizeof(line));
	memcpy(line, at, (size_t)(end - at));
	line[end - at] = 0;
	for (const char *comma = strchr(line, ','); comma; comma = strchr(comma + 1, ','))
		commas++;
	assert_int_equal(commas, 37);
	return line;
}

static struct event event_of(enum event_type type)
{
	return (struct event){
		.time_ns = 5000123456,
		.type = type,
		.cpu = 3,
		.pid = 100,
		.tid = 101,
		.comm = "fio",
		.ring = RING,
		.req = type == EVENT_ENTER ? 0 : REQ,
	};
}

static void give(const struct event *e)
{
	sink->ops->event(sink, e);
}

#define ORIGIN(type) "2026-03-01 12:00:05.000123,7000123456," type ",100,101,fio,3,"

static void test_header(void **state)
{
	(void)state;
	assert_string_equal(
		written(),
		"Timestamp,Timestamp NS,Event Type,PID,TID,Command,CPU,Ring FD,Ring Ptr,"
		"To Submit,Min Complete,Enter Flags,Req Ptr,User Data,Opcode,FD,Length,Offset,"
		"SQE Flags,IO Prio,Buf Index,Personality,Result,Is Error,Errno,Submit TS,"
		"Complete TS,Latency NS,Worker PID,Worker TID,Worker CPU,Is Async,SQ Head,SQ Tail,"
		"CQ Head,CQ Tail,SQ Depth,CQ Depth\n");
}

static void test_enter(void **state)
{
	struct event e = event_of(EVENT_ENTER);

	(void)state;
	e.enter = (struct event_enter){ .fd = 5, .to_submit = 8, .min_complete = 1, .flags = 9 };
	e.levels = (struct event_levels){
		.sq_head = 0xfffffffe, .sq_tail = 6, .cq_head = 10, .cq_tail = 13, .have = 1
	};
	give(&e);
	e.ring = 0;
	e.levels.have = 0;
	e.enter = (struct event_enter){ .fd = -1 };
	give(&e);
	assert_string_equal(row(0), ORIGIN("ENTER") "5,0xffff888000001000,8,1,GETEVENTS|EXT_ARG"
						    ",,,,,,,,,,,,,,,,,,,,,4294967294,6,10,13,8,3");
	assert_string_equal(row(1), ORIGIN("ENTER") "-1,,0,0,,,,,,,,,,,,,,,,,,,,,,,,,,,");
}

/* What was passed is an index: the descriptor is that of the ring, if the ring has told it. */
static void test_registered_ring(void **state)
{
	struct event e = event_of(EVENT_RING), enter = event_of(EVENT_ENTER);

	(void)state;
	enter.enter = (struct event_enter){ .fd = 0, .to_submit = 1, .flags = 0x10 };
	give(&enter);
	e.ring_info.fd = 7;
	give(&e);
	e.ring = RING + 8;
	e.ring_info.fd = 8;
	give(&e);
	give(&enter);
	e.ring = RING;
	e.ring_info.fd = 9; /* the address is used again */
	give(&e);
	give(&enter);
	assert_string_equal(row(0), ORIGIN("ENTER") ",0xffff888000001000,1,0,REGISTERED_RING"
						    ",,,,,,,,,,,,,,,,,,,,,,,,,,");
	assert_string_equal(row(1), ORIGIN("ENTER") "7,0xffff888000001000,1,0,REGISTERED_RING"
						    ",,,,,,,,,,,,,,,,,,,,,,,,,,");
	assert_string_equal(row(2), ORIGIN("ENTER") "9,0xffff888000001000,1,0,REGISTERED_RING"
						    ",,,,,,,,,,,,,,,,,,,,,,,,,,");
}

/* More rings than are remembered: no wrong one is named, and the last are known. */
static void test_many_rings(void **state)
{
	struct event e = event_of(EVENT_RING), enter = event_of(EVENT_ENTER);

	(void)state;
	enter.enter.flags = 0x10;
	for (unsigned i = 0; i < 1000; i++) {
		e.ring = RING + i;
		e.ring_info.fd = (int)i;
		give(&e);
	}
	give(&enter);
	enter.ring = RING + 999;
	give(&enter);
	assert_string_equal(row(0), ORIGIN("ENTER") ",0xffff888000001000,0,0,REGISTERED_RING"
						    ",,,,,,,,,,,,,,,,,,,,,,,,,,");
	assert_string_equal(row(1), ORIGIN("ENTER") "999,0xffff8880000013e7,0,0,REGISTERED_RING"
						    ",,,,,,,,,,,,,,,,,,,,,,,,,,");
}

static void test_submit(void **state)
{
	struct event e = event_of(EVENT_SUBMIT);

	(void)state;
	e.user_data = UINT64_MAX;
	e.sqe = (struct event_sqe){
		.opcode = 5,
		.flags = 0x11,
		.ioprio = 0x4004,
		.buf_index = 65535,
		.personality = 2,
		.fd = 3,
		.len = 4294967295,
		.offset = UINT64_MAX,
		.ublk_id = -1,
	};
	e.levels = (struct event_levels){ .sq_tail = 2, .have = 1 };
	give(&e);
	assert_string_equal(row(0), ORIGIN("SUBMIT") ",0xffff888000001000,,,,0xffff88810abcdef0,"
						     "18446744073709551615,WRITE_FIXED,3,"
						     "4294967295,18446744073709551615,"
						     "FIXED_FILE|ASYNC,16388,65535,2,,,,"
						     "7000123456,,,,,,,0,2,0,0,2,0");
}

static const char *submitted(uint8_t opcode, int32_t ublk_id, uint32_t cmd_op)
{
	struct event e = event_of(EVENT_SUBMIT);
	char *comma;

	e.sqe = (struct event_sqe){ .opcode = opcode, .ublk_id = ublk_id, .cmd_op = cmd_op };
	e.sqe.offset = cmd_op;
	free(file);
	file = NULL;
	assert_int_equal(sink_open(path, &wall, &sink), 0);
	give(&e);
	comma = strstr(row(0), ",0,");
	assert_non_null(comma); /* before user_data, 0 */
	return comma + 3;
}

#define SQE_REST(offset) "0,0," offset ",,0,0,0,,,,7000123456,,,,,,,,,,,,"

static void test_uring_cmd(void **state)
{
	struct losses none = { 0 };

	(void)state;
	assert_int_equal(sink->ops->close(sink, &none), 0);
	assert_string_equal(submitted(46, 0, UBLK_U_IO_FETCH_REQ),
			    "UBLK_IO_FETCH_REQ," SQE_REST(""));
	assert_string_equal(submitted(46, 5, 0x21), "UBLK_IO_COMMIT_AND_FETCH_REQ," SQE_REST(""));
	assert_string_equal(submitted(64, -2, UBLK_U_CMD_ADD_DEV),
			    "UBLK_CMD_ADD_DEV," SQE_REST(""));
	assert_string_equal(submitted(46, -1, UBLK_U_IO_FETCH_REQ), "URING_CMD," SQE_REST(""));
	assert_string_equal(submitted(46, 0, UBLK_U_CMD_ADD_DEV), "URING_CMD," SQE_REST(""));
	assert_string_equal(submitted(64, -1, 1), "URING_CMD128," SQE_REST(""));
	assert_string_equal(submitted(0, 0, 0x20), "NOP," SQE_REST("32"));
	/* of a newer kernel */
	assert_string_equal(submitted(200, -1, 0), "200," SQE_REST("0"));
}

static void test_complete(void **state)
{
	struct event e = event_of(EVENT_COMPLETE);

	(void)state;
	e.user_data = 77;
	e.cqe = (struct event_cqe){
		.res = 4096,
		.submit_ns = 5000000000,
		.opcode = 22,
		.fd = -1,
		.ublk_id = -1,
		.async = 1,
	};
	give(&e);
	e.cqe.res = -125;
	e.cqe.async = 0;
	e.cqe.fd = 9;
	give(&e);
	assert_string_equal(row(0),
			    ORIGIN("COMPLETE") ",0xffff888000001000,,,,0xffff88810abcdef0,77,READ,"
					       "-1,,,,,,,4096,,,7000000000,7000123456,123456,,,,1"
					       ",,,,,,");
	assert_string_equal(row(1),
			    ORIGIN("COMPLETE") ",0xffff888000001000,,,,0xffff88810abcdef0,77,READ,"
					       "9,,,,,,,-125,1,125,7000000000,7000123456,123456"
					       ",,,,,,,,,,");
}

/* Its begin was not seen; it has no request; the smallest of results. */
static void test_complete_unknown(void **state)
{
	struct event e = event_of(EVENT_COMPLETE);

	(void)state;
	e.req = 0;
	e.user_data = 1;
	e.cqe = (struct event_cqe){ .res = INT32_MIN, .opcode = 0xff, .aux = 1, .ublk_id = -1 };
	give(&e);
	assert_string_equal(row(0), ORIGIN("COMPLETE") ",0xffff888000001000,,,,,1,,,,,,,,,"
						       "-2147483648,1,2147483648,,7000123456"
						       ",,,,,,,,,,,");
}

/* The CQ was full: its row is a COMPLETE, whose request is known by its user data only. */
static void test_overflow(void **state)
{
	struct event e = event_of(EVENT_OVERFLOW);

	(void)state;
	e.req = 0;
	e.user_data = 104;
	e.cqe = (struct event_cqe){ .res = 7, .opcode = 0xff, .fd = -1, .ublk_id = -1 };
	give(&e);
	assert_string_equal(row(0), ORIGIN("COMPLETE") ",0xffff888000001000,,,,,104,,,,,,,,,"
						       "7,,,,7000123456,,,,,,,,,,,");
}

static void test_complete_ublk(void **state)
{
	struct event e = event_of(EVENT_COMPLETE);

	(void)state;
	e.cqe = (struct event_cqe){
		.opcode = 46,
		.fd = 4,
		.ublk_id = 0,
		.cmd_op = UBLK_U_IO_COMMIT_AND_FETCH_REQ,
		.q_id = 1,
		.tag = 2,
	};
	give(&e);
	assert_non_null(strstr(row(0), ",0,UBLK_IO_COMMIT_AND_FETCH_REQ,4,,,,,,,0,,,,7000123456"));
}

static void test_worker(void **state)
{
	struct event e = event_of(EVENT_WORKER);

	(void)state;
	strcpy(e.comm, "iou-wrk-100");
	e.user_data = 5;
	e.cqe = (struct event_cqe){ .opcode = 23, .fd = 6, .ublk_id = -1, .submit_ns = 5000000000 };
	give(&e);
	e.cqe.opcode = 0xff;
	e.cqe.submit_ns = 0;
	give(&e);
	assert_string_equal(row(0), "2026-03-01 12:00:05.000123,7000123456,WORKER,100,101,"
				    "iou-wrk-100,3,,0xffff888000001000,,,,0xffff88810abcdef0,5,"
				    "WRITE,6,,,,,,,,,,7000000000,,,100,101,3,1,,,,,,");
	assert_string_equal(row(1), "2026-03-01 12:00:05.000123,7000123456,WORKER,100,101,"
				    "iou-wrk-100,3,,0xffff888000001000,,,,0xffff88810abcdef0,5,"
				    ",,,,,,,,,,,,,,100,101,3,1,,,,,,");
}

/* A submission "after" its completion: clocks of two CPUs. No latency is better than a huge one. */
static void test_no_negative_latency(void **state)
{
	struct event e = event_of(EVENT_COMPLETE);

	(void)state;
	e.cqe = (struct event_cqe){ .opcode = 0, .ublk_id = -1, .submit_ns = 5000123457 };
	give(&e);
	assert_non_null(strstr(row(0), ",7000123457,7000123456,,"));
}

static const char *quoted(const char *comm)
{
	struct event e = event_of(EVENT_ENTER);
	struct losses none = { 0 };
	static char field[64];
	const char *at, *end;

	if (!file)
		assert_int_equal(sink->ops->close(sink, &none), 0);
	free(file);
	file = NULL;
	assert_int_equal(sink_open(path, &wall, &sink), 0);
	memset(e.comm, 0, sizeof(e.comm));
	memcpy(e.comm, comm, strnlen(comm, sizeof(e.comm))); /* 16 bytes have no NUL */
	give(&e);
	at = strstr(written(), ",101,");
	assert_non_null(at);
	at += 5;
	end = strstr(at, ",3,0,0xffff888000001000,");
	assert_non_null(end);
	snprintf(field, sizeof(field), "%.*s", (int)(end - at), at);
	return field;
}

static void test_quoting(void **state)
{
	(void)state;
	assert_string_equal(quoted("plain name"), "plain name");
	assert_string_equal(quoted(""), "");
	assert_string_equal(quoted("a,b"), "\"a,b\"");
	assert_string_equal(quoted("\"\""), "\"\"\"\"\"\"");
	assert_string_equal(quoted("a\nb\rc"), "\"a\nb\rc\"");
	assert_string_equal(quoted("\r"), "\"\r\"");
	assert_string_equal(quoted("0123456789abcdef"), "0123456789abcdef");
	assert_string_equal(quoted("\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\""),
			    "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"");
}

static void test_other_records(void **state)
{
	(void)state;
	for (int type = 0; type <= EVENT_TYPE_NR; type++) {
		struct event e = event_of(type);

		switch (type) {
		case EVENT_ENTER:
		case EVENT_SUBMIT:
		case EVENT_COMPLETE:
		case EVENT_OVERFLOW:
		case EVENT_WORKER:
			continue;
		default:
			give(&e);
		}
	}
	assert_null(strchr(strchr(written(), '\n') + 1, '\n'));
}

/* Many rows: the buffer is emptied between them, nothing is torn. */
static void test_many_rows(void **state)
{
	struct event e = event_of(EVENT_SUBMIT);
	unsigned rows = 0;
	char wanted[64];

	(void)state;
	e.sqe.ublk_id = -1;
	for (e.user_data = 1; e.user_data <= 20000; e.user_data++)
		give(&e);
	for (const char *at = strchr(written(), '\n') + 1; *at; at = strchr(at, '\n') + 1) {
		snprintf(wanted, sizeof(wanted), ",0xffff88810abcdef0,%u,NOP,", ++rows);
		assert_memory_equal(at, ORIGIN("SUBMIT"), strlen(ORIGIN("SUBMIT")));
		assert_memory_equal(strstr(at, ",0xffff88810"), wanted, strlen(wanted));
	}
	assert_int_equal(rows, 20000);
}

/* A second on, a day on, and back, as records of several CPUs come. */
static void test_date(void **state)
{
	struct event e = event_of(EVENT_ENTER);

	(void)state;
	e.time_ns = 5999999999;
	give(&e);
	e.time_ns = 6000000000;
	give(&e);
	e.time_ns = 86400ull * 1000000000;
	give(&e);
	e.time_ns = 5999999000;
	give(&e);
	assert_memory_equal(row(0), "2026-03-01 12:00:05.999999,7999999999,", 38);
	assert_memory_equal(row(1), "2026-03-01 12:00:06.000000,8000000000,", 38);
	assert_memory_equal(row(2), "2026-03-02 12:00:00.000000,86402000000000,", 42);
	assert_memory_equal(row(3), "2026-03-01 12:00:05.999999,7999999000,", 38);
}

static void test_full_disk(void **state)
{
	struct event e = event_of(EVENT_ENTER);
	struct losses none = { 0 };

	(void)state;
	assert_int_equal(csv_open("/dev/full", &wall, &sink), 0);
	assert_int_equal(sink->ops->close(sink, &none), -ENOSPC);
	assert_int_equal(csv_open("/dev/full", &wall, &sink), 0);
	for (int i = 0; i < 20000; i++)
		give(&e);
	assert_int_equal(sink->ops->close(sink, &none), -ENOSPC);
}

static void test_open(void **state)
{
	(void)state;
	assert_int_equal(sink_open("/nowhere/x.csv", &wall, &sink), -ENOENT);
	assert_int_equal(sink_open("/tmp/x.txt", &wall, &sink), -EINVAL);
	assert_int_equal(sink_open(".csv", &wall, &sink), -EINVAL);
	assert_int_equal(sink_open("", &wall, &sink), -EINVAL);
	assert_int_equal(access("/tmp/x.txt", F_OK), -1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(test_header),
		CASE(test_enter),
		CASE(test_registered_ring),
		CASE(test_many_rings),
		CASE(test_submit),
		CASE(test_uring_cmd),
		CASE(test_complete),
		CASE(test_complete_unknown),
		CASE(test_overflow),
		CASE(test_complete_ublk),
		CASE(test_worker),
		CASE(test_no_negative_latency),
		CASE(test_quoting),
		CASE(test_other_records),
		CASE(test_many_rows),
		CASE(test_date),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_open),
	};

	return cmocka_run_group_tests_name("trace_csv", tests, NULL, NULL);
}
