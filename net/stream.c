/*
 * Owns a socket and three ops. Reactor thread.
 *
 *   IDLE --connect--> CONNECTING ---> OPEN ---> CLOSING --all ops idle--> IDLE, `closed`
 *                          \___________________^
 *
 * Happy path: pieces of a turn gather in `out`, the flush task sends them in one sendmsg; a receive
 * is always in flight, first into what the owner wants directly, then into `in`.
 * Failure modes: short sends go on where they stopped; an error or the end of the stream closes it;
 * closing shuts the socket down and cancels what is in flight, and waits for that.
 */
#include "net/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/util.h"

/* Pieces in one sendmsg; the kernel takes UIO_MAXIOV. */
#define GATHER_MAX 256u

static void stream_send_more(struct op *op);
static void stream_receive_more(struct op *op);

/* ---- the end ---- */

static bool stream_has_inflight(const struct stream *s)
{
	return op_inflight(&s->send_op) || op_inflight(&s->receive_op) ||
	       op_inflight(&s->cancel_op);
}

static void stream_end(struct task *task)
{
	struct stream *s = container_of(task, struct stream, end);

	if (s->state != STREAM_CLOSING || stream_has_inflight(s))
		return;
	task_cancel(&s->flush);
	task_cancel(&s->arrive);
	op_unpark(&s->cancel_op);
	ring_close(s->fd);
	s->fd = -1;
	s->state = STREAM_IDLE;
	s->codec = NULL;
	s->ops->closed(s, s->err);
}

static void stream_end_soon(struct stream *s)
{
	if (!stream_has_inflight(s))
		reactor_defer(s->reactor, &s->end, stream_end);
}

static void stream_on_cancelled(struct op *op, int res, uint32_t cqe_flags)
{
	(void)res;
	(void)cqe_flags;
	stream_end_soon(container_of(op, struct stream, cancel_op));
}

/* What a shutdown does to a connect under way is the address family's to say. */
static void stream_cancel_all(struct op *op)
{
	struct stream *s = container_of(op, struct stream, cancel_op);
	struct io_uring_sqe *sqe;

	if (!stream_has_inflight(s)) {
		stream_end_soon(s);
		return;
	}
	sqe = op_sqe(op);
	if (!sqe) {
		op_park(op, stream_cancel_all);
		return;
	}
	io_uring_prep_cancel_fd(sqe, s->fd, IORING_ASYNC_CANCEL_ALL);
	op_start(op, sqe);
}

void stream_close(struct stream *s, int err)
{
	if (s->state == STREAM_IDLE || s->state == STREAM_CLOSING)
		return;
	s->state = STREAM_CLOSING;
	s->err = err;
	op_unpark(&s->send_op);
	op_unpark(&s->receive_op);
	ring_shutdown(s->fd);
	stream_cancel_all(&s->cancel_op);
}

/* True when the CQE was of a stream that is on its way down. */
static bool stream_is_closing(struct stream *s)
{
	if (s->state != STREAM_CLOSING)
		return false;
	stream_end_soon(s);
	return true;
}

/* ---- sending ---- */

static void gather_wire(struct stream *s)
{
	const uint8_t *data;

	s->wire.iov_len = s->codec->output(s->session, &data);
	s->wire.iov_base = (void *)(uintptr_t)data;
	s->msg.msg_iov = &s->wire;
	s->msg.msg_iovlen = s->wire.iov_len > 0;
}

/* Up to the end of the ring: the rest goes with the next. */
static unsigned pieces_in_a_row(const struct stream *s)
{
	unsigned nr = MIN(s->out_nr, s->out_room - s->out_first);

	return MIN(nr, GATHER_MAX);
}

static void drop_pieces(struct stream *s, size_t bytes)
{
	s->sent_bytes += bytes;
	while (bytes > 0) {
		struct iovec *piece = &s->out[s->out_first];
		size_t part = MIN(bytes, piece->iov_len);

		piece->iov_base = (uint8_t *)piece->iov_base + part;
		piece->iov_len -= part;
		bytes -= part;
		if (piece->iov_len > 0)
			break;
		s->out_first = s->out_first + 1 == s->out_room ? 0 : s->out_first + 1;
		s->out_nr--;
	}
	ASSERT(bytes == 0);
}

