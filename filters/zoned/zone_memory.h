/*
 * The memory of the zones that outlives the process (struct backend's stored_fd): a memfd with what
 * zone_table.h calls kept.
 */
#ifndef FILTERS_ZONED_ZONE_MEMORY_H
#define FILTERS_ZONED_ZONE_MEMORY_H

#include <stddef.h>

#include "filters/zoned/zone_format.h"

struct zone_memory {
	int fd; /* -1: none */
	void *area;
	size_t area_bytes;
	uint32_t depth;
	/* In the area. */
	struct zone_kept *zone;
	struct zone_write *write, *old;
};

/* Return 0 or -errno; zone_memory_free accepts what is left, and a zeroed one with fd -1. */
int zone_memory_new(struct zone_memory *m, const struct zone_header *h, uint32_t depth);
/*
 * Of a process before, whose memory fd is, borrowed. -ENODATA: it had not come so far as to fill
 * it; -EBUSY: it is of other zones, or of a smaller depth.
 */
int zone_memory_adopt(struct zone_memory *m, const struct zone_header *h, uint32_t depth, int fd);
/* The memory holds the truth from here on. */
void zone_memory_set_filled(struct zone_memory *m, const struct zone_header *h);
/* It holds it no more: a process that adopts is to read the table. */
void zone_memory_set_lost(struct zone_memory *m);
void zone_memory_free(struct zone_memory *m);

#endif
