/*
 * The old program's side of an upgrade. Main thread; owns the child until it has taken over.
 *
 * Happy path: spawn -> "ready" -> every device quiesced -> all quiet -> reactors and devices given
 * up -> "go" -> "done" -> the client is answered, this process ends.
 *
 * A device may be below another one of ours: an NBD server stands on it, or a loop device. While
 * the lower one is quiesced, requests of the upper one do not complete. Which device is above which
 * is not known: when a device is not quiet soon, the quiet ones are resumed until it is; then they
 * are quiesced again, and it stays quiesced, so that it sends them no more requests.
 *
 * Failure modes: until "go" everything can be undone: the devices are resumed, the child is killed,
 * the client is told. After "go" the devices are in the driver's hands: when the new program fails
 * or is late, this process executes itself again and adopts them, as after a crash.
 */
#include "daemon/handover/upgrade.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/socket/answer.h"
#include "daemon/runtime/notify.h"
#include "daemon/handover/successor.h"
#include "daemon/wire/json_words.h"

/* A program that is not ready by then never will be. */
#define PREPARE_SECONDS 30.
/* Devices are resumed if requests of a slow backend take longer. */
#define QUIESCE_SECONDS 5.
/* A device that takes longer may be waiting for one that is quiesced. */
#define STALL_NS (250 * NS_PER_MS)
#define ADOPT_SECONDS 75. /* device_recover gives up before */
#define LOOK_SECONDS .0002
#define ANSWER_SECONDS 1.

/* ---- the child ---- */

static void say_ended(int status, char *words, size_t bytes)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == SUCCESSOR_NO_PROGRAM)
		snprintf(words, bytes, "it cannot be executed");
	else if (WIFEXITED(status))
		snprintf(words, bytes, "it ended with exit code %d; the log says why",
			 WEXITSTATUS(status));
	else
		snprintf(words, bytes, "it was killed by signal %d", WTERMSIG(status));
}

static void stop_listening(struct upgrade *u)
{
	ev_io_stop(u->ev, &u->readable);
	ev_timer_stop(u->ev, &u->deadline);
	ev_timer_stop(u->ev, &u->look);
	close(u->socket);
}

/* It may be ending by itself, with a reason. False: it goes on. */
static bool ends_by_itself(const struct upgrade *u, int *ret_status)
{
	pid_t pid = 0;

	for (int i = 0; pid == 0 && i < 100; i++) {
		pid = waitpid(u->pid, ret_status, WNOHANG);
		if (pid == 0)
			usleep(1000);
	}
	return pid == u->pid;
}

/* words: how it ended, unless something else is known; may be NULL. */
static void end_child(struct upgrade *u, char *words, size_t bytes)
{
	int status;

	stop_listening(u);
	if (words && ends_by_itself(u, &status)) {
		say_ended(status, words, bytes);
		return;
	}
	if (words)
		snprintf(words, bytes, "it closed the connection");
	kill(u->pid, SIGKILL);
	waitpid(u->pid, NULL, 0);
}

/* ---- answers ---- */

static void upgrade_answer(struct upgrade *u, json_t *data, const char *error)
{
	if (u->client && data)
		socket_answer(u->client, data);
	else if (u->client)
		socket_refuse(u->client, error, NULL);
	u->client = NULL;
}

/* Only ends the sleep: a timer that has fired is not active any more. */
static void on_answers_late(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)ev, (void)w, (void)events;
}

static bool is_answering(const struct upgrade *u)
{
	list_for_each (node, &u->server->clients)
		if (list_entry(node, struct socket_client, node)->state == CLIENT_WRITING)
			return true;
	return false;
}

/* This process is about to end: its last answers must be sent before. */
static void flush_answers(struct upgrade *u)
{
	struct ev_timer late;

	ev_timer_init(&late, on_answers_late, ANSWER_SECONDS, 0.);
	ev_timer_start(u->ev, &late);
	while (is_answering(u) && ev_is_active(&late))
		ev_run(u->ev, EVRUN_ONCE);
	ev_timer_stop(u->ev, &late);
}

/* ---- devices ---- */

static void quiesce_member(struct member *m, bool on)
{
	if (m->state == MEMBER_LIVE && m->quiesced != on) {
		device_quiesce(m->device, on);
		m->quiesced = on;
	}
}

/*
 * The first that is quiesced and has requests under way, or writes that would end with this
 * process, or NULL. All are asked: what they do for it they do at the same time.
 */