/* Gives the codec what it has room for. True: some of the owner's bytes count as sent. */
static bool stream_encode(struct stream *s)
{
	uint64_t before = s->sent_bytes;

	while (s->out_nr > 0) {
		ssize_t taken =
			s->codec->write(s->session, &s->out[s->out_first], pieces_in_a_row(s));

		if (taken < 0)
			stream_close(s, (int)taken);
		if (taken <= 0)
			break;
		drop_pieces(s, (size_t)taken);
	}
	return s->sent_bytes != before;
}

static void gather(struct stream *s)
{
	if (s->codec) {
		gather_wire(s);
		return;
	}
	s->msg.msg_iov = &s->out[s->out_first];
	s->msg.msg_iovlen = pieces_in_a_row(s);
}

static void stream_send_more(struct op *op)
{
	struct stream *s = container_of(op, struct stream, send_op);
	struct io_uring_sqe *sqe;

	gather(s);
	if (s->msg.msg_iovlen == 0)
		return;
	sqe = op_sqe(op);
	if (!sqe) {
		op_park(op, stream_send_more);
		return;
	}
	io_uring_prep_sendmsg(sqe, s->fd, &s->msg, MSG_NOSIGNAL);
	op_start(op, sqe);
}

static void stream_flush(struct task *task)
{
	struct stream *s = container_of(task, struct stream, flush);

	if (s->state != STREAM_OPEN)
		return;
	if (s->codec && stream_encode(s) && s->state == STREAM_OPEN)
		s->ops->sent(s);
	if (s->state != STREAM_OPEN || s->send_op.state != OP_IDLE)
		return;
	if (!s->mute)
		stream_send_more(&s->send_op);
	if (s->finishing && s->send_op.state == OP_IDLE)
		stream_close(s, 0);
}

static void stream_flush_soon(struct stream *s)
{
	reactor_at_turn_end(s->reactor, &s->flush, stream_flush);
}

/* The i-th piece of those that are not sent, or the place for it. */
static struct iovec *piece_at(const struct stream *s, unsigned i)
{
	unsigned at = s->out_first + i;

	return &s->out[at < s->out_room ? at : at - s->out_room];
}

/* What stands behind the last piece in memory lengthens it; a send under way goes on with that. */
static bool lengthens(struct stream *s, const uint8_t *data, size_t bytes)
{
	struct iovec *last;

	if (s->out_nr == 0)
		return false;
	last = piece_at(s, s->out_nr - 1);
	if ((const uint8_t *)last->iov_base + last->iov_len != data)
		return false;
	last->iov_len += bytes;
	return true;
}

void stream_send(struct stream *s, const void *data, size_t bytes)
{
	ASSERT(s->state == STREAM_OPEN && s->out_nr < s->out_room && bytes > 0);
	if (!lengthens(s, data, bytes))
		*piece_at(s, s->out_nr++) =
			(struct iovec){ .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	s->queued_bytes += bytes;
	stream_flush_soon(s);
}

static void stream_took(struct stream *s, size_t bytes)
{
	counter_add(&s->wire_sent_bytes, bytes);
	counter_add(&s->wire_sends, 1);
	if (s->codec) {
		s->codec->sent(s->session, bytes);
		stream_flush_soon(s);
		return;
	}
	drop_pieces(s, bytes);
	if (s->out_nr > 0 || s->finishing)
		stream_flush_soon(s);
	s->ops->sent(s);
}

void stream_last_word(struct stream *s, const void *data, size_t bytes)
{
	if (s->state == STREAM_OPEN && !s->codec && s->out_nr == 0)
		(void)!send(s->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void stream_finish(struct stream *s)
{
	s->finishing = true;
	stream_flush_soon(s);
}

static void stream_send_failed(struct stream *s, int err)
{
	if (s->hear_out && !s->finishing && (err == -EPIPE || err == -ECONNRESET))
		s->mute = true;
	else
		stream_close(s, err);
}

static void stream_begin(struct stream *s)
{
	s->state = STREAM_OPEN;
	s->nothing_there = true;
	stream_receive_more(&s->receive_op);
	s->ops->connected(s);
}

static void connect_socket(struct op *op)
{
	struct stream *s = container_of(op, struct stream, send_op);
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, connect_socket);
		return;
	}
	io_uring_prep_connect(sqe, s->fd, (struct sockaddr *)&s->address, s->address_bytes);
	op_start(op, sqe);
}

static void connect_poll(struct op *op)
{
	struct stream *s = container_of(op, struct stream, send_op);
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, connect_poll);
		return;
	}
	s->connect_polls = true;
	io_uring_prep_poll_add(sqe, s->fd, POLLOUT);
	op_start(op, sqe);
}

