/*
 * Requests on a connection that is ready. Reactor thread.
 *
 *	send: header and data to the stream, cookie and deadline noted, to the end of
 *connection->sent received: the parser (nbd_reply.h) says what each byte is; payload goes to its
 *request answered: ends, once the kernel has read all of the request's memory too
 *
 * A cookie is the tag and a number that no other request of the queue has had for long, so that an
 * answer to a request of before is not taken for one of now.
 *
 * A server that says that it is shutting down has not done the request: that one waits for another
 * connection as if it had been lost with this one, which ends when the others are answered.
 *
 * Failure modes: a reply that breaks the protocol, or none within the timeout: the connection is
 * dropped. A server may answer before it has read a request; the request's memory stays untouched
 * until the stream has let go of it.
 */
#include <errno.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "base/assert.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/util.h"

/* Less than this is cheaper copied than received apart. */
#define DIRECT_BYTES (16u << 10)
/* Where replies are larger than that, only their headers are received ahead. */
#define LARGE_REPLY_BYTES (64u << 10)
#define HEADERS_BYTES 4096u

static struct nbd_slot *lookup(void *ctx, uint64_t cookie)
{
	struct nbd_connection *conn = ctx;
	const struct nbd_queue *q = conn->queue;
	unsigned tag = (unsigned)(cookie & 0xffff);
	struct nbd_io *n = tag < q->queue->depth ? q->io[tag] : NULL;

	return n && n->conn == conn && n->cookie == cookie ? &n->slot : NULL;
}

void nbd_transfer_begin(struct nbd_connection *conn)
{
	const struct nbd_export *export = &conn->handshake.export;
	enum nbd_reply_mode mode = export->extended	? NBD_REPLIES_EXTENDED
				   : export->structured ? NBD_REPLIES_STRUCTURED
							: NBD_REPLIES_SIMPLE;

	nbd_reply_init(&conn->reply, mode, export->meta_context, lookup, conn);
	conn->large_nr = 0;
	conn->unsent = &conn->sent;
}

/* ---- requests ---- */

static uint16_t command_of(const struct backend_io *io)
{
	static const uint8_t cmd[BACKEND_OP_NR] = {
		[BACKEND_READ] = NBD_CMD_READ,
		[BACKEND_WRITE] = NBD_CMD_WRITE,
		[BACKEND_FLUSH] = NBD_CMD_FLUSH,
		[BACKEND_DISCARD] = NBD_CMD_TRIM,
		[BACKEND_WRITE_ZEROES] = NBD_CMD_WRITE_ZEROES,
	};

	return cmd[io->op];
}

/* FUA comes without its capability where nothing is volatile: there it means nothing. */
static uint16_t flags_of(const struct backend_io *io)
{
	bool fua = (io->flags & BACKEND_FUA) && (io->queue->device->limits.caps & BACKEND_CAP_FUA);
	uint16_t flags = fua ? NBD_CMD_FLAG_FUA : 0;

	if (io->op == BACKEND_WRITE_ZEROES && (io->flags & BACKEND_NOUNMAP))
		flags |= NBD_CMD_FLAG_NO_HOLE;
	return flags;
}

static bool is_large(const struct nbd_io *n)
{
	return n->io->op == BACKEND_READ && n->io->length_bytes >= LARGE_REPLY_BYTES;
}

/* While large answers are awaited they are not received by way of the stream's memory. */
static void count_large(struct nbd_connection *conn, const struct nbd_io *n, int change)
{
	if (!is_large(n))
		return;
	conn->large_nr += (unsigned)change;
	stream_receive_limit(&conn->stream, conn->large_nr > 0 ? HEADERS_BYTES : SIZE_MAX);
}

static void watch(struct nbd_connection *conn, const struct nbd_io *n)
{
	if (!conn->timer.armed)
		reactor_timer_arm(conn->stream.reactor, &conn->timer, n->deadline_ns);
}

/*
 * Headers stand behind each other in memory, so that those of requests without data go out in one
 * piece. A request ends only when it is all sent, so no more than one of each tag are in use.
 */
