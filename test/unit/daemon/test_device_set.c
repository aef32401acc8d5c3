/* device set: add, remove, reload, stop, with devices that fail, refuse, and take their time. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "daemon/devices/device_set_internal.h"
#include "test/rig/device_set_rig.h"

static void test_add_and_del(void **state)
{
	struct member *m = add("a", false);
	struct told t;

	(void)state;
	watch(&t, m);
	assert_string_equal(state_of("a"), "starting");
	assert_false(device_set_settled(&device_set));
	run();
	assert_int_equal(t.nr, 1);
	assert_int_equal(t.outcome, DEVICE_SET_LIVE);
	assert_string_equal(state_of("a"), "live");
	assert_true(device_set_settled(&device_set));
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_int_equal(device_set.member_nr, 0);
	assert_int_equal(fake_nr, 0);
	assert_int_equal(fake_deadline_ns, 5 * NS_PER_SEC);
}

static void test_failure_at_once(void **state)
{
	struct told t;

	(void)state;
	watch(&t, add("absent", false));
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(t.error, "there is no such file");
	assert_string_equal(state_of("absent"), "none");
}

static void test_failure_later(void **state)
{
	struct told t;

	(void)state;
	watch(&t, add("sour", false));
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(t.error, "the driver says no");
	assert_string_equal(state_of("sour"), "none");
	assert_int_equal(fake_nr, 0);
}

static struct member *add_with_id(const char *name, int64_t id)
{
	struct member *m = add(name, true);

	m->settings->id = id;
	return m;
}

/* Which device has the id, and what to do, instead of an EEXIST. */
static void test_id_is_taken_by_one_of_ours(void **state)
{
	struct told t;

	(void)state;
	add("a", false); /* by hand: its id is 7 */
	run();
	watch(&t, add_with_id("taken", 7));
	run();
	assert_int_equal(t.outcome, DEVICE_SET_FAILED);
	assert_string_equal(device_set_find(&device_set, "taken")->error,
			    "id 7 is taken by device \"a\" of this daemon: choose another id, or "
			    "remove that device (ublkctl del a) and reload");
}

static void test_id_is_taken_by_others(void **state)
{
	char folder[] = "/tmp/test_device_set.XXXXXX", path[64], text[256], expected[256];
	const struct member *m = add_with_id("taken", 8);
	char ready;
	int to_us[2];
	pid_t pid;

	(void)state;
	device_set_explain_id(&device_set, m, "/dev", text, sizeof(text));
	assert_string_equal(text,
			    "id 8 is taken by a device that no process serves: choose another "
			    "id, or remove that device (ublkctl gc 8 --remove) and reload");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/ublkc8", folder);
	assert_int_equal(pipe(to_us), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_NAME, "kublk");
		open(path, O_RDWR | O_CREAT, 0600);
		ready = write(to_us[1], "r", 1) != 1;
		pause();
		_exit(ready);
	}
	assert_int_equal(read(to_us[0], &ready, 1), 1);
	device_set_explain_id(&device_set, m, folder, text, sizeof(text));
	snprintf(expected, sizeof(expected),
		 "id 8 is taken by a device of another ublk server, kublk[%d]: choose another id, "
		 "or "
		 "remove %s/ublkb8 there and reload",
		 (int)pid, folder);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(to_us[0]);
	close(to_us[1]);
	unlink(path);
	rmdir(folder);
	assert_string_equal(text, expected);
	run();
}

/* What the file asks for stays visible; the others live on; it can be deleted. */
static void test_configured_failures_stay(void **state)
{
	struct told t;

	(void)state;
	add("absent", true);
	add("sour", true);
	add("a", true);
	run();
	assert_true(device_set_settled(&device_set));
	assert_string_equal(state_of("absent"), "failed");
	assert_string_equal(state_of("sour"), "failed");
	assert_string_equal(device_set_find(&device_set, "sour")->error, "the driver says no");
	assert_string_equal(state_of("a"), "live");
	device_set_del(&device_set, device_set_find(&device_set, "sour"), false);
	watch(&t, device_set_find(&device_set, "sour"));
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_string_equal(state_of("sour"), "none");
}

static void test_polite_stop_refused_then_forced(void **state)
{
	struct member *m = add("busy", false);
	struct told t;

	(void)state;
	run();
	device_set_del(&device_set, m, false);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_REFUSED);
	assert_string_equal(t.error, "in use: by the test");
	assert_string_equal(state_of("busy"), "live");
	device_set_del(&device_set, m, true);
	watch(&t, m);
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
}

static void test_del_while_starting(void **state)
{
	struct member *m = add("slow", false);
	struct told starter, stopper;

	(void)state;
	watch(&starter, m);
	run();
	device_set_del(&device_set, m, false);
	watch(&stopper, m);
	fake_release("slow");
	run();
	assert_int_equal(starter.outcome, DEVICE_SET_GONE);
	assert_int_equal(stopper.outcome, DEVICE_SET_GONE);
	assert_int_equal(device_set.member_nr, 0);
}

