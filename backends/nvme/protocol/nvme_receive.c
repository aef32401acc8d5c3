/*
 * Parses the controller's PDUs. Owns struct nvme_receive; the thread of the connection.
 *
 * Happy path: ICResp once; then C2HData -> PAYLOAD -> perhaps a digest -> CapsuleResp -> DONE, or
 * R2T, or CapsuleResp alone. A header is looked at as a whole, where it was received; receive_peek
 * gathers in r->head only what is split. Failure modes: everything that the specification forbids
 * breaks the connection, in words, with the fatal error status and information that TCP 3.6.2.5
 * wants in H2CTermReq: for an invalid field the offset of that field in the header.
 */
#include "backends/nvme/protocol/nvme_receive.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/crc32c.h"
#include "base/assert.h"
#include "base/util.h"

#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x) __builtin_expect(!!(x), 1)

enum receive_state {
	CONNECTING, /* nothing but ICResp may come */
	HEADER,
	PADDING,
	PAYLOAD,
	DIGEST,	  /* of data: 4 bytes */
	DATA_END, /* no byte of its own */
	BROKEN,
	TERMINATED,
};

/* Not an event: go on with the next state. */
#define GO_ON ((enum nvme_receive_event) - 1)

/* Offsets in headers: TCP 3.6. */
enum field {
	AT_TYPE = 0,
	AT_FLAGS = 1,
	AT_HLEN = 2,
	AT_PDO = 3,
	AT_PLEN = 4,
	AT_CCCID = 8,
	AT_PFV = 8,
	AT_CPDA = 10,
	AT_DGST = 11,
	AT_MAXH2CDATA = 12,
	AT_OFFSET = 12,
	AT_LENGTH = 16,
	AT_RESP_CID = 20,
};

__attribute__((format(printf, 4, 5), cold)) static enum nvme_receive_event
receive_broken(struct nvme_receive *r, enum nvme_fes fes, uint32_t fei, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->error, sizeof(r->error), fmt, args);
	va_end(args);
	r->state = BROKEN;
	r->err = -EPROTO;
	r->fes = fes;
	r->fei = fei;
	return NVME_RECEIVE_BROKEN;
}

/* The first `need` bytes of the PDU in one piece, not yet passed; NULL: not all have come. */
static inline const uint8_t *receive_peek(struct nvme_receive *r, struct nvme_input *in,
					  uint32_t need)
{
	size_t nr;

	if (likely(r->have_bytes == 0 && (size_t)(in->end - in->at) >= need))
		return in->at;
	/* Of a header whose beginning was looked at before, more may be there. */
	if (r->have_bytes >= need)
		return r->head;
	ASSERT(need <= sizeof(r->head));
	nr = MIN((size_t)(need - r->have_bytes), (size_t)(in->end - in->at));
	if (nr > 0)
		memcpy(r->head + r->have_bytes, in->at, nr);
	r->have_bytes += (uint32_t)nr;
	in->at += nr;
	return r->have_bytes < need ? NULL : r->head;
}

static inline void receive_pass(struct nvme_receive *r, struct nvme_input *in, uint32_t bytes)
{
	if (r->have_bytes == 0)
		in->at += bytes;
	else
		r->have_bytes = 0;
}

/* ---- the common header ---- */

static uint32_t digest_bytes(bool digest)
{
	return digest ? NVME_DIGEST_BYTES : 0;
}

/* Without its data; a TermReq counts as a header as a whole. 0: a type that no controller sends. */
static uint32_t header_bytes(const struct nvme_receive *r, const uint8_t *at)
{
	uint32_t digest = digest_bytes(r->wire.header_digest);

	switch (at[AT_TYPE]) {
	case NVME_PDU_ICRESP:
		return NVME_PDU_IC_BYTES;
	case NVME_PDU_C2H_TERM:
		return nvme_get32(at + AT_PLEN);
	case NVME_PDU_CAPSULE_RESP:
		return NVME_PDU_RESP_BYTES + digest;
	case NVME_PDU_C2H_DATA:
		return NVME_PDU_DATA_BYTES + digest;
	case NVME_PDU_R2T:
		return NVME_PDU_R2T_BYTES + digest;
	default:
		return 0;
	}
}