/*
 * vsock_connect() of the kernel, called again by io_uring while the connection is being made, says
 * -EALREADY and not -EINPROGRESS: then its end is waited for, and connect asked again. It is
 * -EISCONN when the peer has accepted meanwhile.
 */
static void stream_connect_ended(struct op *op, int res)
{
	struct stream *s = container_of(op, struct stream, send_op);
	bool polled = s->connect_polls;

	s->connect_polls = false;
	if (polled && res >= 0)
		connect_socket(op);
	else if (!polled && res == -EALREADY)
		connect_poll(op);
	else if (res < 0 && res != -EISCONN)
		stream_close(s, res);
	else
		stream_begin(s);
}

static void stream_on_sent(struct op *op, int res, uint32_t cqe_flags)
{
	struct stream *s = container_of(op, struct stream, send_op);

	(void)cqe_flags;
	if (stream_is_closing(s))
		return;
	if (s->state == STREAM_CONNECTING) {
		stream_connect_ended(op, res);
	} else if (res > 0) {
		stream_took(s, (size_t)res);
	} else if (res == -EINTR || res == -EAGAIN) {
		stream_send_more(op);
	} else {
		stream_send_failed(s, res < 0 ? res : -EPIPE);
	}
}

/* ---- receiving ---- */

static void stream_receive_more(struct op *op)
{
	struct stream *s = container_of(op, struct stream, receive_op);
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, stream_receive_more);
		return;
	}
	if (s->into_bytes > 0)
		io_uring_prep_recv(sqe, s->fd, s->into, s->into_bytes, 0);
	else
		io_uring_prep_recv(sqe, s->fd, s->in, s->in_limit, 0);
	/* Spares the kernel a look at an empty socket. */
	if (s->nothing_there)
		sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
	op_start(op, sqe);
}

void stream_receive_into(struct stream *s, void *buf, size_t bytes)
{
	ASSERT(!s->codec && s->into_bytes == 0);
	s->into = buf;
	s->into_bytes = bytes;
}

/* Plain bytes out of what the codec has; it may have begun or ended in a callback. */
static void stream_decode(struct stream *s)
{
	while (s->state == STREAM_OPEN) {
		ssize_t bytes = s->codec->read(s->session, s->plain, STREAM_PLAIN_BYTES);

		if (bytes == -EAGAIN)
			return;
		if (bytes < 0)
			stream_close(s, bytes == -ENODATA ? -ECONNRESET : (int)bytes);
		else
			s->ops->received(s, s->plain, (size_t)bytes);
	}
}

static void received_wire(struct stream *s, size_t bytes)
{
	for (size_t at = 0; at < bytes && s->state == STREAM_OPEN;) {
		size_t taken = s->codec->feed(s->session, s->in + at, bytes - at);

		ASSERT(taken > 0);
		at += taken;
		stream_decode(s);
	}
	stream_flush_soon(s); /* answers of the codec's own */
}

