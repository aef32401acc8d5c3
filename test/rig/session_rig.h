/*
 * A session with a toy protocol, and its peers in the same thread at the other ends of real unix
 * sockets: what they say, and when they go, is the test's. Definitions: for one program.
 *
 *	hello     "HI" -> "OK", or "NO": refused
 *	request   'r', tag -> 'a', tag: done; 'e', tag: -EIO; 'x', tag: refused, another may do it;
 *	          'g', tag: refused, and the peer goes; 'm', tag: send more -> "more", which is in
 *the same memory for all; 'b', tag: this connection is only a spare one from now on keepalive 'k',
 *0xff -> 'a', 0xff goodbye   "BYE!"
 */
#ifndef TEST_RIG_SESSION_RIG_H
#define TEST_RIG_SESSION_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "net/session.h"

#define TOY_DEPTH 8u
#define TOY_PEERS 2u
#define TOY_OWN 0xffu

struct toy_io {
	struct session_request r;
	uint8_t tag;
	uint8_t said[2];
	unsigned done_nr, asked_nr; /* ends; how often it was asked whether it may be sent again */
	int result;
};

struct toy_connection {
	struct session_connection c;
	struct toy_io own;
	uint8_t in[2];
	unsigned in_nr;
};

struct toy_peer {
	struct net_address address;
	int listener, fd;
	uint8_t got[2];
};

static struct toy {
	struct session s;
	struct toy_io io[TOY_DEPTH];
	struct session_log_limits limits;
	bool over;
	int may_resend;
	unsigned fast; /* bits of those that fail fast, by their index in io */
	unsigned lost_nr, left_nr, memory_nr;
	struct toy_io *again; /* submitted when another one is done */
} toy;

static struct reactor r;
static struct toy_peer peers[TOY_PEERS];
static struct session_params params;
static struct net_addresses addresses;

/* ---- the protocol ---- */

static const struct session_protocol toy_protocol;

static inline struct toy_connection *toy_of(struct session_connection *c)
{
	return container_of(c, struct toy_connection, c);
}

static inline struct toy_io *toy_io_of(struct session_request *request)
{
	return container_of(request, struct toy_io, r);
}

static int toy_init(struct session_connection *c)
{
	struct toy_io *own = &toy_of(c)->own;

	session_request_init(&own->r, 0);
	own->tag = TOY_OWN;
	toy.memory_nr++;
	return 0;
}

static void toy_fini(struct session_connection *c)
{
	(void)c;
	toy.memory_nr--;
}

static void toy_hello(struct session_connection *c)
{
	toy_of(c)->in_nr = 0;
	stream_send(&c->stream, "HI", 2);
}

static size_t toy_hello_received(struct session_connection *c, const uint8_t *data, size_t bytes)
{
	struct toy_connection *conn = toy_of(c);
	size_t used = 0;

	while (used < bytes && conn->in_nr < 2)
		conn->in[conn->in_nr++] = data[used++];
	if (conn->in_nr < 2)
		return used;
	conn->in_nr = 0;
	if (memcmp(conn->in, "OK", 2) == 0)
		session_ready(c);
	else
		session_drop(c, NET_END_REFUSED, "it said %.2s", (const char *)conn->in);
	return used;
}

static const char *toy_hello_doing(const struct session_connection *c)
{
	(void)c;
	return "the toy's hello";
}

static int toy_send(struct session_connection *c, struct session_request *request)
{
	struct toy_io *io = toy_io_of(request);

	io->said[0] = io->tag == TOY_OWN ? 'k' : 'r';
	io->said[1] = io->tag;
	stream_send(&c->stream, io->said, 2);
	return 0;
}

static void toy_take(struct session_connection *c, uint8_t what, uint8_t tag)
{
	struct toy_io *io = tag == TOY_OWN    ? &toy_of(c)->own
			    : tag < TOY_DEPTH ? &toy.io[tag]
					      : NULL;

	if (!io || io->r.connection != c) {
		session_drop(c, NET_END_PROTOCOL, "there is no %u", tag);
		return;
	}
	switch (what) {
	case 'a':
	case 'e':
		session_answer(c, &toy_protocol, &io->r, what == 'a' ? 0 : -EIO);
		break;
	case 'b':
		session_rank_set(c, SESSION_USABLE);
		break;
	case 'g':
		session_retire(c);
		session_refuse(c, &toy_protocol, &io->r);
		break;
	case 'x':
		session_refuse(c, &toy_protocol, &io->r);
		break;
	case 'm':
		stream_send(&c->stream, "more", 4);
		session_sends_more(c, &io->r);
		break;
	default:
		session_drop(c, NET_END_PROTOCOL, "it said %c", what);
	}
}