/* Types for now. TCP 3.5: ICResp comes first and once. */
static enum nvme_receive_event receive_check_type(struct nvme_receive *r, const uint8_t *at)
{
	uint8_t type = at[AT_TYPE];
	const char *name = nvme_pdu_name(type);
	bool first = type == NVME_PDU_ICRESP;

	if (!name)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_TYPE,
				      r->state == CONNECTING
					      ? "what answers is no NVMe/TCP target: a PDU of "
						"unknown type 0x%02x"
					      : "a PDU of unknown type 0x%02x",
				      type);
	if (header_bytes(r, at) == 0 && type != NVME_PDU_C2H_TERM)
		return receive_broken(r, NVME_FES_SEQUENCE, 0, "%s, which only a host sends", name);
	if (type == NVME_PDU_C2H_TERM || first == (r->state == CONNECTING))
		return GO_ON;
	return receive_broken(r, NVME_FES_SEQUENCE, 0,
			      first ? "%s for the second time" : "%s before ICResp", name);
}

/* TCP 3.6.1: HLEN is fixed by the type; ICResp and TermReqs have no digest. */
static enum nvme_receive_event check_common(struct nvme_receive *r, const uint8_t *at)
{
	uint8_t type = at[AT_TYPE], flags = at[AT_FLAGS];
	bool plain = type == NVME_PDU_ICRESP || type == NVME_PDU_C2H_TERM;
	uint32_t hlen = type == NVME_PDU_ICRESP ? NVME_PDU_IC_BYTES : NVME_PDU_RESP_BYTES;
	uint32_t plen = nvme_get32(at + AT_PLEN), need = header_bytes(r, at);
	const char *name = nvme_pdu_name(type);

	if (at[AT_HLEN] != hlen)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_HLEN,
				      "%s with HLEN %u instead of %u", name, at[AT_HLEN], hlen);
	if (!plain && !(flags & NVME_PDU_FLAG_HDGST) != !r->wire.header_digest)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_FLAGS,
				      "%s %s a header digest, which was%s agreed on", name,
				      r->wire.header_digest ? "without" : "with",
				      r->wire.header_digest ? "" : " not");
	if (type == NVME_PDU_C2H_TERM) {
		if (plen < NVME_PDU_TERM_BYTES || plen > NVME_PDU_TERM_BYTES_MAX)
			return receive_broken(r, NVME_FES_HEADER_FIELD, AT_PLEN, "%s of %u bytes",
					      name, plen);
		return GO_ON;
	}
	if (type != NVME_PDU_C2H_DATA && plen != need)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_PLEN,
				      "%s of %u bytes instead of %u", name, plen, need);
	return GO_ON;
}

static enum nvme_receive_event check_digest(struct nvme_receive *r, const uint8_t *at)
{
	uint32_t hlen = at[AT_HLEN], came, is;

	if (!(at[AT_FLAGS] & NVME_PDU_FLAG_HDGST) || at[AT_TYPE] == NVME_PDU_ICRESP ||
	    at[AT_TYPE] == NVME_PDU_C2H_TERM)
		return GO_ON;
	came = nvme_get32(at + hlen);
	is = crc32c(0, at, hlen);
	if (unlikely(came != is))
		return receive_broken(r, NVME_FES_HEADER_DIGEST, came,
				      "%s with header digest 0x%08x, it is 0x%08x",
				      nvme_pdu_name(at[AT_TYPE]), came, is);
	return GO_ON;
}

/* ---- ICResp: TCP 3.6.2.3 ---- */

static enum nvme_receive_event refused_digest(struct nvme_receive *r, const char *which,
					      const char *option)
{
	receive_broken(r, NVME_FES_UNSUPPORTED, AT_DGST,
		       "the target does not do %s digests: leave out %s, or enable them there",
		       which, option);
	r->err = -EOPNOTSUPP;
	return NVME_RECEIVE_BROKEN;
}

