/* Requests of devices with zones: which, and what becomes possible when they are sent. */
#include "test/sim/zones/client_zones.h"

#include <linux/blkzoned.h>

#define SECTOR_SHIFT 9
/* Most requests meet in the first zones with a pointer, so that some become full. */
#define BUSY_ZONES 4u

bool client_zones_is(const struct client_rq *rq)
{
	unsigned op = client_rq_op(rq);

	return rq->zone.life && ((op >= UBLK_IO_OP_ZONE_OPEN && op <= UBLK_IO_OP_ZONE_RESET) ||
				 op == UBLK_IO_OP_REPORT_ZONES);
}

static bool writes(unsigned op)
{
	return op == UBLK_IO_OP_WRITE || op == UBLK_IO_OP_ZONE_APPEND;
}

bool client_zones_changes(const struct client_rq *rq)
{
	unsigned op = client_rq_op(rq);

	if (op == UBLK_IO_OP_ZONE_RESET_ALL)
		return client_zones_is(rq);
	if (op != UBLK_IO_OP_WRITE && (!client_zones_is(rq) || op == UBLK_IO_OP_REPORT_ZONES))
		return false;
	return client_zones_idx(rq) >= rq->client->st->zones->conventional_nr;
}

static bool is_in_flight(const struct client *c, unsigned op, uint64_t from_bytes,
			 uint64_t end_bytes)
{
	list_for_each (node, &c->inflight) {
		const struct client_rq *rq = list_entry(node, struct client_rq, node);

		if (client_rq_op(rq) == op && client_zones_at(rq) < end_bytes &&
		    from_bytes < client_zones_at(rq) + client_zones_bytes(rq))
			return true;
	}
	return false;
}

bool client_zones_is_read(const struct client *c, uint64_t from_bytes, uint64_t end_bytes)
{
	return is_in_flight(c, UBLK_IO_OP_READ, from_bytes, end_bytes);
}

/* From a place in a zone to its end. */
static bool zone_is_read(const struct client *c, uint32_t idx, uint64_t from_bytes)
{
	const struct sim_zones *z = c->st->zones;
	uint64_t start = sim_zone_start(z, idx);

	return client_zones_is_read(c, start + from_bytes, start + z->zone_bytes);
}

/* ---- what to send ---- */

static struct sim_zone *zone_at(const struct client *c, uint32_t idx)
{
	return &c->st->zones->zone[idx];
}

static bool is_full(const struct sim_zone *zone)
{
	return zone->conds == 1u << BLK_ZONE_COND_FULL;
}

static uint32_t choose_zone(const struct client *c)
{
	const struct sim_zones *z = c->st->zones;
	uint32_t nr = z->nr - z->conventional_nr;

	if (z->conventional_nr > 0 && sim_one_in(6))
		return (uint32_t)sim_below(z->conventional_nr);
	return z->conventional_nr + (uint32_t)sim_below(sim_one_in(4) ? nr : MIN(nr, BUSY_ZONES));
}

static void set_place(const struct client *c, struct client_rq *rq, unsigned op, uint32_t idx,
		      uint64_t at_bytes, uint64_t bytes)
{
	rq->op_flags = op;
	rq->start_sector = (sim_zone_start(c->st->zones, idx) + at_bytes) >> SECTOR_SHIFT;
	rq->nr_sectors = (uint32_t)(bytes >> SECTOR_SHIFT);
}

static uint64_t choose_bytes(const struct client *c, uint32_t max_sectors, uint64_t room_bytes)
{
	uint64_t block = c->st->block_bytes;
	uint64_t max = MIN((uint64_t)max_sectors << SECTOR_SHIFT, room_bytes) / block;

	return sim_skewed(1, MAX(max, 1ul)) * block;
}

static bool choose_report(const struct client *c, struct client_rq *rq, uint32_t first)
{
	uint32_t left = c->st->zones->nr - first;

	/* As many again behind the last one are zeroes. */
	set_place(c, rq, UBLK_IO_OP_REPORT_ZONES, first, 0, 0);
	rq->nr_sectors = sim_one_in(2) ? left : (uint32_t)sim_between(1, left);
	return true;
}

