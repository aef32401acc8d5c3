/* Which bytes of a READ have come. Pure functions. */
#include "backends/nbd/nbd_ranges.h"

#include <errno.h>
#include <string.h>

static void ranges_insert_at(struct nbd_ranges *r, uint32_t i, uint32_t start, uint32_t end)
{
	memmove(&r->range[i + 1], &r->range[i], (r->nr - i) * sizeof(r->range[0]));
	r->range[i] = (struct nbd_range){ start, end };
	r->nr++;
}

static void ranges_remove_at(struct nbd_ranges *r, uint32_t i)
{
	r->nr--;
	memmove(&r->range[i], &r->range[i + 1], (r->nr - i) * sizeof(r->range[0]));
}

int nbd_ranges_add(struct nbd_ranges *r, uint32_t start, uint32_t end)
{
	uint32_t i = r->nr;
	bool joins_before, joins_behind;

	/* Most answers are of one piece. */
	if (i == 0) {
		r->range[r->nr++] = (struct nbd_range){ start, end };
		return 0;
	}
	/* From the end: chunks mostly come in order. */
	while (i > 0 && r->range[i - 1].start >= end)
		i--;
	if (i > 0 && r->range[i - 1].end > start)
		return -EEXIST;
	joins_before = i > 0 && r->range[i - 1].end == start;
	joins_behind = i < r->nr && r->range[i].start == end;
	if (joins_before) {
		r->range[i - 1].end = joins_behind ? r->range[i].end : end;
		if (joins_behind)
			ranges_remove_at(r, i);
	} else if (joins_behind) {
		r->range[i].start = start;
	} else {
		if (r->nr == NBD_RANGES_MAX)
			return -E2BIG;
		ranges_insert_at(r, i, start, end);
	}
	return 0;
}