static enum nvme_receive_event on_icresp(struct nvme_receive *r, const uint8_t *at)
{
	uint32_t maxh2cdata = nvme_get32(at + AT_MAXH2CDATA);
	unsigned pfv = nvme_get16(at + AT_PFV), digests = at[AT_DGST];
	unsigned asked = (r->wire.header_digest ? NVME_DIGEST_HEADER : 0) |
			 (r->wire.data_digest ? NVME_DIGEST_DATA : 0);

	if (pfv != 0)
		return receive_broken(r, NVME_FES_UNSUPPORTED, AT_PFV,
				      "ICResp with PDU format version %u: only 0 is known", pfv);
	if (at[AT_CPDA] > NVME_PDU_ALIGN_MAX)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_CPDA,
				      "ICResp with CPDA %u, above %u", at[AT_CPDA],
				      NVME_PDU_ALIGN_MAX);
	if (digests & ~asked)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_DGST,
				      "ICResp with digests 0x%x, asked for were 0x%x", digests,
				      asked);
	if (asked & ~digests & NVME_DIGEST_HEADER)
		return refused_digest(r, "header", "hdr_digest");
	if (asked & ~digests)
		return refused_digest(r, "data", "data_digest");
	if (maxh2cdata < NVME_MAXH2CDATA_MIN || maxh2cdata % 4 != 0)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_MAXH2CDATA,
				      "ICResp with MAXH2CDATA %u: a multiple of 4 from %u on is "
				      "allowed",
				      maxh2cdata, NVME_MAXH2CDATA_MIN);
	r->wire.cpda = at[AT_CPDA];
	r->wire.maxh2cdata_bytes = maxh2cdata;
	r->state = HEADER;
	return NVME_RECEIVE_READY;
}

/* ---- C2HTermReq: TCP 3.6.2.6 ---- */

static enum nvme_receive_event on_c2h_term(struct nvme_receive *r, const uint8_t *at)
{
	uint32_t plen = nvme_get32(at + AT_PLEN), fei = nvme_get32(at + 10);
	unsigned fes = nvme_get16(at + 8);
	const char *name =
		plen > NVME_PDU_TERM_BYTES ? nvme_pdu_name(at[NVME_PDU_TERM_BYTES]) : NULL;
	char place[32] = "";

	if (fes == NVME_FES_HEADER_FIELD || fes == NVME_FES_UNSUPPORTED)
		snprintf(place, sizeof(place), " at byte %u", fei);
	snprintf(r->error, sizeof(r->error),
		 "the target ended the connection for %s%s%s%s (C2HTermReq %u)",
		 nvme_fes_words((uint16_t)fes), place, name ? " of " : "", name ? name : "", fes);
	r->state = TERMINATED;
	r->err = -ECONNRESET;
	return NVME_RECEIVE_TERMINATED;
}

/* ---- commands ---- */

/* The slot of the command, or BROKEN. */
static enum nvme_receive_event receive_find(struct nvme_receive *r, const uint8_t *at,
					    enum field where)
{
	r->cid = nvme_get16(at + where);
	r->slot = r->lookup(r->ctx, r->cid);
	if (likely(r->slot && r->slot->waiting))
		return GO_ON;
	return receive_broken(r, NVME_FES_HEADER_FIELD, where,
			      "%s for command 0x%04x, which is not under way",
			      nvme_pdu_name(at[AT_TYPE]), r->cid);
}

static enum nvme_receive_event receive_answered(struct nvme_receive *r)
{
	struct nvme_slot *slot = r->slot;

	slot->waiting = false;
	r->state = HEADER;
	if (unlikely(slot->digest_error && r->cqe.status == NVME_SC_SUCCESS))
		r->cqe.status = NVME_SC_TRANSIENT_TRANSPORT;
	return NVME_RECEIVE_DONE;
}

/* A command that succeeds has all of its data where they belong. */
static enum nvme_receive_event check_complete(struct nvme_receive *r)
{
	const struct nvme_slot *slot = r->slot;

