/* device_snapshot: what is refused, who is asked, and that a stop waits for the end. */
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

static unsigned one_snapshot(const struct backend_device *device)
{
	(void)device;
	return 1;
}

static const char *snapshot_name;

static void get_snapshot(const struct backend_device *device, unsigned idx,
			 struct backend_snapshot *ret_snapshot)
{
	(void)device, (void)idx;
	*ret_snapshot = (struct backend_snapshot){ .id = "1" };
	snprintf(ret_snapshot->name, sizeof(ret_snapshot->name), "%s", snapshot_name);
}

static const struct backend_snapshots snapshots = { .nr = one_snapshot,
						    .get = get_snapshot,
						    .begin = fake_begin };
static const struct backend ops = { .name = "qcow2", .snapshots = &snapshots };
static struct backend_device node = { .ops = &ops, .name = "disk" };
static const struct device_host host = { .ctl = &ctl, .event = on_event };

static int fresh(void **state)
{
	(void)state;
	memset(&d, 0, sizeof(d));
	backend_owed_begin(&node, NULL);
	d.host = &host;
	d.state = DEVICE_LIVE;
	d.backend = &node;
	d.cdev_fd = -1;
	d.spec.name = "disk";
	events[0] = '\0';
	under_way = NULL;
	begin_ret = 0;
	snapshot_name = "a";
	users = BLOCK_USERS_NONE;
	return 0;
}

static char error[DEVICE_ERROR_BYTES];

static int ask_of(const char *name, enum backend_snapshot_op op, bool force)
{
	const struct device_snapshot_wish wish = { .op = op, .name = name, .force = force };

	error[0] = '\0';
	return device_snapshot(&d, &wish, error, sizeof(error));
}

static int ask(enum backend_snapshot_op op, bool force)
{
	return ask_of("a", op, force);
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
	d.stop_wanted = d.stop_force = true;
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
	d.stop_wanted = d.stop_force = true;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EBUSY);
	d.stop_wanted = false;
	d.flush.busy = true; /* caches come back from a stop that was refused */
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EBUSY);
	d.flush.busy = false;
	node.ops = &plain;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EOPNOTSUPP);
	assert_non_null(strstr(error, "no backend"));
	node.ops = &ops;
	assert_null(under_way);
	assert_string_equal(events, "");
}

static const char *refuse_change_below(const struct backend_device *device,
				       const struct backend_device *child)
{
	assert_ptr_equal(child, device->child);
	return "keeps some of it: drop it";
}

/* Before anybody is asked who has the device open, and whatever --force says. */
static void test_a_node_above_refuses(void **state)
{
	static const struct backend_above above = { .apply = refuse_change_below };
	static const struct backend keeps = { .name = "cache", .above = &above };
	struct backend_device top = { .ops = &keeps, .name = "top", .child = &node };

	(void)state;
	d.backend = &top;
	users = BLOCK_USERS_REAL;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, false), -EOPNOTSUPP);
	assert_string_equal(error, "the node above, top (cache), keeps some of it: drop it");
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, true), -EOPNOTSUPP);
	assert_null(under_way);
	assert_false(d.snapshot.busy);
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	under_way->done(under_way, 0);
	assert_int_equal(ask(BACKEND_SNAPSHOT_DELETE, false), 0);
	under_way->done(under_way, 0);
	assert_string_equal(events, "snapshot snapshot ");
}

/* ---- caches above ---- */

static char asked[200];
static struct backend_cache_job *cache_job;
static int cache_ret;

static int fake_cache_begin(struct backend_device *device, struct backend_cache_job *job)
{
	static const char *const names[] = { [BACKEND_CACHE_YIELD] = "yield",
					     [BACKEND_CACHE_EMPTY] = "empty",
					     [BACKEND_CACHE_BACK] = "back" };

	if (cache_ret < 0) {
		snprintf(job->words, sizeof(job->words), "the cache says no");
		return cache_ret;
	}
	snprintf(asked + strlen(asked), sizeof(asked) - strlen(asked), "%s:%s ", device->name,
		 names[job->op]);
	cache_job = job;
	return 0;
}

static const struct backend_cache_ops fake_cache_ops = { .begin = fake_cache_begin };
static const struct backend cache_node = { .name = "cache",
					   .cache_ops = &fake_cache_ops,
					   .above = &backend_above_passes };
static struct backend_device lower = { .ops = &cache_node, .name = "lower", .child = &node };
static struct backend_device upper = { .ops = &cache_node, .name = "upper", .child = &lower };

static int fresh_caches(void **state)
{
	fresh(state);
	backend_owed_begin(&lower, NULL);
	backend_owed_begin(&upper, NULL);
	d.backend = &upper;
	asked[0] = '\0';
	cache_job = NULL;
	cache_ret = 0;
	return 0;
}

static void cache_answers(int ret)
{
	struct backend_cache_job *job = cache_job;

	assert_non_null(job);
	cache_job = NULL;
	if (ret < 0)
		snprintf(job->words, sizeof(job->words), "the cache fails");
	job->done(job, ret);
}

static void change_answers(int ret)
{
	struct backend_snapshot_change *change = under_way;

	assert_non_null(change);
	under_way = NULL;
	change->done(change, ret);
}

static void expect_end(int err, const char *words)
{
	struct device_snapshot_look look;

	device_snapshot_look(&d, &look);
	assert_false(look.busy);
	assert_int_equal(look.err, err);
	assert_string_equal(look.words, words);
	assert_string_equal(events, "snapshot ");
}

