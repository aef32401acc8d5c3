/* upgrade: what goes wrong before the hand over leaves the old program as it was. */
#include <sys/resource.h>

#include "test/rig/upgrade_rig.h"

#define WAITS "read -r -N 1 -u $end word\n"

/* ---- the new program fails ---- */

static void expect_failure(const char *body, const char *words, unsigned quiesced_nr)
{
	begin(body);
	expect_words(words);
	expect_as_before(quiesced_nr);
	expect_served();
}

static void test_no_program(void **state)
{
	(void)state;
	write_program("", "this is text", 0600);
	ask_upgrade();
	expect_words("it cannot be executed");
	expect_as_before(0);
	unlink(program_path);
	ask_upgrade();
	expect_words("it cannot be executed");
	expect_as_before(0);
	expect_served();
}

/* Left out, it is the program that the daemon was started from. */
static void test_own_program(void **state)
{
	(void)state;
	write_program(SCRIPT_HEAD, "printf 'failed %s' \"$1 $2\" >&$end\n", 0700);
	assert_true(peer_send(&peer, "{\"command\":\"upgrade\"}\n"));
	expect_words(notes_path);
	expect_as_before(0);
}

static void test_ends_at_once(void **state)
{
	(void)state;
	expect_failure("exit 7\n", "it ended with exit code 7; the log says why", 0);
	expect_failure("exit 0\n", "it ended with exit code 0", 0);
	expect_failure("kill -TERM $$\n", "it was killed by signal 15", 0);
}

/* Its reason is not lost when it ends while we do something else. */
static void test_ended_while_we_were_busy(void **state)
{
	siginfo_t info;

	(void)state;
	begin("exit 7\n");
	assert_int_equal(waitid(P_PID, (id_t)up.pid, &info, WEXITED | WNOWAIT), 0);
	expect_words("exit code 7");
	expect_as_before(0);
}

static void test_closes_its_end(void **state)
{
	(void)state;
	expect_failure("eval \"exec $end>&-\"\nkill -STOP $$\n", "it closed the connection", 0);
}

/* What it has no note of it would leave behind. */
static void test_does_not_know_all_devices(void **state)
{
	(void)state;
	add("b", true);
	run();
	expect_failure("printf 'ready 1.2 1' >&$end\n" WAITS,
		       "it has found the notes of 1 devices, but 2 are served; the log says why",
		       0);
	expect_failure("printf 'ready 1.2 0' >&$end\n" WAITS, "the notes of 0 devices", 0);
	/* More, as those that are being started; or not said, as by older programs. */
	begin_until("printf 'ready 1.2 3' >&$end\n" WAITS, UPGRADE_QUIESCING);
	assert_string_equal(up.version, "1.2");
	deadline_is_now();
	expect_words("requests of device");
	begin_until("printf 'ready 1.2' >&$end\n" WAITS, UPGRADE_QUIESCING);
	deadline_is_now();
	expect_words("requests of device");
}

static void test_says_nonsense(void **state)
{
	static const char *const nonsense[] = {
		"hello", "ready", "done 2", "go", "failed", "%s%n"
	};
	char body[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
		snprintf(body, sizeof(body), "printf %%s '%s' >&$end\n" WAITS, nonsense[i]);
		expect_failure(body, "it says what nobody asked for", 0);
	}
}

static void test_says_why(void **state)
{
	(void)state;
	expect_failure("printf 'failed device a: it is \"blue\"' >&$end\n" WAITS,
		       "does not take over: device a: it is \\\"blue\\\"", 0);
	expect_failure("printf 'failed \\xff\\xfe' >&$end\n" WAITS, "does not take over", 0);
}

static void test_is_not_ready_in_time(void **state)
{
	(void)state;
	begin(WAITS);
	assert_true(ev_timer_remaining(ev, &up.deadline) > 20);
	deadline_is_now();
	expect_words("it was not ready in time");
	expect_as_before(0);
}

/* ---- while devices come to rest ---- */