/* A zone that something else is in flight for: only now and then, and nobody reads it then. */
static bool may_mix(const struct client *c, uint32_t idx)
{
	return sim_one_in(8) && !zone_is_read(c, idx, 0);
}

static bool choose_conventional(const struct client *c, struct client_rq *rq, uint32_t idx)
{
	const struct sim_zones *z = c->st->zones;
	uint64_t block = c->st->block_bytes;
	uint64_t at = sim_below(z->zone_bytes / block) * block;
	uint64_t bytes = choose_bytes(c, c->dev->params.basic.max_sectors, z->zone_bytes - at);
	uint64_t place = sim_zone_start(z, idx) + at;

	set_place(c, rq, UBLK_IO_OP_WRITE, idx, at, bytes);
	return !client_zones_is_read(c, place, place + bytes) &&
	       !is_in_flight(c, UBLK_IO_OP_WRITE, place, place + bytes);
}

static bool choose_write(const struct client *c, struct client_rq *rq, uint32_t idx)
{
	const struct sim_zone *zone = zone_at(c, idx);
	uint64_t room = c->st->zones->capacity_bytes - zone->low_bytes;

	if (zone->unsure)
		return choose_report(c, rq, idx);
	if (is_full(zone) || room == 0 || zone_is_read(c, idx, zone->low_bytes) ||
	    (sim_zone_inflight(zone) > 0 && !may_mix(c, idx)))
		return false;
	set_place(c, rq, UBLK_IO_OP_WRITE, idx, zone->low_bytes,
		  choose_bytes(c, c->dev->params.basic.max_sectors, room));
	return true;
}

static bool choose_append(const struct client *c, struct client_rq *rq, uint32_t idx)
{
	const struct sim_zone *zone = zone_at(c, idx);
	uint64_t room = c->st->zones->capacity_bytes - zone->high_bytes, bytes;
	uint32_t max_sectors = c->dev->params.zoned.max_zone_append_sectors;

	if (zone->unsure)
		return choose_report(c, rq, idx);
	/* What a dead server has given away in a full zone may still be had. */
	if (zone->has_holes && is_full(zone))
		return false;
	if (zone_is_read(c, idx, zone->has_holes ? 0 : zone->low_bytes) ||
	    (zone->write_nr + zone->manage_nr > 0 && !may_mix(c, idx)))
		return false;
	bytes = choose_bytes(c, max_sectors, sim_one_in(8) ? c->st->zones->zone_bytes : room);
	set_place(c, rq, UBLK_IO_OP_ZONE_APPEND, idx, 0, bytes);
	rq->zone.must_fail =
		is_full(zone) || (sim_zone_inflight(zone) == 0 && bytes > room && !zone->has_holes);
	return true;
}

static bool choose_command(const struct client *c, struct client_rq *rq, uint32_t idx)
{
	static const uint8_t ops[] = {
		UBLK_IO_OP_ZONE_OPEN,	UBLK_IO_OP_ZONE_OPEN,  UBLK_IO_OP_ZONE_CLOSE,
		UBLK_IO_OP_ZONE_FINISH, UBLK_IO_OP_ZONE_RESET, UBLK_IO_OP_ZONE_RESET,
	};

	set_place(c, rq, ops[sim_below(ARRAY_SIZE(ops))], idx, 0, 0);
	if (idx < c->st->zones->conventional_nr)
		return true;
	return !zone_is_read(c, idx, 0) &&
	       (sim_zone_inflight(zone_at(c, idx)) == 0 || may_mix(c, idx));
}

static bool choose_reset_all(const struct client *c, struct client_rq *rq)
{
	const struct sim_zones *z = c->st->zones;

	set_place(c, rq, UBLK_IO_OP_ZONE_RESET_ALL, 0, 0, 0);
	for (uint32_t i = z->conventional_nr; i < z->nr; i++)
		if (z->zone[i].manage_nr > 0 || zone_is_read(c, i, 0))
			return false;
	return true;
}

