/*
 * Parses NBD replies. Owns struct nbd_reply; the thread of the connection.
 *
 * Happy path: header -> its slot -> one OFFSET_DATA with DONE, or a simple reply -> PAYLOAD ->
 * DONE. Headers are read where they were received; take() gathers in r->head only what is split.
 * Failure modes: everything that proto.md forbids breaks the connection, in words ("Structured
 * reply types": a client MUST hang up on inconsistent contents); what a server says of an error is
 * an event, and the request's result. BROKEN is for good.
 */
#include "backends/nbd/nbd_reply.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/util.h"
#include "base/printable.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum reply_state {
	HEAD,	     /* 16 bytes, which all kinds have; 32 of an extended one */
	LENGTH,	     /* the 4 bytes more of a structured one */
	DATA_OFFSET, /* 8 */
	PAYLOAD,
	HOLE,	    /* 12 */
	ERROR_HEAD, /* 6 */
	ERROR_TEXT,
	ERROR_OFFSET, /* 8 */
	ERROR_REST,   /* of error chunks of a later protocol */
	CHUNK_END,    /* no byte of its own */
	SIMPLE_END,   /* nor has this: a simple reply is whole when its last byte has come */
	BROKEN,
};

/* Not an event: go on with the next state. */
#define GO_ON ((enum nbd_reply_event) - 1)

__attribute__((format(printf, 2, 3), cold)) static enum nbd_reply_event
reply_broken(struct nbd_reply *r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->error, sizeof(r->error), fmt, args);
	va_end(args);
	r->state = BROKEN;
	return NBD_REPLY_BROKEN;
}

static const char *reply_cmd_name(const struct nbd_slot *slot)
{
	return nbd_cmd_name(slot->cmd);
}

static const char *reply_type_name(const struct nbd_reply *r)
{
	const char *name = nbd_reply_type_name(r->chunk_type);

	return name ? name : "of unknown type";
}

/* The next `need` bytes in one piece, or NULL: not all of them have come. */
static inline const uint8_t *reply_take(struct nbd_reply *r, struct nbd_input *in, size_t need)
{
	const uint8_t *at = in->at;
	size_t nr;

	if (likely(r->have_bytes == 0 && (size_t)(in->end - at) >= need)) {
		in->at += need;
		return at;
	}
	nr = MIN(need - r->have_bytes, (size_t)(in->end - at));
	if (nr > 0)
		memcpy(r->head + r->have_bytes, at, nr);
	r->have_bytes += (uint8_t)nr;
	in->at += nr;
	if (r->have_bytes < need)
		return NULL;
	r->have_bytes = 0;
	return r->head;
}

static enum nbd_reply_event reply_go_on(struct nbd_reply *r, enum reply_state state)
{
	r->state = state;
	return GO_ON;
}

/* ---- the end of a chunk ---- */

static enum nbd_reply_event reply_answered(struct nbd_reply *r, int result)
{
	r->slot->waiting = false;
	r->result = result;
	r->state = HEAD;
	return NBD_REPLY_DONE;
}

static enum nbd_reply_event end_chunk(struct nbd_reply *r)
{
	struct nbd_slot *slot = r->slot;

	if (!(r->chunk_flags & NBD_REPLY_FLAG_DONE))
		return reply_go_on(r, HEAD);
	if (slot->error)
		return reply_answered(r, slot->error);
	if (slot->cmd == NBD_CMD_READ &&
	    !nbd_ranges_full(&slot->ranges, (uint32_t)slot->length_bytes))
		return reply_broken(r, "a READ was answered without all of its data");
	return reply_answered(r, 0);
}

/* ---- content of READ ---- */

/* Whether [offset, +bytes) may come now; *ret_at: where in the buffer. */
static enum nbd_reply_event check_content(struct nbd_reply *r, uint64_t offset, uint64_t bytes)
{
	struct nbd_slot *slot = r->slot;
	uint64_t at = offset - slot->offset_bytes;
	int err;

	if (offset < slot->offset_bytes || at > slot->length_bytes ||
	    bytes > slot->length_bytes - at)
		return reply_broken(
			r, "%s of %llu bytes at %llu is outside its READ of %llu at %llu",
			reply_type_name(r), (unsigned long long)bytes, (unsigned long long)offset,
			(unsigned long long)slot->length_bytes,
			(unsigned long long)slot->offset_bytes);
	/* "NBD_REPLY_TYPE_OFFSET_DATA": MUST NOT overlap an earlier content or error chunk. */
	for (unsigned i = 0; i < slot->error_nr; i++)
		if (slot->error_at[i] != UINT32_MAX && slot->error_at[i] - at < bytes &&
		    slot->error_at[i] >= at)
			return reply_broken(r, "data of a READ behind its error at the same place");
	err = nbd_ranges_add(&slot->ranges, (uint32_t)at, (uint32_t)(at + bytes));
	if (unlikely(err == -EEXIST))
		return reply_broken(r, "data of a READ came twice, at %llu",
				    (unsigned long long)offset);
	if (unlikely(err))
		return reply_broken(
			r,
			"a READ's data comes in too many places at once, above the limit "
			"of %u",
			NBD_RANGES_MAX);
	slot->has_content = true;
	r->at_bytes = at;
	r->bytes = bytes;
	return GO_ON;
}

