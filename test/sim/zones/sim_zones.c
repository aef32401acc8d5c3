/* The model of a device's zones: what is possible, and whether a report is. */
#include "test/sim/zones/sim_zones.h"

#include <linux/blkzoned.h>
#include <string.h>

#include "test/sim/storage.h"
#include "test/sim/world.h"

#define SECTOR_SHIFT 9

#define COND(name) (1u << BLK_ZONE_COND_##name)
#define CONDS_OPEN (COND(IMP_OPEN) | COND(EXP_OPEN))
#define CONDS_ACTIVE (CONDS_OPEN | COND(CLOSED))
#define CONDS_ANY (CONDS_ACTIVE | COND(EMPTY) | COND(FULL))

void sim_zones_reset(struct sim_zones *z)
{
	memset(z->zone, 0, z->nr * sizeof(*z->zone));
	for (uint32_t i = 0; i < z->nr; i++)
		z->zone[i].conds = COND(EMPTY);
	z->begun_active_nr = 0;
	z->life++;
}

/* Of one that nobody has open any more. */
static void close_zone(struct sim_zone *zone)
{
	if (!(zone->conds & CONDS_OPEN))
		return;
	zone->conds &= ~CONDS_OPEN;
	if (zone->high_bytes > 0)
		zone->conds |= COND(CLOSED);
	if (zone->low_bytes == 0)
		zone->conds |= COND(EMPTY);
}

void sim_zones_restart(struct sim_zones *z)
{
	z->begun_active_nr = 0;
	for (uint32_t i = 0; i < z->nr; i++) {
		struct sim_zone *zone = &z->zone[i];

		close_zone(zone);
		z->begun_active_nr += i >= z->conventional_nr && zone->conds & COND(CLOSED);
		zone->write_nr = zone->append_nr = zone->manage_nr = 0;
		zone->mixed = zone->has_holes = false;
	}
	z->life++;
}

void sim_zone_lose(struct storage *st, uint32_t idx)
{
	struct sim_zone *zone = &st->zones->zone[idx];

	zone->low_bytes = zone->acked_bytes = 0;
	zone->high_bytes = st->zones->capacity_bytes;
	zone->conds = CONDS_ANY;
	zone->unsure = true;
	storage_set_unknown(st, sim_zone_start(st->zones, idx),
			    (uint32_t)st->zones->capacity_bytes);
}

void sim_zone_settle(struct storage *st, uint32_t idx, uint64_t bytes)
{
	struct sim_zone *zone = &st->zones->zone[idx];

	zone->low_bytes = zone->high_bytes = bytes;
	zone->unsure = false;
	storage_forget(st, sim_zone_start(st->zones, idx) + bytes, st->zones->zone_bytes - bytes);
}

void sim_zone_fill(struct sim_zone *zone)
{
	zone->conds = COND(FULL);
	zone->unsure = false;
	zone->high_bytes = zone->low_bytes;
}

void sim_zone_empty(struct storage *st, uint32_t idx)
{
	struct sim_zone *zone = &st->zones->zone[idx];

	zone->acked_bytes = 0;
	zone->conds = COND(EMPTY);
	zone->has_holes = false;
	sim_zone_settle(st, idx, 0);
}

/* ---- limits ---- */

static bool has_changed(const struct sim_zone *zone, uint64_t seq)
{
	return zone->unsure || sim_zone_inflight(zone) > 0 || zone->end_seq > seq;
}

/* Others that may have been one of these at some time since. */
static uint32_t possible_nr(const struct sim_zones *z, uint32_t idx, uint64_t seq, uint32_t conds)
{
	uint32_t nr = 0;

	for (uint32_t i = z->conventional_nr; i < z->nr; i++)
		nr += i != idx && ((z->zone[i].conds & conds) || has_changed(&z->zone[i], seq));
	return nr;
}

bool sim_zones_may_be_open(const struct sim_zones *z, uint32_t idx, uint64_t seq)
{
	return z->open_nr_max && possible_nr(z, idx, seq, COND(EXP_OPEN)) >= z->open_nr_max;
}

bool sim_zones_may_be_active(const struct sim_zones *z, uint32_t idx, uint64_t seq)
{
	return z->active_nr_max && possible_nr(z, idx, seq, CONDS_ACTIVE) >= z->active_nr_max;
}

bool sim_zones_are_active(const struct sim_zones *z, uint32_t idx, uint64_t seq)
{
	uint32_t nr = 0;

	for (uint32_t i = z->conventional_nr; i < z->nr; i++)
		nr += i != idx && z->zone[i].low_bytes > 0 && !(z->zone[i].conds & ~CONDS_ACTIVE) &&
		      !has_changed(&z->zone[i], seq);
	return z->active_nr_max && nr >= z->active_nr_max;
}

