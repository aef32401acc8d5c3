/* device set: devices that a dead daemon left are adopted; and what stands in their notes at each
 * step.
 */
#include "daemon/api/json_device.h"
#include "test/rig/device_set_adopt_rig.h"

static int say_added(const char *name, char *error)
{
	struct device *d = fake_get(name);

	return host.added(d, host.arg, error, DEVICE_ERROR_BYTES);
}

static void test_notes_of_a_new_device(void **state)
{
	char error[DEVICE_ERROR_BYTES];

	(void)state;
	add("slow", true);
	assert_string_equal(note_of("slow"), "adding -1");
	assert_int_equal(say_added("slow", error), 0);
	assert_string_equal(note_of("slow"), "serving 7");
	fake_release("slow");
	run();
	assert_string_equal(note_of("slow"), "serving 7");
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	run();
	assert_string_equal(note_of("slow"), "serving 7");
	fake_release("slow");
	run();
	assert_string_equal(note_of("slow"), "none");
}

static void test_no_note_of_what_did_not_start(void **state)
{
	(void)state;
	add("absent", true);
	assert_string_equal(note_of("absent"), "none");
	add("sour", true);
	assert_string_equal(note_of("sour"), "adding -1");
	run();
	assert_string_equal(note_of("sour"), "none");
}

/* A note that cannot be written keeps a device from starting: it could never be adopted. */
static void test_no_device_without_a_note(void **state)
{
	struct state none = { .fd = -1, .path = "/nowhere" };
	char error[DEVICE_ERROR_BYTES];
	struct member *m;

	(void)state;
	device_set.state = &none;
	m = add("a", true);
	run();
	assert_string_equal(state_of("a"), "failed");
	assert_string_equal(m->error, "cannot note the device in /nowhere: EBADF");
	assert_int_equal(fake_nr, 0);
	device_set.state = &notes;
	add("slow", true);
	device_set.state = &none;
	assert_int_equal(say_added("slow", error), -EBADF);
	assert_string_equal(error, "cannot note the device in /nowhere: EBADF");
	device_set.state = &notes;
	fake_release("slow");
	run();
}

/* It serves, so it is not undone; it is told, and written when there is room. */
static void test_a_note_that_is_owed(void **state)
{
	struct state none = { .fd = -1, .path = "/nowhere" };
	char error[DEVICE_ERROR_BYTES];
	struct member *m = add("slow", true);

	(void)state;
	assert_int_equal(note_before_change(&device_set, m, error, sizeof(error)), 0);
	device_set.state = &none;
	assert_int_equal(note_before_change(&device_set, m, error, sizeof(error)), -EBADF);
	assert_string_equal(error, "cannot note the device in /nowhere: EBADF");
	assert_false(m->note_owed);
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "live");
	assert_true(m->note_owed && ev_is_active(&device_set.owed));
	device_set.state = &notes;
	state_remove(&notes, "slow");
	ev_invoke(ev, &device_set.owed, EV_TIMER);
	assert_false(m->note_owed || ev_is_active(&device_set.owed));
	assert_string_equal(note_of("slow"), "serving 7");
	/* What is gone owes nothing. */
	device_set.state = &none;
	note_serving(&device_set, m);
	device_set.state = &notes;
	device_set_del(&device_set, m, false);
	fake_release("slow");
	run();
	ev_invoke(ev, &device_set.owed, EV_TIMER);
	assert_false(ev_is_active(&device_set.owed));
	assert_string_equal(note_of("slow"), "none");
}

/* A newer program's note says what the driver has: it is not overwritten. */
static void test_no_device_over_a_note_that_is_unknown(void **state)
{
	char path[128];
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/a.json", folder);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("{\"version\": 2, \"phase\": \"dancing\", \"id\": 3}", f);
	fclose(f);
	add("a", true);
	run();
	assert_string_equal(state_of("a"), "failed");
	assert_non_null(strstr(device_set_find(&device_set, "a")->error, "/a.json cannot be used"));
	assert_string_equal(note_of("a"), "dancing 3");
	device_set_del(&device_set, device_set_find(&device_set, "a"), true);
	run();
	assert_string_equal(note_of("a"), "dancing 3");
	unlink(path);
	add("a", true);
	run();
	assert_string_equal(state_of("a"), "live");
}