static void test_no_rest(void **state)
{
	(void)state;
	add("restless", true);
	run();
	begin_until(READY WAITS, UPGRADE_QUIESCING);
	assert_true(fake_get("a")->quiesced && fake_get("restless")->quiesced);
	assert_in_range((uintmax_t)ev_timer_remaining(ev, &up.deadline), 0, 5);
	peer_pump_for(.02);
	assert_int_equal(up.phase, UPGRADE_QUIESCING);
	deadline_is_now();
	expect_words("requests of device restless did not come to an end within 5 s");
	expect_as_before(1);
	/* and again, with the same devices */
	begin_until(READY WAITS, UPGRADE_QUIESCING);
	deadline_is_now();
	expect_words("device restless");
	expect_as_before(2);
	expect_served();
}

/* It has writes that would end with this process. */
static void test_a_cache_is_not_written(void **state)
{
	(void)state;
	add("cached", true);
	run();
	begin_until(READY WAITS, UPGRADE_QUIESCING);
	peer_pump_for(.02);
	assert_int_equal(up.phase, UPGRADE_QUIESCING);
	deadline_is_now();
	expect_words("writing the cache of device cached did not come to an end within 5 s");
	expect_as_before(1);
	expect_served();
}

static void test_fails_while_devices_come_to_rest(void **state)
{
	(void)state;
	add("restless", true);
	run();
	expect_failure(READY "exit 3\n", "exit code 3", 1);
	expect_failure(READY "kill -KILL $$\n", "signal 9", 2);
	expect_failure(READY READY WAITS, "nobody asked for", 3);
	expect_failure(READY "printf 'done 2' >&$end\n" WAITS, "nobody asked for", 4);
	expect_failure(READY "printf 'failed no more memory' >&$end\n" WAITS, "no more memory", 5);
}

/* ---- clients ---- */

/* It is noticed when the answer comes. */
static void test_client_leaves(void **state)
{
	(void)state;
	begin(WAITS);
	peer_close(&peer);
	peer_pump_for(.02);
	assert_int_equal(up.phase, UPGRADE_PREPARING);
	deadline_is_now();
	UNTIL(up.phase == UPGRADE_NONE && server.client_nr == 0);
	peer = connect_peer();
	expect_served();
	expect_as_before(0);
}

