/* device set: devices that a dead daemon left are removed, in each phase; what the
 * end leaves; and what the storage of one that is gone has not. */
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
	};

	return cmocka_run_group_tests_name("device_set_give_up", tests, quiet, end);
}