static void send_header(struct nbd_connection *conn, const struct nbd_request *request)
{
	bool extended = conn->handshake.export.extended;
	uint32_t bytes = extended ? NBD_EXTENDED_REQUEST_BYTES : NBD_REQUEST_BYTES;
	uint8_t *header = conn->headers + (size_t)conn->header_idx * bytes;

	stream_send(&conn->stream, header, nbd_request_encode(header, request, extended));
	if (++conn->header_idx == conn->queue->queue->depth)
		conn->header_idx = 0;
}

void nbd_transfer_send(struct nbd_connection *conn, struct nbd_io *n)
{
	struct nbd_queue *q = conn->queue;
	const struct backend_io *io = n->io;
	struct nbd_request request = {
		.cmd = command_of(io),
		.flags = flags_of(io),
		.cookie = (uint64_t)++q->cookie_nr << 16 | io->tag,
		.offset_bytes = io->op == BACKEND_FLUSH ? 0 : io->offset_bytes,
		.length_bytes = io->length_bytes,
	};

	n->conn = conn;
	n->cookie = request.cookie;
	n->answered = n->refused = false;
	if (n->again)
		counter_add(&conn->stats.resent, 1);
	n->again = true;
	n->deadline_ns = conn->stream.reactor->now_ns + q->nbd->config->timeout_ns;
	nbd_slot_start(&n->slot, request.cmd, request.flags, request.offset_bytes,
		       request.length_bytes);
	send_header(conn, &request);
	if (io->op == BACKEND_WRITE)
		stream_send(&conn->stream, io->buf, io->length_bytes);
	n->sent_at_bytes = conn->stream.queued_bytes;
	list_push_back(&conn->sent, &n->node);
	if (conn->unsent == &conn->sent)
		conn->unsent = &n->node;
	count_large(conn, n, 1);
	watch(conn, n);
}

/* ---- replies ---- */

static void note_durability(struct nbd_device *nbd, struct nbd_io *n, int result)
{
	bool is_flush = n->io->op == BACKEND_FLUSH;
	bool modified = n->io->op == BACKEND_WRITE || n->io->op == BACKEND_WRITE_ZEROES;
	bool due = is_flush ? result < 0 && n->covers : modified && !(n->io->flags & BACKEND_FUA);

	if (due && !atomic_load_explicit(&nbd->unflushed, memory_order_relaxed))
		atomic_store(&nbd->unflushed, true);
	if (is_flush)
		nbd_queue_uncover(nbd, n);
}

/* The clock is the turn's: what is sent and answered within one took no time. */
static void note_times(struct nbd_connection *conn, const struct nbd_io *n)
{
	histogram_record(&conn->stats.wait, n->sent_ns - n->start_ns);
	histogram_record(&conn->stats.answer, conn->stream.reactor->now_ns - n->sent_ns);
}

/* All of it is sent. */
static void end(struct nbd_connection *conn, struct nbd_io *n)
{
	list_remove(&n->node);
	count_large(conn, n, -1);
	if (n->refused) {
		nbd_queue_take_back(conn->queue, n);
	} else {
		note_times(conn, n);
		nbd_io_end(n, n->result);
	}
	if (conn->state == NBD_CONNECTION_RETIRING && list_empty(&conn->sent))
		nbd_connection_leave(conn);
}

static void answered(struct nbd_connection *conn, struct nbd_io *n, int result)
{
	n->answered = true;
	n->result = result;
	if (result == -ESHUTDOWN) {
		n->refused = true;
		nbd_connection_retire(conn);
	} else {
		note_durability(conn->queue->nbd, n, result);
		conn->tries = 1; /* it is worth trying again soon */
		if (conn->queue->unconfirmed)
			nbd_queue_answered(conn->queue);
	}
	if (n->sent_at_bytes <= conn->stream.sent_bytes)
		end(conn, n);
}

/* Those that were answered while the last of their bytes were still on their way end here. */
void nbd_transfer_sent(struct nbd_connection *conn)
{
	while (conn->unsent != &conn->sent) {
		struct nbd_io *n = list_entry(conn->unsent, struct nbd_io, node);

		if (n->sent_at_bytes > conn->stream.sent_bytes)
			return;
		conn->unsent = n->node.next;
		n->sent_ns = conn->stream.reactor->now_ns;
		if (n->answered)
			end(conn, n);
	}
}

