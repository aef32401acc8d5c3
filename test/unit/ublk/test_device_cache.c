/* device_cache_command: what is refused, which node is meant, and that a stop ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "storage/owed.h"
#include "ublk/device/device_internal.h"

static struct reactor reactor;
static struct ctl ctl = { .reactor = &reactor };
static struct device d;
static char events[100];
static struct backend_device *begun_at;
static struct backend_cache_job *under_way;
static int begin_ret;

static void on_event(struct device *device, enum device_event event, void *arg)
{
	(void)device, (void)arg;
	strcat(events, event == DEVICE_EVENT_CACHE  ? "cache "
		       : event == DEVICE_EVENT_GONE ? "gone "
						    : "other ");
}

static int fake_begin(struct backend_device *device, struct backend_cache_job *job)
{
	begun_at = device;
	if (begin_ret < 0)
		snprintf(job->words, sizeof(job->words), "the node says no");
	else
		under_way = job;
	return begin_ret;
}

static const struct backend_cache_ops cache_ops = { .begin = fake_begin };
static const struct backend ops = { .name = "cache", .cache_ops = &cache_ops };
static const struct backend plain = { .name = "mem" };
/* A cache over another one, whose store is a third child. */
static struct backend_device leaf = { .ops = &plain, .name = "disk/store" };
static struct backend_device below = { .ops = &plain, .name = "disk/backend", .sibling = &leaf };
static struct backend_device node = { .ops = &ops, .name = "disk", .child = &below };
static const struct backend_spec spec = { .ops = &plain };
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
	d.spec.backend = node.spec = &spec;
	node.ops = &ops;
	backend_owed_begin(&leaf, NULL);
	backend_owed_begin(&below, NULL);
	backend_owed_begin(&node, NULL);
	below.ops = &plain;
	events[0] = '\0';
	under_way = NULL;
	begun_at = NULL;
	begin_ret = 0;
	return 0;
}

static char error[DEVICE_ERROR_BYTES];

static int ask(enum backend_cache_op op, const char *path)
{
	const struct device_cache_wish wish = {
		.op = op, .node = path, .offset_bytes = 5, .length_bytes = 7
	};

	error[0] = '\0';
	return device_cache_command(&d, &wish, error, sizeof(error));
}

static void test_it_ends_with_an_event(void **state)
{
	struct device_cache_look look;
	struct device_info info;

	(void)state;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), 0);
	assert_ptr_equal(begun_at, &node);
	assert_int_equal(under_way->offset_bytes, 5);
	assert_int_equal(under_way->length_bytes, 7);
	device_cache_look(&d, &look);
	assert_true(look.busy && look.job == under_way);
	assert_string_equal(look.node, "disk");
	device_info(&d, &info);
	assert_true(info.has_cache_command);
	assert_int_equal(ask(BACKEND_CACHE_DROP, NULL), -EBUSY);
	assert_non_null(strstr(error, "warmed already"));
	assert_string_equal(events, "");
	under_way->done(under_way, -EIO);
	assert_string_equal(events, "cache ");
	device_cache_look(&d, &look);
	assert_false(look.busy);
	assert_int_equal(look.err, -EIO);
	assert_int_equal(ask(BACKEND_CACHE_DROP, NULL), 0);
	device_cache_cancel(&d);
	assert_true(under_way->is_cancelled);
}

static void test_a_stop_ends_it(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), 0);
	d.stop_wanted = d.stop_force = true;
	device_go_down(&d);
	assert_true(under_way->is_cancelled);
	assert_string_equal(events, "");
	under_way->done(under_way, -ECANCELED);
	assert_string_equal(events, "cache gone ");
}

static void test_which_node(void **state)
{
	(void)state;
	below.ops = &ops;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), -EOPNOTSUPP);
	assert_string_equal(error, "several nodes of the device are caches: name one with --node: "
				   "disk, disk/backend");
	assert_int_equal(ask(BACKEND_CACHE_WARM, "disk/store"), -EOPNOTSUPP);
	assert_non_null(strstr(error, "no node \"disk/store\" that is a cache"));
	assert_int_equal(ask(BACKEND_CACHE_WARM, "disk/backend"), 0);
	assert_ptr_equal(begun_at, &below);
	under_way->done(under_way, 0);
}

static void test_what_is_refused(void **state)
{
	(void)state;
	begin_ret = -EINVAL;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), -EINVAL);
	assert_string_equal(error, "the node says no");
	begin_ret = 0;
	d.stop_wanted = d.stop_force = true;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), -EBUSY);
	d.stop_wanted = false;
	d.state = DEVICE_STARTING;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), -EBUSY);
	assert_non_null(strstr(error, "not live (starting)"));
	d.state = DEVICE_LIVE;
	node.ops = &plain;
	assert_int_equal(ask(BACKEND_CACHE_WARM, NULL), -EOPNOTSUPP);
	assert_non_null(strstr(error, "put the filter cache over its backend"));
	assert_null(under_way);
	assert_string_equal(events, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_it_ends_with_an_event, fresh),
		cmocka_unit_test_setup(test_a_stop_ends_it, fresh),
		cmocka_unit_test_setup(test_which_node, fresh),
		cmocka_unit_test_setup(test_what_is_refused, fresh),
	};

	return cmocka_run_group_tests_name("device_cache", tests, NULL, NULL);
}
