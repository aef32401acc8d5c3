/*
 * Requests as bytes of a connection, and what the bytes of the server say about them. Works on the
 * bytes of struct nbd_connection (headers, large_nr, reply) and calls neither the session nor the
 * queue: what follows from an answer is nbd_connection.c's. Reactor thread.
 *
 *	send      header and data to the stream
 *	received  the parser (nbd_reply.h) says what each byte is; payload goes into its request
 *
 * Failure modes: a reply that breaks the protocol: -EPROTO, conn->reply.error has the words.
 */
#include <errno.h>
#include <string.h>

#include "backends/nbd/nbd.h"
#include "base/log.h"
#include "base/util.h"

/* Less than this is cheaper copied than received apart. */
#define DIRECT_BYTES (16u << 10)
/* Where replies are larger than that, only their headers are received ahead. */
#define LARGE_REPLY_BYTES (64u << 10)
#define HEADERS_BYTES 4096u

static struct nbd_slot *nbd_transfer_lookup(void *ctx, uint64_t cookie)
{
	struct nbd_connection *conn = ctx;
	const struct nbd_queue *q = nbd_queue_of(&conn->c);
	unsigned tag = (unsigned)(cookie & 0xffff);
	struct nbd_io *n = tag < q->queue->depth ? q->io[tag] : NULL;

	return n && n->request.connection == &conn->c && n->cookie == cookie ? &n->slot : NULL;
}

void nbd_transfer_begin(struct nbd_connection *conn)
{
	const struct nbd_export *export = &conn->login.handshake.export;
	enum nbd_reply_mode mode = export->extended	? NBD_REPLIES_EXTENDED
				   : export->structured ? NBD_REPLIES_STRUCTURED
							: NBD_REPLIES_SIMPLE;

	nbd_reply_init(&conn->reply, mode, nbd_transfer_lookup, conn);
	conn->large_nr = 0;
}

/* ---- requests ---- */

/* FUA comes without its capability where nothing is volatile: there it means nothing. */
static uint16_t nbd_command_flags(const struct backend_io *io)
{
	bool fua = (io->flags & BACKEND_FUA) && (io->queue->device->limits.caps & BACKEND_CAP_FUA);
	uint16_t flags = fua ? NBD_CMD_FLAG_FUA : 0;

	if (io->op == BACKEND_WRITE_ZEROES && (io->flags & BACKEND_NOUNMAP))
		flags |= NBD_CMD_FLAG_NO_HOLE;
	return flags;
}

/* While large answers are awaited they are not received by way of the stream's memory. */
static void nbd_transfer_count_large(struct nbd_connection *conn, const struct nbd_io *n,
				     int change)
{
	if (n->io->op != BACKEND_READ || n->io->length_bytes < LARGE_REPLY_BYTES)
		return;
	conn->large_nr += (unsigned)change;
	stream_receive_limit(&conn->c.stream, conn->large_nr > 0 ? HEADERS_BYTES : SIZE_MAX);
}

/*
 * Headers stand behind each other in memory, so that those of requests without data go out in one
 * piece. A request ends only when all of it is sent, so no more than one of each tag are in use.
 */
void nbd_transfer_send(struct nbd_connection *conn, struct nbd_io *n)
{
	static const uint8_t cmd[BACKEND_OP_NR] = {
		[BACKEND_READ] = NBD_CMD_READ,
		[BACKEND_WRITE] = NBD_CMD_WRITE,
		[BACKEND_FLUSH] = NBD_CMD_FLUSH,
		[BACKEND_DISCARD] = NBD_CMD_TRIM,
		[BACKEND_WRITE_ZEROES] = NBD_CMD_WRITE_ZEROES,
	};
	const struct backend_io *io = n->io;
	struct stream *s = &conn->c.stream;
	struct nbd_request request = {
		.cmd = cmd[io->op],
		.flags = nbd_command_flags(io),
		.cookie = (uint64_t)++nbd_queue_of(&conn->c)->cookie_nr << 16 | io->tag,
		.offset_bytes = io->op == BACKEND_FLUSH ? 0 : io->offset_bytes,
		.length_bytes = io->length_bytes,
	};
	bool extended = conn->login.handshake.export.extended;
	uint32_t bytes = extended ? NBD_EXTENDED_REQUEST_BYTES : NBD_REQUEST_BYTES;
	uint8_t *header = conn->headers + (size_t)conn->header_idx * bytes;

	n->cookie = request.cookie;
	nbd_slot_start(&n->slot, request.cmd, request.flags, request.offset_bytes,
		       request.length_bytes);
	stream_send(s, header, nbd_request_encode(header, &request, extended));
	if (++conn->header_idx == io->queue->depth)
		conn->header_idx = 0;
	if (io->op == BACKEND_WRITE)
		stream_send(s, io->buf, io->length_bytes);
	nbd_transfer_count_large(conn, n, 1);
}

void nbd_transfer_left(struct nbd_connection *conn, const struct nbd_io *n)
{
	nbd_transfer_count_large(conn, n, -1);
}

/* ---- replies ---- */

static struct nbd_io *io_of_reply(const struct nbd_reply *r)
{
	return container_of(r->slot, struct nbd_io, slot);
}

/*
 * Copies what is there; what is not, and is much, comes straight to its place. Returns whether all
 * of it was there.
 */
static bool nbd_transfer_take_payload(struct nbd_connection *conn, struct nbd_input *in)
{
	struct nbd_reply *r = &conn->reply;
	uint8_t *to = (uint8_t *)io_of_reply(r)->io->buf + r->at_bytes;
	size_t here = MIN((uint64_t)(in->end - in->at), r->bytes);
	uint64_t missing = r->bytes - here;

	memcpy(to, in->at, here);
	in->at += here;
	if (missing >= DIRECT_BYTES && !conn->c.stream.codec)
		stream_receive_into(&conn->c.stream, to + here, missing);
	nbd_reply_took(r, here);
	return missing == 0;
}

int nbd_transfer_received(struct nbd_connection *conn, struct nbd_input *in,
			  struct nbd_io **ret_answered, int *ret_result)
{
	struct nbd_reply *r = &conn->reply;
	struct nbd_device *nbd;

	for (;;) {
		switch (nbd_reply_next(r, in)) {
		case NBD_REPLY_MORE:
			return 0;
		case NBD_REPLY_PAYLOAD:
			if (!nbd_transfer_take_payload(conn, in))
				return 0;
			break;
		case NBD_REPLY_ZEROES:
			memset((uint8_t *)io_of_reply(r)->io->buf + r->at_bytes, 0, r->bytes);
			break;
		case NBD_REPLY_ERROR:
			nbd = nbd_queue_of(&conn->c)->nbd;
			log_limited_by(&nbd->error_limit, LOG_LEVEL_WARN,
				       "the server reports an error", "device=%s %s", nbd->name,
				       r->error);
			break;
		case NBD_REPLY_DONE:
			*ret_answered = io_of_reply(r);
			*ret_result = r->result;
			return 1;
		case NBD_REPLY_BROKEN:
			return -EPROTO;
		}
	}
}
