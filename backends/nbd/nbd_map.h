/*
 * What of an export is allocated: its whole range asked for by BLOCK_STATUS, one request after the
 * other, over a connection that has nothing else to do. Pure, no allocation, one thread; the owner
 * moves the bytes.
 *
 *	nbd_map_init(&m, &export, on_extent, arg);
 *	while ((bytes = nbd_map_request(&m, buf)) > 0) {
 *		send them
 *		do
 *			receive
 *		while ((ret = nbd_map_feed(&m, data, bytes)) == -EAGAIN);
 *		ret < 0: m.error says why
 *	}
 */
#ifndef BACKENDS_NBD_NBD_MAP_H
#define BACKENDS_NBD_NBD_MAP_H

#include "backends/nbd/nbd_handshake.h"
#include "backends/nbd/nbd_reply.h"
#include "backends/nbd/nbd_request.h"

/* flags: enum nbd_state_flags. Extents come in order, without gaps; neighbours differ. */
typedef void nbd_extent_fn(void *arg, uint64_t offset_bytes, uint64_t length_bytes, uint64_t flags);

struct nbd_map {
	nbd_extent_fn *fn;
	void *arg;
	char error[280]; /* printable words */

	/* What follows is nbd_map.c's. */
	struct nbd_reply reply;
	struct nbd_slot slot;
	bool extended;
	uint64_t size_bytes;
	uint64_t asked_bytes; /* all before that is known; the request under way begins there */
	uint64_t from_bytes, to_bytes, flags; /* the extent that may still grow */
};

/* The export must have has_meta. */
void nbd_map_init(struct nbd_map *m, const struct nbd_export *export, nbd_extent_fn *fn, void *arg);

/* The next request; its size, or 0 when all is known: then the last extent has been told. */
uint32_t nbd_map_request(struct nbd_map *m, uint8_t buf[static NBD_REQUEST_BYTES_MAX]);

/*
 * Returns 0 when the request is answered, -EAGAIN when there is more of it to come, -EPROTO when
 * the server broke the protocol, or the -errno that it answered with.
 */
int nbd_map_feed(struct nbd_map *m, const uint8_t *data, size_t bytes);

#endif
