/*
 * One stream, and a peer in the same thread at the other end of a real unix socket. Definitions:
 * for one program.
 */
#ifndef TEST_RIG_STREAM_RIG_H
#define TEST_RIG_STREAM_RIG_H

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
#include "net/stream.h"

#define PIECES 8u
#define IN_BYTES 4096u
#define BIG_BYTES MIB(4)

static struct reactor r;
static struct stream s;
static struct iovec pieces[PIECES];
static uint8_t in[IN_BYTES], plain[STREAM_PLAIN_BYTES], *big;
static struct sockaddr_un address;
static int listener, peer;

static struct seen {
	unsigned connected_nr, closed_nr;
	int err;
	char text[256]; /* received, as far as it has room */
	size_t received_bytes, into_bytes;
	/* What to do from within a callback. */
	uint8_t *want_into;
	size_t want_bytes;
	bool close_when_received;
} seen;

static inline void on_connected(struct stream *stream)
{
	assert_ptr_equal(stream, &s);
	seen.connected_nr++;
}

static inline void on_received(struct stream *stream, const uint8_t *data, size_t bytes)
{
	size_t room = sizeof(seen.text) - 1 - MIN(seen.received_bytes, sizeof(seen.text) - 1);

	memcpy(seen.text + sizeof(seen.text) - 1 - room, data, MIN(room, bytes));
	seen.received_bytes += bytes;
	if (seen.close_when_received)
		stream_close(stream, 0);
	else if (seen.want_bytes > 0)
		stream_receive_into(stream, seen.want_into, seen.want_bytes);
	seen.want_bytes = 0;
}

static inline void on_received_into(struct stream *stream, size_t bytes)
{
	(void)stream;
	seen.into_bytes += bytes;
}

static inline void on_sent(struct stream *stream)
{
	assert_true(stream->sent_bytes <= stream->queued_bytes);
}

static inline void on_closed(struct stream *stream, int err)
{
	assert_int_equal(stream->state, STREAM_IDLE);
	seen.closed_nr++;
	seen.err = err;
}

#define UNTIL(cond)                                                                                \
	do {                                                                                       \
		uint64_t until_ = ring_clock_ns() + 20 * NS_PER_SEC;                               \
                                                                                                   \
		while (!(cond)) {                                                                  \
			assert_true(ring_clock_ns() < until_);                                     \
			reactor_turn(&r, false);                                                   \
		}                                                                                  \
	} while (0)

static inline void listen_here(int backlog)
{
	address.sun_family = AF_UNIX;
	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/test_stream.%d", getpid());
	unlink(address.sun_path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, backlog), 0);
}

static inline int setup(void **state)
{
	static const struct stream_ops ops = {
		.connected = on_connected,
		.received = on_received,
		.received_into = on_received_into,
		.sent = on_sent,
		.closed = on_closed,
	};
	struct reactor_params reactor_params = { .sq_entries = 8, .cq_entries = 64 };
	struct stream_params params = { .ops = &ops,
					.send = pieces,
					.send_nr = PIECES,
					.receive = in,
					.receive_bytes = IN_BYTES,
					.plain = plain };

	(void)state;
	seen = (struct seen){ 0 };
	peer = -1;
	big = calloc(2, BIG_BYTES);
	listen_here(4);
	assert_int_equal(reactor_init(&r, &reactor_params), 0);
	assert_int_equal(stream_init(&s, &r, &params), 0);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	stream_close(&s, 0);
	UNTIL(s.state == STREAM_IDLE);
	stream_fini(&s);
	reactor_fini(&r);
	close(listener);
	close(peer);
	unlink(address.sun_path);
	free(big);
	return 0;
}

static inline void begin_connect(void)
{
	assert_int_equal(stream_connect(&s, (struct sockaddr *)&address, sizeof(address)), 0);
}

static inline void connect_peer(void)
{
	begin_connect();
	UNTIL(s.state == STREAM_OPEN);
	peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(peer >= 0);
	assert_int_equal(seen.connected_nr, 1);
}

static inline void expect_closed(int err)
{
	UNTIL(seen.closed_nr > 0);
	assert_int_equal(seen.closed_nr, 1);
	assert_int_equal(seen.err, err);
	assert_int_equal(s.state, STREAM_IDLE);
}

#define STREAM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