static void toy_received(struct session_connection *c, const uint8_t *data, size_t bytes)
{
	struct toy_connection *conn = toy_of(c);

	for (size_t i = 0; i < bytes && session_serves(c); i++) {
		conn->in[conn->in_nr++] = data[i];
		if (conn->in_nr < 2)
			continue;
		conn->in_nr = 0;
		toy_take(c, conn->in[0], conn->in[1]);
	}
}

static void toy_left(struct session_connection *c, struct session_request *request)
{
	assert_true(request->answered && session_serves(c));
	toy.left_nr++;
}

static void toy_done(struct session_request *request, int result)
{
	struct toy_io *io = toy_io_of(request), *again = toy.again;

	io->done_nr++;
	io->result = result;
	toy.again = NULL;
	if (again)
		assert_int_equal(session_submit(&toy.s, &toy_protocol, &again->r), 0);
}

static const char *toy_request_name(const struct session_request *request)
{
	(void)request;
	return "toy";
}

static void toy_lost(struct session_connection *c)
{
	(void)c;
	toy.lost_nr++;
}

static int toy_may_resend(struct session_request *request)
{
	toy_io_of(request)->asked_nr++;
	return toy.may_resend;
}

static bool toy_fails_fast(const struct session_request *request)
{
	return toy.fast & 1u << (container_of(request, struct toy_io, r) - toy.io);
}

static bool toy_is_over(const struct session *s)
{
	assert_ptr_equal(s, &toy.s);
	return toy.over;
}

static void toy_keepalive(struct session_connection *c)
{
	struct toy_io *own = &toy_of(c)->own;

	if (own->r.state == SESSION_REQUEST_IDLE)
		assert_int_equal(session_send_own(c, &own->r), 0);
}

static size_t toy_goodbye(struct session_connection *c, uint8_t *buf)
{
	(void)c;
	memcpy(buf, "BYE!", 4);
	return 4;
}

static const struct session_protocol toy_protocol = {
	.connection_bytes = sizeof(struct toy_connection),
	.pieces_nr = 2,
	.connection_init = toy_init,
	.connection_fini = toy_fini,
	.hello = toy_hello,
	.hello_received = toy_hello_received,
	.hello_doing = toy_hello_doing,
	.send = toy_send,
	.received = toy_received,
	.left = toy_left,
	.done = toy_done,
	.request_name = toy_request_name,
	.lost = toy_lost,
	.may_resend = toy_may_resend,
	.fails_fast = toy_fails_fast,
	.is_over = toy_is_over,
	.keepalive = toy_keepalive,
	.goodbye = toy_goodbye,
};

/* ---- time ---- */

#define UNTIL(cond)                                                                                \
	do {                                                                                       \
		uint64_t until_ = ring_clock_ns() + 20 * NS_PER_SEC;                               \
                                                                                                   \
		while (!(cond)) {                                                                  \
			assert_true(ring_clock_ns() < until_);                                     \
			reactor_turn(&r, false);                                                   \
		}                                                                                  \
	} while (0)

static inline void turn_some(void)
{
	for (unsigned i = 0; i < 20; i++)
		reactor_turn(&r, false);
}

/* ---- the peers ---- */

static inline void peer_listen(struct toy_peer *p)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&p->address.name;

	unlink(un->sun_path);
	p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(p->listener, (struct sockaddr *)un, p->address.bytes), 0);
	assert_int_equal(listen(p->listener, 4), 0);
}

static inline void peer_is_down(struct toy_peer *p)
{
	close(p->listener);
	close(p->fd);
	p->listener = p->fd = -1;
}