/* What no program sends that goes by the rules. */
static bool choose_wrong(const struct client *c, struct client_rq *rq, uint32_t idx)
{
	const struct sim_zone *zone = zone_at(c, idx);
	uint64_t block = c->st->block_bytes, low = zone->low_bytes;
	uint64_t end = c->st->zones->zone_bytes, at, bytes;

	if (zone->unsure || sim_zone_inflight(zone) > 0 || zone_is_read(c, idx, 0))
		return false;
	switch (sim_below(4)) {
	case 0: /* ahead */
		at = low + block * sim_between(1, MAX((end - low) / block, 1ul));
		bytes = block;
		break;
	case 1: /* over the pointer, or into a full zone */
		at = low >= block ? low - block : 0;
		bytes = 2 * block;
		break;
	case 2: /* longer than there is room */
		at = low;
		bytes = c->st->zones->capacity_bytes - low + block;
		break;
	default: /* an append into the middle */
		set_place(c, rq, UBLK_IO_OP_ZONE_APPEND, idx, block, block);
		rq->zone.must_fail = true;
		return true;
	}
	set_place(c, rq, UBLK_IO_OP_WRITE, idx, at, bytes);
	rq->zone.must_fail = is_full(zone) || at != low || bytes > end - low ||
			     bytes > c->st->zones->capacity_bytes - low;
	return rq->zone.must_fail && at + bytes <= end &&
	       rq->nr_sectors <= c->dev->params.basic.max_sectors;
}

static bool choose_read(const struct client *c, struct client_rq *rq, uint32_t idx)
{
	const struct sim_zones *z = c->st->zones;
	const struct sim_zone *zone = zone_at(c, idx);
	uint64_t block = c->st->block_bytes, start = sim_zone_start(z, idx);
	uint64_t at = sim_below(z->zone_bytes / block) * block, bytes;

	/* What is around the pointer is looked at most. */
	if (sim_one_in(3) && zone->low_bytes >= block)
		at = zone->low_bytes - block;
	bytes = choose_bytes(c, c->dev->params.basic.max_sectors, z->zone_bytes - at);
	set_place(c, rq, UBLK_IO_OP_READ, idx, at, bytes);
	if (idx < z->conventional_nr)
		return !is_in_flight(c, UBLK_IO_OP_WRITE, start + at, start + at + bytes);
	if (sim_zone_inflight(zone) == 0 || zone->mixed)
		return true;
	return zone->manage_nr == 0 &&
	       (at >= zone->high_bytes || at + bytes <= (zone->has_holes ? 0 : zone->low_bytes));
}

static bool choose_unknown(const struct client *c, struct client_rq *rq)
{
	set_place(c, rq, 0, 0, 0, c->st->block_bytes);
	client_choose_unknown(rq);
	rq->zone.life = c->st->zones->life;
	if (client_zones_is(rq))
		rq->op_flags = 4;
	return true;
}

bool client_zones_choose(struct client *c, struct client_rq *rq)
{
	bool writable = !(c->dev->params.basic.attrs & UBLK_ATTR_READ_ONLY);
	uint32_t idx = choose_zone(c);
	uint64_t dice = writable ? sim_below(100) : sim_between(62, 99);
	bool conventional = idx < c->st->zones->conventional_nr;

	if (sim_fault(FAULT_UNKNOWN_OP))
		return choose_unknown(c, rq);
	if (dice < 44 && conventional)
		return choose_conventional(c, rq, idx);
	if (dice < 24)
		return choose_write(c, rq, idx);
	if (dice < 44)
		return choose_append(c, rq, idx);
	if (dice < 56)
		return choose_command(c, rq, idx);
	if (dice < 57)
		return choose_reset_all(c, rq);
	if (dice < 62)
		return !conventional && choose_wrong(c, rq, idx);
	if (dice < 70)
		return choose_report(c, rq, sim_one_in(2) ? 0 : idx);
	if (dice < 75) {
		rq->op_flags = UBLK_IO_OP_FLUSH;
		return true;
	}
	return choose_read(c, rq, idx);
}

bool client_zones_scan(struct client *c)
{
	struct client_rq rq = { .op_flags = UBLK_IO_OP_REPORT_ZONES };

	rq.nr_sectors = c->st->zones->nr;
	if (!client_choose_tag(c, &rq))
		return false;
	client_send(c, &rq);
	return true;
}