static struct nbd_io *io_of(const struct nbd_reply *r)
{
	return container_of(r->slot, struct nbd_io, slot);
}

/*
 * Copies what is there; what is not, and is much, comes straight to its place. Returns whether all
 * of it was there.
 */
static bool take_payload(struct nbd_connection *conn, struct nbd_input *in)
{
	struct nbd_reply *r = &conn->reply;
	uint8_t *to = (uint8_t *)io_of(r)->io->buf + r->at_bytes;
	size_t here = MIN((uint64_t)(in->end - in->at), r->bytes);
	uint64_t missing = r->bytes - here;

	memcpy(to, in->at, here);
	in->at += here;
	if (missing >= DIRECT_BYTES && !conn->stream.codec)
		stream_receive_into(&conn->stream, to + here, missing);
	nbd_reply_took(r, here);
	return missing == 0;
}

static void tell_error(const struct nbd_connection *conn)
{
	struct nbd_device *nbd = conn->queue->nbd;

	log_limited_by(&nbd->limits.error, LOG_LEVEL_WARN, "the server reports an error",
		       "device=%s %s", nbd->name, conn->reply.error);
}

/* One event. False: there is no more to be had from these bytes. */
static bool step(struct nbd_connection *conn, struct nbd_input *in)
{
	struct nbd_reply *r = &conn->reply;

	switch (nbd_reply_next(r, in)) {
	case NBD_REPLY_MORE:
		return false;
	case NBD_REPLY_PAYLOAD:
		return take_payload(conn, in);
	case NBD_REPLY_ZEROES:
		memset((uint8_t *)io_of(r)->io->buf + r->at_bytes, 0, r->bytes);
		return true;
	case NBD_REPLY_EXTENT:
		return true;
	case NBD_REPLY_ERROR:
		tell_error(conn);
		return true;
	case NBD_REPLY_DONE:
		answered(conn, io_of(r), r->result);
		return nbd_connection_serves(conn);
	case NBD_REPLY_BROKEN:
		nbd_connection_drop(conn, BACKEND_END_PROTOCOL, "the server broke the protocol: %s",
				    r->error);
		return false;
	}
	return false;
}

void nbd_transfer_received(struct nbd_connection *conn, const uint8_t *data, size_t bytes)
{
	struct nbd_input in = { data, data + bytes };

	while (step(conn, &in))
		;
}

/* Straight to its place; the parser follows. Behind the last byte it may have more to say. */
void nbd_transfer_received_into(struct nbd_connection *conn, size_t bytes)
{
	struct nbd_input none = { NULL, NULL };

	nbd_reply_took(&conn->reply, bytes);
	if (conn->stream.into_bytes > 0)
		return;
	while (step(conn, &none))
		;
}

/* ---- time and loss ---- */

void nbd_transfer_timer(struct nbd_connection *conn)
{
	struct reactor *r = conn->stream.reactor;
	const struct nbd_io *oldest;

	if (list_empty(&conn->sent))
		return;
	oldest = list_entry(conn->sent.next, struct nbd_io, node);
	if (oldest->deadline_ns > r->now_ns)
		reactor_timer_arm(r, &conn->timer, oldest->deadline_ns);
	else
		nbd_connection_drop(
			conn, BACKEND_END_SILENT, "no answer to %s for %llu ms",
			nbd_cmd_name(oldest->slot.cmd),
			(unsigned long long)(conn->queue->nbd->config->timeout_ns / NS_PER_MS));
}

void nbd_transfer_end(struct nbd_connection *conn)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	list_splice(&all, &conn->sent);
	conn->unsent = &conn->sent;
	while ((node = list_pop_front(&all))) {
		struct nbd_io *n = list_entry(node, struct nbd_io, node);

		if (n->answered && !n->refused)
			nbd_io_end(n, n->result);
		else
			nbd_queue_take_back(conn->queue, n);
	}
}
