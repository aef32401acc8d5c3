/*
 * A daemon that can be upgraded: fake devices, the real control socket, one client, and new
 * programs that are shell scripts. Definitions: for one program.
 */
#ifndef TEST_RIG_UPGRADE_RIG_H
#define TEST_RIG_UPGRADE_RIG_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/api/commands.h"
#include "daemon/handover/upgrade.h"
#include "test/rig/device_set_rig.h"
#include "test/rig/socket_check.h"
#include "ublk/ublk_abi.h"

#define WAIT_SECONDS 60.

/* What a script begins with, before it says a word; and how it waits until it is killed. */
#define SCRIPT_HEAD "#!/bin/bash\ncd \"${0%/*}\"\nread -r end lock <<<\"$UBLKD_STANDBY\"\n"
#define READY "printf 'ready 9.9' >&$end\n"
#define UNTIL_GO "read -r -N 1 -u $end word; [ \"$word\" = g ] || exit 1\n"

static char dir[] = "/tmp/test_upgrade.XXXXXX";
static char socket_path[64], program_path[64], notes_path[64];
static char own_name[] = "ublkd", own_option[] = "--again";
static char *own_argv[] = { own_name, own_option, notes_path, NULL };
static struct upgrade up;
static struct commands commands;
static struct socket_server server;
static struct reactors reactors;
static struct fd_store fd_store;
static struct peer peer;
static unsigned fds_before;

static inline unsigned count_fds(void)
{
	unsigned nr = 0;

	for (int fd = 0; fd < 1024; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

/* Not the new program's: its end must be seen. */
static inline struct peer connect_peer(void)
{
	struct peer p = peer_connect(socket_path);

	fcntl(p.fd, F_SETFD, FD_CLOEXEC);
	return p;
}

/* Turns the loop until cond, or fails the test. */
#define UNTIL(cond)                                                                                \
	do {                                                                                       \
		double until_ = ev_time() + WAIT_SECONDS;                                          \
		while (!(cond)) {                                                                  \
			assert_true(ev_time() < until_);                                           \
			peer_pump();                                                               \
		}                                                                                  \
	} while (0)

static inline void write_program(const char *head, const char *body, mode_t mode)
{
	FILE *file = fopen(program_path, "we");

	assert_non_null(file);
	fputs(head, file);
	fputs(body, file);
	fclose(file);
	chmod(program_path, mode);
}

/* Without turning the loop: which process is to be upgraded is the test's. */
static inline void ask_upgrade(void)
{
	char request[160];
	int bytes = snprintf(request, sizeof(request),
			     "{\"command\":\"upgrade\",\"path\":\"%s\"}\n", program_path);
	assert_int_equal(send(peer.fd, request, (size_t)bytes, MSG_NOSIGNAL), bytes);
}

/* body: of the new program. */
static inline void begin(const char *body)
{
	write_program(SCRIPT_HEAD, body, 0700);
	ask_upgrade();
	UNTIL(up.phase != UPGRADE_NONE);
}

static inline void begin_until(const char *body, enum upgrade_phase phase)
{
	begin(body);
	UNTIL(up.phase == phase);
}

/* What would take seconds. */
static inline void deadline_is_now(void)
{
	ev_timer_stop(ev, &up.deadline);
	ev_timer_set(&up.deadline, 0., 0.);
	ev_timer_start(ev, &up.deadline);
}

static inline void expect_words(const char *words)
{
	char *line = peer_line(&peer);

	assert_non_null(line);
	assert_non_null(strstr(line, "\"ok\":false"));
	if (!strstr(line, words))
		print_error("# \"%s\" is not in: %s\n", words, line);
	assert_non_null(strstr(line, words));
	free(line);
}

/* As if nothing had been, but devices were quiesced so often. */
static inline void expect_as_before(unsigned quiesced_nr)
{
	assert_int_equal(up.phase, UPGRADE_NONE);
	assert_null(up.client);
	assert_false(ev_is_active(&up.deadline) || ev_is_active(&up.look) ||
		     ev_is_active(&up.readable));
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(count_fds(), fds_before);
	list_for_each (node, &device_set.members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->state != MEMBER_LIVE)
			continue;
		assert_int_equal(m->device->quiesced_nr, quiesced_nr);
		assert_false(m->device->quiesced);
		assert_false(m->device->abandoned);
	}
}

static inline void expect_served(void)
{
	assert_true(peer_send(&peer, "{\"command\":\"version\"}\n"));
	peer_expect(&peer, "{\"ok\":true,\"data\":{\"version\":\"" UBLKD_VERSION "\"}}");
}

static inline void on_release(void *arg)
{
	(void)arg;
}

static inline int upgrade_setup(void **state)
{
	setup(state);
	peer_loop = ev;
	/* As loop_init does it. */
	signal(SIGCHLD, SIG_DFL);
	fake_flags = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE;
	commands = (struct commands){ .ev = ev,
				      .device_set = &device_set,
				      .reactors = &reactors,
				      .upgrade = &up,
				      .answer_seconds = 60 };
	up = (struct upgrade){ .ev = ev,
			       .device_set = &device_set,
			       .reactors = &reactors,
			       .fd_store = &fd_store,
			       .server = &server,
			       .lock_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			       .argv = own_argv,
			       .program = program_path,
			       .release = on_release };
	server = (struct socket_server){ 0 };
	commands_attach(&commands, &server);
	if (socket_bind(&server, ev, socket_path) < 0 || socket_listen(&server) < 0)
		return -1;
	peer = connect_peer();
	add("a", true);
	add("absent", true);
	run();
	expect_served();
	fds_before = count_fds();
	return 0;
}

static inline int upgrade_teardown(void **state)
{
	/* Of a test that failed. */
	if (up.phase != UPGRADE_NONE)
		upgrade_call_off(&up);
	peer_close(&peer);
	socket_fini(&server);
	close(up.lock_fd);
	unlink(program_path);
	unlink(notes_path);
	return teardown(state);
}

/*
 * What a daemon makes of signals is not the caller's to say: under nohup SIGHUP would be ignored by
 * all that is started here, and a shell cannot trap what it was started without.
 */
static inline void inherit_nothing(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
}

static inline int upgrade_group_setup(void **state)
{
	(void)state;
	/* What fails here does so on purpose, and the client is told. */
	log_init(LOG_LEVEL_ERROR);
	signal(SIGPIPE, SIG_IGN);
	inherit_nothing();
	for (int fd = 3; fd < 1024; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (!mkdtemp(dir))
		return -1;
	snprintf(socket_path, sizeof(socket_path), "%s/socket", dir);
	snprintf(program_path, sizeof(program_path), "%s/program", dir);
	snprintf(notes_path, sizeof(notes_path), "%s/notes", dir);
	return 0;
}

static inline int upgrade_group_teardown(void **state)
{
	end(state);
	return rmdir(dir);
}

#define UPGRADE(fn) cmocka_unit_test_setup_teardown(fn, upgrade_setup, upgrade_teardown)

#endif