void sim_zones_judge_limits(const struct storage *st, const struct blk_zone *found, uint32_t nr)
{
	const struct sim_zones *z = st->zones;
	uint32_t open_nr = 0, active_nr = 0;

	for (uint32_t i = 0; i < nr; i++) {
		open_nr += !!(1u << found[i].cond & CONDS_OPEN);
		active_nr += !!(1u << found[i].cond & CONDS_ACTIVE);
	}
	if ((z->open_nr_max && open_nr > z->open_nr_max) ||
	    (z->active_nr_max && active_nr > MAX(z->active_nr_max, z->begun_active_nr)))
		sim_fail("storage %u: %u zones are open and %u active, but %u and %u can be",
			 st->idx, open_nr, active_nr, z->open_nr_max, z->active_nr_max);
}

/* ---- reports ---- */

static _Noreturn void report_is_wrong(const struct storage *st, uint32_t idx,
				      const struct blk_zone *found, const char *why)
{
	const struct sim_zone *zone = &st->zones->zone[idx];

	sim_fail("storage %u: zone %u is reported at %llu with its pointer at %llu, condition %u, "
		 "type %u: %s; it can be from %llu to %llu, one of %x",
		 st->idx, idx, (unsigned long long)found->start, (unsigned long long)found->wp,
		 found->cond, found->type, why, (unsigned long long)zone->low_bytes >> SECTOR_SHIFT,
		 (unsigned long long)zone->high_bytes >> SECTOR_SHIFT, zone->conds);
}

static void judge_shape(const struct storage *st, uint32_t idx, const struct blk_zone *found)
{
	const struct sim_zones *z = st->zones;
	bool conventional = idx < z->conventional_nr;
	uint64_t capacity_bytes = conventional ? z->zone_bytes : z->capacity_bytes;

	if (found->start != sim_zone_start(z, idx) >> SECTOR_SHIFT ||
	    found->len != z->zone_bytes >> SECTOR_SHIFT ||
	    found->capacity != capacity_bytes >> SECTOR_SHIFT)
		report_is_wrong(st, idx, found, "its place");
	if (found->type != (conventional ? BLK_ZONE_TYPE_CONVENTIONAL : BLK_ZONE_TYPE_SEQWRITE_REQ))
		report_is_wrong(st, idx, found, "its type");
	if (conventional != (found->cond == BLK_ZONE_COND_NOT_WP))
		report_is_wrong(st, idx, found, "its condition");
}

/* The condition and the pointer by themselves. */
static void judge_sanity(const struct storage *st, uint32_t idx, const struct blk_zone *found)
{
	const struct sim_zones *z = st->zones;
	uint64_t at_bytes = (found->wp - found->start) << SECTOR_SHIFT;

	if (found->cond > BLK_ZONE_COND_FULL || !(1u << found->cond & CONDS_ANY))
		report_is_wrong(st, idx, found, "no condition");
	if (found->cond == BLK_ZONE_COND_FULL) {
		if (at_bytes != z->zone_bytes)
			report_is_wrong(st, idx, found, "full");
		return;
	}
	if (at_bytes >= z->capacity_bytes || at_bytes % st->block_bytes != 0)
		report_is_wrong(st, idx, found, "no pointer");
	if ((found->cond == BLK_ZONE_COND_EMPTY && at_bytes > 0) ||
	    (found->cond == BLK_ZONE_COND_CLOSED && at_bytes == 0))
		report_is_wrong(st, idx, found, "pointer and condition");
}

/* What was opened by a write is closed when there must be room for others. */
static uint32_t conds_of(const struct sim_zones *z, const struct sim_zone *zone)
{
	uint32_t conds = zone->conds;

	if (conds & COND(IMP_OPEN) && z->open_nr_max)
		conds |= (zone->high_bytes > 0 ? COND(CLOSED) : 0) |
			 (zone->low_bytes == 0 ? COND(EMPTY) : 0);
	return conds;
}

void sim_zone_judge(struct storage *st, uint32_t idx, const struct blk_zone *found, uint64_t seq,
		    bool can_settle)
{
	struct sim_zone *zone = &st->zones->zone[idx];
	uint64_t at_bytes = (found->wp - found->start) << SECTOR_SHIFT;
	bool full = found->cond == BLK_ZONE_COND_FULL;

	judge_shape(st, idx, found);
	if (idx < st->zones->conventional_nr)
		return;
	judge_sanity(st, idx, found);
	if (sim_zone_inflight(zone) > 0 || zone->end_seq > seq)
		return;
	if (!(conds_of(st->zones, zone) & 1u << found->cond))
		report_is_wrong(st, idx, found, "not this condition");
	if (!full && (at_bytes < zone->low_bytes || at_bytes > zone->high_bytes))
		report_is_wrong(st, idx, found, "not this pointer");
	if (zone->unsure && !can_settle)
		return;
	/* Where a write of elsewhere may have closed it, an older report may come yet. */
	zone->conds =
		1u << found->cond | (st->zones->open_nr_max ? zone->conds & COND(IMP_OPEN) : 0);
	if (!full && zone->unsure)
		sim_zone_settle(st, idx, at_bytes);
	else if (full)
		sim_zone_fill(zone);
}
