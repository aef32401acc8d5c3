/*
 * The pages of a zoned device's table. The queue's reactor, or the control reactor when there is no
 * queue. Owns the arrays.
 *
 * Happy path: changes mark a page -> begin takes how far its zones are complete -> next makes the
 * bytes of one page after the other -> end. Failure modes: a page that could not be made durable is
 * marked again, and goes to the same of its two places: the other one is good.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/util.h"
#include "filters/zoned/zoned.h"

int zoned_pages_alloc(struct zoned_pages *p, uint32_t zone_nr)
{
	p->nr = zone_page_nr(zone_nr);
	p->seq = calloc(p->nr, sizeof(*p->seq));
	p->is_dirty = calloc(p->nr, 1);
	p->is_now = calloc(p->nr, 1);
	p->entry = calloc((size_t)p->nr * ZONE_PAGE_ENTRIES, sizeof(*p->entry));
	return p->seq && p->is_dirty && p->is_now && p->entry ? 0 : -ENOMEM;
}

void zoned_pages_free(struct zoned_pages *p)
{
	free(p->seq);
	free(p->is_dirty);
	free(p->is_now);
	free(p->entry);
	*p = (struct zoned_pages){ 0 };
}

void zoned_zone_changed(struct zone_table *t, uint32_t idx)
{
	struct zoned_device *d = container_of(t, struct zoned_device, table);

	d->pages.is_dirty[idx / ZONE_PAGE_ENTRIES] = 1;
}

bool zoned_pages_are_clean(const struct zoned_device *d)
{
	return !memchr(d->pages.is_dirty, 1, d->pages.nr);
}

static uint64_t entry_of(const struct zone_kept *z)
{
	return z->written_bytes | (z->condition == ZONE_FULL ? ZONE_ENTRY_FULL : 0);
}

static void take_page(struct zoned_device *d, uint32_t page)
{
	uint32_t first = page * ZONE_PAGE_ENTRIES;
	uint32_t end = MIN(first + ZONE_PAGE_ENTRIES, d->shape.zone_nr);

	for (uint32_t i = first; i < end; i++)
		d->pages.entry[i] =
			zone_is_conventional(&d->table, i) ? 0 : entry_of(&d->memory.zone[i]);
}

bool zoned_pages_are_owed(const struct zoned_device *d)
{
	for (uint32_t i = 0; i < d->pages.nr; i++)
		if (d->pages.is_now[i] || d->pages.is_dirty[i])
			return true;
	return false;
}

void zoned_pages_adopt(struct zoned_device *d, const struct zone_kept *on_child)
{
	for (uint32_t i = 0; i < d->shape.zone_nr; i++)
		if (!d->is_read_only || (!zone_is_conventional(&d->table, i) &&
					 entry_of(&d->memory.zone[i]) != entry_of(&on_child[i])))
			d->pages.is_dirty[i / ZONE_PAGE_ENTRIES] = 1;
}

/* A zone is complete up to its first write that is under way: what follows belongs to a later
 * round. */
static void zoned_take_back(struct zoned_device *d, const struct zone_write *w)
{
	uint32_t idx = zone_of(&d->table, w->offset_bytes);
	uint64_t at_bytes = w->offset_bytes - zone_start(&d->table, idx);
	uint64_t *entry = &d->pages.entry[idx];

	if (!d->pages.is_now[idx / ZONE_PAGE_ENTRIES])
		return;
	*entry = MIN(*entry & ~ZONE_ENTRY_FULL, at_bytes);
	d->pages.is_dirty[idx / ZONE_PAGE_ENTRIES] = 1;
}

void zoned_pages_begin(struct zoned_device *d)
{
	struct zoned_pages *p = &d->pages;

	p->next = 0;
	memcpy(p->is_now, p->is_dirty, p->nr);
	memset(p->is_dirty, 0, p->nr);
	for (uint32_t i = 0; i < p->nr; i++)
		if (p->is_now[i])
			take_page(d, i);
	for (unsigned tag = 0; tag < d->shape.depth && d->table.under_way_nr > 0; tag++)
		if (d->memory.write[tag].state == ZONE_WRITE_UNDER_WAY)
			zoned_take_back(d, &d->memory.write[tag]);
}

bool zoned_pages_next(struct zoned_device *d, void *buf, uint64_t *ret_at)
{
	struct zoned_pages *p = &d->pages;
	uint64_t seq;

	while (p->next < p->nr && !p->is_now[p->next])
		p->next++;
	if (p->next == p->nr)
		return false;
	seq = p->seq[p->next] + 1;
	zone_page_write(buf, d->header.instance, p->next, seq,
			p->entry + (size_t)p->next * ZONE_PAGE_ENTRIES);
	*ret_at = zone_page_at(p->next, seq & 1);
	p->next++;
	return true;
}

void zoned_pages_end(struct zoned_device *d, bool is_good)
{
	struct zoned_pages *p = &d->pages;

	for (uint32_t i = 0; i < p->nr; i++) {
		if (!p->is_now[i])
			continue;
		p->seq[i] += is_good;
		p->is_dirty[i] |= !is_good;
		p->is_now[i] = 0;
	}
	if (is_good)
		counter_add(&d->commits, 1);
}
