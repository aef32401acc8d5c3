/* What opening and closing a zoned device share: requests to the child, one after the other. */
#ifndef FILTERS_ZONED_ZONED_VISIT_H
#define FILTERS_ZONED_ZONED_VISIT_H

#include "filters/zoned/zone_below.h"
#include "filters/zoned/zoned.h"

struct zoned_visit {
	struct zoned_device *d;
	struct backend_visit *visit;
	uint8_t *buf; /* 2 * ZONE_PAGE_BYTES */
	void (*then)(struct zoned_visit *v, int result);
	uint32_t next; /* page; of zones below: zone */
	struct zone_below_found found;
	uint64_t entry[ZONE_PAGE_ENTRIES];
};

/* NULL: no memory. Owned by d->visit. */
struct zoned_visit *zoned_visit_new(struct zoned_device *d, struct backend_visit *visit);
/* The part of the visit ends. words: for device->error, or NULL. */
void zoned_visit_end(struct zoned_visit *v, int result, const char *words);
/* then is called from a turn; what fails to begin is told so too. bytes 0: FLUSH. */
void zoned_visit_io(struct zoned_visit *v, enum backend_op op, uint64_t offset, uint32_t bytes,
		    const char *doing, void (*then)(struct zoned_visit *v, int result));

#endif
