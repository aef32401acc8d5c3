/*
 * What a controller sends on one NVMe/TCP connection: an incremental parser of its PDUs over bytes
 * in any pieces. Pure, no allocation; one per connection, its owner's thread. It copies nothing but
 * headers that are split between two pieces: data are left where they are, so that large data can
 * be received straight to where they belong.
 *
 *	struct nvme_input in = { data, data + bytes };
 *	for (;;)
 *		switch (nvme_receive_next(&r, &in)) {
 *		case NVME_RECEIVE_MORE:
 *			receive more, into a new in
 *		case NVME_RECEIVE_READY:
 *			ICResp has come: r.wire is what was agreed on; commands may be sent
 *		case NVME_RECEIVE_PAYLOAD:
 *			the next r.bytes of the stream belong to r.slot, from r.at_bytes of its
 *			buffer on. Those of them that in has (perhaps none): copy, in.at += nr; or
 *			receive the rest directly. Then nvme_receive_took(&r, where, nr)
 *		case NVME_RECEIVE_R2T:
 *			send r.bytes of r.slot's buffer from r.at_bytes on, in H2CData with r.ttag
 *		case NVME_RECEIVE_DONE:
 *			r.slot is answered with r.cqe, and is free. If r.slot->r2t_nr is not 0
 *			(with an error only), what was not yet sent for it must not be sent
 *		case NVME_RECEIVE_TERMINATED:
 *			r.error says what the controller has against this host: hang up
 *		case NVME_RECEIVE_BROKEN:
 *			r.error says how the controller broke the protocol: send what
 *			nvme_receive_term gives, if it can be sent at once, and hang up
 *		}
 *
 * What is checked: the type of PDU is one for now; its lengths, its digests, exactly as agreed; the
 * command is under way; C2HData lie in the buffer of a command that reads, in order, each byte
 * once; R2Ts lie in that of a command that writes, in order, each byte once, no more at a time than
 * allowed; a command succeeds only with all of its data transferred. A wrong data digest breaks
 * nothing but its command (TCP 3.3.1.1), which ends with Transient Transport Error: try it again.
 *
 * Linux' target sends C2HData in order and its initiator takes them so (nvme_tcp_recv_data does not
 * look at the offset); SPDK's nvme_tcp_c2h_data_hdr_handle refuses any other order.
 */
#ifndef BACKENDS_NVME_NVME_RECEIVE_H
#define BACKENDS_NVME_NVME_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backends/nvme/protocol/nvme_pdu.h"
#include "backends/nvme/protocol/nvme_slot.h"

enum nvme_receive_event {
	NVME_RECEIVE_MORE,
	NVME_RECEIVE_READY,
	NVME_RECEIVE_PAYLOAD,
	NVME_RECEIVE_R2T,
	NVME_RECEIVE_DONE,
	NVME_RECEIVE_TERMINATED,
	NVME_RECEIVE_BROKEN,
};

struct nvme_input {
	const uint8_t *at, *end;
};

struct nvme_receive {
	/* Of the last event. */
	struct nvme_slot *slot;
	uint32_t at_bytes, bytes;
	uint16_t ttag;
	struct nvme_cqe cqe;
	/* BROKEN: -EPROTO, or -EOPNOTSUPP (digests were refused). TERMINATED: -ECONNRESET. */
	int err;
	char error[240]; /* printable */
	/* As asked for until READY, as agreed on afterwards. */
	struct nvme_wire wire;

	/* The parser's. */
	struct nvme_slot *(*lookup)(void *ctx, uint16_t cid);
	void *ctx;
	uint8_t state;
	uint8_t flags;	   /* of the PDU */
	uint8_t pad_bytes; /* between header and data, still to come */
	uint16_t cid;
	uint32_t have_bytes; /* in head */
	uint32_t digest;     /* of the PDU's data so far */
	/* BROKEN: for H2CTermReq. */
	uint16_t fes;
	uint32_t fei;
	uint32_t bad_bytes; /* in head: the header in error */
	uint8_t head[NVME_PDU_TERM_BYTES_MAX];
};

/*
 * wire: what ICReq asked for. lookup: the slot of a command identifier, NULL: of none that waits (a
 * slot that is no longer waiting is as good).
 */
void nvme_receive_init(struct nvme_receive *r, const struct nvme_wire *wire,
		       struct nvme_slot *(*lookup)(void *ctx, uint16_t cid), void *ctx);

enum nvme_receive_event nvme_receive_next(struct nvme_receive *r, struct nvme_input *in);

/*
 * After PAYLOAD: so many bytes of it, at most r->bytes, are where they belong, and they are `data`
 * (looked at for the data digest only; may be NULL without data digests).
 */
void nvme_receive_took(struct nvme_receive *r, const void *data, uint32_t bytes);

/*
 * After PAYLOAD: copies what in has of it into buf, that of r->slot from its beginning on; NULL: it
 * is thrown away. Returns how many bytes are missing, which belong to buf + r->at_bytes.
 */
static inline uint32_t nvme_receive_copy(struct nvme_receive *r, struct nvme_input *in,
					 uint8_t *buf)
{
	size_t here = (size_t)(in->end - in->at);
	uint32_t bytes = here < r->bytes ? (uint32_t)here : r->bytes;

	if (buf && bytes > 0)
		memcpy(buf + r->at_bytes, in->at, bytes);
	nvme_receive_took(r, in->at, bytes);
	in->at += bytes;
	return r->bytes;
}

/* False between two PDUs: only then can a connection end cleanly. */
bool nvme_receive_is_inside(const struct nvme_receive *r);

/* After BROKEN: the H2CTermReq to send. Returns its bytes; 0: there is nothing to say. */
uint32_t nvme_receive_term(const struct nvme_receive *r,
			   uint8_t buf[static NVME_PDU_TERM_BYTES_MAX]);

#endif
