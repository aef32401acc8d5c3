/*
 * Commands, their data and completions as bytes of a connection. Works on the bytes of struct
 * nvme_connection (heads, large_nr, pump, receive) and of struct nvme_io; what follows from a
 * completion is nvme_connection.c's. Reactor thread.
 *
 *	send      the capsule, with the data of small writes, to the stream
 *	received  the parser (nvme_receive.h) says what each byte is; data go into their request
 *	R2T       H2CData, one PDU at a time of each request, the next when that is sent
 *
 * Failure modes: a PDU that breaks the protocol: -EPROTO, conn->receive.error has the words.
 */
#include <errno.h>
#include <string.h>

#include "backends/nvme/nvme.h"
#include "backends/nvme/nvme_send.h"
#include "backends/nvme/protocol/nvme_command.h"
#include "base/assert.h"
#include "base/util.h"

/* Less than this is cheaper copied than received apart. */
#define DIRECT_BYTES (16u << 10)
/* Where data are larger than that, only headers are received ahead. */
#define LARGE_READ_BYTES (64u << 10)
#define HEADERS_BYTES 4096u

static struct nvme_slot *nvme_transfer_lookup(void *ctx, uint16_t cid)
{
	struct nvme_connection *conn = ctx;
	const struct nvme_queue *q = nvme_queue_of(&conn->c);
	unsigned tag = cid & ((1u << q->tag_bits) - 1);
	struct nvme_io *n = tag < q->queue->depth ? q->io[tag] : NULL;

	return n && n->request.connection == &conn->c && n->cid == cid ? &n->slot : NULL;
}

/*
 * Heads stand behind each other in memory, so that capsules without data go out in one piece: each
 * has as much room as one without data takes, or, with padding, one with data.
 */
void nvme_transfer_begin(struct nvme_connection *conn)
{
	const struct nvme_fabrics *found = nvme_admin_found(conn->admin);
	const struct nvme_wire *wire = &conn->receive.wire;
	uint32_t bytes = NVME_PDU_CMD_BYTES + (wire->header_digest ? NVME_DIGEST_BYTES : 0);
	uint32_t align = (wire->cpda + 1u) * 4;

	conn->head_bytes = (bytes + align - 1) / align * align;
	conn->capsule_data_bytes = found->controller.capsule_data_bytes;
	conn->nsid = found->namespace.nsid;
	conn->head_idx = conn->large_nr = 0;
	stream_receive_limit(&conn->c.stream, SIZE_MAX);
	conn->receive.lookup = nvme_transfer_lookup;
	ASSERT(list_empty(&conn->pump));
}

/* ---- commands ---- */

/* FUA comes without its capability where nothing is volatile: there it means nothing. */
static uint16_t nvme_control(const struct nvme_device *nvme, const struct backend_io *io)
{
	bool fua = (io->flags & BACKEND_FUA) && nvme->controller.has_write_cache;
	uint16_t control = fua ? NVME_CONTROL_FUA : 0;

	if (io->op == BACKEND_WRITE_ZEROES && !(io->flags & BACKEND_NOUNMAP) &&
	    nvme->namespace.zeroes_deallocate)
		control |= NVME_CONTROL_DEALLOCATE;
	return control;
}

/* READ, WRITE, WRITE_ZEROES. Returns the bytes of data that go in the capsule. */
static uint32_t nvme_transfer_rw(struct nvme_connection *conn, struct nvme_io *n, uint8_t *sqe)
{
	static const uint8_t opcode[BACKEND_OP_NR] = {
		[BACKEND_READ] = NVME_CMD_READ,
		[BACKEND_WRITE] = NVME_CMD_WRITE,
		[BACKEND_WRITE_ZEROES] = NVME_CMD_WRITE_ZEROES,
	};
	static const uint8_t direction[BACKEND_OP_NR] = {
		[BACKEND_READ] = NVME_DATA_IN,
		[BACKEND_WRITE] = NVME_DATA_OUT,
		[BACKEND_WRITE_ZEROES] = NVME_NO_DATA,
	};
	const struct backend_io *io = n->io;
	const struct nvme_device *nvme = nvme_device_of(conn);
	uint32_t bytes = io->op == BACKEND_WRITE_ZEROES ? 0 : io->length_bytes;
	bool in_capsule =
		io->op == BACKEND_WRITE && nvme_in_capsule(conn->capsule_data_bytes, bytes);
	const struct nvme_rw rw = {
		.opcode = opcode[io->op],
		.nsid = conn->nsid,
		.lba = io->offset_bytes >> nvme->block_shift,
		.blocks_nr = io->length_bytes >> nvme->block_shift,
		.control = nvme_control(nvme, io),
		.data_bytes = bytes,
		.in_capsule = in_capsule,
	};

	nvme_command_rw(sqe, &rw);
	nvme_slot_start(&n->slot, (enum nvme_direction)direction[io->op], bytes, in_capsule);
	return in_capsule ? bytes : 0;
}

