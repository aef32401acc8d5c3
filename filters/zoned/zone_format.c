/*
 * See zone_format.h. Owns nothing; any thread.
 *
 * Happy path: write and parse are each other's opposite. Failure modes: a page that was written in
 * part, or by another table: its sum, index or instance is wrong.
 */
#include "filters/zoned/zone_format.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/util.h"

#define ZONE_MAGIC "ublkdzon"
#define ZONE_PAGE_MAGIC "ublkdzpg"
#define ZONE_VERSION 1u /* raised with the layout: test/kept.py */

/* The sum is of the page with these four bytes as 0. */
struct zone_header_disk {
	char magic[8];
	uint32_t version, sum;
	uint64_t instance, zone_bytes, capacity_bytes;
	uint32_t zone_nr, conventional_nr;
};

struct zone_page_disk {
	char magic[8];
	uint32_t page_idx, sum;
	uint64_t seq, instance;
	uint64_t entry[ZONE_PAGE_ENTRIES];
};

_Static_assert(sizeof(struct zone_page_disk) == ZONE_PAGE_BYTES, "a page");

/* Of a page whose sum stands at sum_at. */
static uint32_t zone_sum_of(const void *at, size_t sum_at)
{
	uint8_t page[ZONE_PAGE_BYTES];

	memcpy(page, at, sizeof(page));
	memset(page + sum_at, 0, sizeof(uint32_t));
	return crc32c(0, page, sizeof(page));
}

uint32_t zone_page_nr(uint32_t zone_nr)
{
	return (zone_nr + ZONE_PAGE_ENTRIES - 1) / ZONE_PAGE_ENTRIES;
}

uint64_t zone_page_at(uint32_t page, unsigned place)
{
	return (1 + 2 * (uint64_t)page + place) * ZONE_PAGE_BYTES;
}

uint64_t zone_data_at(uint32_t zone_nr)
{
	return round_up(zone_page_at(zone_page_nr(zone_nr), 0), (uint64_t)ZONE_DATA_ALIGN);
}

uint32_t zone_format_fit(uint64_t child_bytes, uint64_t zone_bytes)
{
	uint64_t nr = MIN(child_bytes / zone_bytes, (uint64_t)ZONE_NR_MAX);

	while (nr > 0 && zone_data_at((uint32_t)nr) + nr * zone_bytes > child_bytes)
		nr--;
	return (uint32_t)nr;
}

/* ---- the header ---- */

void zone_header_write(const struct zone_header *h, void *page)
{
	struct zone_header_disk *disk = page;

	memset(page, 0, ZONE_PAGE_BYTES);
	memcpy(disk->magic, ZONE_MAGIC, sizeof(disk->magic));
	disk->version = htole32(ZONE_VERSION);
	disk->instance = htole64(h->instance);
	disk->zone_bytes = htole64(h->zone_bytes);
	disk->capacity_bytes = htole64(h->capacity_bytes);
	disk->zone_nr = htole32(h->zone_nr);
	disk->conventional_nr = htole32(h->conventional_nr);
	disk->sum = htole32(zone_sum_of(page, offsetof(struct zone_header_disk, sum)));
}

static bool zone_header_is_sane(const struct zone_header *h)
{
	return h->instance != 0 && is_power_of_two(h->zone_bytes) && h->capacity_bytes != 0 &&
	       h->capacity_bytes <= h->zone_bytes && h->zone_nr != 0 && h->zone_nr <= ZONE_NR_MAX &&
	       h->conventional_nr <= h->zone_nr;
}

int zone_header_parse(struct zone_header *ret_header, const void *page)
{
	const struct zone_header_disk *disk = page;
	struct zone_header h = {
		.instance = le64toh(disk->instance),
		.zone_bytes = le64toh(disk->zone_bytes),
		.capacity_bytes = le64toh(disk->capacity_bytes),
		.zone_nr = le32toh(disk->zone_nr),
		.conventional_nr = le32toh(disk->conventional_nr),
	};

	if (memcmp(disk->magic, ZONE_MAGIC, sizeof(disk->magic)) != 0)
		return -ENODATA;
	if (le32toh(disk->version) != ZONE_VERSION || !zone_header_is_sane(&h) ||
	    le32toh(disk->sum) != zone_sum_of(page, offsetof(struct zone_header_disk, sum)))
		return -EINVAL;
	*ret_header = h;
	return 0;
}

/* ---- pages ---- */

void zone_page_write(void *page, uint64_t instance, uint32_t idx, uint64_t seq,
		     const uint64_t *entry)
{
	struct zone_page_disk *disk = page;

	memset(page, 0, ZONE_PAGE_BYTES);
	memcpy(disk->magic, ZONE_PAGE_MAGIC, sizeof(disk->magic));
	disk->page_idx = htole32(idx);
	disk->seq = htole64(seq);
	disk->instance = htole64(instance);
	for (unsigned i = 0; i < ZONE_PAGE_ENTRIES; i++)
		disk->entry[i] = htole64(entry[i]);
	disk->sum = htole32(zone_sum_of(page, offsetof(struct zone_page_disk, sum)));
}

static bool zone_page_is_good(const struct zone_page_disk *disk, uint64_t instance, uint32_t idx)
{
	return memcmp(disk->magic, ZONE_PAGE_MAGIC, sizeof(disk->magic)) == 0 &&
	       le32toh(disk->page_idx) == idx && le64toh(disk->instance) == instance &&
	       le32toh(disk->sum) == zone_sum_of(disk, offsetof(struct zone_page_disk, sum));
}

int zone_page_parse(const void *places, uint64_t instance, uint32_t idx, uint64_t *ret_seq,
		    uint64_t entry[ZONE_PAGE_ENTRIES])
{
	const struct zone_page_disk *best = NULL;

	for (unsigned place = 0; place < 2; place++) {
		const struct zone_page_disk *disk =
			(const void *)((const uint8_t *)places + place * ZONE_PAGE_BYTES);

		if (zone_page_is_good(disk, instance, idx) &&
		    (!best || le64toh(disk->seq) > le64toh(best->seq)))
			best = disk;
	}
	if (!best)
		return -ENODATA;
	for (unsigned i = 0; i < ZONE_PAGE_ENTRIES; i++)
		entry[i] = le64toh(best->entry[i]);
	*ret_seq = le64toh(best->seq);
	return 0;
}
