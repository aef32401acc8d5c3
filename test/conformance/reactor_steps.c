/*
 * A reactor, its alarm and its streams SQE by SQE, against a kernel that answers as each case says.
 * Prints TAP.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <linux/vm_sockets.h>

#include "base/log.h"
#include "base/util.h"
#include "net/stream.h"
#include "ring_script.h"
#include "tap.h"

#define FD 77
#define IN_BYTES 256u

static struct reactor r;

static void open_reactor(int (*answer)(const struct io_uring_sqe *sqe))
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	ring_script = (struct ring_script){ .answer = answer, .now_ns = NS_PER_SEC };
	if (reactor_init(&r, &params) < 0)
		abort();
}

static int later(const struct io_uring_sqe *sqe)
{
	(void)sqe;
	return SCRIPT_LATER;
}

/* ---- alarm ---- */

static void nothing(struct timer *timer)
{
	(void)timer;
}

/* The kernel has no memory for it: to try again in every turn would be not to sleep any more. */
static void test_refused_alarm(void)
{
	struct timer timer;

	if (!tap_begin("an alarm that the kernel refuses is not set again"))
		return;
	open_reactor(later);
	ring_script.alarm_res = -ENOMEM;
	timer_init(&timer, nothing);
	reactor_timer_arm(&r, &timer, r.now_ns + NS_PER_SEC);
	for (unsigned i = 0; i < 10; i++)
		reactor_turn(&r, true);
	EXPECT(ring_script.alarm_nr == 1, "set %u times", ring_script.alarm_nr);
	/* Each sleep has its own limit then. */
	EXPECT(ring_script.slept_ns <= NS_PER_SEC, "it sleeps for %llu ns",
	       (unsigned long long)ring_script.slept_ns);
	ring_script.now_ns += NS_PER_SEC;
	reactor_turn(&r, true);
	EXPECT(!timer.armed, "the timer has not run");
	reactor_fini(&r);
	tap_end();
}

/* ---- prompt ops ---- */

static int at_once(const struct io_uring_sqe *sqe)
{
	(void)sqe;
	return 0;
}

static void forget(struct op *op, int res, uint32_t cqe_flags)
{
	(void)op, (void)res, (void)cqe_flags;
}

static void start_prompt_nop(struct op *op)
{
	struct io_uring_sqe *sqe = op_sqe(op);

	io_uring_prep_nop(sqe);
	op_start_prompt(op, sqe);
}

static void test_prompt_waits_for_more(void)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND };
	struct op op[2];

	if (!tap_begin("an enter waits for one CQE more than it has prompt ops, the next for one"))
		return;
	open_reactor(at_once);
	for (unsigned i = 0; i < ARRAY_SIZE(op); i++) {
		op_init(&op[i], &r, owner, forget);
		start_prompt_nop(&op[i]);
	}
	reactor_turn(&r, true);
	EXPECT(ring_script.wait_nr == 3, "waited for %u", ring_script.wait_nr);
	reactor_turn(&r, true);
	EXPECT(ring_script.wait_nr == 1, "then for %u", ring_script.wait_nr);
	for (unsigned i = 0; i < ARRAY_SIZE(op); i++)
		op_fini(&op[i]);
	reactor_fini(&r);
	tap_end();
}

/* Nothing would end the sleep over a failure. */
static void test_no_room_to_look(void)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND };
	struct op op[7];

	if (!tap_begin("without a look at prompt ops none is slept over"))
		return;
	open_reactor(later);
	ring_script.refuse_nr = UINT_MAX;
	/* The read of the mailbox is in the SQ: with these it is full. */
	for (unsigned i = 0; i < ARRAY_SIZE(op); i++) {
		struct io_uring_sqe *sqe;

		op_init(&op[i], &r, owner, forget);
		sqe = op_sqe(&op[i]);
		io_uring_prep_nop(sqe);
		if (i + 1 < ARRAY_SIZE(op))
			op_start(&op[i], sqe);
		else
			op_start_prompt(&op[i], sqe);
	}
	EXPECT(!op_inflight(&r.prompt.look) && r.prompt.nr == 0, "%u are slept over", r.prompt.nr);
	tap_end();
}

/* ---- streams ---- */

