/*
 * integrity: a device that keeps the metadata of its client, checksums above all, beside its bytes
 * (storage/metadata.h).
 *
 *	integrity_node.c     what the core sees: options, limits, who it is, what can be seen
 *	integrity.c          requests
 *	integrity_range.h    which requests wait for which
 *	integrity_tuple.h    metadata as they are stored
 *
 * Two children: the data are a backend of any type, and see the requests that they would see
 *without this node; the metadata are a backend that takes requests from any byte to any other.
 *Those of interval N are at N * metadata_bytes there.
 *
 * One queue, so that one reactor sees all requests: a READ beside a WRITE on the same bytes could
 *get the bytes of one and the metadata of the other.
 */
#ifndef FILTERS_INTEGRITY_INTEGRITY_H
#define FILTERS_INTEGRITY_INTEGRITY_H

#include "filters/integrity/integrity_range.h"
#include "storage/metadata.h"
#include "storage/node.h"

/* The children, in the order of the table. */
enum integrity_child { INTEGRITY_DATA, INTEGRITY_METADATA };

/* What a request does now. */
enum integrity_step {
	INTEGRITY_HELD,	   /* waits for others on the same bytes */
	INTEGRITY_FORGETS, /* its metadata are being forgotten; the data come after that */
	INTEGRITY_MOVES,   /* data and metadata, at the same time */
	INTEGRITY_ENDED,
};

struct integrity_io {
	struct integrity_range range;
	struct backend_io *io;
	void *metadata; /* of this request, as long as the longest: the queue's */
	unsigned under_way_nr;
	int result;   /* the first that failed */
	uint8_t step; /* enum integrity_step */
};

struct integrity_device {
	struct backend_integrity_limits shape;
	struct backend_queue *queue; /* NULL: none is open */
	uint32_t max_io_bytes;	     /* of a request with metadata */
	uint8_t *buffers;	     /* mapped: buffer_bytes for each tag */
	size_t buffer_bytes;
	struct integrity_ranges ranges;
	struct task held_task;
	/* Written by the reactor, read by the main thread. */
	uint64_t reads, writes, forgotten, held;
};

/* ---- integrity.c: struct backend's operations ---- */

enum backend_submit integrity_submit(struct backend_io *io);
void integrity_child_done(struct backend_io *child);
void integrity_cancel(struct backend_io *io);

#endif