	if (slot->direction == NVME_DATA_IN && slot->came_bytes < slot->data_bytes &&
	    !slot->short_ok)
		return receive_broken(
			r, NVME_FES_SEQUENCE, 0,
			"CapsuleResp says that command 0x%04x succeeded, with %u bytes of %u",
			r->cid, slot->came_bytes, slot->data_bytes);
	if (slot->direction == NVME_DATA_OUT &&
	    (slot->asked_bytes < slot->data_bytes || slot->r2t_nr > 0))
		return receive_broken(
			r, NVME_FES_SEQUENCE, 0,
			"CapsuleResp says that command 0x%04x succeeded, before all of its "
			"%u bytes were sent",
			r->cid, slot->data_bytes);
	return GO_ON;
}

static enum nvme_receive_event on_response(struct nvme_receive *r, const uint8_t *at)
{
	enum nvme_receive_event event = receive_find(r, at, AT_RESP_CID);

	if (unlikely(event != GO_ON))
		return event;
	r->cqe = nvme_cqe_decode(at + NVME_PDU_COMMON_BYTES);
	if (r->cqe.status == NVME_SC_SUCCESS) {
		event = check_complete(r);
		if (unlikely(event != GO_ON))
			return event;
	}
	return receive_answered(r);
}

/* TCP 3.6.2.9: in order, inside the buffer, never for what was in the capsule. */
static enum nvme_receive_event check_r2t(struct nvme_receive *r, uint32_t offset, uint32_t bytes)
{
	const struct nvme_slot *slot = r->slot;

	if (slot->direction != NVME_DATA_OUT)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_CCCID,
				      "R2T for command 0x%04x, which sends no data", r->cid);
	if (bytes == 0)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_LENGTH, "R2T for 0 bytes");
	if (offset > slot->data_bytes || bytes > slot->data_bytes - offset)
		return receive_broken(r, NVME_FES_OUT_OF_RANGE, 0,
				      "R2T for %u bytes at %u of a buffer of %u", bytes, offset,
				      slot->data_bytes);
	if (offset != slot->asked_bytes)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_OFFSET,
				      "R2T for bytes at %u, the next ones are at %u", offset,
				      slot->asked_bytes);
	if (slot->r2t_nr >= r->wire.r2t_nr)
		return receive_broken(r, NVME_FES_LIMIT, 0,
				      "R2T number %u under way for command 0x%04x, above the limit "
				      "of %u",
				      slot->r2t_nr + 1, r->cid, r->wire.r2t_nr);
	return GO_ON;
}

static enum nvme_receive_event on_r2t(struct nvme_receive *r, const uint8_t *at)
{
	uint32_t offset = nvme_get32(at + AT_OFFSET), bytes = nvme_get32(at + AT_LENGTH);
	enum nvme_receive_event event = receive_find(r, at, AT_CCCID);

	if (unlikely(event != GO_ON))
		return event;
	event = check_r2t(r, offset, bytes);
	if (unlikely(event != GO_ON))
		return event;
	r->slot->asked_bytes += bytes;
	r->slot->r2t_nr++;
	r->at_bytes = offset;
	r->bytes = bytes;
	r->ttag = nvme_get16(at + 10);
	return NVME_RECEIVE_R2T;
}

/* ---- C2HData: TCP 3.6.2.10 ---- */

/* PDO and PLEN, and the digest's flag. */
static enum nvme_receive_event check_data_layout(struct nvme_receive *r, const uint8_t *at,
						 uint32_t bytes)
{
	uint32_t head = header_bytes(r, at), pdo = at[AT_PDO], plen = nvme_get32(at + AT_PLEN);
	uint32_t align = (r->wire.hpda + 1u) * 4;

	if (!(at[AT_FLAGS] & NVME_PDU_FLAG_DDGST) != !r->wire.data_digest)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_FLAGS,
				      "C2HData %s a data digest, which was%s agreed on",
				      r->wire.data_digest ? "without" : "with",
				      r->wire.data_digest ? "" : " not");
	if ((at[AT_FLAGS] & NVME_PDU_FLAG_SUCCESS) && !(at[AT_FLAGS] & NVME_PDU_FLAG_LAST))
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_FLAGS,
				      "C2HData with SUCCESS, but without LAST_PDU");
	if (pdo < head || pdo % align != 0)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_PDO,
				      "C2HData with PDO %u: a multiple of %u from %u on is allowed",
				      pdo, align, head);
	if (plen != (uint64_t)pdo + bytes + digest_bytes(r->wire.data_digest))
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_PLEN,
				      "C2HData of %u bytes with PDO %u and %u bytes of data", plen,
				      pdo, bytes);
	return GO_ON;
}