static void test_late_is_told_and_no_longer_waited_for(void **state)
{
	struct told t;

	(void)state;
	watch(&t, add("slow", true));
	run();
	assert_false(device_set_settled(&device_set));
	fake_late("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_LATE);
	assert_string_equal(t.error, "no answer for 30 s");
	assert_true(device_set_settled(&device_set));
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "live");
	device_set_del(&device_set, device_set_find(&device_set, "slow"), true);
	fake_release("slow");
	run();
}

static void test_unwatch(void **state)
{
	struct told t;

	(void)state;
	watch(&t, add("a", false));
	device_set_unwatch(&t.watch);
	run();
	assert_int_equal(t.nr, 0);
}

static void test_reload_adds_removes_leaves(void **state)
{
	unsigned starts;

	(void)state;
	reload("a b");
	run();
	starts = fake_starts;
	reload("b c");
	run();
	assert_string_equal(state_of("a"), "none");
	assert_string_equal(state_of("b"), "live");
	assert_string_equal(state_of("c"), "live");
	assert_int_equal(fake_starts, starts + 1);
	assert_int_equal(fake_nr, 2);
}

static void test_reload_restarts_what_changed(void **state)
{
	unsigned starts;

	(void)state;
	reload("a:1 b:1");
	run();
	starts = fake_starts;
	reload("a:2 b:1");
	run();
	assert_int_equal(fake_starts, starts + 1);
	assert_string_equal(state_of("a"), "live");
	assert_int_equal(fake_get("a")->spec.depth, 2);
	assert_int_equal(device_set_find(&device_set, "a")->settings->options.depth, 2);
}

/* What is new may want what the old ones hold. */
static void test_reload_starts_after_the_stops(void **state)
{
	(void)state;
	reload("slow");
	run();
	fake_release("slow");
	run();
	reload("b");
	run();
	assert_string_equal(state_of("slow"), "stopping");
	assert_string_equal(state_of("b"), "waiting");
	assert_false(device_set_settled(&device_set));
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "none");
	assert_string_equal(state_of("b"), "live");
}

/* Only until the deadline of the old ones. */
static void test_reload_does_not_wait_for_ever(void **state)
{
	(void)state;
	reload("slow");
	run();
	fake_release("slow");
	run();
	reload("b");
	run();
	fake_late("slow");
	run();
	assert_string_equal(state_of("b"), "live");
	assert_true(device_set_settled(&device_set));
	fake_release("slow");
	run();
}

static void test_reload_keeps_what_is_in_use(void **state)
{
	(void)state;
	reload("busy:1");
	run();
	reload("busy:2");
	run();
	assert_string_equal(state_of("busy"), "live");
	assert_int_equal(device_set_find(&device_set, "busy")->settings->options.depth, 1);
	reload("");
	run();
	assert_string_equal(state_of("busy"), "live");
	/* And tries again at the next. */
	device_set_del(&device_set, device_set_find(&device_set, "busy"), true);
	run();
}

static void test_reload_tries_failed_ones_again(void **state)
{
	unsigned starts = fake_starts;

	(void)state;
	reload("sour absent");
	run();
	assert_int_equal(fake_starts, starts + 1);
	reload("sour absent");
	run();
	assert_int_equal(fake_starts, starts + 2);
	assert_string_equal(state_of("sour"), "failed");
	assert_string_equal(state_of("absent"), "failed");
	reload("");
	run();
	assert_int_equal(device_set.member_nr, 0);
}

