/* device_snapshot: what is refused, who is asked, and that a stop waits for the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ublk/device/device_internal.h"
#include "ublk/openers.h"

static struct reactor reactor;
static struct ctl ctl = { .reactor = &reactor };
static struct device d;
static char events[100];
static struct backend_snapshot_change *under_way;
static int begin_ret;
static enum block_users users;

enum block_users __wrap_openers_find(int dev_id, char *text, size_t text_bytes);

enum block_users __wrap_openers_find(int dev_id, char *text, size_t text_bytes)
{
	(void)dev_id;
	snprintf(text, text_bytes, "%s", users == BLOCK_USERS_REAL ? "open by fio[7]" : "");
	return users;
}

static void on_event(struct device *device, enum device_event event, void *arg)
{
	(void)device, (void)arg;
	strcat(events, event == DEVICE_EVENT_SNAPSHOT ? "snapshot "
		       : event == DEVICE_EVENT_GONE   ? "gone "
						      : "other ");
}

static int fake_begin(struct backend_device *device, struct backend_snapshot_change *change)
{
	(void)device;
	if (begin_ret < 0)
		snprintf(change->words, sizeof(change->words), "the node says no");
	else
		under_way = change;
	return begin_ret;
}

static const struct backend_snapshots snapshots = { .begin = fake_begin };
static const struct backend ops = { .name = "qcow2", .snapshots = &snapshots };
static struct backend_device node = { .ops = &ops, .name = "disk" };
static const struct device_host host = { .ctl = &ctl, .event = on_event };

static int fresh(void **state)
{
	(void)state;
	memset(&d, 0, sizeof(d));
	d.host = &host;
	d.state = DEVICE_LIVE;
	d.backend = &node;
	d.cdev_fd = -1;
	d.spec.name = "disk";
	events[0] = '\0';
	under_way = NULL;
	begin_ret = 0;
	users = BLOCK_USERS_NONE;
	return 0;
}

static char error[DEVICE_ERROR_BYTES];

static int ask(enum backend_snapshot_op op, bool force)
{
	const struct device_snapshot_wish wish = { .op = op, .name = "a", .force = force };

	error[0] = '\0';
	return device_snapshot(&d, &wish, error, sizeof(error));
}

static void test_it_ends_with_an_event(void **state)
{
	struct device_snapshot_look look;

	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	device_snapshot_look(&d, &look);
	assert_true(look.busy);
	assert_string_equal(look.name, "a");
	assert_int_equal(ask(BACKEND_SNAPSHOT_DELETE, false), -EBUSY);
	assert_non_null(strstr(error, "already"));
	assert_string_equal(events, "");
	under_way->done(under_way, 0);
	assert_string_equal(events, "snapshot ");
	device_snapshot_look(&d, &look);
	assert_false(look.busy);
	assert_int_equal(look.err, 0);
}

static void test_a_stop_waits_for_it(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	d.stop_wanted = true;
	device_go_down(&d);
	assert_string_equal(events, "");
	under_way->done(under_way, -EIO);
	assert_string_equal(events, "snapshot gone ");
}

static void test_users_are_asked(void **state)
{
	(void)state;
	users = BLOCK_USERS_REAL;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, false), -EBUSY);
	assert_non_null(strstr(error, "fio[7]"));
	assert_non_null(strstr(error, "--force"));
	assert_null(under_way);
	users = BLOCK_USERS_UNKNOWN;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, false), -EBUSY);
	users = BLOCK_USERS_TRANSIENT;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, false), 0);
	under_way->done(under_way, 0);
	users = BLOCK_USERS_REAL;
	under_way = NULL;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, true), 0);
	under_way->done(under_way, 0);
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	under_way->done(under_way, 0);
	assert_string_equal(events, "snapshot snapshot snapshot ");
}

static void test_what_is_refused(void **state)
{
	static const struct backend plain = { .name = "mem" };

	(void)state;
	begin_ret = -EEXIST;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EEXIST);
	assert_string_equal(error, "the node says no");
	begin_ret = 0;
	d.resize.busy = true;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EBUSY);
	d.resize.busy = false;
	d.stop_wanted = true;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EBUSY);
	d.stop_wanted = false;
	node.ops = &plain;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EOPNOTSUPP);
	assert_non_null(strstr(error, "no backend"));
	node.ops = &ops;
	assert_null(under_way);
	assert_string_equal(events, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_it_ends_with_an_event, fresh),
		cmocka_unit_test_setup(test_a_stop_waits_for_it, fresh),
		cmocka_unit_test_setup(test_users_are_asked, fresh),
		cmocka_unit_test_setup(test_what_is_refused, fresh),
	};

	return cmocka_run_group_tests_name("device_snapshot", tests, NULL, NULL);
}