static const struct member *find_busy(const struct upgrade *u)
{
	const struct member *busy = NULL;

	list_for_each (node, &u->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->quiesced && !(device_quiet(m->device) && device_settle(m->device)) && !busy)
			busy = m;
	}
	return busy;
}

/* Quiesces all: those that are quiesced already stay so from now on. */
static void quiesce_round(struct upgrade *u)
{
	list_for_each (node, &u->device_set->members) {
		struct member *m = list_entry(node, struct member, node);

		m->settled = m->quiesced;
		quiesce_member(m, true);
	}
	u->stalled_ns = ring_clock_ns() + STALL_NS;
}

/* Resumes those that are quiet, except those for which others were resumed before. */
static void resume_quiet(struct upgrade *u)
{
	list_for_each (node, &u->device_set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->quiesced && !m->settled && device_quiet(m->device))
			quiesce_member(m, false);
	}
	u->stalled_ns = ring_clock_ns() + STALL_NS;
}

/* Whether the reactors of all resumed devices know of it: only then they can be quiesced again. */
static bool are_resumed_known(const struct upgrade *u)
{
	list_for_each (node, &u->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->state == MEMBER_LIVE && !m->quiesced && device_quiet(m->device))
			return false;
	}
	return true;
}

static bool has_resumed(const struct upgrade *u)
{
	list_for_each (node, &u->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->state == MEMBER_LIVE && !m->quiesced)
			return true;
	}
	return false;
}

static void abandon_all(struct upgrade *u)
{
	reactors_abandon(u->reactors);
	list_for_each (node, &u->device_set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->state == MEMBER_LIVE)
			device_abandon(m->device);
	}
}

/* ---- ends ---- */

static void pass_reload_to(struct upgrade *u, pid_t pid)
{
	if (u->reload_wanted)
		kill(pid, SIGHUP);
	u->reload_wanted = false;
}

/* Before "go": everything is undone. */
static void call_off(struct upgrade *u, const char *why)
{
	char words[STANDBY_MESSAGE_BYTES + 64];

	log_error("upgrade was called off", "reason=\"%s\"", why);
	if (u->phase == UPGRADE_QUIESCING)
		list_for_each (node, &u->device_set->members)
			quiesce_member(list_entry(node, struct member, node), false);
	u->phase = UPGRADE_NONE;
	snprintf(words, sizeof(words), "the new program does not take over: %s", why);
	upgrade_answer(u, NULL, words);
	pass_reload_to(u, getpid());
}

/*
 * SIGTERM and SIGHUP that came after the hand over, or come from now on, are for the next program:
 * blocked signals stay pending over an exec, and a daemon unblocks them when it can handle them.
 */
static void pass_signals(struct upgrade *u)
{
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGHUP);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	ev_run(u->ev, EVRUN_NOWAIT); /* what libev has caught already */
	if (u->end_wanted)
		kill(getpid(), SIGTERM);
	pass_reload_to(u, getpid());
}

/* After "go": the devices are adopted by us again, as after a crash. */
static void take_back(struct upgrade *u, const char *why)
{
	char words[STANDBY_MESSAGE_BYTES + 128];
	int ret;

	log_error("upgrade failed, this program takes its devices back", "reason=\"%s\"", why);
	snprintf(words, sizeof(words),
		 "the new program failed after the hand over: %s; the old one takes the devices "
		 "back",
		 why);
	upgrade_answer(u, NULL, words);
	flush_answers(u);
	pass_signals(u);
	ret = successor_become(u->argv, u->fd_store);
	/* UNTESTED: our own program cannot be executed any more. */
	log_error("cannot execute ourselves; the next start adopts the devices", "error=%s",
		  errname(ret));
	_exit(1);
}

static void upgrade_fail(struct upgrade *u, const char *why)
{
	char words[STANDBY_MESSAGE_BYTES];

	end_child(u, why ? NULL : words, sizeof(words));
	if (!why)
		why = words;
	if (u->phase == UPGRADE_HANDED)
		take_back(u, why);
	else
		call_off(u, why);
}