static enum nbd_reply_event on_data_offset(struct nbd_reply *r, const uint8_t *at)
{
	enum nbd_reply_event event = check_content(r, be_get64(at), r->chunk_bytes - 8);

	if (unlikely(event != GO_ON))
		return event;
	r->state = PAYLOAD;
	return NBD_REPLY_PAYLOAD;
}

static enum nbd_reply_event on_hole(struct nbd_reply *r, const uint8_t *at)
{
	uint32_t bytes = be_get32(at + 8);
	enum nbd_reply_event event;

	if (bytes == 0)
		return reply_broken(r, "a hole of 0 bytes");
	event = check_content(r, be_get64(at), bytes);
	if (event != GO_ON)
		return event;
	r->state = CHUNK_END;
	return NBD_REPLY_ZEROES;
}

void nbd_reply_took(struct nbd_reply *r, uint64_t bytes)
{
	ASSERT(r->state == PAYLOAD && bytes <= r->bytes);
	r->at_bytes += bytes;
	r->bytes -= bytes;
	if (r->bytes == 0)
		r->state = r->mode == NBD_REPLIES_SIMPLE ? SIMPLE_END : CHUNK_END;
}

/* ---- errors ---- */

static enum nbd_reply_event on_error_head(struct nbd_reply *r, const uint8_t *at)
{
	uint32_t error = be_get32(at);
	uint32_t fixed = r->chunk_type == NBD_REPLY_TYPE_ERROR_OFFSET ? 14 : 6;

	r->text_bytes = be_get16(at + 4);
	r->text_have = 0;
	if (error == 0)
		return reply_broken(r, "an error chunk with error 0");
	if (r->text_bytes > r->chunk_bytes - fixed || r->text_bytes > NBD_STRING_BYTES_MAX)
		return reply_broken(r, "an error text of %u bytes in a chunk of %llu",
				    r->text_bytes, (unsigned long long)r->chunk_bytes);
	if (r->slot->error_nr == NBD_REPLY_ERRORS_MAX)
		return reply_broken(r, "more than %u error chunks in one reply",
				    NBD_REPLY_ERRORS_MAX);
	/* Of no place, until it says of which. */
	r->slot->error_at[r->slot->error_nr++] = UINT32_MAX;
	r->chunk_error = nbd_errno(error);
	if (!r->slot->error)
		r->slot->error = r->chunk_error;
	r->left = (uint32_t)r->chunk_bytes - fixed - r->text_bytes;
	return reply_go_on(r, ERROR_TEXT);
}

/* As much of the text as r->text holds; the rest is passed over. */
static enum nbd_reply_event on_error_text(struct nbd_reply *r, struct nbd_input *in)
{
	uint32_t nr =
		(uint32_t)MIN((size_t)(in->end - in->at), (size_t)(r->text_bytes - r->text_have));

	if (nr > 0 && r->text_have < sizeof(r->text))
		memcpy(r->text + r->text_have, in->at, MIN(nr, sizeof(r->text) - r->text_have));
	r->text_have += nr;
	in->at += nr;
	if (r->text_have < r->text_bytes)
		return NBD_REPLY_MORE;
	return reply_go_on(r, r->chunk_type == NBD_REPLY_TYPE_ERROR_OFFSET ? ERROR_OFFSET
									   : ERROR_REST);
}

static enum nbd_reply_event on_error_offset(struct nbd_reply *r, const uint8_t *at)
{
	struct nbd_slot *slot = r->slot;
	uint64_t offset = be_get64(at);

	if (offset < slot->offset_bytes || offset - slot->offset_bytes >= slot->length_bytes)
		return reply_broken(r, "an error at %llu, outside its %s",
				    (unsigned long long)offset, reply_cmd_name(slot));
	if (slot->cmd == NBD_CMD_READ)
		slot->error_at[slot->error_nr - 1] = (uint32_t)(offset - slot->offset_bytes);
	return reply_go_on(r, ERROR_REST);
}