static uint32_t nvme_transfer_discard(struct nvme_connection *conn, struct nvme_io *n, uint8_t *sqe)
{
	const struct backend_io *io = n->io;
	const struct nvme_device *nvme = nvme_device_of(conn);
	bool in_capsule = nvme_in_capsule(conn->capsule_data_bytes, NVME_DSM_RANGE_BYTES);

	nvme_dsm_range(n->range, io->offset_bytes >> nvme->block_shift,
		       io->length_bytes >> nvme->block_shift);
	nvme_command_deallocate(sqe, conn->nsid, 1, in_capsule);
	nvme_slot_start(&n->slot, NVME_DATA_OUT, NVME_DSM_RANGE_BYTES, in_capsule);
	return in_capsule ? NVME_DSM_RANGE_BYTES : 0;
}

static uint32_t nvme_transfer_command(struct nvme_connection *conn, struct nvme_io *n, uint8_t *sqe)
{
	switch (n->io->op) {
	case BACKEND_FLUSH:
		nvme_command_flush(sqe, conn->nsid);
		nvme_slot_start(&n->slot, NVME_NO_DATA, 0, false);
		return 0;
	case BACKEND_DISCARD:
		return nvme_transfer_discard(conn, n, sqe);
	default:
		return nvme_transfer_rw(conn, n, sqe);
	}
}

/* What a command sends. */
static const uint8_t *nvme_transfer_data(const struct nvme_io *n)
{
	return n->io->op == BACKEND_DISCARD ? n->range : n->io->buf;
}

/* While large data are awaited they are not received by way of the stream's memory. */
static void nvme_transfer_count_large(struct nvme_connection *conn, const struct nvme_io *n,
				      int change)
{
	if (n->io->op != BACKEND_READ || n->io->length_bytes < LARGE_READ_BYTES)
		return;
	conn->large_nr += (unsigned)change;
	stream_receive_limit(&conn->c.stream, conn->large_nr > 0 ? HEADERS_BYTES : SIZE_MAX);
}

void nvme_transfer_send(struct nvme_connection *conn, struct nvme_io *n)
{
	const struct nvme_queue *q = nvme_queue_of(&conn->c);
	uint8_t *head = conn->heads + (size_t)conn->head_idx * conn->head_bytes;
	uint8_t sqe[NVME_SQE_BYTES];
	uint32_t bytes = nvme_transfer_command(conn, n, sqe);

	n->cid = (uint16_t)(++n->number << q->tag_bits | n->io->tag);
	n->h2c_end_bytes = 0;
	nvme_command_set_cid(sqe, n->cid);
	stream_send(&conn->c.stream, head, nvme_pdu_capsule(head, &conn->receive.wire, sqe, bytes));
	if (++conn->head_idx == q->queue->depth)
		conn->head_idx = 0;
	if (bytes > 0)
		nvme_send_data(&conn->c.stream, &conn->receive.wire, nvme_transfer_data(n), bytes,
			       n->digest[0]);
	nvme_transfer_count_large(conn, n, 1);
}

/* Whatever an R2T has asked for and was not sent yet will not be. */
static void nvme_transfer_drop_data(struct nvme_io *n)
{
	if (n->h2c_bytes > 0) {
		n->h2c_bytes = 0;
		list_remove(&n->pump);
	}
}

void nvme_transfer_left(struct nvme_connection *conn, struct nvme_io *n)
{
	nvme_transfer_count_large(conn, n, -1);
	nvme_transfer_drop_data(n);
}

