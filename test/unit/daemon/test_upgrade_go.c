/*
 * upgrade: from the hand over on. The old program ends then, or executes itself: each test forks
 * one, which is this program. --again: the program that the old one has become.
 */
#include <sys/mman.h>
#include <sys/un.h>

#include <jansson.h>
#include <poll.h>

#include "daemon/api/commands_internal.h"
#include "test/rig/upgrade_rig.h"

#define AGAIN_EXIT 42 /* of the program that the old one has become */
#define STUCK_SECONDS 200

/* What the old program shows of itself before it ends; shared with the test. */
struct seen {
	bool released;
	unsigned quiesced, abandoned; /* devices, when it had released what it had */
	enum upgrade_phase phase;
	double deadline_seconds; /* left after "go" */
	bool called_off;
};

static struct seen *seen;
static struct ev_timer after_go;
static void (*do_after_go)(void);

/* ---- the old program ---- */

static void see_release(void *arg)
{
	(void)arg;
	seen->released = true;
	seen->phase = up.phase;
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++) {
		seen->quiesced += fake_devices[i] && fake_devices[i]->quiesced;
		seen->abandoned += fake_devices[i] && fake_devices[i]->abandoned;
	}
	socket_stop_listening(&server);
}

static const char *acted_path(void)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/acted", dir);
	return path;
}

/* In a program: until the old one has done what it does after "go". */
#define UNTIL_ACTED "until [ -e acted ]; do sleep .01; done\n"

