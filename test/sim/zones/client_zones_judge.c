/* Answers to requests of devices with zones: whether they can be, and what is known by them. */
#include <errno.h>
#include <linux/blkzoned.h>

#include "test/sim/zones/client_zones.h"

#define SECTOR_SHIFT 9

#define COND(name) (1u << BLK_ZONE_COND_##name)
#define CONDS_ACTIVE (COND(IMP_OPEN) | COND(EXP_OPEN) | COND(CLOSED))
#define CONDS_ANY (CONDS_ACTIVE | COND(EMPTY) | COND(FULL))

static _Noreturn void answer_is_wrong(const struct client_rq *rq, int result, const char *why)
{
	const struct sim_zones *z = rq->client->st->zones;
	uint32_t idx = client_zones_idx(rq);

	sim_fail("dev %u tag %u op %u of zone %u, %u sectors at %llu: answer %d (sector %llu): %s; "
		 "its pointer was at %llu to %llu, its condition of %x, what happened is %x",
		 rq->client->dev->id, rq->tag, client_rq_op(rq), idx, rq->nr_sectors,
		 (unsigned long long)rq->start_sector, result, (unsigned long long)rq->zone.sector,
		 why, (unsigned long long)z->zone[idx].low_bytes,
		 (unsigned long long)z->zone[idx].high_bytes, z->zone[idx].conds, rq->noted);
}

static struct sim_zone *zone_in(const struct client_rq *rq, uint32_t idx)
{
	return &rq->client->st->zones->zone[idx];
}

/* ---- what may fail ---- */

static bool is_limited(const struct client_rq *rq, uint32_t idx, int result)
{
	const struct sim_zones *z = rq->client->st->zones;
	unsigned op = client_rq_op(rq);

	if (op != UBLK_IO_OP_WRITE && op != UBLK_IO_OP_ZONE_APPEND && op != UBLK_IO_OP_ZONE_OPEN)
		return false;
	if ((result == -ETOOMANYREFS && sim_zones_may_be_open(z, idx, rq->start_seq)) ||
	    (result == -EOVERFLOW && sim_zones_may_be_active(z, idx, rq->start_seq))) {
		sim_saw(FAULT_ZONE_LIMIT);
		return true;
	}
	return false;
}

/* Its condition, also where a write has closed it to make room. */
static uint32_t conds_of(const struct client_rq *rq, const struct sim_zone *zone)
{
	uint32_t conds = zone->conds;

	if (conds & COND(IMP_OPEN) && rq->client->st->zones->open_nr_max)
		conds |= (zone->high_bytes > 0 ? COND(CLOSED) : 0) |
			 (zone->low_bytes == 0 ? COND(EMPTY) : 0);
	return conds;
}

/* By the rules of zones, with EIO. */
static bool is_refused(const struct client_rq *rq, const struct sim_zone *zone)
{
	switch (client_rq_op(rq)) {
	case UBLK_IO_OP_ZONE_APPEND:
		return zone->is_tight || rq->zone.must_fail;
	case UBLK_IO_OP_WRITE:
		return rq->zone.must_fail;
	case UBLK_IO_OP_ZONE_OPEN:
		return zone->conds & COND(FULL);
	case UBLK_IO_OP_ZONE_CLOSE:
		return rq->zone.again || conds_of(rq, zone) & (COND(FULL) | COND(EMPTY));
	default:
		return false;
	}
}

static bool is_any_mixed(const struct client_rq *rq)
{
	const struct sim_zones *z = rq->client->st->zones;

	for (uint32_t i = z->conventional_nr; i < z->nr; i++)
		if (z->zone[i].mixed)
			return true;
	return false;
}

static void judge_errno(const struct client_rq *rq, uint32_t idx, int result)
{
	const struct sim_zone *zone = zone_in(rq, idx);

	if (result == -EIO && (zone->mixed || is_refused(rq, zone))) {
		if (rq->zone.must_fail)
			sim_saw(FAULT_ZONE_REFUSED);
		return;
	}
	/* It is refused as a whole where one zone is held by another command. */
	if (result == -EIO && client_rq_op(rq) == UBLK_IO_OP_ZONE_RESET_ALL && is_any_mixed(rq))
		return;
	if (client_rq_is_honest(rq, result) || is_limited(rq, idx, result))
		return;
	if (zone->mixed && (result == -ETOOMANYREFS || result == -EOVERFLOW))
		return;
	answer_is_wrong(rq, result, "no reason for it");
}