static struct stream s;
static struct iovec pieces[8];
static uint8_t in[IN_BYTES], text[] = "what is to be sent", place[64];
static size_t received_bytes, into_bytes;
static bool closed;
static int closed_err;
static struct io_uring_sqe last_send, last_receive;
static unsigned send_nr, receive_nr;

static void on_connected(struct stream *stream)
{
	(void)stream;
}

static void on_received(struct stream *stream, const uint8_t *data, size_t bytes)
{
	(void)data;
	received_bytes += bytes;
	if (bytes == 4)
		stream_receive_into(stream, place, sizeof(place));
}

static void on_received_into(struct stream *stream, size_t bytes)
{
	(void)stream;
	into_bytes += bytes;
}

static void on_sent(struct stream *stream)
{
	(void)stream;
}

static void on_closed(struct stream *stream, int err)
{
	(void)stream;
	closed = true;
	closed_err = err;
}

static int note(const struct io_uring_sqe *sqe)
{
	ring_script.log_nr = 0;
	if (sqe->opcode == IORING_OP_SENDMSG) {
		last_send = *sqe;
		send_nr++;
	} else if (sqe->opcode == IORING_OP_RECV) {
		last_receive = *sqe;
		receive_nr++;
	} else if (sqe->opcode == IORING_OP_ASYNC_CANCEL) {
		ring_script_post(last_receive.user_data, -ECANCELED, 0);
		return 0;
	}
	return SCRIPT_LATER;
}

static void turns(void)
{
	for (unsigned i = 0; i < 4; i++)
		reactor_turn(&r, false);
}