static enum nvme_receive_event check_data_place(struct nvme_receive *r, const uint8_t *at,
						uint32_t offset, uint32_t bytes)
{
	const struct nvme_slot *slot = r->slot;

	if (slot->direction != NVME_DATA_IN)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_CCCID,
				      "C2HData for command 0x%04x, which reads no data", r->cid);
	if (slot->all_came)
		return receive_broken(r, NVME_FES_SEQUENCE, 0,
				      "C2HData for command 0x%04x behind its LAST_PDU", r->cid);
	if (bytes == 0)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_LENGTH, "C2HData of 0 bytes");
	if (offset > slot->data_bytes || bytes > slot->data_bytes - offset)
		return receive_broken(r, NVME_FES_OUT_OF_RANGE, 0,
				      "C2HData of %u bytes at %u of a buffer of %u", bytes, offset,
				      slot->data_bytes);
	if (offset != slot->came_bytes)
		return receive_broken(r, NVME_FES_HEADER_FIELD, AT_OFFSET,
				      "C2HData at %u, the next ones are at %u", offset,
				      slot->came_bytes);
	if ((at[AT_FLAGS] & NVME_PDU_FLAG_SUCCESS) && offset + bytes < slot->data_bytes &&
	    !slot->short_ok)
		return receive_broken(
			r, NVME_FES_SEQUENCE, 0,
			"C2HData says that command 0x%04x succeeded, with %u bytes of "
			"%u",
			r->cid, offset + bytes, slot->data_bytes);
	return GO_ON;
}

static enum nvme_receive_event on_data(struct nvme_receive *r, const uint8_t *at)
{
	uint32_t offset = nvme_get32(at + AT_OFFSET), bytes = nvme_get32(at + AT_LENGTH);
	enum nvme_receive_event event = check_data_layout(r, at, bytes);

	if (unlikely(event != GO_ON))
		return event;
	event = receive_find(r, at, AT_CCCID);
	if (unlikely(event != GO_ON))
		return event;
	event = check_data_place(r, at, offset, bytes);
	if (unlikely(event != GO_ON))
		return event;
	r->flags = at[AT_FLAGS];
	r->pad_bytes = (uint8_t)(at[AT_PDO] - header_bytes(r, at));
	r->at_bytes = offset;
	r->bytes = bytes;
	r->digest = 0;
	r->state = PADDING;
	return GO_ON;
}

static enum nvme_receive_event on_padding(struct nvme_receive *r, struct nvme_input *in)
{
	size_t nr = MIN((size_t)r->pad_bytes, (size_t)(in->end - in->at));

	in->at += nr;
	r->pad_bytes -= (uint8_t)nr;
	if (r->pad_bytes > 0)
		return NVME_RECEIVE_MORE;
	r->state = PAYLOAD;
	return NVME_RECEIVE_PAYLOAD;
}

void nvme_receive_took(struct nvme_receive *r, const void *data, uint32_t bytes)
{
	ASSERT(r->state == PAYLOAD && bytes <= r->bytes);
	if (r->wire.data_digest && bytes > 0)
		r->digest = crc32c(r->digest, data, bytes);
	r->slot->came_bytes += bytes;
	r->at_bytes += bytes;
	r->bytes -= bytes;
	if (r->bytes == 0)
		r->state = r->wire.data_digest ? DIGEST : DATA_END;
}

/* Linux' nvme_tcp_recv_ddgst: the command fails, the connection lives on. */
static enum nvme_receive_event on_data_digest(struct nvme_receive *r, struct nvme_input *in)
{
	const uint8_t *at = receive_peek(r, in, NVME_DIGEST_BYTES);

	if (!at)
		return NVME_RECEIVE_MORE;
	if (unlikely(nvme_get32(at) != r->digest))
		r->slot->digest_error = true;
	receive_pass(r, in, NVME_DIGEST_BYTES);
	r->state = DATA_END;
	return GO_ON;
}

