/*
 * device set: devices that a dead daemon left are removed, in each phase; what the end leaves; what
 * the storage of one that is gone has not; and what is not started over the storage of one that
 * stays.
 */
#define FAKE_PROBES
#include "test/rig/device_set_adopt_rig.h"

static void test_del_while_adopted(void **state)
{
	struct told t;
	struct member *m = adopt("slow");

	(void)state;
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_false(fake_get("slow")->stop_wanted);
	device_set_del(&device_set, m, true);
	assert_true(fake_get("slow")->stop_wanted);
	assert_true(fake_get("slow")->force);
	fake_release("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(state_of("slow"), "none");
	assert_string_equal(note_of("slow"), "none");
}

/* Adopting fails although it was only to be removed: it is kept, and told. */
static void test_del_of_what_cannot_be_adopted(void **state)
{
	struct member *m = adopt("sour");
	struct told t;

	(void)state;
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(state_of("sour"), "failed");
	assert_false(m->stop_when_live);
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(note_of("sour"), "none");
}

static void del_and_gone(struct member *m, bool force)
{
	char name[SETTINGS_NAME_MAX + 1];
	struct told t;

	snprintf(name, sizeof(name), "%s", m->settings->options.name);
	device_set_del(&device_set, m, force);
	watch(&t, m);
	run();
	assert_int_equal(t.nr, 1);
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(state_of(name), "none");
	assert_string_equal(note_of(name), "none");
}

static void test_del_while_it_waits(void **state)
{
	(void)state;
	fake_held_nr = UINT_MAX;
	del_and_gone(adopt("held"), false);
	del_and_gone(adopt("held"), true);
	assert_false(ev_is_active(&device_set.sweep));
}

static void test_del_of_a_failed_one(void **state)
{
	(void)state;
	del_and_gone(adopt_held_for_ever("held"), false);
	del_and_gone(adopt_held_for_ever("held"), true);
}

/* Its device has failed and is not freed yet, or there never was one. */
static void test_del_between_failure_and_sweep(void **state)
{
	struct member *m;

	(void)state;
	for (int force = 0; force < 2; force++) {
		m = adopt("sour");
		until_ended(m);
		del_and_gone(m, force);
		m = adopt("absent");
		assert_true(m->ended);
		del_and_gone(m, force);
	}
}

static void test_reload_between_failure_and_sweep(void **state)
{
	struct member *m = adopt("sour");
	unsigned starts = fake_starts;

	(void)state;
	until_ended(m);
	device_set_del(&device_set, m, false);
	reload("sour");
	run();
	assert_int_equal(fake_starts, starts + 1);
	assert_string_equal(state_of("sour"), "failed");
	assert_string_equal(note_of("sour"), "recovering 5");
}

/* No file wants it: a reload does not take back that it is given up. */
static void test_reload_of_one_that_is_given_up(void **state)
{
	struct member *m = adopt_as("sour", false);
	unsigned starts = fake_starts;

	(void)state;
	until_ended(m);
	device_set_del(&device_set, m, false);
	reload("");
	run();
	assert_int_equal(fake_starts, starts);
	assert_string_equal(state_of("sour"), "none");
	assert_string_equal(note_of("sour"), "none");
}

/* Given up, but somebody has it open: it stays as it was, and by force it goes. */
static void test_discard_refused(void **state)
{
	struct member *m;
	struct told t;

	(void)state;
	m = adopt("slowly-busy");
	fake_plan(fake_get("slowly-busy"), DEVICE_EVENT_FAILED, "the driver says no");
	run();
	assert_string_equal(state_of("slowly-busy"), "failed");
	device_set_del(&device_set, m, false);
	watch(&t, m);
	assert_string_equal(state_of("slowly-busy"), "stopping");
	fake_plan(fake_get("slowly-busy"), DEVICE_EVENT_FAILED, "in use: by the test");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(t.error, "in use: by the test");
	assert_string_equal(state_of("slowly-busy"), "failed");
	assert_string_equal(note_of("slowly-busy"), "recovering 5");
	device_set_del(&device_set, m, true);
	watch(&t, m);
	fake_release("slowly-busy");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(note_of("slowly-busy"), "none");
}

/* A client that asks for it while it is given up gets a new one. */
static void test_reload_while_it_is_discarded(void **state)
{
	struct member *m = adopt("slow");

	(void)state;
	fake_plan(fake_get("slow"), DEVICE_EVENT_FAILED, "the driver says no");
	run();
	device_set_del(&device_set, m, true);
	reload("slow:2");
	run();
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "starting");
	assert_int_equal(fake_get("slow")->spec.id, -1);
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "live");
	assert_false(fake_get("slow")->stop_wanted);
}