/* Once, in the turns of the loop that follow. */
static void on_after_go(struct ev_loop *loop, struct ev_timer *w, int events)
{
	static const char *const late[] = { "restless", "cached" };

	(void)events;
	if (up.phase != UPGRADE_HANDED) {
		for (unsigned i = 0; i < ARRAY_SIZE(late) && up.phase == UPGRADE_QUIESCING; i++)
			if (fake_find(late[i]))
				fake_rest(late[i]);
		return;
	}
	ev_timer_stop(loop, w);
	seen->deadline_seconds = ev_timer_remaining(loop, &up.deadline);
	if (do_after_go) {
		do_after_go();
		close(open(acted_path(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
}

/* Forks the old program, in which body takes over. Returns how it ended, as waitpid does. */
static int upgrade_to(const char *body, void (*then)(void))
{
	int status = -1;
	pid_t pid;

	write_program(SCRIPT_HEAD, body, 0700);
	ask_upgrade();
	up.release = see_release;
	do_after_go = then;
	*seen = (struct seen){ 0 };
	pid = fork();
	if (pid == 0) {
		alarm(STUCK_SECONDS);
		ev_loop_fork(ev);
		ev_timer_init(&after_go, on_after_go, .001, .001);
		ev_timer_start(ev, &after_go);
		while (up.phase == UPGRADE_NONE)
			ev_run(ev, EVRUN_ONCE);
		while (up.phase != UPGRADE_NONE)
			ev_run(ev, EVRUN_ONCE);
		_exit(90); /* called off */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unlink(acted_path());
	return status;
}

/* ---- what it has become ---- */

static int write_notes(const char *path)
{
	FILE *out = fopen(path, "we");
	sigset_t pending;

	if (!out)
		return 1;
	sigpending(&pending);
	fprintf(out, "again\nsigterm %d\nfds %u\nsighup %d\n", sigismember(&pending, SIGTERM),
		count_fds() - 1, sigismember(&pending, SIGHUP));
	for (char **variable = environ; *variable; variable++)
		if (strncmp(*variable, "LISTEN_", 7) == 0 || strncmp(*variable, "UBLKD_", 6) == 0)
			fprintf(out, "%s\n", *variable);
	fclose(out);
	return AGAIN_EXIT;
}

/* Of the program, or of the old one: once it is there. */
static void expect_note(const char *words)
{
	double until = ev_time() + WAIT_SECONDS;
	char text[1024] = "";

	while (!strstr(text, words)) {
		int fd = open(notes_path, O_RDONLY | O_CLOEXEC);
		ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

		text[MAX(bytes, 0)] = '\0';
		if (fd >= 0)
			close(fd);
		if (ev_time() > until)
			print_error("# \"%s\" is not in: %s\n", words, text);
		assert_true(ev_time() <= until);
		usleep(1000);
	}
}

/* The answer; the loop is the old program's. */
static json_t *answer(void)
{
	struct pollfd readable = { .fd = peer.fd, .events = POLLIN };
	char text[4096];
	ssize_t bytes;
	json_t *json;

	assert_int_equal(poll(&readable, 1, 60000), 1);
	bytes = recv(peer.fd, text, sizeof(text) - 1, 0);
	assert_true(bytes > 0 && text[bytes - 1] == '\n');
	json = json_loadb(text, (size_t)bytes, 0, NULL);
	assert_non_null(json);
	return json;
}

static void expect_error(const char *words)
{
	json_t *json = answer();
	const char *error = json_string_value(json_object_get(json, "error"));

	assert_true(json_is_false(json_object_get(json, "ok")));
	if (!strstr(error, words))
		print_error("# \"%s\" is not in: %s\n", words, error);
	assert_non_null(strstr(error, words));
	assert_non_null(strstr(error, "the old one takes the devices back"));
	json_decref(json);
}

/* ---- it takes over ---- */

#define DONE "printf 'done 2' >&$end\n"
#define NOTES_PID "echo $$ >notes\n"

static void test_takes_over(void **state)
{
	json_t *json, *data;
	char pid[32];
	int status;

	(void)state;
	add("restless", true);
	run();
	status = upgrade_to(NOTES_PID READY UNTIL_GO "sleep .1\n" DONE, NULL);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_true(seen->released);
	assert_int_equal(seen->phase, UPGRADE_HANDED);
	assert_int_equal(seen->quiesced, 2);
	assert_int_equal(seen->abandoned, 2);
	/* Not what was left for the devices to come to rest. */
	assert_in_range((uintmax_t)seen->deadline_seconds, 10, 75);
	json = answer();
	assert_true(json_is_true(json_object_get(json, "ok")));
	data = json_object_get(json, "data");
	assert_string_equal(json_string_value(json_object_get(data, "version")), "9.9");
	snprintf(pid, sizeof(pid), "%lld\n", json_integer_value(json_object_get(data, "pid")));
	expect_note(pid);
	assert_int_equal(json_integer_value(json_object_get(data, "devices")), 2);
	/* From the quiesce to "done". */
	assert_true(json_real_value(json_object_get(data, "pause_ms")) > 100.);
	assert_true(json_real_value(json_object_get(data, "pause_ms")) < 1000. * STUCK_SECONDS);
	json_decref(json);
}

/* It succeeds, with so many devices. */
static void hand_over(int nr)
{
	int status;

	run();
	status = upgrade_to(NOTES_PID READY UNTIL_GO DONE, NULL);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(seen->quiesced, nr);
	assert_int_equal(seen->abandoned, nr);
	json_decref(answer());
}

/* A device whose requests come to their end by way of another one, which is quiesced too. */
static void test_device_over_a_device(void **state)
{
	(void)state;
	add("leaning", true);
	add("below", true);
	hand_over(3);
}

static void test_writes_a_cache_before(void **state)
{
	(void)state;
	add("cached", true);
	hand_over(2);
}

static void leave(void)
{
	commands_cancel(up.client);
}

/* Nobody is there to be told: it does not wait for that. */
static void test_client_has_left(void **state)
{
	int status = upgrade_to(READY UNTIL_GO UNTIL_ACTED DONE, leave);

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(seen->released);
	status = upgrade_to(READY UNTIL_GO UNTIL_ACTED "exit 5\n", leave);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == AGAIN_EXIT);
}

/* Who is the main process now, for the service manager. */
static void test_tells_the_service_manager(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), status;
	char text[64] = "", expected[64];
	json_t *json;

	(void)state;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", dir);
	assert_int_equal(bind(fd, (void *)&addr, sizeof(addr)), 0);
	setenv("NOTIFY_SOCKET", addr.sun_path, 1);
	status = upgrade_to(READY UNTIL_GO DONE, NULL);
	unsetenv("NOTIFY_SOCKET");
	unlink(addr.sun_path);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(recv(fd, text, sizeof(text) - 1, 0) > 0);
	json = answer();
	snprintf(expected, sizeof(expected), "MAINPID=%lld",
		 json_integer_value(json_object_get(json_object_get(json, "data"), "pid")));
	assert_string_equal(text, expected);
	json_decref(json);
	close(fd);
}

static void ask_to_end(void)
{
	seen->called_off = upgrade_call_off(&up);
}

/* SIGTERM is the new program's now. */
static void test_end_is_passed_on(void **state)
{
	int status =
		upgrade_to("trap 'echo term >notes; exit' TERM\n" READY UNTIL_GO UNTIL_ACTED DONE
			   "for i in {1..2000}; do sleep .01; done\n",
			   ask_to_end);

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(seen->released);
	assert_false(seen->called_off);
	expect_note("term");
}

static void ask_to_reload(void)
{
	seen->called_off = !upgrade_defer_reload(&up);
}

/* Nor is SIGHUP lost: who sent it waits for an answer. */
static void test_reload_is_passed_on(void **state)
{
	int status = upgrade_to("trap 'echo hup >notes; exit' HUP\n" READY UNTIL_GO UNTIL_ACTED DONE
				"for i in {1..2000}; do sleep .01; done\n",
				ask_to_reload);

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_false(seen->called_off);
	expect_note("hup");
}

/* ---- it does not ---- */

static void expect_again(int status, const char *words)
{
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), AGAIN_EXIT);
	assert_true(seen->released);
	assert_int_equal(seen->abandoned, 1);
	expect_error(words);
	expect_note("again\nsigterm 0\nfds 3\n");
	expect_note("LISTEN_FDS=0\n");
}

static void test_dies_after_go(void **state)
{
	(void)state;
	expect_again(upgrade_to(READY UNTIL_GO "exit 5\n", NULL), "exit code 5");
}

static void test_is_killed_after_go(void **state)
{
	(void)state;
	expect_again(upgrade_to(READY UNTIL_GO "kill -KILL $$\n", NULL), "signal 9");
}

static void test_dies_before_it_hears_go(void **state)
{
	(void)state;
	expect_again(upgrade_to("exec 7</dev/null\n" READY "sleep .2\nexit 6\n", NULL),
		     "exit code 6");
}

static void test_says_why_after_go(void **state)
{
	(void)state;
	expect_again(upgrade_to(READY UNTIL_GO "printf 'failed device a: no room' >&$end\n"
					       "read -r -N 1 -u $end word\n",
				NULL),
		     "device a: no room");
}

static void test_is_late(void **state)
{
	(void)state;
	expect_again(upgrade_to(READY UNTIL_GO "read -r -N 1 -u $end word\n", deadline_is_now),
		     "it did not adopt all devices in time");
}

/* It takes the devices back, and then ends as it was asked to. */
static void test_end_is_not_forgotten(void **state)
{
	int status = upgrade_to(READY UNTIL_GO UNTIL_ACTED "exit 5\n", ask_to_end);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), AGAIN_EXIT);
	assert_false(seen->called_off);
	expect_note("again\nsigterm 1\n");
}

