/* Bytes of an NBD server, one after the other, for tests. */
#ifndef TEST_RIG_NBD_BYTES_H
#define TEST_RIG_NBD_BYTES_H

#include "backends/nbd/nbd_proto.h"
#include "base/assert.h"

struct bytes {
	size_t nr;
	uint8_t at[65536];
};

static inline uint8_t *bytes_room(struct bytes *b, size_t nr)
{
	ASSERT(nr <= sizeof(b->at) - b->nr);
	b->nr += nr;
	return b->at + b->nr - nr;
}

static inline void add16(struct bytes *b, uint16_t n)
{
	be_put16(bytes_room(b, 2), n);
}

static inline void add32(struct bytes *b, uint32_t n)
{
	be_put32(bytes_room(b, 4), n);
}

static inline void add64(struct bytes *b, uint64_t n)
{
	be_put64(bytes_room(b, 8), n);
}

static inline void add_text(struct bytes *b, const char *text)
{
	memcpy(bytes_room(b, strlen(text)), text, strlen(text));
}

static inline void add_fill(struct bytes *b, int c, size_t nr)
{
	memset(bytes_room(b, nr), c, nr);
}

/* ---- handshake ---- */

static inline void add_greeting(struct bytes *b, uint16_t flags)
{
	add64(b, NBD_MAGIC);
	add64(b, NBD_OPTION_MAGIC);
	add16(b, flags);
}

/* The header of a reply with `bytes` of data behind it. */
static inline void add_rep(struct bytes *b, uint32_t opt, uint32_t rep, uint32_t bytes)
{
	add64(b, NBD_OPTION_REPLY_MAGIC);
	add32(b, opt);
	add32(b, rep);
	add32(b, bytes);
}

static inline void add_info_export(struct bytes *b, uint32_t opt, uint64_t size, uint16_t flags)
{
	add_rep(b, opt, NBD_REP_INFO, 12);
	add16(b, NBD_INFO_EXPORT);
	add64(b, size);
	add16(b, flags);
}

static inline void add_info_block_size(struct bytes *b, uint32_t opt, uint32_t min,
				       uint32_t preferred, uint32_t max)
{
	add_rep(b, opt, NBD_REP_INFO, 14);
	add16(b, NBD_INFO_BLOCK_SIZE);
	add32(b, min);
	add32(b, preferred);
	add32(b, max);
}

static inline void add_info_text(struct bytes *b, uint32_t opt, uint16_t info, const char *text)
{
	add_rep(b, opt, NBD_REP_INFO, 2 + (uint32_t)strlen(text));
	add16(b, info);
	add_text(b, text);
}

static inline void add_context(struct bytes *b, uint32_t id, const char *name)
{
	add_rep(b, NBD_OPT_SET_META_CONTEXT, NBD_REP_META_CONTEXT, 4 + (uint32_t)strlen(name));
	add32(b, id);
	add_text(b, name);
}

static inline void add_server(struct bytes *b, const char *name, const char *description)
{
	add_rep(b, NBD_OPT_LIST, NBD_REP_SERVER,
		4 + (uint32_t)strlen(name) + (uint32_t)strlen(description));
	add32(b, (uint32_t)strlen(name));
	add_text(b, name);
	add_text(b, description);
}

/* ---- replies ---- */

static inline void add_simple(struct bytes *b, uint64_t cookie, uint32_t error)
{
	add32(b, NBD_SIMPLE_REPLY_MAGIC);
	add32(b, error);
	add64(b, cookie);
}

/* The header of a chunk with `bytes` of payload behind it; extended with the request's offset. */
static inline void add_chunk(struct bytes *b, bool extended, uint64_t cookie, uint16_t flags,
			     uint16_t type, uint64_t bytes, uint64_t request_offset)
{
	add32(b, extended ? NBD_EXTENDED_REPLY_MAGIC : NBD_STRUCTURED_REPLY_MAGIC);
	add16(b, flags);
	add16(b, type);
	add64(b, cookie);
	if (extended) {
		add64(b, request_offset);
		add64(b, bytes);
	} else {
		add32(b, (uint32_t)bytes);
	}
}

#endif
