/* stream: connecting, sending, receiving, closing at any moment, a codec on the way. */
#include <errno.h>
#include <netinet/in.h>

#include "test/rig/stream_rig.h"

static void test_refused(void **state)
{
	(void)state;
	close(listener);
	begin_connect();
	expect_closed(-ECONNREFUSED);
	assert_int_equal(seen.connected_nr, 0);
}

/* A listener that accepts nobody: no waiting, no spinning. */
static void test_full_backlog(void **state)
{
	int fd[16];
	unsigned nr = 0;

	(void)state;
	close(listener);
	listen_here(0);
	do {
		fd[nr] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	} while (connect(fd[nr], (struct sockaddr *)&address, sizeof(address)) == 0 && ++nr < 15);
	assert_int_equal(errno, EAGAIN);
	begin_connect();
	expect_closed(-EAGAIN);
	for (unsigned i = 0; i <= nr; i++)
		close(fd[i]);
}

/* An address that answers nothing: TCP tries for minutes, we do not. */
static void test_closed_while_it_connects(void **state)
{
	struct sockaddr_in nowhere = { .sin_family = AF_INET, .sin_port = htons(9) };
	int full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd[8];
	socklen_t bytes = sizeof(nowhere);

	(void)state;
	nowhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	nowhere.sin_port = 0;
	assert_int_equal(bind(full, (struct sockaddr *)&nowhere, bytes), 0);
	assert_int_equal(listen(full, 0), 0);
	getsockname(full, (struct sockaddr *)&nowhere, &bytes);
	for (unsigned i = 0; i < ARRAY_SIZE(fd); i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		connect(fd[i], (struct sockaddr *)&nowhere, bytes);
	}
	assert_int_equal(stream_connect(&s, (struct sockaddr *)&nowhere, bytes), 0);
	for (unsigned i = 0; i < 10; i++)
		reactor_turn(&r, false);
	assert_int_equal(s.state, STREAM_CONNECTING);
	stream_close(&s, -ETIMEDOUT);
	assert_int_equal(seen.closed_nr, 0);
	expect_closed(-ETIMEDOUT);
	for (unsigned i = 0; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
	close(full);
}

/* Between stream_connect and the turn that tells. */
static void test_closed_at_once(void **state)
{
	(void)state;
	begin_connect();
	stream_close(&s, -EINTR);
	expect_closed(-EINTR);
	assert_int_equal(seen.connected_nr, 0);
}

/* The pieces of a turn arrive as one message, in order; the memory comes back. */
static void test_gathers(void **state)
{
	char text[64] = "";

	(void)state;
	connect_peer();
	stream_send(&s, "one ", 4);
	stream_send(&s, "two ", 4);
	stream_send(&s, "three", 5);
	assert_int_equal(stream_send_room(&s), PIECES - 3);
	assert_int_equal(s.sent_bytes, 0);
	UNTIL(s.sent_bytes == s.queued_bytes);
	assert_int_equal(s.queued_bytes, 13);
	assert_int_equal(stream_send_room(&s), PIECES);
	assert_int_equal(recv(peer, text, sizeof(text), 0), 13);
	assert_string_equal(text, "one two three");
}

/* What stands behind each other goes as one piece, whatever of it is sent by then. */
static void test_lengthens(void **state)
{
	static const char words[] = "one two three";
	char text[64] = "";

	(void)state;
	connect_peer();
	stream_send(&s, words, 4);
	stream_send(&s, words + 4, 4);
	assert_int_equal(stream_send_room(&s), PIECES - 1);
	assert_int_equal(s.queued_bytes, 8);
	UNTIL(s.sent_bytes == 8);
	stream_send(&s, words + 8, 5);
	UNTIL(s.sent_bytes == 13);
	assert_int_equal(recv(peer, text, sizeof(text), 0), 13);
	assert_string_equal(text, words);
}

/* Through a socket that takes a part at a time; what is to be sent is in `copies` places by turns.
 */
static void send_much(unsigned copies)
{
	uint64_t wanted = 0, got = 0;
	uint8_t buf[10000];
	unsigned copy = 0;

	for (size_t i = 0; i < 2 * BIG_BYTES; i++)
		big[i] = (uint8_t)(i % BIG_BYTES * 7 + (i % BIG_BYTES >> 8));
	connect_peer();
	while (got < 3 * BIG_BYTES) {
		ssize_t bytes;

		while (wanted < 3 * BIG_BYTES && stream_send_room(&s) > 0) {
			size_t at = wanted % BIG_BYTES;
			size_t piece = MIN((size_t)333333, BIG_BYTES - at);

			stream_send(&s, big + copy++ % copies * BIG_BYTES + at, piece);
			wanted += piece;
		}
		reactor_turn(&r, false);
		bytes = recv(peer, buf, sizeof(buf), 0);
		for (ssize_t i = 0; i < bytes; i++)
			if (buf[i] != big[(got + (size_t)i) % BIG_BYTES])
				fail_msg("wrong at %llu", (unsigned long long)got);
		got += (uint64_t)MAX(bytes, (ssize_t)0);
	}
	UNTIL(s.sent_bytes == wanted);
	assert_int_equal(s.wire_sent_bytes, wanted);
}

/* Round and round the ring of pieces. */
static void test_sends_much(void **state)
{
	(void)state;
	send_much(2);
}

/* Pieces grow while they are being sent. */
static void test_sends_much_in_a_row(void **state)
{
	(void)state;
	send_much(1);
}

/* A head by the stream's memory, its body straight to its place, the next head behind it. */
static void test_receives_into(void **state)
{
	(void)state;
	connect_peer();
	seen.want_into = big;
	seen.want_bytes = 10;
	assert_int_equal(send(peer, "head", 4, 0), 4);
	UNTIL(seen.received_bytes == 4);
	assert_int_equal(send(peer, "01234", 5, 0), 5);
	UNTIL(seen.into_bytes == 5);
	assert_int_equal(send(peer, "56789next", 9, 0), 9);
	UNTIL(seen.received_bytes == 8);
	assert_int_equal(seen.into_bytes, 10);
	assert_memory_equal(big, "0123456789", 11);
	assert_string_equal(seen.text, "headnext");
}

static void test_limit(void **state)
{
	(void)state;
	connect_peer();
	stream_receive_limit(&s, 3);
	memset(big, 'x', 100);
	assert_int_equal(send(peer, big, 100, 0), 100);
	/* One receive was under way already, with all the room there is. */
	UNTIL(seen.received_bytes == 100);
	seen.received_bytes = 0;
	assert_int_equal(send(peer, big, 10, 0), 10);
	UNTIL(seen.received_bytes > 0);
	assert_int_equal(seen.received_bytes, 3);
	UNTIL(seen.received_bytes == 10);
}

static void test_peer_goes(void **state)
{
	(void)state;
	connect_peer();
	assert_int_equal(send(peer, "last", 4, 0), 4);
	close(peer);
	peer = -1;
	expect_closed(-ECONNRESET);
	assert_string_equal(seen.text, "last");
}

/* What is in flight ends first: a send that the peer does not take, and the receive. */
static void test_closed_in_the_middle(void **state)
{
	(void)state;
	connect_peer();
	for (unsigned i = 0; i < PIECES; i++)
		stream_send(&s, big, BIG_BYTES);
	for (unsigned i = 0; i < 10; i++)
		reactor_turn(&r, false);
	assert_true(s.sent_bytes < s.queued_bytes);
	assert_true(op_inflight(&s.send_op) && op_inflight(&s.receive_op));
	stream_close(&s, -EPROTO);
	assert_int_equal(seen.closed_nr, 0);
	stream_close(&s, -EIO);
	expect_closed(-EPROTO);
	assert_false(op_inflight(&s.send_op) || op_inflight(&s.receive_op));
}

/* SQEs that the kernel does not take: those who want one wait. */
static bool sq_is_full;

struct io_uring_sqe *__real_op_sqe_slow(struct op *op);
struct io_uring_sqe *__wrap_op_sqe_slow(struct op *op);

struct io_uring_sqe *__wrap_op_sqe_slow(struct op *op)
{
	return sq_is_full ? NULL : __real_op_sqe_slow(op);
}

/* No SQE is left from here on; those that fill the SQ do nothing. */
static void fill_sq(void)
{
	struct io_uring_sqe *sqe;

	while ((sqe = io_uring_get_sqe(&r.ring.uring))) {
		io_uring_prep_nop(sqe);
		sqe->user_data = 0;
	}
	sq_is_full = true;
}

static struct task close_task;

static void close_now(struct task *task)
{
	(void)task;
	assert_int_equal(s.receive_op.state, OP_PARKED);
	assert_int_equal(s.send_op.state, OP_PARKED);
	stream_close(&s, -EPROTO);
	assert_int_equal(s.receive_op.state, OP_IDLE);
	assert_int_equal(s.send_op.state, OP_IDLE);
	sq_is_full = false;
}

/* The next receive finds no SQE, nor does what is to be sent; later in the turn it is closed. */
static void on_received_full(struct stream *stream, const uint8_t *data, size_t bytes)
{
	on_received(stream, data, bytes);
	stream_send(stream, "answer", 6);
	fill_sq();
	reactor_at_turn_end(&r, &close_task, close_now);
}

/* What waits for an SQE must not be submitted on a descriptor that is another's by then. */
static void test_closed_while_parked(void **state)
{
	struct stream_ops ops = *s.ops;
	const struct stream_ops *before = s.ops;

	(void)state;
	connect_peer();
	ops.received = on_received_full;
	s.ops = &ops;
	assert_int_equal(send(peer, "go", 2, 0), 2);
	expect_closed(-EPROTO);
	s.ops = before;
	assert_int_equal(s.receive_op.state, OP_IDLE);
	/* The next life has its ops to itself. */
	close(peer);
	seen = (struct seen){ 0 };
	connect_peer();
	assert_int_equal(send(peer, "hello", 5, 0), 5);
	UNTIL(seen.received_bytes == 5);
	assert_string_equal(seen.text, "hello");
}

/* The cancel of what is in flight finds no SQE: it goes when there is one. */
static void test_closed_with_a_full_sq(void **state)
{
	(void)state;
	connect_peer();
	for (unsigned i = 0; i < PIECES; i++)
		stream_send(&s, big, BIG_BYTES);
	UNTIL(op_inflight(&s.send_op) && op_inflight(&s.receive_op));
	fill_sq();
	stream_close(&s, -EPROTO);
	sq_is_full = false;
	assert_int_equal(s.cancel_op.state, OP_PARKED);
	assert_int_equal(seen.closed_nr, 0);
	expect_closed(-EPROTO);
	assert_false(op_inflight(&s.send_op) || op_inflight(&s.receive_op));
}

static void test_closed_from_a_callback(void **state)
{
	(void)state;
	connect_peer();
	seen.close_when_received = true;
	assert_int_equal(send(peer, "go", 2, 0), 2);
	expect_closed(0);
	assert_int_equal(seen.received_bytes, 2);
}

/* Nothing of the first life is left in the second. */
static void test_again(void **state)
{
	(void)state;
	connect_peer();
	stream_send(&s, big, BIG_BYTES);
	reactor_turn(&r, false);
	stream_close(&s, 0);
	expect_closed(0);
	close(peer);
	seen = (struct seen){ 0 };
	connect_peer();
	assert_int_equal(s.queued_bytes, 0);
	assert_int_equal(stream_send_room(&s), PIECES);
	assert_int_equal(send(peer, "hello", 5, 0), 5);
	UNTIL(seen.received_bytes == 5);
	assert_string_equal(seen.text, "hello");
}

/* What the peer gets until the end; the stream is finished meanwhile. */
static size_t get_until_end(uint8_t *buf, size_t room)
{
	size_t got = 0;
	ssize_t nr;

	do {
		reactor_turn(&r, false);
		nr = recv(peer, buf + got, room - got, 0);
		got += nr > 0 ? (size_t)nr : 0;
		assert_true(nr >= 0 || errno == EAGAIN);
	} while (nr != 0);
	return got;
}

/* All of it goes out, through a socket that takes a part at a time. */
static void test_finish(void **state)
{
	(void)state;
	connect_peer();
	memset(big, 7, BIG_BYTES);
	stream_send(&s, big, BIG_BYTES);
	stream_finish(&s);
	for (unsigned i = 0; i < 10; i++)
		reactor_turn(&r, false);
	assert_int_equal(seen.closed_nr, 0);
	assert_true(get_until_end(big + BIG_BYTES, BIG_BYTES) == BIG_BYTES);
	assert_memory_equal(big, big + BIG_BYTES, BIG_BYTES);
	expect_closed(0);
}

static void test_finish_of_nothing(void **state)
{
	(void)state;
	connect_peer();
	stream_finish(&s);
	assert_int_equal(seen.closed_nr, 0);
	expect_closed(0);
}

/* The peer says a last word and is gone, before what it is told is on its way. */
static void say_and_go(void)
{
	connect_peer();
	stream_send(&s, "to nobody", 9);
	assert_int_equal(send(peer, "so long", 7, 0), 7);
	close(peer);
}

static void test_hears_out(void **state)
{
	(void)state;
	s.hear_out = true;
	say_and_go();
	expect_closed(-ECONNRESET);
	assert_string_equal(seen.text, "so long");
	assert_int_equal(s.sent_bytes, 0);
}

/* Who has finished does not wait for the peer's end, whenever it turns out that nobody hears. */
static void finish_unheard(bool at_once)
{
	s.hear_out = true;
	connect_peer();
	assert_int_equal(shutdown(peer, SHUT_RD), 0);
	stream_send(&s, "to nobody", 9);
	for (unsigned i = 0; !at_once && i < 10; i++)
		reactor_turn(&r, false);
	assert_int_equal(seen.closed_nr, 0);
	stream_finish(&s);
	expect_closed(at_once ? -EPIPE : 0);
}

static void test_finish_unheard(void **state)
{
	(void)state;
	finish_unheard(false);
}

static void test_finish_unheard_at_once(void **state)
{
	(void)state;
	finish_unheard(true);
}

/* ---- a codec that turns bits over, with little room ---- */

static struct {
	uint8_t out[5], fed[7];
	size_t out_bytes, fed_bytes;
} codec;

static size_t codec_feed(void *session, const uint8_t *wire, size_t bytes)
{
	size_t taken = MIN(bytes, sizeof(codec.fed) - codec.fed_bytes);

	(void)session;
	memcpy(codec.fed + codec.fed_bytes, wire, taken);
	codec.fed_bytes += taken;
	return taken;
}

static ssize_t codec_read(void *session, void *buf, size_t bytes)
{
	size_t nr = MIN(bytes, codec.fed_bytes);

	(void)session;
	if (nr == 0)
		return -EAGAIN;
	for (size_t i = 0; i < nr; i++)
		((uint8_t *)buf)[i] = (uint8_t)~codec.fed[i];
	codec.fed_bytes = 0;
	return (ssize_t)nr;
}

static ssize_t codec_write(void *session, const struct iovec *iov, unsigned nr)
{
	ssize_t taken = 0;

	(void)session;
	for (unsigned i = 0; i < nr; i++)
		for (size_t k = 0; k < iov[i].iov_len; k++, taken++) {
			if (codec.out_bytes == sizeof(codec.out))
				return taken;
			codec.out[codec.out_bytes++] = (uint8_t) ~((uint8_t *)iov[i].iov_base)[k];
		}
	return taken;
}

static size_t codec_output(const void *session, const uint8_t **ret_data)
{
	(void)session;
	*ret_data = codec.out;
	return codec.out_bytes;
}

static void codec_sent(void *session, size_t bytes)
{
	(void)session;
	assert_true(bytes <= codec.out_bytes);
	memmove(codec.out, codec.out + bytes, codec.out_bytes - bytes);
	codec.out_bytes -= bytes;
}

static const struct stream_codec turn_over = { .feed = codec_feed,
					       .read = codec_read,
					       .write = codec_write,
					       .output = codec_output,
					       .sent = codec_sent };

static void test_codec(void **state)
{
	uint8_t wire[64], text[] = "what is said here has more than one piece";
	size_t bytes = sizeof(text) - 1, got = 0;

	(void)state;
	codec.out_bytes = codec.fed_bytes = 0;
	connect_peer();
	stream_secure(&s, &turn_over, NULL);
	stream_send(&s, text, 8);
	stream_send(&s, text + 8, bytes - 8);
	while (got < bytes) {
		ssize_t nr;

		reactor_turn(&r, false);
		nr = recv(peer, wire + got, sizeof(wire) - got, 0);
		got += nr > 0 ? (size_t)nr : 0;
	}
	UNTIL(s.sent_bytes == bytes);
	assert_int_equal(send(peer, wire, bytes, 0), (ssize_t)bytes);
	UNTIL(seen.received_bytes == bytes);
	assert_string_equal(seen.text, (char *)text);
	assert_memory_not_equal(wire, text, bytes);
}

/* What the codec has as output goes out, too. */
static void test_finish_codec(void **state)
{
	uint8_t wire[64];
	const char *text = "more than the codec has room for";

	(void)state;
	codec.out_bytes = codec.fed_bytes = 0;
	connect_peer();
	stream_secure(&s, &turn_over, NULL);
	stream_send(&s, text, strlen(text));
	stream_finish(&s);
	assert_int_equal(get_until_end(wire, sizeof(wire)), strlen(text));
	for (size_t i = 0; text[i] != '\0'; i++)
		assert_int_equal(text[i], (uint8_t)~wire[i]);
	expect_closed(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STREAM(test_refused),
		STREAM(test_full_backlog),
		STREAM(test_closed_while_it_connects),
		STREAM(test_closed_at_once),
		STREAM(test_gathers),
		STREAM(test_lengthens),
		STREAM(test_sends_much),
		STREAM(test_sends_much_in_a_row),
		STREAM(test_receives_into),
		STREAM(test_limit),
		STREAM(test_peer_goes),
		STREAM(test_closed_in_the_middle),
		STREAM(test_closed_while_parked),
		STREAM(test_closed_with_a_full_sq),
		STREAM(test_closed_from_a_callback),
		STREAM(test_again),
		STREAM(test_finish),
		STREAM(test_finish_of_nothing),
		STREAM(test_hears_out),
		STREAM(test_finish_unheard),
		STREAM(test_finish_unheard_at_once),
		STREAM(test_codec),
		STREAM(test_finish_codec),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