static void received(struct stream *s, size_t bytes)
{
	counter_add(&s->wire_received_bytes, bytes);
	counter_add(&s->wire_receives, 1);
	if (s->into_bytes > 0) {
		s->into += bytes;
		s->into_bytes -= bytes;
		s->ops->received_into(s, bytes);
	} else if (s->codec) {
		received_wire(s, bytes);
	} else {
		s->ops->received(s, s->in, bytes);
	}
}

static void stream_on_received(struct op *op, int res, uint32_t cqe_flags)
{
	struct stream *s = container_of(op, struct stream, receive_op);

	if (stream_is_closing(s))
		return;
	if (res > 0) {
		s->nothing_there = !(cqe_flags & IORING_CQE_F_SOCK_NONEMPTY);
		received(s, (size_t)res);
	} else if (res != -EINTR && res != -EAGAIN) {
		stream_close(s, res < 0 ? res : -ECONNRESET);
	}
	if (s->state == STREAM_OPEN)
		stream_receive_more(op);
}

void stream_secure(struct stream *s, const struct stream_codec *codec, void *session)
{
	ASSERT(s->state == STREAM_OPEN && s->out_nr == 0 && s->into_bytes == 0);
	ASSERT(s->plain);
	s->codec = codec;
	s->session = session;
	stream_flush_soon(s);
}

/* ---- the beginning ---- */

/* Where a connect is over at once, too, nobody hears of it from inside his own call. */
static void arrive(struct task *task)
{
	struct stream *s = container_of(task, struct stream, arrive);

	if (s->state != STREAM_CONNECTING)
		return;
	if (s->err < 0)
		stream_close(s, s->err);
	else
		stream_begin(s);
}

int stream_connect(struct stream *s, const struct sockaddr *address, socklen_t address_bytes)
{
	ASSERT(s->state == STREAM_IDLE && address_bytes <= sizeof(s->address));
	s->fd = ring_socket(address->sa_family);
	if (s->fd < 0)
		return s->fd;
	memcpy(&s->address, address, address_bytes);
	s->address_bytes = address_bytes;
	s->state = STREAM_CONNECTING;
	s->err = 0;
	s->queued_bytes = s->sent_bytes = 0;
	s->out_first = s->out_nr = 0;
	s->into_bytes = 0;
	s->mute = s->finishing = s->connect_polls = false;
	s->in_limit = s->in_room;
	s->codec = NULL;
	if (address->sa_family == AF_UNIX) {
		s->err = ring_connect_unix(s->fd, address, address_bytes);
		reactor_defer(s->reactor, &s->arrive, arrive);
	} else {
		connect_socket(&s->send_op);
	}
	return 0;
}

static int init_ops(struct stream *s, const struct stream_params *params)
{
	struct op_owner owner = { .kind = OP_KIND_STREAM,
				  .queue = params->queue_idx,
				  .leg = params->leg };
	int ret = op_init(&s->send_op, s->reactor, owner, stream_on_sent);

	if (ret == 0)
		ret = op_init(&s->receive_op, s->reactor, owner, stream_on_received);
	if (ret == 0)
		ret = op_init(&s->cancel_op, s->reactor, owner, stream_on_cancelled);
	return ret;
}

int stream_init(struct stream *s, struct reactor *reactor, const struct stream_params *params)
{
	int ret;

	*s = (struct stream){
		.reactor = reactor,
		.ops = params->ops,
		.fd = -1,
		.out_room = params->send_nr,
		.in_room = params->receive_bytes,
		.out = params->send,
		.in = params->receive,
		.plain = params->plain,
		.hear_out = params->hear_out,
	};
	ret = init_ops(s, params);
	if (ret < 0)
		stream_fini(s);
	return ret;
}

void stream_fini(struct stream *s)
{
	ASSERT(s->state == STREAM_IDLE);
	task_cancel(&s->flush);
	task_cancel(&s->end);
	task_cancel(&s->arrive);
	op_fini(&s->send_op);
	op_fini(&s->receive_op);
	op_fini(&s->cancel_op);
}