/* It goes GONE, and the reload comes before the sweep. */
static void test_reload_between_gone_and_sweep(void **state)
{
	struct member *m = adopt("sour");

	(void)state;
	run();
	device_set_del(&device_set, m, true);
	until_ended(m);
	reload("sour:2");
	run();
	assert_string_equal(state_of("sour"), "failed");
	assert_null(m->past);
}

/* The end of the daemon gives nothing up that it could not adopt. */
static void test_stop_all_leaves_what_is_kept(void **state)
{
	(void)state;
	adopt("sour");
	adopt("a");
	fake_held_nr = UINT_MAX;
	adopt("held");
	run();
	device_set_stop_all(&device_set);
	run();
	assert_int_equal(device_set.member_nr, 0);
	assert_int_equal(fake_nr, 0);
	assert_string_equal(note_of("sour"), "recovering 5");
	assert_string_equal(note_of("held"), "recovering 5");
	assert_string_equal(note_of("a"), "none");
}

static void test_stop_all_while_adopting(void **state)
{
	(void)state;
	adopt("slow");
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	device_set_stop_all(&device_set);
	assert_true(fake_get("slow")->force);
	fake_release("slow");
	run();
	assert_int_equal(device_set.member_nr, 0);
	assert_string_equal(note_of("slow"), "none");
}

static void test_a_loss_is_told(void **state)
{
	struct member *m;
	struct told t;

	(void)state;
	rig_backend = "{type: net, path: lossy}";
	m = add("a", true);
	run();
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_string_equal(state_of("a"), "none");
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_non_null(strstr(t.error, "the device is gone, but its storage has not all"));
}

/* What it is to be next may be served without the rest of its bytes: who reloads again wants it. */
static void test_a_loss_stops_a_reload(void **state)
{
	(void)state;
	rig_backend = "{type: net, path: lossy}";
	add("a", true);
	run();
	rig_backend = "{type: mem, size: 1M}";
	reload("a");
	run();
	assert_string_equal(state_of("a"), "failed");
	assert_non_null(strstr(device_set_find(&device_set, "a")->error, "a: 2 blocks"));
	reload("a");
	run();
	assert_string_equal(state_of("a"), "live");
}

/* ---- over one storage, that nothing locks ---- */

static int storage_setup(void **state)
{
	fake_has_opened = true;
	return setup(state);
}

static int storage_teardown(void **state)
{
	int ret = teardown(state);

	fake_has_opened = false;
	return ret;
}

static void reload_yaml(const char *yaml)
{
	struct config_errors e;
	struct settings s;

	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(&s, yaml, strlen(yaml), &e), 0);
	config_errors_fini(&e);
	device_set_reload(&device_set, &s);
	settings_free(&s);
	run();
}

#define STORAGE(fn) cmocka_unit_test_setup_teardown(fn, storage_setup, storage_teardown)
#define EXPORT(place) "{type: export, path: " place "}"
#define KEEPER(place) "{type: keeper, backend: " EXPORT(place) "}"
#define DEVICE(name, backend) "{name: " name ", backend: " backend "}"

static void check_refused(const char *name, const char *words)
{
	const struct member *m = device_set_find(&device_set, name);

	assert_non_null(m);
	assert_string_equal(member_state_name(m), "failed");
	if (!strstr(m->error, words))
		fail_msg("%s is not in: %s", words, m->error);
}

/* Also when neither keeps anything: who brings the second takes the first for gone. */
static void check_renamed(const char *first, const char *second, const char *third)
{
	reload_yaml(first);
	assert_string_equal(state_of("busy"), "live");
	reload_yaml(second);
	assert_string_equal(state_of("busy"), "live");
	check_refused("b", "device \"busy\", which was to be stopped and is still there");
	reload_yaml(third);
	assert_string_equal(state_of("c"), "live");
	check_refused("b", "(ublkctl del busy)");
	/* It is gone: the next reload starts the other one. */
	device_set_del(&device_set, device_set_find(&device_set, "busy"), true);
	run();
	reload_yaml(second);
	assert_string_equal(state_of("b"), "live");
	assert_string_equal(state_of("c"), "none");
}