/* ---- H2CData ---- */

/* One PDU of what an R2T asks for. */
static void nvme_transfer_pump(struct nvme_connection *conn, struct nvme_io *n)
{
	struct stream *s = &conn->c.stream;
	uint32_t bytes = nvme_pdu_h2c_bytes(&conn->receive.wire, n->h2c_bytes);
	const struct nvme_h2c h = {
		.cid = n->cid,
		.ttag = n->ttag,
		.at_bytes = n->h2c_at_bytes,
		.bytes = bytes,
		.last = bytes == n->h2c_bytes,
	};

	stream_send(s, n->h2c_head, nvme_pdu_h2c_data(n->h2c_head, &conn->receive.wire, &h));
	nvme_send_data(s, &conn->receive.wire, nvme_transfer_data(n) + n->h2c_at_bytes, bytes,
		       n->digest[1]);
	session_sends_more(&conn->c, &n->request);
	n->h2c_end_bytes = s->queued_bytes;
	n->h2c_at_bytes += bytes;
	n->h2c_bytes -= bytes;
	if (h.last) {
		nvme_slot_r2t_answered(&n->slot);
		list_remove(&n->pump);
	}
}

/* Its last H2CData, and its capsule, need not be out: their memory is in use then. */
static bool nvme_transfer_may_pump(const struct nvme_connection *conn, const struct nvme_io *n)
{
	return n->h2c_end_bytes <= conn->c.stream.sent_bytes;
}

static void nvme_transfer_on_r2t(struct nvme_connection *conn, struct nvme_io *n)
{
	const struct nvme_receive *r = &conn->receive;

	n->h2c_at_bytes = r->at_bytes;
	n->h2c_bytes = r->bytes;
	n->ttag = r->ttag;
	list_push_back(&conn->pump, &n->pump);
	if (nvme_transfer_may_pump(conn, n))
		nvme_transfer_pump(conn, n);
}

void nvme_transfer_sent(struct nvme_connection *conn)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	if (list_empty(&conn->pump))
		return;
	list_splice(&all, &conn->pump);
	while ((node = list_pop_front(&all))) {
		struct nvme_io *n = list_entry(node, struct nvme_io, pump);

		list_push_back(&conn->pump, node);
		if (nvme_transfer_may_pump(conn, n))
			nvme_transfer_pump(conn, n);
	}
}

/* ---- what the target says ---- */

static struct nvme_io *io_of_slot(struct nvme_slot *slot)
{
	return container_of(slot, struct nvme_io, slot);
}

/*
 * Copies what is there; what is not, and is much, comes straight to its place. Returns whether all
 * of it was there.
 */
static bool nvme_transfer_take_payload(struct nvme_connection *conn, struct nvme_input *in)
{
	struct nvme_receive *r = &conn->receive;
	uint8_t *buf = io_of_slot(r->slot)->io->buf;
	uint32_t missing = nvme_receive_copy(r, in, buf);

	if (missing >= DIRECT_BYTES && !conn->c.stream.codec)
		stream_receive_into(&conn->c.stream, buf + r->at_bytes, missing);
	return missing == 0;
}

void nvme_transfer_received_into(struct nvme_connection *conn, uint32_t bytes)
{
	struct nvme_receive *r = &conn->receive;

	nvme_receive_took(r, (uint8_t *)io_of_slot(r->slot)->io->buf + r->at_bytes, bytes);
}

int nvme_transfer_received(struct nvme_connection *conn, struct nvme_input *in,
			   struct nvme_io **ret_answered)
{
	struct nvme_receive *r = &conn->receive;

	for (;;) {
		switch (nvme_receive_next(r, in)) {
		case NVME_RECEIVE_MORE:
			return 0;
		case NVME_RECEIVE_PAYLOAD:
			if (!nvme_transfer_take_payload(conn, in))
				return 0;
			break;
		case NVME_RECEIVE_R2T:
			nvme_transfer_on_r2t(conn, io_of_slot(r->slot));
			break;
		case NVME_RECEIVE_DONE:
			*ret_answered = io_of_slot(r->slot);
			nvme_transfer_drop_data(*ret_answered);
			return 1;
		default:
			return r->err;
		}
	}
}