static void test_caches_stand_aside(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	assert_null(under_way);
	cache_answers(0);
	assert_null(under_way);
	cache_answers(0);
	change_answers(0);
	assert_string_equal(events, "");
	cache_answers(0);
	cache_answers(0);
	assert_string_equal(asked, "upper:yield lower:yield lower:back upper:back ");
	expect_end(0, "");
}

static void test_caches_are_emptied(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, true), 0);
	cache_answers(0);
	cache_answers(0);
	change_answers(-EIO);
	cache_answers(0);
	cache_answers(-EIO); /* who cannot come back does not keep the others */
	assert_string_equal(asked, "upper:empty lower:empty lower:back upper:back ");
	expect_end(-EIO, "");
}

static void test_caches_are_not_asked_to_delete(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_DELETE, false), 0);
	change_answers(0);
	assert_string_equal(asked, "");
	expect_end(0, "");
}

/* It would have to fill again for nothing. */
static void test_caches_are_not_emptied_for_none(void **state)
{
	(void)state;
	snapshot_name = "b";
	begin_ret = -ENOENT;
	assert_int_equal(ask(BACKEND_SNAPSHOT_APPLY, true), -ENOENT);
	assert_string_equal(asked, "");
	assert_string_equal(error, "the node says no");
}

static void test_a_cache_refuses(void **state)
{
	(void)state;
	cache_ret = -EBUSY;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), -EBUSY);
	assert_string_equal(error, "the cache says no");
	assert_false(d.snapshot.busy);
	assert_string_equal(events, "");
}

/* Nothing has changed, and those that stand aside come back. */
static void test_a_cache_fails(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	cache_answers(0);
	cache_answers(-EIO);
	assert_null(under_way);
	cache_answers(0);
	assert_string_equal(asked, "upper:yield lower:yield upper:back ");
	expect_end(-EIO, "the cache fails");
}

static void test_the_node_refuses_behind_caches(void **state)
{
	(void)state;
	begin_ret = -EEXIST;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	cache_answers(0);
	cache_answers(0);
	cache_answers(0);
	cache_answers(0);
	assert_string_equal(asked, "upper:yield lower:yield lower:back upper:back ");
	expect_end(-EEXIST, "the node says no");
}

/* That is what a stop asks for; to come back is not given up. */
static void test_a_stop_hurries_caches(void **state)
{
	(void)state;
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	assert_false(cache_job->is_cancelled);
	d.stop_wanted = d.stop_force = true;
	device_go_down(&d);
	assert_true(cache_job->is_cancelled);
	cache_answers(-ECANCELED);
	assert_null(under_way);
	assert_string_equal(asked, "upper:yield ");
	assert_string_equal(events, "snapshot gone ");
}

/* It comes between two caches: the one before has stood aside, the next one is not asked. */
static void stops_between_caches(bool has_failed)
{
	assert_int_equal(ask(BACKEND_SNAPSHOT_CREATE, false), 0);
	d.stop_wanted = d.stop_force = !has_failed;
	d.failed = has_failed;
	device_go_down(&d);
	cache_answers(0);
	assert_null(under_way);
	cache_answers(0);
	assert_string_equal(asked, "upper:yield upper:back ");
	assert_string_equal(d.snapshot.change.words, "the device is being stopped");
	assert_int_equal(d.snapshot.err, -ECANCELED);
	assert_string_equal(events, has_failed ? "snapshot other " : "snapshot gone ");
}

static void test_a_stop_between_two_caches(void **state)
{
	stops_between_caches(false);
	fresh_caches(state);
	stops_between_caches(true);
}

static void test_long_name(void **state)
{
	char name[BACKEND_SNAPSHOT_NAME_BYTES + 1];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[BACKEND_SNAPSHOT_NAME_BYTES] = '\0';
	assert_int_equal(ask_of(name, BACKEND_SNAPSHOT_CREATE, false), -ENAMETOOLONG);
	assert_string_equal(error, "the name has 256 bytes: at most 255 are possible");
	assert_null(under_way);
	assert_int_equal(ask_of(name + 1, BACKEND_SNAPSHOT_CREATE, false), 0);
	under_way->done(under_way, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_it_ends_with_an_event, fresh),
		cmocka_unit_test_setup(test_a_stop_waits_for_it, fresh),
		cmocka_unit_test_setup(test_users_are_asked, fresh),
		cmocka_unit_test_setup(test_what_is_refused, fresh),
		cmocka_unit_test_setup(test_a_node_above_refuses, fresh),
		cmocka_unit_test_setup(test_caches_stand_aside, fresh_caches),
		cmocka_unit_test_setup(test_caches_are_emptied, fresh_caches),
		cmocka_unit_test_setup(test_caches_are_not_asked_to_delete, fresh_caches),
		cmocka_unit_test_setup(test_caches_are_not_emptied_for_none, fresh_caches),
		cmocka_unit_test_setup(test_a_cache_refuses, fresh_caches),
		cmocka_unit_test_setup(test_a_cache_fails, fresh_caches),
		cmocka_unit_test_setup(test_the_node_refuses_behind_caches, fresh_caches),
		cmocka_unit_test_setup(test_a_stop_hurries_caches, fresh_caches),
		cmocka_unit_test_setup(test_a_stop_between_two_caches, fresh_caches),
		cmocka_unit_test_setup(test_long_name, fresh),
	};

	return cmocka_run_group_tests_name("device_snapshot", tests, NULL, NULL);
}