static void test_one_that_stays_has_its_storage_alone(void **state)
{
	(void)state;
	check_renamed("[" DEVICE("busy", EXPORT("x")) "]", "[" DEVICE("b", EXPORT("x")) "]",
		      "[" DEVICE("b", EXPORT("x")) "," DEVICE("c", EXPORT("y")) "]");
}

static void test_one_that_stays_and_keeps_some_of_it(void **state)
{
	(void)state;
	check_renamed("[" DEVICE("busy", KEEPER("x")) "]", "[" DEVICE("b", EXPORT("x")) "]",
		      "[" DEVICE("b", EXPORT("x")) "," DEVICE("c", KEEPER("y")) "]");
}

/* It is wanted again: all is as before the reload that could not stop it. */
static void test_one_that_is_wanted_again(void **state)
{
	(void)state;
	reload_yaml("[" DEVICE("busy", EXPORT("x")) "]");
	reload_yaml("[" DEVICE("b", EXPORT("x")) "]");
	check_refused("b", "still there");
	reload_yaml("[" DEVICE("busy", EXPORT("x")) "]");
	reload_yaml("[" DEVICE("busy", EXPORT("x")) "," DEVICE("b", EXPORT("x")) "]");
	assert_string_equal(state_of("b"), "live");
	device_set_del(&device_set, device_set_find(&device_set, "busy"), true);
	run();
}

/* Its stop does not end: what it has under way may still reach its storage. */
static void test_one_that_is_late(void **state)
{
	(void)state;
	reload_yaml("[" DEVICE("slow", EXPORT("x")) "]");
	fake_release("slow");
	run();
	reload_yaml("[" DEVICE("b", EXPORT("x")) "]");
	fake_late("slow");
	run();
	check_refused("b", "still there");
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "none");
	reload_yaml("[" DEVICE("b", EXPORT("x")) "]");
	assert_string_equal(state_of("b"), "live");
}

/* The usual reload: the stop succeeds, and what comes over the same storage starts behind it. */
static void test_one_that_goes(void **state)
{
	(void)state;
	reload_yaml("[" DEVICE("a", KEEPER("x")) "]");
	reload_yaml("[" DEVICE("b", EXPORT("x")) "]");
	assert_string_equal(state_of("a"), "none");
	assert_string_equal(state_of("b"), "live");
	/* As another tree under the same name, too. */
	reload_yaml("[" DEVICE("b", KEEPER("x")) "]");
	assert_string_equal(state_of("b"), "live");
}

/* By hand, as `ublkctl add` and `attach` do. */
static void test_one_that_is_added(void **state)
{
	struct told t;

	(void)state;
	rig_backend = KEEPER("x");
	add("a", false);
	run();
	rig_backend = EXPORT("x");
	watch(&t, add("b", false));
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_non_null(strstr(t.error, "its storage is also that of device \"a\""));
	assert_string_equal(state_of("b"), "none");
}

/* It is adopted first, though it is not configured any more: what is new waits for its end. */
static void test_one_that_is_adopted(void **state)
{
	(void)state;
	adopt("slow");
	run();
	reload("b");
	run();
	assert_string_equal(state_of("slow"), "starting");
	assert_string_equal(state_of("b"), "waiting");
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "stopping");
	assert_string_equal(state_of("b"), "waiting");
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "none");
	assert_string_equal(state_of("b"), "live");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADOPT(test_del_while_adopted),
		ADOPT(test_del_of_what_cannot_be_adopted),
		ADOPT(test_del_while_it_waits),
		ADOPT(test_del_of_a_failed_one),
		ADOPT(test_del_between_failure_and_sweep),
		ADOPT(test_reload_between_failure_and_sweep),
		ADOPT(test_reload_of_one_that_is_given_up),
		ADOPT(test_discard_refused),
		ADOPT(test_reload_while_it_is_discarded),
		ADOPT(test_reload_between_gone_and_sweep),
		ADOPT(test_stop_all_leaves_what_is_kept),
		ADOPT(test_stop_all_while_adopting),
		ADOPT(test_a_loss_is_told),
		ADOPT(test_a_loss_stops_a_reload),
		STORAGE(test_one_that_stays_has_its_storage_alone),
		STORAGE(test_one_that_stays_and_keeps_some_of_it),
		STORAGE(test_one_that_is_wanted_again),
		STORAGE(test_one_that_is_late),
		STORAGE(test_one_that_goes),
		STORAGE(test_one_that_is_added),
		ADOPT(test_one_that_is_adopted),
	};

	return cmocka_run_group_tests_name("device_set_give_up", tests, quiet, end);
}
