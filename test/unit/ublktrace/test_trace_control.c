/* Commands of ublk servers in words: names, devices, threads, results, JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "ublktrace/control/control_text.h"
#include "ublk/ublk_abi.h"

static const struct control_event add = {
	.time_ns = 5000000,
	.submit_ns = 3500000,
	.queued_ns = 3600000,
	.type = CONTROL_END,
	.cmd_op = UBLK_U_CMD_ADD_DEV,
	.pid = 41,
	.worker = 42,
	.first_ret = -EAGAIN,
	.dev_id = UINT32_MAX,
	.new_id = 3,
	.queue = UINT32_MAX,
	.tag = UINT32_MAX,
	.comm = "ublkd",
	.file = "ublk-control",
};

static const struct control_event fetch = {
	.time_ns = 5000000,
	.submit_ns = 4000000,
	.type = CONTROL_DATA,
	.cmd_op = UBLK_U_IO_FETCH_REQ,
	.pid = 41,
	.first_ret = CONTROL_NO_RET,
	.dev_id = 7, /* bytes of another structure */
	.new_id = UINT32_MAX,
	.res = -EINVAL,
	.queue = 1,
	.tag = 5,
	.comm = "go-server",
	.file = "ublkc12",
};

static char line[1024];

static const char *text(const struct control_event *e, unsigned more)
{
	FILE *f = fmemopen(line, sizeof(line), "w");

	control_print(f, e, 0, more, false);
	fclose(f);
	return line;
}

static void test_control(void **state)
{
	struct control_event e = add;

	(void)state;
	assert_non_null(strstr(text(&e, 0), "ublkd/41"));
	assert_non_null(strstr(line, "UBLK_CMD_ADD_DEV"));
	assert_non_null(strstr(line, "new dev 3"));
	assert_non_null(strstr(line, "iou-wrk 42, EAGAIN in-line = 0, 1.500 ms\n"));
	e.new_id = UINT32_MAX;
	e.res = -EEXIST;
	assert_non_null(strstr(text(&e, 0), "any dev"));
	assert_non_null(strstr(line, "= EEXIST, 1.500 ms: a device with this id exists"));
	e.cmd_op = UBLK_U_CMD_SET_PARAMS;
	e.dev_id = 3;
	e.res = -EINVAL;
	assert_non_null(strstr(text(&e, 0), "UBLK_CMD_SET_PARAMS"));
	assert_non_null(strstr(line, " dev 3 "));
	assert_non_null(strstr(line, "the driver refuses the block sizes"));
	e.cmd_op = UBLK_U_CMD_GET_DEV_INFO;
	assert_non_null(strstr(text(&e, 0), "SQE128"));
}

static void test_where(void **state)
{
	struct control_event e = add;
	char where[64];

	(void)state;
	e.worker = 0;
	assert_string_equal(control_where(&e, where, sizeof(where)), "io-wq, EAGAIN in-line");
	e.first_ret = CONTROL_NO_RET;
	assert_string_equal(control_where(&e, where, sizeof(where)), "io-wq");
	e.queued_ns = 0;
	assert_string_equal(control_where(&e, where, sizeof(where)), "in-line");
}

/* The hang of a server that never looks at the CQE of its FETCH_REQ. */
static void test_fetch(void **state)
{
	struct control_event e = fetch;

	(void)state;
	assert_non_null(strstr(text(&e, 31), "ublkc12 queue 1 tag 5"));
	assert_non_null(strstr(line, "UBLK_IO_FETCH_REQ"));
	assert_non_null(strstr(line, "= EINVAL, 1.000 ms: no such queue or tag"));
	assert_non_null(strstr(line, "(and 31 more like it)\n"));
	e.queue = e.tag = UINT32_MAX;
	e.submit_ns = 0;
	assert_null(strstr(text(&e, 0), "tag 5"));
	assert_null(strstr(line, " ms"));
	e.res = -EXDEV; /* nothing is known of it: the errno alone */
	assert_non_null(strstr(text(&e, 0), "= EXDEV\n"));
}

static void test_unfinished(void **state)
{
	struct control_event e = add;

	(void)state;
	e.type = CONTROL_BEGIN;
	e.cmd_op = UBLK_U_CMD_START_DEV;
	e.dev_id = 3;
	e.new_id = UINT32_MAX;
	e.time_ns = e.submit_ns + 2100000000;
	assert_non_null(strstr(text(&e, 0),
			       "has not completed after 2.1 s: the driver waits until every tag"));
	e.cmd_op = UBLK_U_CMD_GET_PARAMS;
	assert_non_null(strstr(text(&e, 0), "has not completed after 2.1 s\n"));
}

static void test_unknown_command(void **state)
{
	struct control_event e = add;

	(void)state;
	e.cmd_op = UBLK_U_CMD(_IOC_READ, 0x1f);
	assert_non_null(strstr(text(&e, 0), "ublk command 0x"));
}

static json_int_t number(const json_t *o, const char *name)
{
	assert_true(json_is_integer(json_object_get(o, name)));
	return json_integer_value(json_object_get(o, name));
}

static json_t *as_json(const struct control_event *e, unsigned more)
{
	FILE *f = fmemopen(line, sizeof(line), "w");
	json_t *o;

	control_print_json(f, e, 100, more);
	fclose(f);
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1); /* one line */
	o = json_loads(line, 0, NULL);
	assert_non_null(o);
	return o;
}

static void test_json(void **state)
{
	json_t *o = as_json(&add, 0);

	(void)state;
	assert_int_equal(number(o, "time_ns"), 5000100);
	assert_int_equal(number(o, "device"), 3);
	assert_int_equal(number(o, "worker"), 42);
	assert_int_equal(number(o, "result"), 0);
	assert_int_equal(number(o, "took_ns"), 1500000);
	assert_string_equal(json_string_value(json_object_get(o, "command")), "UBLK_CMD_ADD_DEV");
	assert_null(json_object_get(o, "more"));
	json_decref(o);
	o = as_json(&fetch, 2);
	assert_int_equal(number(o, "device"), 12);
	assert_int_equal(number(o, "queue"), 1);
	assert_int_equal(number(o, "tag"), 5);
	assert_int_equal(number(o, "result"), -EINVAL);
	assert_int_equal(number(o, "more"), 2);
	assert_string_equal(json_string_value(json_object_get(o, "errno")), "EINVAL");
	json_decref(o);
}

/* A process may call itself anything. */
static void test_hostile_name(void **state)
{
	struct control_event e = add;
	json_t *o;

	(void)state;
	memcpy(e.comm, "\033[31m\xff\xfe sixteen!", sizeof(e.comm)); /* and no end */
	assert_non_null(strstr(text(&e, 0), " \\x1b[31m\\xff\\xfe sixteen!/41 "));
	o = as_json(&e, 0);
	assert_string_equal(json_string_value(json_object_get(o, "process")),
			    "\\x1b[31m\\xff\\xfe sixteen!");
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_control),		cmocka_unit_test(test_where),
		cmocka_unit_test(test_fetch),		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_unknown_command), cmocka_unit_test(test_json),
		cmocka_unit_test(test_hostile_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