/* ---- one zone: nothing else was in flight but other appends ---- */

static void set_open(const struct sim_zones *z, struct sim_zone *zone)
{
	bool explicitly = zone->conds & COND(EXP_OPEN);

	if (!zone->unsure && zone->low_bytes == z->capacity_bytes)
		zone->conds = COND(FULL);
	else if (zone->conds != COND(EXP_OPEN))
		zone->conds = COND(IMP_OPEN) | (explicitly ? COND(EXP_OPEN) : 0);
	if (!zone->unsure)
		return;
	zone->conds |= COND(IMP_OPEN) | (zone->high_bytes > 0 ? COND(CLOSED) : 0) |
		       (zone->low_bytes == 0 ? COND(EMPTY) : 0) |
		       (zone->high_bytes == z->capacity_bytes ? COND(FULL) : 0);
}

static void check_active(const struct client_rq *rq, uint32_t idx)
{
	if (zone_in(rq, idx)->conds == COND(EMPTY) &&
	    sim_zones_are_active(rq->client->st->zones, idx, rq->start_seq))
		answer_is_wrong(rq, 0, "so many zones are active that can be");
}

/* Of [from, end) all that nobody has been told of. */
static void lose_unacked(struct storage *st, uint32_t idx, uint64_t from_bytes, uint64_t end_bytes)
{
	uint64_t start = sim_zone_start(st->zones, idx);

	for (uint64_t at = start + from_bytes; at < start + end_bytes; at += st->block_bytes)
		if (!storage_is_acked(st, at, st->block_bytes))
			storage_set_unknown(st, at, st->block_bytes);
}

static void write_done(struct client_rq *rq, uint32_t idx)
{
	struct storage *st = rq->client->st;
	struct sim_zone *zone = zone_in(rq, idx);

	check_active(rq, idx);
	storage_acked_write(st, rq->seed, client_zones_at(rq), (uint32_t)client_zones_bytes(rq));
	zone->low_bytes = zone->acked_bytes = zone->high_bytes;
	set_open(st->zones, zone);
	if (rq->zone.again)
		sim_saw(FAULT_ZONE_AGAIN);
}

/* It gives its place back, as none follows; a full zone only if it may be active again. */
static void write_failed(struct client_rq *rq, uint32_t idx, bool is_told)
{
	struct storage *st = rq->client->st;
	const struct sim_zones *z = st->zones;
	struct sim_zone *zone = zone_in(rq, idx);

	zone->unsure = !is_told || rq->zone.again ||
		       (zone->high_bytes == z->capacity_bytes && z->active_nr_max);
	if (zone->unsure)
		lose_unacked(st, idx, zone->low_bytes, zone->high_bytes);
	else
		sim_zone_settle(st, idx, zone->low_bytes);
	zone->conds |= COND(IMP_OPEN) | (zone->low_bytes > 0 ? COND(CLOSED) : COND(EMPTY));
	if (zone->unsure)
		set_open(z, zone);
	else
		sim_saw(FAULT_ZONE_GIVEN_BACK);
}

static void append_done(struct client_rq *rq, uint32_t idx)
{
	struct storage *st = rq->client->st;
	struct sim_zone *zone = zone_in(rq, idx);
	uint64_t place = rq->zone.sector << SECTOR_SHIFT, bytes = client_zones_bytes(rq);
	uint64_t at = place - sim_zone_start(st->zones, idx);

	check_active(rq, idx);
	if (place < sim_zone_start(st->zones, idx) || at % st->block_bytes != 0 ||
	    at < (zone->has_holes ? 0 : zone->low_bytes) || at + bytes > zone->high_bytes)
		answer_is_wrong(rq, (int)bytes, "an append that is not at the pointer");
	if (storage_is_acked(st, place, bytes))
		answer_is_wrong(rq, (int)bytes, "an append over what was acknowledged");
	storage_acked_append(st, rq->seed, client_zones_at(rq), place, (uint32_t)bytes);
	zone->acked_bytes = MAX(zone->acked_bytes, at + bytes);
	sim_saw(FAULT_ZONE_APPEND);
	if (rq->zone.again)
		sim_saw(FAULT_ZONE_AGAIN);
}