_Noreturn static void succeed(struct upgrade *u, unsigned devices)
{
	double pause_ms = (double)(ring_clock_ns() - u->quiesce_ns) / NS_PER_MS;
	char message[64];

	stop_listening(u);
	log_info("upgraded", "version=%s pid=%d devices=%u pause_ms=%.1f", u->version, (int)u->pid,
		 devices, pause_ms);
	snprintf(message, sizeof(message), "MAINPID=%d", (int)u->pid);
	notify_send(message);
	upgrade_answer(u,
		       json_pack("{s:o, s:i, s:i, s:f}", "version", json_words(u->version), "pid",
				 (int)u->pid, "devices", (int)devices, "pause_ms", pause_ms),
		       NULL);
	flush_answers(u);
	if (u->end_wanted)
		kill(u->pid, SIGTERM);
	pass_reload_to(u, u->pid);
	_exit(0);
}

/* ---- steps ---- */

static void upgrade_hand_over(struct upgrade *u)
{
	ev_timer_stop(u->ev, &u->look);
	u->phase = UPGRADE_HANDED;
	abandon_all(u);
	u->release(u->arg);
	ev_timer_stop(u->ev, &u->deadline);
	ev_timer_set(&u->deadline, ADOPT_SECONDS, 0.);
	ev_timer_start(u->ev, &u->deadline);
	/* Should it have ended, we hear of it as of any other end. */
	send(u->socket, "go", 2, MSG_NOSIGNAL);
}

static void on_upgrade_look(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct upgrade *u = container_of(w, struct upgrade, look);

	(void)ev, (void)events;
	if (find_busy(u)) {
		if (ring_clock_ns() >= u->stalled_ns)
			resume_quiet(u);
	} else if (!has_resumed(u)) {
		upgrade_hand_over(u);
	} else if (are_resumed_known(u)) {
		quiesce_round(u);
	}
}

static void quiesce(struct upgrade *u)
{
	ev_timer_stop(u->ev, &u->deadline);
	u->phase = UPGRADE_QUIESCING;
	u->quiesce_ns = ring_clock_ns();
	quiesce_round(u);
	ev_timer_set(&u->deadline, QUIESCE_SECONDS, 0.);
	ev_timer_start(u->ev, &u->deadline);
	ev_timer_set(&u->look, LOOK_SECONDS, LOOK_SECONDS);
	ev_timer_start(u->ev, &u->look);
}

/* Devices that it has not found would have no server. */
static void is_ready(struct upgrade *u, const char *text)
{
	size_t len = strcspn(text, " ");
	unsigned live_nr = 0, noted_nr;
	char words[128];

	snprintf(u->version, sizeof(u->version), "%.*s", (int)MIN(len, 63u), text);
	list_for_each (node, &u->device_set->members)
		live_nr += list_entry(node, struct member, node)->state == MEMBER_LIVE;
	if (sscanf(text + len, "%u", &noted_nr) != 1 || noted_nr >= live_nr) {
		quiesce(u);
		return;
	}
	snprintf(words, sizeof(words),
		 "it has found the notes of %u devices, but %u are served; the log says why",
		 noted_nr, live_nr);
	upgrade_fail(u, words);
}

static void on_message(struct upgrade *u, const char *text)
{
	if (strncmp(text, "ready ", 6) == 0 && u->phase == UPGRADE_PREPARING)
		is_ready(u, text + 6);
	else if (strncmp(text, "done ", 5) == 0 && u->phase == UPGRADE_HANDED)
		succeed(u, (unsigned)strtoul(text + 5, NULL, 10));
	else if (strncmp(text, "failed ", 7) == 0)
		upgrade_fail(u, text + 7);
	else
		upgrade_fail(u, "it says what nobody asked for");
}

static void on_successor_readable(struct ev_loop *ev, struct ev_io *w, int events)
{
	struct upgrade *u = container_of(w, struct upgrade, readable);
	char text[STANDBY_MESSAGE_BYTES];
	ssize_t bytes = recv(u->socket, text, sizeof(text) - 1, 0);

	(void)ev, (void)events;
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		upgrade_fail(u, NULL);
		return;
	}
	text[bytes] = '\0';
	on_message(u, text);
}

static void on_upgrade_deadline(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct upgrade *u = container_of(w, struct upgrade, deadline);
	char words[128] = "it was not ready in time";
	const struct member *busy;

	(void)ev, (void)events;
	if (u->phase == UPGRADE_QUIESCING) {
		busy = find_busy(u);
		snprintf(words, sizeof(words),
			 "%s of device %s did not come to an end within %.0f s",
			 busy && device_quiet(busy->device) ? "writing the cache" : "requests",
			 busy ? busy->settings->options.name : "?", QUIESCE_SECONDS);
	} else if (u->phase == UPGRADE_HANDED) {
		snprintf(words, sizeof(words), "it did not adopt all devices in time");
	}
	upgrade_fail(u, words);
}

