/*
 * Integrity: a device that keeps metadata of its client beside its bytes, and gives them back. The
 * block layer of the kernel, or the client itself, makes them at a WRITE and checks them at a READ;
 * nothing here does. What a node says and answers whose limits.integrity are set.
 *
 * The bytes of a device are intervals of 1 << interval_shift. Each has metadata_bytes of metadata.
 * From tuple_at on these are a tuple of checksum and tags, as in T10 PI and in NVMe, unless there
 * is no checksum: then all of them are the client's. The kernel's words:
 * include/linux/blk-integrity.h, block/t10-pi.c.
 *
 *   READ, WRITE with BACKEND_METADATA      with the bytes moves the metadata of their intervals, in
 *                                          the order of the intervals, without gaps
 *   READ without                           the bytes alone
 *   WRITE without, DISCARD, WRITE_ZEROES   the metadata are forgotten
 *
 * Metadata that are forgotten, or were never written, read as "not to be checked": the bytes of the
 * tuple are 0xff, which block/t10-pi.c passes over (T10_PI_APP_ESCAPE, T10_PI_REF_ESCAPE), all
 * others are 0.
 *
 * A request is complete when its bytes and its metadata are. FLUSH and FUA are for both. A READ
 * gets bytes and metadata of the same WRITE, or of the same forgetting, whatever else is under way:
 * that is the node's to see to, as the kernel would report an error of the storage.
 */
#ifndef STORAGE_METADATA_H
#define STORAGE_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/limits.h"

struct backend_io;
struct backend_queue;
struct backend_spec;

/* Of the driver's positions: where the metadata of a request begin, behind its driver_pos. */
#define BACKEND_METADATA_POS (1ull << 62)

/* What a device keeps, and what was asked of it since it started. */
struct backend_integrity_look {
	struct backend_integrity_limits limits;
	uint64_t reads, writes; /* with metadata */
	uint64_t forgotten;	/* requests that made metadata forgotten */
	uint64_t held;		/* requests that waited for another one on the same bytes */
};

/* Main thread, between queue_init and queue_fini. False: the device keeps no metadata. */
bool backend_integrity_look(const struct backend_queue *top,
			    struct backend_integrity_look *ret_look);

/* Whether a device of this spec keeps metadata. Any thread. */
bool backend_spec_has_integrity(const struct backend_spec *spec);

/*
 * Memory that each tag of such a device has for its metadata, where requests have so many bytes at
 * most; 0: the device keeps none. Any thread.
 */
uint64_t backend_spec_metadata_bytes(const struct backend_spec *spec, uint32_t max_io_bytes,
				     uint32_t block_bytes);

/* "none", "ip", "crc", "nvme"; NULL behind the last. */
extern const char *const backend_checksum_names[];

/* Bytes of the tuple of checksum and tags: 0, 8 or 16. */
unsigned backend_tuple_bytes(enum backend_checksum checksum);

/*
 * Moves metadata of a request with BACKEND_METADATA, all of them at once: of a READ into the
 * request (put), of a WRITE out of it (get). Reactor thread, from submit until completion. Return 0
 * or -EIO.
 */
int backend_metadata_put(const struct backend_io *io, const void *from, size_t bytes);
int backend_metadata_get(const struct backend_io *io, void *to, size_t bytes);

#endif