static void put_error_words(struct nbd_reply *r)
{
	uint32_t at = r->slot->error_at[r->slot->error_nr - 1];
	uint64_t offset = r->slot->offset_bytes + at;
	char place[32] = "", text[100] = "";

	if (at != UINT32_MAX)
		snprintf(place, sizeof(place), " at %llu", (unsigned long long)offset);
	printable(text, sizeof(text), r->text, MIN(r->text_bytes, (uint32_t)sizeof(r->text)));
	if (text[0])
		snprintf(r->error, sizeof(r->error), "%s failed%s: the server says \"%s\"",
			 reply_cmd_name(r->slot), place, text);
	else
		snprintf(r->error, sizeof(r->error), "%s failed%s: the server gives no reason",
			 reply_cmd_name(r->slot), place);
}

static enum nbd_reply_event on_error_rest(struct nbd_reply *r, struct nbd_input *in)
{
	uint32_t nr = (uint32_t)MIN((size_t)(in->end - in->at), (size_t)r->left);

	in->at += nr;
	r->left -= nr;
	if (r->left > 0)
		return NBD_REPLY_MORE;
	put_error_words(r);
	r->result = r->chunk_error;
	r->state = CHUNK_END;
	return NBD_REPLY_ERROR;
}

/* ---- headers ---- */

/* "Structured reply types": what may stand in which reply, how long. */
static enum nbd_reply_event start_content(struct nbd_reply *r)
{
	bool hole = r->chunk_type == NBD_REPLY_TYPE_OFFSET_HOLE;
	struct nbd_slot *slot = r->slot;

	if (slot->cmd != NBD_CMD_READ)
		return reply_broken(r, "%s in answer to %s", reply_type_name(r),
				    reply_cmd_name(slot));
	if (unlikely(slot->flags & NBD_CMD_FLAG_DF) && (hole || slot->has_content))
		return reply_broken(r, "a READ that must not be fragmented came in fragments");
	if (hole ? r->chunk_bytes != 12 : r->chunk_bytes < 9)
		return reply_broken(r, "%s of %llu bytes", reply_type_name(r),
				    (unsigned long long)r->chunk_bytes);
	return reply_go_on(r, hole ? HOLE : DATA_OFFSET);
}

static enum nbd_reply_event start_error(struct nbd_reply *r)
{
	uint32_t min = r->chunk_type == NBD_REPLY_TYPE_ERROR_OFFSET ? 14 : 6;

	if (r->chunk_bytes < min || r->chunk_bytes > NBD_REPLY_ERROR_BYTES_MAX)
		return reply_broken(r, "an error chunk (0x%x) of %llu bytes", r->chunk_type,
				    (unsigned long long)r->chunk_bytes);
	return reply_go_on(r, ERROR_HEAD);
}

static enum nbd_reply_event start_chunk(struct nbd_reply *r)
{
	if (likely(r->chunk_type == NBD_REPLY_TYPE_OFFSET_DATA))
		return start_content(r);
	if (r->chunk_type & NBD_REPLY_ERROR_BIT)
		return start_error(r);
	switch (r->chunk_type) {
	case NBD_REPLY_TYPE_NONE:
		if (r->chunk_bytes != 0 || !(r->chunk_flags & NBD_REPLY_FLAG_DONE))
			return reply_broken(r, "a chunk NONE with %llu bytes, flags 0x%x",
					    (unsigned long long)r->chunk_bytes, r->chunk_flags);
		return reply_go_on(r, CHUNK_END);
	case NBD_REPLY_TYPE_OFFSET_HOLE:
		return start_content(r);
	default:
		return reply_broken(r, "a chunk of unknown type %u in answer to %s", r->chunk_type,
				    reply_cmd_name(r->slot));
	}
}

/* "Simple reply message" */
static enum nbd_reply_event start_simple(struct nbd_reply *r, uint32_t error)
{
	struct nbd_slot *slot = r->slot;

	if (r->mode == NBD_REPLIES_STRUCTURED && slot->cmd == NBD_CMD_READ)
		return reply_broken(r, "a simple reply to READ, structured ones were negotiated");
	if (error)
		return reply_answered(r, nbd_errno(error));
	r->chunk_flags = NBD_REPLY_FLAG_DONE;
	if (slot->cmd != NBD_CMD_READ)
		return reply_go_on(r, CHUNK_END);
	r->at_bytes = 0;
	r->bytes = slot->length_bytes;
	r->state = PAYLOAD;
	return NBD_REPLY_PAYLOAD;
}

static enum nbd_reply_event start_extended(struct nbd_reply *r, const uint8_t *at)
{
	uint64_t offset = be_get64(at + 16);

	/* "Extended reply chunk message": it MUST match. */
	if (offset != r->slot->offset_bytes)
		return reply_broken(
			r, "a reply to %s at %llu says it is for %llu", reply_cmd_name(r->slot),
			(unsigned long long)r->slot->offset_bytes, (unsigned long long)offset);
	r->chunk_bytes = be_get64(at + 24);
	return start_chunk(r);
}