/* ---- the beginning ---- */

/*
 * Seen on 6.12 under load: once in some ten upgrades one request is neither given to the next
 * server nor ended, and with it the device is stuck until the machine is started anew. Where the
 * process dies (and not only its rings) that was never seen.
 */
static bool is_old_driver(const struct upgrade *u)
{
	return u->device_set->member_nr > 0 && !ctl_notices_end(u->device_set->host->ctl);
}

static bool is_unprivileged(const struct upgrade *u)
{
	const struct ctl *ctl = u->device_set->host->ctl;

	return u->device_set->member_nr > 0 && ctl && ctl->unprivileged;
}

/* NULL: all devices can change hands now. */
static const char *unfit(const struct upgrade *u)
{
	struct device_info info;

	if (u->device_set->closing)
		return "the daemon is stopping";
	if (is_unprivileged(u))
		return "the devices of a daemon without CAP_SYS_ADMIN end with it: stop using "
		       "them, and start the new program instead";
	if (is_old_driver(u))
		return "the driver is older than Linux 6.16 and can lose a request when a living "
		       "server hands it over; kill -9 the daemon and start the new program: it "
		       "adopts the devices, their requests only wait";
	if (!device_set_settled(u->device_set))
		return "devices are being started or stopped; try again";
	list_for_each (node, &u->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->device && !m->ended && device_state(m->device) == DEVICE_FLUSHING)
			return "a device is being flushed, and then stopped; try again";
		if (m->state != MEMBER_LIVE)
			continue;
		device_info(m->device, &info);
		if (!(info.flags & UBLK_F_USER_RECOVERY_REISSUE))
			return "requests of devices with another recovery than reissue would fail; "
			       "remove those devices before";
		if (info.resizing)
			return "a device is being resized; try again";
		if (device_shmem_busy(m->device))
			return "memory is being shared with a device; try again";
		if (info.changes_snapshot)
			return "a snapshot of a device is being changed; try again";
		if (info.has_cache_command)
			return "a cache of a device is being warmed or dropped; end ublkctl cache, "
			       "or try again";
	}
	return NULL;
}

/* Under its own name: the next upgrade, and tools such as ps, take that for its file. */
static int upgrade_spawn(struct upgrade *u, const char *path)
{
	char *own_name = u->argv[0];
	int ret;

	u->argv[0] = (char *)(uintptr_t)path;
	ret = successor_spawn(path, u->argv, u->fd_store, u->lock_fd, &u->pid, &u->socket);
	u->argv[0] = own_name;
	return ret;
}

const char *upgrade_begin(struct upgrade *u, struct socket_client *client, const char *path)
{
	const char *why = u->phase == UPGRADE_NONE ? unfit(u) : "an upgrade is under way already";
	int ret;

	if (why)
		return why;
	path = path ? path : u->program;
	ret = upgrade_spawn(u, path);
	if (ret < 0)
		return errname(ret);
	log_info("upgrade begins", "program=\"%s\" pid=%d", path, (int)u->pid);
	u->phase = UPGRADE_PREPARING;
	u->client = client;
	ev_io_init(&u->readable, on_successor_readable, u->socket, EV_READ);
	ev_io_start(u->ev, &u->readable);
	ev_timer_init(&u->look, on_upgrade_look, 0., 0.);
	ev_timer_init(&u->deadline, on_upgrade_deadline, PREPARE_SECONDS, 0.);
	ev_timer_start(u->ev, &u->deadline);
	return NULL;
}

void upgrade_forget(struct upgrade *u, const struct socket_client *client)
{
	if (u->client == client)
		u->client = NULL;
}

bool upgrade_call_off(struct upgrade *u)
{
	if (u->phase == UPGRADE_HANDED) {
		u->end_wanted = true;
		return false;
	}
	if (u->phase != UPGRADE_NONE)
		upgrade_fail(u, "the daemon is to stop");
	return true;
}

bool upgrade_defer_reload(struct upgrade *u)
{
	u->reload_wanted = u->phase != UPGRADE_NONE;
	return u->reload_wanted;
}