/* TCP 3.3.2.2: with SUCCESS there is no CapsuleResp. */
static enum nvme_receive_event on_data_end(struct nvme_receive *r)
{
	if (r->flags & NVME_PDU_FLAG_LAST)
		r->slot->all_came = true;
	r->state = HEADER;
	if (!(r->flags & NVME_PDU_FLAG_SUCCESS))
		return GO_ON;
	r->cqe = (struct nvme_cqe){ .cid = r->cid };
	return receive_answered(r);
}

/* ---- all of it ---- */

static enum nvme_receive_event on_pdu(struct nvme_receive *r, const uint8_t *at)
{
	switch (at[AT_TYPE]) {
	case NVME_PDU_ICRESP:
		return on_icresp(r, at);
	case NVME_PDU_C2H_TERM:
		return on_c2h_term(r, at);
	case NVME_PDU_CAPSULE_RESP:
		return on_response(r, at);
	case NVME_PDU_C2H_DATA:
		return on_data(r, at);
	default:
		return on_r2t(r, at);
	}
}

/* Of a PDU that broke the protocol, what H2CTermReq shows of its header. */
static enum nvme_receive_event keep_bad(struct nvme_receive *r, const uint8_t *at, uint32_t bytes)
{
	r->bad_bytes = MIN(bytes, NVME_PDU_TERM_BYTES_MAX - NVME_PDU_TERM_BYTES);
	memmove(r->head, at, r->bad_bytes);
	return NVME_RECEIVE_BROKEN;
}

static enum nvme_receive_event on_header(struct nvme_receive *r, struct nvme_input *in)
{
	const uint8_t *at = receive_peek(r, in, NVME_PDU_COMMON_BYTES);
	enum nvme_receive_event event;
	uint32_t bytes;

	if (!at)
		return NVME_RECEIVE_MORE;
	event = receive_check_type(r, at);
	if (likely(event == GO_ON))
		event = check_common(r, at);
	if (unlikely(event != GO_ON))
		return keep_bad(r, at, NVME_PDU_COMMON_BYTES);
	bytes = header_bytes(r, at);
	at = receive_peek(r, in, bytes);
	if (!at)
		return NVME_RECEIVE_MORE;
	event = check_digest(r, at);
	if (likely(event == GO_ON)) {
		receive_pass(r, in, bytes);
		event = on_pdu(r, at);
	}
	return unlikely(event == NVME_RECEIVE_BROKEN) ? keep_bad(r, at, bytes) : event;
}

static enum nvme_receive_event receive_step(struct nvme_receive *r, struct nvme_input *in)
{
	switch ((enum receive_state)r->state) {
	case CONNECTING:
	case HEADER:
		return on_header(r, in);
	case PADDING:
		return on_padding(r, in);
	case PAYLOAD:
		return NVME_RECEIVE_PAYLOAD;
	case DIGEST:
		return on_data_digest(r, in);
	case DATA_END:
		return on_data_end(r);
	case TERMINATED:
		return NVME_RECEIVE_TERMINATED;
	default:
		return NVME_RECEIVE_BROKEN;
	}
}

enum nvme_receive_event nvme_receive_next(struct nvme_receive *r, struct nvme_input *in)
{
	enum nvme_receive_event event;

	do
		event = receive_step(r, in);
	while (event == GO_ON);
	return event;
}

bool nvme_receive_is_inside(const struct nvme_receive *r)
{
	return (r->state != HEADER && r->state != CONNECTING) || r->have_bytes != 0;
}

uint32_t nvme_receive_term(const struct nvme_receive *r,
			   uint8_t buf[static NVME_PDU_TERM_BYTES_MAX])
{
	if (r->state != BROKEN)
		return 0;
	return nvme_pdu_term(buf, (enum nvme_fes)r->fes, r->fei, r->head, r->bad_bytes);
}

void nvme_receive_init(struct nvme_receive *r, const struct nvme_wire *wire,
		       struct nvme_slot *(*lookup)(void *ctx, uint16_t cid), void *ctx)
{
	memset(r, 0, sizeof(*r));
	r->wire = *wire;
	r->lookup = lookup;
	r->ctx = ctx;
	r->state = CONNECTING;
}