/* The connection that comes next; its hello is not answered yet. */
static inline void peer_accept(struct toy_peer *p)
{
	uint8_t hi[2];

	if (p->fd >= 0)
		close(p->fd);
	UNTIL((p->fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
	UNTIL(recv(p->fd, hi, 2, MSG_PEEK) == 2);
	assert_int_equal(recv(p->fd, hi, 2, 0), 2);
	assert_memory_equal(hi, "HI", 2);
}

static inline void peer_say(struct toy_peer *p, char what, unsigned tag)
{
	uint8_t said[2] = { (uint8_t)what, (uint8_t)tag };

	assert_int_equal(send(p->fd, said, 2, MSG_NOSIGNAL), 2);
}

/* How many connections serve. */
static inline unsigned serving_nr(void)
{
	return toy.s.ready_nr;
}

static inline void peer_serve(struct toy_peer *p)
{
	unsigned before;

	peer_accept(p);
	before = serving_nr();
	peer_say(p, 'O', 'K');
	UNTIL(serving_nr() == before + 1);
}

static inline void peer_expects(struct toy_peer *p, const char *bytes, size_t nr)
{
	char got[16] = "";

	UNTIL(recv(p->fd, got, nr, MSG_PEEK) == (ssize_t)nr);
	assert_int_equal(recv(p->fd, got, nr, 0), (ssize_t)nr);
	assert_memory_equal(got, bytes, nr);
}

static inline void peer_expects_request(struct toy_peer *p, unsigned tag)
{
	const char said[2] = { 'r', (char)tag };

	peer_expects(p, said, 2);
}

static inline bool peer_hears_nothing(struct toy_peer *p)
{
	char byte;

	turn_some();
	return recv(p->fd, &byte, 1, MSG_PEEK) < 0;
}

/* ---- requests ---- */

static inline int submit(unsigned tag)
{
	return session_submit(&toy.s, &toy_protocol, &toy.io[tag].r);
}

static inline void expect_done(unsigned tag, unsigned nr, int result)
{
	UNTIL(toy.io[tag].done_nr >= nr);
	assert_int_equal(toy.io[tag].done_nr, nr);
	assert_int_equal(toy.io[tag].result, result);
}

static inline struct net_connection_look look(unsigned idx)
{
	struct net_connection_look seen;

	assert_true(session_look(&toy.s, idx, &seen));
	return seen;
}

/* ---- the rig ---- */

/* Two peers that listen; one connection, to the first; nothing ever takes too long. */
static inline int setup(void **state)
{
	struct reactor_params small = { .sq_entries = 32, .cq_entries = 64 };

	(void)state;
	toy = (struct toy){ 0 };
	addresses = (struct net_addresses){ .nr = 1 };
	for (unsigned i = 0; i < TOY_PEERS; i++) {
		struct sockaddr_un *un = (struct sockaddr_un *)&peers[i].address.name;

		peers[i] = (struct toy_peer){ .fd = -1, .address.bytes = sizeof(*un) };
		un->sun_family = AF_UNIX;
		snprintf(un->sun_path, sizeof(un->sun_path), "/tmp/test_session.%d.%u", getpid(),
			 i);
		peer_listen(&peers[i]);
		addresses.address[i] = peers[i].address;
	}
	for (unsigned i = 0; i < TOY_DEPTH; i++) {
		session_request_init(&toy.io[i].r, (uint16_t)i);
		toy.io[i].tag = (uint8_t)i;
	}
	params = (struct session_params){
		.protocol = &toy_protocol,
		.reactor = &r,
		.name = "toy",
		.server = "peers",
		.limits = &toy.limits,
		.addresses = &addresses,
		.connection_nr = 1,
		.depth = TOY_DEPTH,
		.receive_bytes = 64,
		.timeout_ns = 60 * NS_PER_SEC,
		.outage_timeout_ns = 60 * NS_PER_SEC,
	};
	return reactor_init(&r, &small);
}

static inline void begin(void)
{
	assert_int_equal(session_init(&toy.s, &params), 0);
}

static inline int teardown(void **state)
{
	(void)state;
	/* What a test that failed has left. */
	for (unsigned i = 0; i < TOY_DEPTH; i++) {
		session_cancel(&toy.s, &toy.io[i].r);
		UNTIL(toy.io[i].r.state == SESSION_REQUEST_IDLE);
	}
	session_fini(&toy.s);
	reactor_fini(&r);
	for (unsigned i = 0; i < TOY_PEERS; i++) {
		peer_is_down(&peers[i]);
		unlink(((struct sockaddr_un *)&peers[i].address.name)->sun_path);
	}
	return toy.memory_nr == 0 ? 0 : -1;
}

#define SESSION(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