static void connect_stream(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	closed = false;
	received_bytes = into_bytes = 0;
	send_nr = receive_nr = 0;
	EXPECT(stream_connect(&s, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
	turns();
	EXPECT(s.state == STREAM_OPEN && receive_nr == 1, "it is not open");
}

static void open_stream(void)
{
	static const struct stream_ops ops = {
		.connected = on_connected,
		.received = on_received,
		.received_into = on_received_into,
		.sent = on_sent,
		.closed = on_closed,
	};
	struct stream_params params = { .ops = &ops,
					.send = pieces,
					.send_nr = ARRAY_SIZE(pieces),
					.receive = in,
					.receive_bytes = IN_BYTES };

	open_reactor(note);
	ring_script.socket_fd = FD;
	if (stream_init(&s, &r, &params) < 0)
		abort();
	connect_stream();
}

static void close_stream(void)
{
	stream_close(&s, 0);
	turns();
	EXPECT(closed, "it is not closed");
	stream_fini(&s);
	reactor_fini(&r);
}

static void answer_send(int res)
{
	ring_script_post(last_send.user_data, res, 0);
	turns();
}

static void answer_receive(int res)
{
	ring_script_post(last_receive.user_data, res, 0);
	turns();
}

static void expect_send(unsigned nr, size_t from)
{
	const struct msghdr *msg = (const void *)(uintptr_t)last_send.addr;

	REQUIRE(send_nr == nr, "%u sends", send_nr);
	EXPECT(last_send.fd == FD && msg->msg_iovlen == 1, "another message");
	EXPECT(msg->msg_iov->iov_base == text + from &&
		       msg->msg_iov->iov_len == sizeof(text) - from,
	       "other bytes");
}

static void test_send(void)
{
	if (!tap_begin("a send that was interrupted or cut short goes on where it was"))
		return;
	open_stream();
	stream_send(&s, text, sizeof(text));
	turns();
	expect_send(1, 0);
	answer_send(-EINTR);
	expect_send(2, 0);
	answer_send(-EAGAIN);
	expect_send(3, 0);
	answer_send(5);
	expect_send(4, 5);
	answer_send(-EAGAIN);
	expect_send(5, 5);
	answer_send(sizeof(text) - 5);
	EXPECT(s.sent_bytes == sizeof(text) && send_nr == 5, "not all is sent");
	stream_send(&s, text, sizeof(text));
	turns();
	answer_send(0);
	EXPECT(closed && closed_err == -EPIPE, "%d", closed_err);
	close_stream();
	tap_end();
}

static void test_receive(void)
{
	if (!tap_begin("a receive that was interrupted is asked for again"))
		return;
	open_stream();
	answer_receive(-EINTR);
	EXPECT(receive_nr == 2 && !closed, "after EINTR: %u", receive_nr);
	answer_receive(-EAGAIN);
	EXPECT(receive_nr == 3 && !closed, "after EAGAIN: %u", receive_nr);
	answer_receive(7);
	EXPECT(received_bytes == 7 && receive_nr == 4, "%zu bytes", received_bytes);
	answer_receive(-ENOBUFS);
	EXPECT(closed && closed_err == -ENOBUFS, "%d", closed_err);
	close_stream();
	tap_end();
}

/* The connection broke where bytes went straight to their place. */
static void test_second_life(void)
{
	if (!tap_begin("the next connection receives nothing into the memory of the one before"))
		return;
	open_stream();
	answer_receive(4);
	EXPECT(last_receive.addr == (uintptr_t)place && last_receive.len == sizeof(place),
	       "not to its place");
	answer_receive(10);
	EXPECT(into_bytes == 10 && last_receive.addr == (uintptr_t)place + 10 &&
		       last_receive.len == sizeof(place) - 10,
	       "not behind it");
	stream_receive_limit(&s, 3);
	stream_send(&s, text, sizeof(text));
	stream_close(&s, -EPROTO);
	turns();
	EXPECT(closed && closed_err == -EPROTO, "%d", closed_err);
	connect_stream();
	EXPECT(last_receive.addr == (uintptr_t)in && last_receive.len == IN_BYTES,
	       "it receives elsewhere");
	EXPECT(send_nr == 0 && s.queued_bytes == 0, "it sends what was for another");
	close_stream();
	tap_end();
}

/* vsock says EALREADY to a connect that io_uring asks again too early. */
static const int *connect_answers; /* of the connects that come, in turn */
static unsigned connect_nr, poll_nr;

static int note_connect(const struct io_uring_sqe *sqe)
{
	if (sqe->opcode == IORING_OP_CONNECT)
		return connect_answers[connect_nr++];
	if (sqe->opcode == IORING_OP_POLL_ADD) {
		poll_nr++;
		return sqe->poll32_events == POLLOUT ? POLLOUT : -EINVAL;
	}
	return note(sqe);
}

static void connect_vsock(const int *answers)
{
	struct sockaddr_vm address = { .svm_family = AF_VSOCK };

	closed = false;
	connect_nr = poll_nr = receive_nr = 0;
	connect_answers = answers;
	EXPECT(stream_connect(&s, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
	turns();
	turns();
}

static void test_connect_again(void)
{
	static const int good[] = { -EALREADY, -EALREADY, 0 }, bad[] = { -EALREADY, -ECONNRESET };
	static const int meanwhile[] = { -EALREADY, -EISCONN };

	if (!tap_begin("a connect that is under way already is waited for"))
		return;
	open_stream();
	stream_close(&s, 0);
	turns();
	ring_script.answer = note_connect;
	connect_vsock(good);
	EXPECT(s.state == STREAM_OPEN && connect_nr == 3 && poll_nr == 2, "%u connects, %u polls",
	       connect_nr, poll_nr);
	stream_close(&s, 0);
	turns();
	connect_vsock(bad);
	EXPECT(closed && closed_err == -ECONNRESET && connect_nr == 2 && poll_nr == 1,
	       "%u connects, %u polls, %d", connect_nr, poll_nr, closed_err);
	connect_vsock(meanwhile);
	EXPECT(s.state == STREAM_OPEN && connect_nr == 2 && poll_nr == 1, "%u connects, %u polls",
	       connect_nr, poll_nr);
	stream_close(&s, 0);
	turns();
	connect_vsock(good + 2);
	close_stream();
	tap_end();
}

int main(int argc, char **argv)
{
	bool has_only = argc > 2 && strcmp(argv[argc - 2], "--only") == 0;

	tap_init(argv[0], has_only ? argv[argc - 1] : NULL, 0);
	log_init(LOG_LEVEL_ERROR);
	alarm(300);
	test_refused_alarm();
	test_prompt_waits_for_more();
	test_no_room_to_look();
	test_send();
	test_receive();
	test_second_life();
	test_connect_again();
	return tap_finish();
}
