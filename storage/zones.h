/*
 * Zones: a device whose bytes are written one after the other in each of its zones, as on disks
 * with shingled tracks and NVMe namespaces with zones. What a node says and answers whose
 * limits.zones are set; the words are those of ZBC and of the kernel (linux/blkzoned.h).
 *
 * A zone has a write pointer. A WRITE begins there, or fails with EIO, and moves it when it is
 * issued; it stays in the zone, below its capacity. A READ behind the pointer reads zeroes. The
 * first zones may be conventional: they have no pointer, and their bytes are written in any order.
 *
 *   ZONE_APPEND   a WRITE at the write pointer of the zone that begins at offset_bytes. When it is
 *                 complete, offset_bytes says where its bytes are.
 *   ZONE_MANAGE   one of enum backend_zone_action for the zone that begins at offset_bytes. Without
 *                 bytes, but for REPORT, whose buf (with backend_data_put) gets an array of struct
 *                 blk_zone from the zone at offset_bytes on: length_bytes of it, zeroes behind the
 *                 last zone.
 *
 * Failures of their own: ETOOMANYREFS, so many zones are open that the device can have, and each by
 * a command; EOVERFLOW, the same of active ones. What only is open because it was written is closed
 * for another one.
 *
 * A leaf over a drive with zones may have them too, below a node that is_zoned: it answers
 * ZONE_MANAGE, no APPEND, and its reads behind the write pointer and its limits are the drive's.
 *
 * After a power cut a zone has all that was flushed, and nothing behind its pointer. RESET,
 * RESET_ALL and FINISH are durable when they are complete.
 */
#ifndef STORAGE_ZONES_H
#define STORAGE_ZONES_H

#include <stdbool.h>
#include <stdint.h>

struct backend_queue;
struct backend_spec;

enum backend_zone_action {
	BACKEND_ZONE_REPORT,
	BACKEND_ZONE_RESET,
	BACKEND_ZONE_RESET_ALL, /* offset_bytes 0 */
	BACKEND_ZONE_OPEN,
	BACKEND_ZONE_CLOSE,
	BACKEND_ZONE_FINISH,
	BACKEND_ZONE_ACTION_NR,
};

/* Of one zone in a report: sizeof(struct blk_zone). */
#define BACKEND_ZONE_REPORT_BYTES 64u

/* How many zones are in which condition now, and what was asked of them since the device started.
 */
struct backend_zones_look {
	uint64_t zone_bytes, capacity_bytes;
	uint32_t zone_nr, conventional_nr;
	uint32_t open_nr_max, active_nr_max; /* 0: no limit */
	uint32_t implicit_nr, explicit_nr;   /* open, by a write and by a command */
	uint32_t closed_nr, full_nr, empty_nr;
	uint64_t resets, finishes; /* zones */
	uint64_t refused; /* writes that did not begin at the write pointer or found no room */
	uint64_t redone;  /* writes of the daemon before that came again */
	uint64_t commits; /* how often the write pointers were made durable */
};

/* Main thread, between queue_init and queue_fini. False: the device is not zoned. */
bool backend_zones_look(const struct backend_queue *top, struct backend_zones_look *ret_look);

/* Whether a device of this spec is zoned. Any thread. */
bool backend_spec_is_zoned(const struct backend_spec *spec);

#endif