/* With all others. */
static void test_client_is_dropped(void **state)
{
	(void)state;
	begin(WAITS);
	socket_fini(&server);
	assert_int_equal(up.phase, UPGRADE_PREPARING);
	assert_null(up.client);
	deadline_is_now();
	UNTIL(up.phase == UPGRADE_NONE);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* One that is not the one who asked. */
static void test_another_client_leaves(void **state)
{
	struct peer other = connect_peer();

	(void)state;
	UNTIL(server.client_nr == 2);
	begin(WAITS);
	peer_close(&other);
	UNTIL(server.client_nr == 1);
	assert_non_null(up.client);
	deadline_is_now();
	expect_words("not ready");
	expect_as_before(0);
}

static void test_one_at_a_time(void **state)
{
	struct peer other = connect_peer();
	pid_t pid;

	(void)state;
	begin(WAITS);
	pid = up.pid;
	assert_string_equal(upgrade_begin(&up, NULL, program_path),
			    "an upgrade is under way already");
	assert_true(peer_send(&other, "{\"command\":\"upgrade\"}\n"));
	peer_expect(&other, "{\"ok\":false,\"error\":\"an upgrade is under way; try again\"}");
	assert_int_equal(up.pid, pid);
	assert_non_null(up.client);
	peer_close(&other);
	UNTIL(server.client_nr == 1);
	deadline_is_now();
	expect_words("not ready");
	expect_as_before(0);
}

/* ---- refused ---- */

static void expect_refused(const char *words)
{
	ask_upgrade();
	expect_words(words);
	expect_as_before(0);
}

static void test_other_recovery(void **state)
{
	(void)state;
	fake_flags = UBLK_F_USER_RECOVERY;
	expect_refused("devices with another recovery than reissue");
	fake_flags = 0;
	expect_refused("remove those devices before");
}

static void test_devices_on_their_way(void **state)
{
	(void)state;
	add("slow", true);
	expect_refused("devices are being started or stopped; try again");
	fake_release("slow");
	run();
	device_set_del(&device_set, device_set_find(&device_set, "slow"), false);
	expect_refused("try again");
	fake_release("slow");
	run();
}

static void test_resizing(void **state)
{
	(void)state;
	fake_resizing = true;
	expect_refused("a device is being resized; try again");
	fake_resizing = false;
	fake_cache_look.busy = true;
	expect_refused("a cache of a device is being warmed or dropped; end ublkctl cache, or try "
		       "again");
	fake_cache_look.busy = false;
	fake_shmem_busy = true;
	fake_shmem_end.device = device_set_find(&device_set, "a")->device;
	expect_refused("memory is being shared with a device; try again");
	fake_shmem_busy = false;
}

static void test_closing(void **state)
{
	(void)state;
	device_set.closing = true;
	expect_refused("the daemon is stopping");
	device_set.closing = false;
}

static void test_no_descriptors(void **state)
{
	struct rlimit before, limit;
	int one = dup(0);

	(void)state;
	close(one);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = (rlim_t)one + 1; /* two are needed */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	expect_refused("EMFILE");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- called off ---- */

static void test_call_off(void **state)
{
	(void)state;
	assert_true(upgrade_call_off(&up));
	expect_as_before(0);
	begin(WAITS);
	assert_true(upgrade_call_off(&up));
	expect_words("the daemon is to stop");
	expect_as_before(0);
	add("restless", true);
	run();
	begin_until(READY WAITS, UPGRADE_QUIESCING);
	assert_true(upgrade_call_off(&up));
	expect_words("the daemon is to stop");
	expect_as_before(1);
	assert_true(upgrade_call_off(&up));
}

/* SIGHUP waits for the end of an upgrade, whichever. */
static void test_reload_after_call_off(void **state)
{
	sigset_t hangup, pending;
	int caught;

	(void)state;
	sigemptyset(&hangup);
	sigaddset(&hangup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hangup, NULL);
	assert_false(upgrade_defer_reload(&up));
	begin(WAITS);
	assert_true(upgrade_defer_reload(&up));
	sigpending(&pending);
	assert_false(sigismember(&pending, SIGHUP));
	assert_true(upgrade_call_off(&up));
	expect_words("the daemon is to stop");
	sigpending(&pending);
	assert_true(sigismember(&pending, SIGHUP));
	assert_int_equal(sigwait(&hangup, &caught), 0);
	sigprocmask(SIG_UNBLOCK, &hangup, NULL);
	assert_false(up.reload_wanted);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		UPGRADE(test_no_program),
		UPGRADE(test_own_program),
		UPGRADE(test_ends_at_once),
		UPGRADE(test_ended_while_we_were_busy),
		UPGRADE(test_closes_its_end),
		UPGRADE(test_does_not_know_all_devices),
		UPGRADE(test_says_nonsense),
		UPGRADE(test_says_why),
		UPGRADE(test_is_not_ready_in_time),
		UPGRADE(test_no_rest),
		UPGRADE(test_a_cache_is_not_written),
		UPGRADE(test_fails_while_devices_come_to_rest),
		UPGRADE(test_client_leaves),
		UPGRADE(test_client_is_dropped),
		UPGRADE(test_another_client_leaves),
		UPGRADE(test_one_at_a_time),
		UPGRADE(test_other_recovery),
		UPGRADE(test_devices_on_their_way),
		UPGRADE(test_resizing),
		UPGRADE(test_closing),
		UPGRADE(test_no_descriptors),
		UPGRADE(test_call_off),
		UPGRADE(test_reload_after_call_off),
	};

	/* It has handed over, of which there is no test here, and executes itself. */
	(void)argv;
	if (argc > 1)
		return 1;
	return cmocka_run_group_tests_name("upgrade", tests, upgrade_group_setup,
					   upgrade_group_teardown);
}
