/* device_set_resize: devices that change their size while they live, by command and by reload. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "daemon/devices/device_set.h"
#include "test/rig/fake_backends.h"
#include "test/rig/fake_device.h"

static struct device_set device_set;
static struct device_host host;
static struct ev_loop *ev;

struct told {
	struct device_set_watch watch;
	unsigned nr;
	enum device_set_outcome outcome;
	char words[64];
};

static void on_told(struct device_set_watch *watch, enum device_set_outcome outcome,
		    const char *words)
{
	struct told *t = container_of(watch, struct told, watch);

	t->nr++;
	t->outcome = outcome;
	snprintf(t->words, sizeof(t->words), "%s", words);
}

/* Until nothing moves any more but by us. */
static void run(void)
{
	double until = ev_time() + 0.02;

	do {
		ev_run(ev, EVRUN_ONCE | EVRUN_NOWAIT);
	} while (ev_is_active(&device_set.sweep) || fake_pending() || ev_time() < until);
}

/* The file has one device of this size. */
static void reload(const char *name, const char *size, unsigned depth)
{
	struct config_errors e;
	struct settings s;
	char text[256];

	snprintf(text, sizeof(text), "[{name: %s, depth: %u, backend: {type: mem, size: %s}}]",
		 name, depth, size);
	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(&s, text, strlen(text), &e), 0);
	config_errors_fini(&e);
	device_set_reload(&device_set, &s);
	settings_free(&s);
	run();
}

static uint64_t size_of(const char *name)
{
	struct device_info info;

	device_info(device_set_find(&device_set, name)->device, &info);
	return info.size_bytes;
}

static int resize(const char *name, uint64_t bytes, bool force, struct told *t)
{
	struct member *m = device_set_find(&device_set, name);
	int ret;

	*t = (struct told){ .watch.fn = on_told };
	ret = device_set_resize(m, bytes, force, t->words, sizeof(t->words));
	if (ret == 0)
		device_set_watch_resize(m, &t->watch);
	run();
	return ret;
}

static void test_resized_devices_survive_a_reload(void **state)
{
	struct told t;

	(void)state;
	reload("a", "1M", 1);
	assert_int_equal(resize("a", MIB(4), false, &t), 0);
	assert_int_equal(t.nr, 1);
	assert_int_equal(t.outcome, DEVICE_SET_RESIZED);
	reload("a", "1M", 1);
	assert_int_equal(size_of("a"), MIB(4));
	assert_int_equal(fake_starts, 1);
}

static void test_reload_grows(void **state)
{
	(void)state;
	reload("a", "1M", 1);
	reload("a", "2M", 1);
	assert_int_equal(size_of("a"), MIB(2));
	assert_int_equal(fake_starts, 1);
	/* The settings have followed: nothing is left to do. */
	reload("a", "2M", 1);
	assert_int_equal(fake_starts, 1);
	reload("a", "2M", 2);
	assert_int_equal(fake_starts, 2);
}

static void test_reload_to_the_size_it_has(void **state)
{
	struct told t;

	(void)state;
	reload("a", "1M", 1);
	assert_int_equal(resize("a", MIB(4), false, &t), 0);
	reload("a", "4M", 1);
	assert_int_equal(fake_starts, 1);
	/* Now it is the file's own size: smaller again is refused, as before. */
	reload("a", "1M", 1);
	assert_int_equal(size_of("a"), MIB(4));
	assert_int_equal(fake_starts, 1);
}

static void test_reload_does_not_shrink(void **state)
{
	struct told t;

	(void)state;
	reload("a", "1M", 1);
	assert_int_equal(resize("a", MIB(4), false, &t), 0);
	/* Larger than before, smaller than it is. */
	reload("a", "2M", 1);
	assert_int_equal(size_of("a"), MIB(4));
	assert_int_equal(fake_starts, 1);
	assert_int_equal(resize("a", MIB(2), true, &t), 0);
	reload("a", "2M", 1);
	assert_int_equal(size_of("a"), MIB(2));
	assert_int_equal(fake_starts, 1);
}

static void test_reload_restarts_what_cannot(void **state)
{
	(void)state;
	reload("rigid", "1M", 1);
	reload("rigid", "2M", 1);
	assert_int_equal(fake_starts, 2);
}

static void test_reload_restarts_what_differs_in_more(void **state)
{
	(void)state;
	reload("a", "1M", 1);
	reload("a", "2M", 2);
	assert_int_equal(fake_starts, 2);
}

static void test_reload_that_fails_is_tried_again(void **state)
{
	struct told t;

	(void)state;
	reload("tight", "1M", 1);
	reload("tight", "2M", 1);
	assert_int_equal(size_of("tight"), MIB(1));
	assert_int_equal(fake_starts, 1);
	fake_get("tight")->name[0] = 'l';
	reload("tight", "2M", 1);
	assert_int_equal(size_of("tight"), MIB(2));
	assert_int_equal(resize("tight", MIB(1), false, &t), -ENOTEMPTY);
	assert_string_equal(t.words, "there is data");
}

static void test_failure_is_told(void **state)
{
	struct told t;

	(void)state;
	reload("tight", "1M", 1);
	assert_int_equal(resize("tight", MIB(2), false, &t), 0);
	assert_int_equal(t.outcome, DEVICE_SET_REFUSED);
	assert_string_equal(t.words, "there is no room");
}

static void test_only_live_ones(void **state)
{
	struct told t;

	(void)state;
	reload("sour", "1M", 1);
	assert_int_equal(resize("sour", MIB(2), false, &t), -EBUSY);
	assert_string_equal(t.words, "the device is not live: failed");
}

static int setup(void **state)
{
	(void)state;
	device_set_init(&device_set, ev, &host, 10 * NS_PER_SEC);
	fake_starts = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	device_set_stop_all(&device_set);
	run();
	device_set_fini(&device_set);
	return fake_nr == 0 && device_set.member_nr == 0 ? 0 : -1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_resized_devices_survive_a_reload),
		TEST(test_reload_grows),
		TEST(test_reload_to_the_size_it_has),
		TEST(test_reload_does_not_shrink),
		TEST(test_reload_restarts_what_cannot),
		TEST(test_reload_restarts_what_differs_in_more),
		TEST(test_reload_that_fails_is_tried_again),
		TEST(test_failure_is_told),
		TEST(test_only_live_ones),
	};

	log_init(LOG_LEVEL_ERROR);
	ev = ev_default_loop(0);
	return cmocka_run_group_tests_name("device_set_resize", tests, NULL, NULL);
}
