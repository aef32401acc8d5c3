/*
 * BLOCK_STATUS over a whole export. Happy path: request -> extents of its answer -> the next
 * request where they end, which may be before the request does ("NBD_CMD_BLOCK_STATUS" of
 * proto.md). Failure modes: an error of the server, a reply that breaks the protocol, or one that
 * tells nothing: words.
 */
#include "backends/nbd/nbd_map.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* Servers look at each block of it before they answer; 32 bits hold it. */
#define ASK_BYTES (1u << 30)
#define COOKIE 1

static struct nbd_slot *lookup(void *ctx, uint64_t cookie)
{
	struct nbd_map *m = ctx;

	return cookie == COOKIE ? &m->slot : NULL;
}

void nbd_map_init(struct nbd_map *m, const struct nbd_export *export, nbd_extent_fn *fn, void *arg)
{
	*m = (struct nbd_map){
		.fn = fn,
		.arg = arg,
		.extended = export->extended,
		.size_bytes = export->size_bytes,
	};
	nbd_reply_init(&m->reply, export->extended ? NBD_REPLIES_EXTENDED : NBD_REPLIES_STRUCTURED,
		       export->meta_context, lookup, m);
}

static void tell(struct nbd_map *m)
{
	if (m->to_bytes > m->from_bytes)
		m->fn(m->arg, m->from_bytes, m->to_bytes - m->from_bytes, m->flags);
	m->from_bytes = m->to_bytes;
}

uint32_t nbd_map_request(struct nbd_map *m, uint8_t buf[static NBD_REQUEST_BYTES_MAX])
{
	struct nbd_request request = {
		.cmd = NBD_CMD_BLOCK_STATUS,
		.cookie = COOKIE,
		.offset_bytes = m->to_bytes,
		.length_bytes = MIN(m->size_bytes - m->to_bytes, (uint64_t)ASK_BYTES),
	};

	m->asked_bytes = m->to_bytes;
	if (request.length_bytes == 0) {
		tell(m);
		return 0;
	}
	nbd_slot_start(&m->slot, request.cmd, request.flags, request.offset_bytes,
		       request.length_bytes);
	return nbd_request_encode(buf, &request, m->extended);
}

static void add_extent(struct nbd_map *m)
{
	if (m->reply.extent_flags != m->flags)
		tell(m);
	m->flags = m->reply.extent_flags;
	m->to_bytes = m->asked_bytes + m->reply.at_bytes + m->reply.bytes;
}

static int done(struct nbd_map *m)
{
	if (m->reply.result < 0) {
		if (!m->error[0])
			snprintf(m->error, sizeof(m->error), "%s", errname(m->reply.result));
		return m->reply.result;
	}
	/* An answer without an extent would have been BROKEN: each request leads on. */
	ASSERT(m->to_bytes > m->asked_bytes);
	return 0;
}

int nbd_map_feed(struct nbd_map *m, const uint8_t *data, size_t bytes)
{
	struct nbd_input in = { data, data + bytes };

	for (;;) {
		switch (nbd_reply_next(&m->reply, &in)) {
		case NBD_REPLY_MORE:
			return -EAGAIN;
		case NBD_REPLY_EXTENT:
			add_extent(m);
			break;
		case NBD_REPLY_DONE:
			return done(m);
		case NBD_REPLY_ERROR:
			snprintf(m->error, sizeof(m->error), "%s", m->reply.error);
			break;
		case NBD_REPLY_PAYLOAD:
		case NBD_REPLY_ZEROES:
		case NBD_REPLY_BROKEN:
			snprintf(m->error, sizeof(m->error), "it broke the protocol: %s",
				 m->reply.error);
			return -EPROTO;
		}
	}
}