static void test_adopted_is_live(void **state)
{
	struct told t;

	(void)state;
	watch(&t, adopt("slow"));
	assert_string_equal(state_of("slow"), "starting");
	assert_string_equal(note_of("slow"), "recovering 5");
	assert_int_equal(fake_get("slow")->spec.id, 5);
	assert_true(fake_get("slow")->adopting);
	fake_release("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_LIVE);
	assert_string_equal(note_of("slow"), "serving 5");
	assert_null(device_set_find(&device_set, "slow")->past);
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	fake_release("slow");
	run();
	assert_string_equal(note_of("slow"), "none");
}

static void test_a_busy_backend_is_tried_again(void **state)
{
	struct told t;

	(void)state;
	fake_held_nr = 3;
	watch(&t, adopt("held"));
	assert_string_equal(state_of("held"), "waiting");
	assert_false(device_set_settled(&device_set));
	run_retries();
	assert_int_equal(fake_held_nr, 0);
	assert_int_equal(t.nr, 1);
	assert_int_equal(t.outcome, DEVICE_SET_LIVE);
	assert_string_equal(note_of("held"), "serving 5");
}

static void test_a_backend_that_stays_busy(void **state)
{
	struct member *m = adopt_held_for_ever("held");
	unsigned starts = fake_starts;

	(void)state;
	assert_string_equal(state_of("held"), "failed");
	assert_string_equal(m->error, "the file is in use");
	assert_true(device_set_settled(&device_set));
	assert_string_equal(note_of("held"), "recovering 5");
	/* The next reload finds it free. */
	fake_held_nr = 0;
	reload("held");
	run();
	assert_string_equal(state_of("held"), "live");
	assert_string_equal(note_of("held"), "serving 5");
	assert_int_equal(fake_starts, starts + 1);
	assert_int_equal(fake_get("held")->spec.id, 5);
}

/* Refused by the driver, or in words before it is asked: its users wait, and its note stays. */
static void test_what_cannot_be_adopted_is_kept(void **state)
{
	struct told t;

	(void)state;
	watch(&t, adopt_as("sour", false));
	adopt_as("absent", false);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(state_of("sour"), "failed");
	assert_string_equal(state_of("absent"), "failed");
	assert_string_equal(device_set_find(&device_set, "sour")->error, "the driver says no");
	assert_string_equal(note_of("sour"), "recovering 5");
	assert_string_equal(note_of("absent"), "recovering 5");
	reload("sour absent");
	run();
	assert_string_equal(state_of("sour"), "failed");
	assert_non_null(device_set_find(&device_set, "sour")->past);
	assert_string_equal(note_of("sour"), "recovering 5");
}

/* A client that waits for it is told which one it is. */
static void test_what_is_kept_has_its_number(void **state)
{
	json_t *line;

	(void)state;
	adopt("absent");
	run();
	line = json_device_line(device_set_find(&device_set, "absent"));
	assert_int_equal(json_integer_value(json_object_get(line, "id")), 5);
	assert_string_equal(json_string_value(json_object_get(line, "path")), "/dev/ublkb5");
	json_decref(line);
}

/* Recovery went wrong so far that the driver removed it: it is started anew, as one of no past. */
static void test_what_is_lost_in_its_recovery(void **state)
{
	(void)state;
	adopt("lost");
	adopt_as("lost2", false);
	run();
	assert_string_equal(state_of("lost"), "failed");
	assert_string_equal(state_of("lost2"), "none");
	assert_string_equal(note_of("lost"), "none");
	reload("lost");
	run();
	assert_string_equal(state_of("lost"), "live");
	assert_int_equal(fake_get("lost")->spec.id, -1);
}

static void test_changed_while_adopted(void **state)
{
	unsigned starts;

	(void)state;
	adopt("slow:1");
	starts = fake_starts;
	reload("slow:2");
	run();
	assert_string_equal(state_of("slow"), "starting");
	assert_false(fake_get("slow")->stop_wanted);
	assert_int_equal(fake_get("slow")->spec.depth, 1);
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "stopping");
	assert_false(fake_get("slow")->force);
	fake_release("slow");
	run();
	assert_int_equal(fake_starts, starts + 1);
	assert_int_equal(fake_get("slow")->spec.depth, 2);
	assert_string_equal(note_of("slow"), "adding -1");
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "live");
}

/* The same when its backend is still busy. */
static void test_changed_while_it_waits(void **state)
{
	unsigned starts = fake_starts;

	(void)state;
	fake_held_nr = 2;
	adopt("held:1");
	reload("held:2");
	run_retries();
	assert_int_equal(fake_starts, starts + 2);
	assert_string_equal(state_of("held"), "live");
	assert_int_equal(fake_get("held")->spec.depth, 2);
	assert_int_equal(device_set_find(&device_set, "held")->settings->options.depth, 2);
}

