/*
 * Queues that are closed whatever their connections are doing just then: all is freed (case_close,
 * and the leak check of the sanitizer), and soon, whether the target answers or not.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "nvme_case.h"

#define QUEUE "on_disconnect: {queue: 60s}\ntimeout: 30s\n"

/* A second for the answer to the last word, and what a slow machine takes. */
#define CLOSE_MS_MAX 3000

static void expect_close(struct fault_case *c)
{
	uint64_t start_ms = case_now_ms();

	case_close(c);
	EXPECT(case_now_ms() - start_ms <= CLOSE_MS_MAX, "%llu ms",
	       (unsigned long long)(case_now_ms() - start_ms));
}

/* ---- in the bring-up ---- */

struct stage {
	const char *fault, *cmd; /* what is never answered; NULL: a connection */
	unsigned after;
};

static void check_stage(struct fault_case *c, const void *arg)
{
	const struct stage *s = arg;
	char struck[64];

	case_serve(c, "");
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	case_fault(c, s->fault, 8, s->cmd, s->after);
	nvme_peer_tell(&c->peer, "drop");
	snprintf(struck, sizeof(struck), "struck.%s", s->fault);
	if (!case_reaches(c, struck, 1, 60000))
		return;
	case_turn_for(c, 20);
	EXPECT(strcmp(case_look(c, 0).state, "connecting") == 0, "%s", case_look(c, 0).state);
	expect_close(c);
}

/* The answers are in the socket, and nobody has looked at them yet. */
static void check_answers_unread(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	for (unsigned i = 0; i < 60; i++) {
		uint64_t commands;

		if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
			return;
		commands = nvme_peer_count(&c->peer, "commands.set_features");
		nvme_peer_tell(&c->peer, "drop");
		/* The last that is asked on the admin queue: then it is ready, and Connect follows.
		 */
		while (nvme_peer_count(&c->peer, "commands.set_features") < commands + 2)
			reactor_turn(&c->rig.queue[0].reactor, false);
		for (unsigned turn = 0; turn < i % 5; turn++)
			reactor_turn(&c->rig.queue[0].reactor, false);
		nvme_peer_count(&c->peer, "connections");
		expect_close(c);
		if (tap_failed())
			return;
	}
}

/* ---- connecting ---- */

/* A listener that accepts nobody and has no room left: SYNs are not answered. */
static int listen_full(unsigned *ret_port)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 || listen(fd, 0) < 0 ||
	    getsockname(fd, (struct sockaddr *)&name, &bytes) < 0)
		fault_peer_give_up("no listener");
	for (unsigned i = 0; i < 3; i++) {
		int full = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		/* Stays until the end of the process. */
		(void)!connect(full, (struct sockaddr *)&name, sizeof(name));
	}
	*ret_port = ntohs(name.sin_port);
	return fd;
}

static void check_connecting(struct fault_case *c, const void *arg)
{
	char options[200];
	unsigned port;
	int fd = listen_full(&port);

	(void)arg;
	case_serve(c, "");
	snprintf(options, sizeof(options), "paths: 127.0.0.1:%u\n" QUEUE, port);
	if (!case_open(c, options) || !case_connected(c, 0, 1))
		return;
	EXPECT(strcmp(case_look(c, 1).state, "connecting") == 0, "%s", case_look(c, 1).state);
	case_works(c, 10);
	expect_close(c);
	close(fd);
}

/* Before the first turn of its reactor, and in the pause between tries. */
static void check_idle(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	if (!case_open(c, QUEUE))
		return;
	expect_close(c);
	if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
		return;
	nvme_peer_tell(&c->peer, "stop-listening");
	nvme_peer_tell(&c->peer, "drop");
	case_turn_for(c, 200);
	expect_close(c);
}

/* ---- serving ---- */

