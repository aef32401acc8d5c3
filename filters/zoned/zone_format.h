/*
 * The state of the zones as it lies in front of their bytes, on the backend below. Pure.
 *
 *   | header | page 0, place 0 | page 0, place 1 | page 1, place 0 | ... | zones ... |
 *
 * Each page has the zones of a part of the device, and two places, of which the one with the higher
 * number counts: a page is written to the other one, so that a cut leaves at least the older. All
 * numbers are little-endian. An entry says how far a zone is written, and whether it is full; which
 * ones are open is not kept, as no drive does over a power cut.
 */
#ifndef FILTERS_ZONED_ZONE_FORMAT_H
#define FILTERS_ZONED_ZONE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "filters/zoned/zone_table.h"

#define ZONE_PAGE_BYTES 4096u
#define ZONE_PAGE_ENTRIES 508u
/* Where the zones begin is a multiple of it. */
#define ZONE_DATA_ALIGN 65536u
/* Of an entry. */
#define ZONE_ENTRY_FULL (1ull << 63)

struct zone_header {
	uint64_t instance; /* of this table; in each of its pages too. Not 0 */
	uint64_t zone_bytes, capacity_bytes;
	uint32_t zone_nr, conventional_nr;
};

/* How many zones of that size fit into child_bytes with their table; 0: not one. */
uint32_t zone_format_fit(uint64_t child_bytes, uint64_t zone_bytes);
uint32_t zone_page_nr(uint32_t zone_nr);
/* place: 0 or 1 */
uint64_t zone_page_at(uint32_t page, unsigned place);
uint64_t zone_data_at(uint32_t zone_nr);

void zone_header_write(const struct zone_header *h, void *page);
/* Returns 0; -ENODATA: it is no header; -EINVAL: it was one, and is damaged or of a later version.
 */
int zone_header_parse(struct zone_header *ret_header, const void *page);

/* entry: ZONE_PAGE_ENTRIES of them. */
void zone_page_write(void *page, uint64_t instance, uint32_t idx, uint64_t seq,
		     const uint64_t *entry);
/* The higher of the two places that are good. Returns 0 or -ENODATA: neither is. */
int zone_page_parse(const void *places, uint64_t instance, uint32_t idx, uint64_t *ret_seq,
		    uint64_t entry[ZONE_PAGE_ENTRIES]);

#endif