/* The change may be the cure: it is tried with what is configured now, and stays what it became. */
static void test_changed_and_never_free(void **state)
{
	struct member *m;

	(void)state;
	fake_held_nr = UINT_MAX;
	m = adopt("held:1");
	reload("held:2");
	m->past->until_ns = 0;
	fake_held_nr = 1;
	run_retries();
	assert_string_equal(state_of("held"), "live");
	assert_int_equal(m->settings->options.depth, 2);
	assert_false(m->stop_when_live);
	assert_int_equal(fake_get("held")->spec.id, 5);
}

static void test_change_taken_back(void **state)
{
	unsigned starts;

	(void)state;
	adopt("slow:1");
	starts = fake_starts;
	reload("slow:2");
	reload("slow:1");
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "live");
	assert_int_equal(fake_starts, starts);
	assert_null(device_set_find(&device_set, "slow")->next);
}

static void test_removed_while_adopted(void **state)
{
	struct told t;

	(void)state;
	watch(&t, adopt("slow"));
	reload("");
	run();
	assert_string_equal(state_of("slow"), "starting");
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "stopping");
	assert_int_equal(t.nr, 0);
	fake_release("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(note_of("slow"), "none");
}

static void test_added_by_hand_stays(void **state)
{
	(void)state;
	adopt_as("a", false);
	reload("");
	run();
	assert_string_equal(state_of("a"), "live");
	assert_false(device_set_find(&device_set, "a")->from_file);
}

/* Its storage comes back: a reload tries again what no file names, as what a file does. */
static void test_added_by_hand_is_tried_again(void **state)
{
	struct member *m = adopt_held_for_ever("held");
	unsigned starts = fake_starts;
	struct told t;

	(void)state;
	m->from_file = false;
	fake_held_nr = 0;
	reload("other");
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_LIVE);
	assert_string_equal(state_of("held"), "live");
	assert_string_equal(note_of("held"), "serving 5");
	assert_false(m->from_file);
	assert_int_equal(fake_get("held")->spec.id, 5);
	/* The other one too. */
	assert_int_equal(fake_starts, starts + 2);
	reload("other");
	run();
	assert_int_equal(fake_starts, starts + 2);
}

/* It is not away any more, and still not its own: it is kept, and its users wait. */
static void test_added_by_hand_fails_again(void **state)
{
	struct member *m = adopt_as("sour", false);
	unsigned starts;

	(void)state;
	run();
	starts = fake_starts;
	for (unsigned i = 1; i < 3; i++) {
		reload("");
		run();
		assert_int_equal(fake_starts, starts + i);
		assert_string_equal(state_of("sour"), "failed");
		assert_string_equal(m->error, "the driver says no");
		assert_non_null(m->past);
		assert_string_equal(note_of("sour"), "recovering 5");
	}
}

static void test_removed_and_in_use(void **state)
{
	(void)state;
	adopt("busy");
	reload("");
	run();
	assert_string_equal(state_of("busy"), "live");
	assert_string_equal(note_of("busy"), "serving 5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADOPT(test_notes_of_a_new_device),
		ADOPT(test_no_note_of_what_did_not_start),
		ADOPT(test_no_device_without_a_note),
		ADOPT(test_no_device_over_a_note_that_is_unknown),
		ADOPT(test_a_note_that_is_owed),
		ADOPT(test_adopted_is_live),
		ADOPT(test_a_busy_backend_is_tried_again),
		ADOPT(test_a_backend_that_stays_busy),
		ADOPT(test_what_cannot_be_adopted_is_kept),
		ADOPT(test_what_is_kept_has_its_number),
		ADOPT(test_what_is_lost_in_its_recovery),
		ADOPT(test_changed_while_adopted),
		ADOPT(test_changed_while_it_waits),
		ADOPT(test_changed_and_never_free),
		ADOPT(test_change_taken_back),
		ADOPT(test_removed_while_adopted),
		ADOPT(test_added_by_hand_stays),
		ADOPT(test_added_by_hand_is_tried_again),
		ADOPT(test_added_by_hand_fails_again),
		ADOPT(test_removed_and_in_use),
	};

	return cmocka_run_group_tests_name("device_set_adopt", tests, quiet, end);
}