/* ---- it is sent ---- */

static bool joins(const struct sim_zone *zone, unsigned op)
{
	return sim_zone_inflight(zone) == 0 ||
	       (op == UBLK_IO_OP_ZONE_APPEND && zone->write_nr + zone->manage_nr == 0);
}

static void grow(const struct sim_zones *z, struct sim_zone *zone, uint64_t bytes)
{
	zone->high_bytes += bytes;
	if (zone->high_bytes <= z->capacity_bytes)
		return;
	zone->high_bytes = z->capacity_bytes;
	zone->is_tight = true;
}

static void begin_in(const struct client_rq *rq, uint32_t idx)
{
	struct storage *st = rq->client->st;
	struct sim_zone *zone = &st->zones->zone[idx];
	unsigned op = client_rq_op(rq);

	if (sim_zone_inflight(zone) == 0)
		zone->mixed = zone->is_tight = false;
	if (!joins(zone, op))
		zone->mixed = true;
	zone->write_nr += op == UBLK_IO_OP_WRITE;
	zone->append_nr += op == UBLK_IO_OP_ZONE_APPEND;
	zone->manage_nr += !writes(op);
	if (zone->mixed)
		sim_zone_lose(st, idx);
	else if (writes(op) && !rq->zone.must_fail)
		grow(st->zones, zone, client_zones_bytes(rq));
}

void client_zones_begin(struct client_rq *rq)
{
	const struct sim_zones *z = rq->client->st->zones;

	rq->zone.life = z->life;
	if (!client_zones_changes(rq))
		return;
	if (client_rq_op(rq) != UBLK_IO_OP_ZONE_RESET_ALL) {
		begin_in(rq, client_zones_idx(rq));
		return;
	}
	for (uint32_t i = z->conventional_nr; i < z->nr; i++)
		begin_in(rq, i);
}

/* ---- what happens meanwhile ---- */

static bool is_of_now(const struct client_rq *rq)
{
	const struct sim_zones *z = rq->client->st->zones;

	return z && rq->zone.life == z->life;
}

void client_zones_note(struct client *c, int err)
{
	list_for_each (node, &c->inflight) {
		struct client_rq *rq = list_entry(node, struct client_rq, node);
		unsigned op = client_rq_op(rq);

		if (op == UBLK_IO_OP_FLUSH || op == UBLK_IO_OP_ZONE_FINISH ||
		    op == UBLK_IO_OP_ZONE_RESET || op == UBLK_IO_OP_ZONE_RESET_ALL)
			client_rq_note(rq, err, false);
	}
}

/* What the dead server had begun may look like a write of its own that comes again. */
void client_zones_lost(struct client *c)
{
	list_for_each (node, &c->inflight) {
		struct client_rq *rq = list_entry(node, struct client_rq, node);
		struct sim_zone *zone;

		if (!rq->zone.life || !is_of_now(rq) || !client_zones_changes(rq) ||
		    client_rq_op(rq) == UBLK_IO_OP_ZONE_RESET_ALL)
			continue;
		zone = zone_at(c, client_zones_idx(rq));
		zone->has_holes |= client_rq_op(rq) == UBLK_IO_OP_ZONE_APPEND;
		if (!rq->zone.must_fail)
			continue;
		zone->mixed = true;
		sim_zone_lose(c->st, client_zones_idx(rq));
	}
}

void client_zones_renew(struct client_rq *rq)
{
	struct sim_zone *zone;

	rq->zone.again = true;
	if (!is_of_now(rq) || client_rq_op(rq) != UBLK_IO_OP_ZONE_APPEND ||
	    !client_zones_changes(rq) || rq->zone.must_fail)
		return;
	/* It may have been written, and be written once more. */
	zone = zone_at(rq->client, client_zones_idx(rq));
	zone->unsure = true;
	grow(rq->client->st->zones, zone, client_zones_bytes(rq));
	if (!zone_is_read(rq->client, client_zones_idx(rq), zone->low_bytes))
		return;
	zone->mixed = true;
	sim_zone_lose(rq->client->st, client_zones_idx(rq));
}