static void test_reload_is_not_forgotten(void **state)
{
	int status = upgrade_to(READY UNTIL_GO UNTIL_ACTED "exit 5\n", ask_to_reload);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), AGAIN_EXIT);
	expect_note("again\nsigterm 0\n");
	expect_note("sighup 1\n");
}

static int go_group_setup(void **state)
{
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return seen == MAP_FAILED ? -1 : upgrade_group_setup(state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		UPGRADE(test_takes_over),
		UPGRADE(test_writes_a_cache_before),
		UPGRADE(test_device_over_a_device),
		UPGRADE(test_client_has_left),
		UPGRADE(test_tells_the_service_manager),
		UPGRADE(test_end_is_passed_on),
		UPGRADE(test_reload_is_passed_on),
		UPGRADE(test_dies_after_go),
		UPGRADE(test_is_killed_after_go),
		UPGRADE(test_dies_before_it_hears_go),
		UPGRADE(test_says_why_after_go),
		UPGRADE(test_is_late),
		UPGRADE(test_end_is_not_forgotten),
		UPGRADE(test_reload_is_not_forgotten),
	};

	if (argc == 3 && strcmp(argv[1], "--again") == 0)
		return write_notes(argv[2]);
	return cmocka_run_group_tests_name("upgrade_go", tests, go_group_setup,
					   upgrade_group_teardown);
}