/* The last of some. */
static void appends_end(struct storage *st, uint32_t idx)
{
	struct sim_zone *zone = &st->zones->zone[idx];

	if (zone->unsure || zone->is_tight || zone->has_holes) {
		lose_unacked(st, idx, zone->has_holes ? 0 : zone->low_bytes, zone->high_bytes);
		zone->unsure = true;
		zone->low_bytes = zone->has_holes ? zone->acked_bytes
						  : MAX(zone->low_bytes, zone->acked_bytes);
	} else {
		zone->low_bytes = zone->high_bytes;
	}
	set_open(st->zones, zone);
}

static void append_end(struct client_rq *rq, uint32_t idx, bool is_good)
{
	struct sim_zone *zone = zone_in(rq, idx);

	if (is_good)
		append_done(rq, idx);
	else
		zone->unsure = true;
	if (sim_zone_inflight(zone) == 0)
		appends_end(rq->client->st, idx);
}

static void opened(struct client_rq *rq, uint32_t idx)
{
	struct sim_zone *zone = zone_in(rq, idx);

	check_active(rq, idx);
	if (zone->conds == COND(FULL))
		answer_is_wrong(rq, 0, "a full zone is opened");
	zone->conds = COND(EXP_OPEN);
}

static void closed(struct client_rq *rq, uint32_t idx)
{
	struct sim_zone *zone = zone_in(rq, idx);

	if (!(zone->conds & CONDS_ACTIVE))
		answer_is_wrong(rq, 0, "a zone is closed that was not open");
	zone->conds = (zone->high_bytes > 0 ? COND(CLOSED) : 0) |
		      (zone->low_bytes == 0 ? COND(EMPTY) : 0);
}

static void command_done(struct client_rq *rq, uint32_t idx)
{
	switch (client_rq_op(rq)) {
	case UBLK_IO_OP_ZONE_OPEN:
		opened(rq, idx);
		break;
	case UBLK_IO_OP_ZONE_CLOSE:
		closed(rq, idx);
		break;
	case UBLK_IO_OP_ZONE_FINISH:
		sim_zone_fill(zone_in(rq, idx));
		break;
	default:
		sim_zone_empty(rq->client->st, idx);
		sim_saw(FAULT_ZONE_RESET);
	}
}

/* It may have been done all the same. */
static void command_failed(struct client_rq *rq, uint32_t idx, int result, bool is_told)
{
	unsigned op = client_rq_op(rq);

	/* Nothing was done; what a dead server had done, its answer would have said. */
	if (is_told && result == -EIO && !rq->zone.again && !rq->noted &&
	    (op == UBLK_IO_OP_ZONE_OPEN || op == UBLK_IO_OP_ZONE_CLOSE))
		return;
	if (op == UBLK_IO_OP_ZONE_RESET || op == UBLK_IO_OP_ZONE_RESET_ALL) {
		sim_zone_lose(rq->client->st, idx);
		return;
	}
	zone_in(rq, idx)->conds = CONDS_ANY;
	zone_in(rq, idx)->unsure = true;
}

/* ---- the end of one in a zone ---- */

static void count_end(struct sim_zone *zone, unsigned op)
{
	if (op == UBLK_IO_OP_WRITE)
		zone->write_nr--;
	else if (op == UBLK_IO_OP_ZONE_APPEND)
		zone->append_nr--;
	else
		zone->manage_nr--;
	zone->end_seq = storage_next_seq();
}

static void mixed_end(const struct client_rq *rq, uint32_t idx, int result)
{
	const struct sim_zones *z = rq->client->st->zones;
	uint64_t place = rq->zone.sector << SECTOR_SHIFT, start = sim_zone_start(z, idx);

	sim_zone_lose(rq->client->st, idx);
	sim_saw(FAULT_ZONE_MIXED);
	if (result >= 0 && client_rq_op(rq) == UBLK_IO_OP_ZONE_APPEND &&
	    (place < start || place + client_zones_bytes(rq) > start + z->capacity_bytes))
		answer_is_wrong(rq, result, "an append elsewhere");
}