/* The target is told, and the association is over. */
static void check_served(struct fault_case *c, const void *arg)
{
	uint64_t shutdowns;

	(void)arg;
	case_serve(c, "");
	if (!case_open_blocks(c, QUEUE, 512, 2) || !case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	shutdowns = nvme_peer_count(&c->peer, "shutdowns");
	expect_close(c);
	EXPECT(nvme_peer_count(&c->peer, "shutdowns") == shutdowns + 2, "it was not told");
	case_reaches(c, "shutdowns", shutdowns + 2, 10000);
	for (int i = 0; i < 1000 && nvme_peer_count(&c->peer, "open") > 0; i++)
		usleep(10000);
	EXPECT(nvme_peer_count(&c->peer, "open") == 0, "connections are left");
}

static void check_paused(struct fault_case *c, const void *arg)
{
	case_serve(c, "");
	if (!case_open(c, QUEUE "keep_alive: 1s") || !case_connected(c, 0, 1))
		return;
	case_works(c, 20);
	nvme_peer_tell(&c->peer, "pause");
	case_turn_for(c, *(const unsigned *)arg);
	EXPECT(strcmp(case_look(c, 0).state, "connected") == 0, "%s", case_look(c, 0).state);
	expect_close(c);
}

struct question {
	const char *cmd;
	const char *answer; /* is "unread" when the queue is closed, comes "later", "never" */
};

static void check_question(struct fault_case *c, const void *arg)
{
	const struct question *q = arg;
	char count[64];

	case_serve_ports(c, 1, "ana=1");
	snprintf(count, sizeof(count), "commands.%s", q->cmd);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t asked;

		if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
			return;
		if (strcmp(q->answer, "never") == 0)
			case_fault(c, "stall", 1, q->cmd, 0);
		/* Before that to the shutdown, when the connection is gone. */
		if (strcmp(q->answer, "later") == 0)
			nvme_peer_tell(&c->peer, "set delay_ms=20");
		asked = nvme_peer_count(&c->peer, count);
		nvme_peer_tell(&c->peer, "notify namespace");
		nvme_peer_tell(&c->peer, "notify ana");
		while (nvme_peer_count(&c->peer, count) == asked)
			reactor_turn(&c->rig.queue[0].reactor, false);
		/* What it answers has gone out with this answer at the latest. */
		nvme_peer_count(&c->peer, "connections");
		expect_close(c);
		nvme_peer_tell(&c->peer, "set delay_ms=0");
		if (tap_failed())
			return;
	}
}

/* Events come while the queue is being closed. */
static void check_events(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve_ports(c, 1, "ana=1");
	for (unsigned i = 0; i < 10; i++) {
		if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
			return;
		case_turn_for(c, 20);
		nvme_peer_tell(&c->peer, "notify namespace");
		nvme_peer_tell(&c->peer, "notify ana");
		expect_close(c);
		if (tap_failed())
			return;
	}
}

/* Both connections end, and the queue is closed before it has been told. */
static void check_both_end(struct fault_case *c, const void *arg)
{
	(void)arg;
	case_serve(c, "");
	for (unsigned i = 0; i < 10; i++) {
		if (!case_open(c, QUEUE) || !case_connected(c, 0, 1))
			return;
		nvme_peer_tell(&c->peer, "drop %u", i % 2);
		for (unsigned turn = 0; turn < i / 2; turn++)
			reactor_turn(&c->rig.queue[0].reactor, false);
		expect_close(c);
		if (tap_failed())
			return;
	}
}

void abandon_run(uint64_t seed)
{
	static const struct stage stages[] = {
		{ "icresp_silent", NULL, 0 },	  { "icresp_silent", NULL, 1 },
		{ "stall", "connect", 0 },	  { "stall", "connect", 1 },
		{ "stall", "property_get", 0 },	  { "stall", "property_set", 0 },
		{ "stall", "identify", 0 },	  { "stall", "identify", 3 },
		{ "stall", "set_features", 0 },	  { "stall", "set_features", 1 },
		{ "half_silent", "connect", 0 },  { "half_silent", "connect", 1 },
		{ "half_silent", "identify", 0 },
	};
	static const struct question questions[] = {
		{ "get_log_page", "unread" }, { "get_log_page", "later" },
		{ "get_log_page", "never" },  { "identify", "unread" },
		{ "identify", "later" },      { "identify", "never" },
	};
	static const unsigned pauses[] = { 0, 300, 800 };
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(stages); i++) {
		snprintf(name, sizeof(name), "closed: %s: %s, %u before",
			 stages[i].cmd ? stages[i].cmd : "connection", stages[i].fault,
			 stages[i].after);
		fault_case_run(name, 60, seed, check_stage, &stages[i]);
	}
	fault_case_run("closed: answers of the bring-up are unread", 60, seed, check_answers_unread,
		       NULL);
	fault_case_run("closed: while it connects", 60, seed, check_connecting, NULL);
	fault_case_run("closed: before the first try, and between two", 60, seed, check_idle, NULL);
	fault_case_run("closed: serving", 60, seed, check_served, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(pauses); i++) {
		snprintf(name, sizeof(name), "closed: serving, the target silent for %u ms",
			 pauses[i]);
		fault_case_run(name, 60, seed, check_paused, &pauses[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(questions); i++) {
		snprintf(name, sizeof(name), "closed: a question is under way: %s, %s",
			 questions[i].cmd, questions[i].answer);
		fault_case_run(name, 60, seed, check_question, &questions[i]);
	}
	fault_case_run("closed: events come", 60, seed, check_events, NULL);
	fault_case_run("closed: one of the connections ends", 60, seed, check_both_end, NULL);
}