/* It was on its way up when it was asked to stop, and says so. */
static void test_live_while_stopping(void **state)
{
	struct told t;

	(void)state;
	device_set_del(&device_set, add("slow", false), false);
	watch(&t, device_set_find(&device_set, "slow"));
	fake_plan(fake_get("slow"), DEVICE_EVENT_LIVE, "");
	run();
	assert_int_equal(t.nr, 0);
	assert_string_equal(state_of("slow"), "stopping");
	fake_release("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
}

/* Its device has failed a moment ago and is not freed yet: there is nothing to stop. */
static void test_reload_between_failure_and_sweep(void **state)
{
	unsigned starts;

	(void)state;
	add("sour", true);
	starts = fake_starts;
	while (device_state(fake_get("sour")) != DEVICE_FAILED)
		ev_run(ev, EVRUN_ONCE);
	assert_true(device_set_find(&device_set, "sour")->ended);
	reload("sour");
	run();
	assert_string_equal(state_of("sour"), "failed");
	assert_int_equal(fake_starts, starts + 1);
}

/* A failure that the sweep has not seen yet. */
static void test_reload_right_after_a_failure(void **state)
{
	(void)state;
	reload("absent");
	run();
	add("absent2", true);
	reload("absent absent2");
	reload("absent absent2");
	run();
	assert_string_equal(state_of("absent2"), "failed");
	reload("");
	run();
	assert_int_equal(device_set.member_nr, 0);
}

static void test_reload_leaves_added_ones_alone(void **state)
{
	(void)state;
	add("mine", false);
	run();
	reload("a");
	run();
	assert_string_equal(state_of("mine"), "live");
	/* Once the file has it, it is the file's. */
	reload("a mine:1");
	run();
	assert_string_equal(state_of("mine"), "live");
	reload("a");
	run();
	assert_string_equal(state_of("mine"), "none");
}

static void test_reload_twice_at_once(void **state)
{
	(void)state;
	reload("a:1 b:1");
	reload("a:2 c:1");
	reload("a:3 d:1");
	run();
	assert_int_equal(fake_get("a")->spec.depth, 3);
	assert_string_equal(state_of("b"), "none");
	assert_string_equal(state_of("c"), "none");
	assert_string_equal(state_of("d"), "live");
	assert_int_equal(fake_nr, 2);
}

static void test_reload_while_restarting(void **state)
{
	(void)state;
	reload("slow:1");
	run();
	fake_release("slow");
	run();
	reload("slow:2");
	run();
	reload("slow:3");
	run();
	fake_release("slow");
	run();
	assert_int_equal(fake_get("slow")->spec.depth, 3);
	fake_release("slow");
	run();
	assert_string_equal(state_of("slow"), "live");
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	fake_release("slow");
	run();
}

static void test_del_ends_a_restart(void **state)
{
	struct told t;

	(void)state;
	reload("slow:1");
	run();
	fake_release("slow");
	run();
	reload("slow:2");
	run();
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	watch(&t, device_set_find(&device_set, "slow"));
	fake_release("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_int_equal(device_set.member_nr, 0);
}

/* A device that dies while live is told as failed, and a reload cures it. */
static void test_failure_of_a_live_device(void **state)
{
	(void)state;
	reload("a");
	run();
	fake_plan(fake_get("a"), DEVICE_EVENT_FAILED, "stopped by somebody else");
	run();
	assert_string_equal(state_of("a"), "failed");
	reload("a");
	run();
	assert_string_equal(state_of("a"), "live");
}

static void test_stop_all(void **state)
{
	(void)state;
	reload("a busy sour absent slow");
	run();
	reload("a busy sour absent slow new");
	device_set_stop_all(&device_set);
	run();
	assert_int_equal(device_set.member_nr, 1);
	fake_release("slow");
	run();
	assert_int_equal(device_set.member_nr, 0);
	assert_int_equal(fake_nr, 0);
	reload("a");
	run();
	assert_int_equal(device_set.member_nr, 0);
}

static void test_stop_all_makes_polite_stops_forced(void **state)
{
	struct told t;

	(void)state;
	add("slow", false);
	fake_release("slow");
	run();
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	watch(&t, device_set_find(&device_set, "slow"));
	device_set_stop_all(&device_set);
	assert_true(fake_get("slow")->force);
	fake_release("slow");
	run();
	assert_int_equal(t.outcome, DEVICE_SET_GONE);
	assert_int_equal(device_set.member_nr, 0);
}

static void test_changes_are_told(void **state)
{
	(void)state;
	device_set_check(&device_set);
	run();
	assert_true(changes_nr > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_add_and_del),
		TEST(test_failure_at_once),
		TEST(test_failure_later),
		TEST(test_id_is_taken_by_one_of_ours),
		TEST(test_id_is_taken_by_others),
		TEST(test_configured_failures_stay),
		TEST(test_polite_stop_refused_then_forced),
		TEST(test_del_while_starting),
		TEST(test_late_is_told_and_no_longer_waited_for),
		TEST(test_unwatch),
		TEST(test_reload_adds_removes_leaves),
		TEST(test_reload_restarts_what_changed),
		TEST(test_reload_starts_after_the_stops),
		TEST(test_reload_does_not_wait_for_ever),
		TEST(test_reload_keeps_what_is_in_use),
		TEST(test_reload_tries_failed_ones_again),
		TEST(test_live_while_stopping),
		TEST(test_reload_between_failure_and_sweep),
		TEST(test_reload_right_after_a_failure),
		TEST(test_reload_leaves_added_ones_alone),
		TEST(test_reload_twice_at_once),
		TEST(test_reload_while_restarting),
		TEST(test_del_ends_a_restart),
		TEST(test_failure_of_a_live_device),
		TEST(test_stop_all),
		TEST(test_stop_all_makes_polite_stops_forced),
		TEST(test_changes_are_told),
	};

	return cmocka_run_group_tests_name("device_set", tests, quiet, end);
}