/* is_told: by a server. */
static void end_in(struct client_rq *rq, uint32_t idx, int result, bool is_told)
{
	struct sim_zone *zone = zone_in(rq, idx);
	unsigned op = client_rq_op(rq);

	count_end(zone, op);
	if (is_told && result < 0)
		judge_errno(rq, idx, result);
	if (zone->mixed) {
		mixed_end(rq, idx, result);
	} else if (rq->zone.must_fail) {
		if (result >= 0)
			answer_is_wrong(rq, result, "it must be refused");
		if (op == UBLK_IO_OP_ZONE_APPEND && zone->append_nr == 0 &&
		    (zone->unsure || zone->high_bytes > zone->low_bytes))
			appends_end(rq->client->st, idx);
	} else if (op == UBLK_IO_OP_ZONE_APPEND) {
		append_end(rq, idx, result >= 0);
	} else if (op == UBLK_IO_OP_WRITE) {
		if (result >= 0)
			write_done(rq, idx);
		else
			write_failed(rq, idx, is_told);
	} else if (result >= 0) {
		command_done(rq, idx);
	} else {
		command_failed(rq, idx, result, is_told);
	}
}

static void end_in_all(struct client_rq *rq, int result, bool is_told)
{
	const struct sim_zones *z = rq->client->st->zones;

	if (client_rq_op(rq) != UBLK_IO_OP_ZONE_RESET_ALL) {
		end_in(rq, client_zones_idx(rq), result, is_told);
		return;
	}
	for (uint32_t i = z->conventional_nr; i < z->nr; i++)
		end_in(rq, i, result, is_told);
}

/* ---- reports ---- */

static void judge_report(struct client_rq *rq, const struct blk_zone *found)
{
	struct storage *st = rq->client->st;
	const struct sim_zones *z = st->zones;
	uint32_t first = client_zones_idx(rq);

	for (uint32_t i = 0; i < rq->nr_sectors; i++) {
		uint64_t start = sim_zone_start(z, first + i);

		sim_zone_judge(st, first + i, &found[i], rq->start_seq,
			       !client_zones_is_read(rq->client, start, start + z->zone_bytes));
	}
	if (rq->nr_sectors == z->nr)
		sim_zones_judge_limits(st, found, z->nr);
	sim_saw(FAULT_ZONE_REPORT);
}

/* ---- for client.c ---- */

bool client_zones_judge(struct client_rq *rq, int32_t result, const void *buf)
{
	struct storage *st = rq->client->st;

	if (!st->zones || rq->zone.life != st->zones->life)
		return true;
	if (!client_zones_is(rq) && !client_zones_changes(rq))
		return false;
	if (result >= 0 && rq->must_fail)
		answer_is_wrong(rq, result, "success, but it failed");
	if (client_zones_changes(rq)) {
		end_in_all(rq, result, true);
	} else if (client_rq_op(rq) == UBLK_IO_OP_REPORT_ZONES) {
		if (result >= 0)
			judge_report(rq, buf);
		else if (!client_rq_is_honest(rq, result))
			answer_is_wrong(rq, result, "a report has no reason for it");
	} else if (result != -EIO) {
		answer_is_wrong(rq, result, "of a zone without a pointer");
	}
	return true;
}

void client_zones_fail(struct client_rq *rq)
{
	struct storage *st = rq->client->st;

	if (!st->zones || rq->zone.life != st->zones->life)
		return;
	if (client_zones_changes(rq))
		end_in_all(rq, -EIO, false);
	else if (client_rq_op(rq) == UBLK_IO_OP_WRITE)
		storage_set_unknown(st, client_zones_at(rq), (uint32_t)client_zones_bytes(rq));
}

void client_zones_abandon(struct client_rq *rq)
{
	struct storage *st = rq->client->st;
	struct sim_zones *z = st->zones;

	if (!z || rq->zone.life != z->life)
		return;
	if (client_zones_changes(rq) && client_rq_op(rq) != UBLK_IO_OP_ZONE_RESET_ALL)
		sim_zone_lose(st, client_zones_idx(rq));
	else if (client_zones_changes(rq))
		for (uint32_t i = z->conventional_nr; i < z->nr; i++)
			sim_zone_lose(st, i);
	else if (client_rq_op(rq) == UBLK_IO_OP_WRITE)
		storage_set_unknown(st, client_zones_at(rq), (uint32_t)client_zones_bytes(rq));
}