static bool magic_allowed(const struct nbd_reply *r, uint32_t magic)
{
	switch (r->mode) {
	case NBD_REPLIES_EXTENDED:
		return magic == NBD_EXTENDED_REPLY_MAGIC;
	case NBD_REPLIES_STRUCTURED:
		return magic == NBD_STRUCTURED_REPLY_MAGIC || magic == NBD_SIMPLE_REPLY_MAGIC;
	default:
		return magic == NBD_SIMPLE_REPLY_MAGIC;
	}
}

static enum nbd_reply_event on_head(struct nbd_reply *r, const uint8_t *at)
{
	uint32_t magic = be_get32(at);
	uint64_t cookie = be_get64(at + 8);

	if (unlikely(!magic_allowed(r, magic)))
		return reply_broken(r, "a reply with magic 0x%08x", magic);
	r->slot = r->lookup(r->ctx, cookie);
	if (unlikely(!r->slot || !r->slot->waiting))
		return reply_broken(r, "a reply to nothing that waits, cookie 0x%llx",
				    (unsigned long long)cookie);
	if (magic == NBD_SIMPLE_REPLY_MAGIC)
		return start_simple(r, be_get32(at + 4));
	r->chunk_flags = be_get16(at + 4);
	r->chunk_type = be_get16(at + 6);
	return magic == NBD_EXTENDED_REPLY_MAGIC ? start_extended(r, at) : reply_go_on(r, LENGTH);
}

static enum nbd_reply_event on_length(struct nbd_reply *r, const uint8_t *at)
{
	r->chunk_bytes = be_get32(at);
	return start_chunk(r);
}

/* Other states that are a number of bytes: how many, and who takes them. */
static size_t need(const struct nbd_reply *r)
{
	static const uint8_t bytes[] = {
		[LENGTH] = 4, [DATA_OFFSET] = 8, [HOLE] = 12, [ERROR_HEAD] = 6, [ERROR_OFFSET] = 8,
	};

	return bytes[r->state];
}

static enum nbd_reply_event on_bytes(struct nbd_reply *r, const uint8_t *at)
{
	switch ((enum reply_state)r->state) {
	case LENGTH:
		return on_length(r, at);
	case DATA_OFFSET:
		return on_data_offset(r, at);
	case HOLE:
		return on_hole(r, at);
	case ERROR_HEAD:
		return on_error_head(r, at);
	default:
		return on_error_offset(r, at);
	}
}

static enum nbd_reply_event reply_step(struct nbd_reply *r, struct nbd_input *in)
{
	const uint8_t *at;

	switch ((enum reply_state)r->state) {
	case HEAD:
		at = reply_take(r, in, r->mode == NBD_REPLIES_EXTENDED ? 32 : 16);
		return at ? on_head(r, at) : NBD_REPLY_MORE;
	case PAYLOAD:
		return NBD_REPLY_PAYLOAD;
	case CHUNK_END:
		return end_chunk(r);
	case SIMPLE_END:
		return reply_answered(r, 0);
	case ERROR_TEXT:
		return on_error_text(r, in);
	case ERROR_REST:
		return on_error_rest(r, in);
	case BROKEN:
		return NBD_REPLY_BROKEN;
	default:
		at = reply_take(r, in, need(r));
		return at ? on_bytes(r, at) : NBD_REPLY_MORE;
	}
}

enum nbd_reply_event nbd_reply_next(struct nbd_reply *r, struct nbd_input *in)
{
	enum nbd_reply_event event;

	do
		event = reply_step(r, in);
	while (event == GO_ON);
	return event;
}

bool nbd_reply_is_inside(const struct nbd_reply *r)
{
	return r->state != HEAD || r->have_bytes != 0;
}

void nbd_slot_start(struct nbd_slot *slot, uint16_t cmd, uint16_t flags, uint64_t offset_bytes,
		    uint64_t length_bytes)
{
	ASSERT(cmd < NBD_CMD_NR && cmd != NBD_CMD_DISC);
	ASSERT(cmd != NBD_CMD_READ || (length_bytes > 0 && length_bytes <= UINT32_MAX));
	slot->offset_bytes = offset_bytes;
	slot->length_bytes = length_bytes;
	slot->cmd = cmd;
	slot->flags = flags;
	slot->waiting = true;
	slot->has_content = false;
	slot->error_nr = 0;
	slot->error = 0;
	nbd_ranges_init(&slot->ranges);
}

void nbd_reply_init(struct nbd_reply *r, enum nbd_reply_mode mode,
		    struct nbd_slot *(*lookup)(void *ctx, uint64_t cookie), void *ctx)
{
	memset(r, 0, sizeof(*r));
	r->mode = mode;
	r->lookup = lookup;
	r->ctx = ctx;
}
