/*
 * What the zones of one device must be, as far as its users can know. It outlives the device, as
 * struct storage does, which has the bytes.
 *
 * Requests of a zone that are in flight together are an episode. Where one WRITE, or any number of
 * appends, or one command is all of it, what may come of it is exact. Of any other episode (mixed)
 * only this much is known: nothing else is touched. What an episode leaves open (unsure) the next
 * report says, and has to be among what is possible; until then nobody writes there, as the block
 * layer does not either.
 */
#ifndef SIM_ZONES_H
#define SIM_ZONES_H

#include <stdbool.h>
#include <stdint.h>

struct blk_zone;
struct storage;

struct sim_zone {
	/* From its start. The least and the most that the write pointer can be: one number, but for
	 * those that are unsure, and while an episode lasts. */
	uint64_t low_bytes, high_bytes;
	uint64_t acked_bytes; /* where the last byte ends that was acknowledged */
	uint32_t conds;	      /* a bit for each BLK_ZONE_COND_ that it may have */
	bool unsure;
	/* A server died with appends: what it had given them a later one may get. */
	bool has_holes;
	/* The episode. */
	unsigned write_nr, append_nr, manage_nr; /* in flight */
	bool mixed, is_tight;			 /* some appends find no room */
	uint64_t end_seq;			 /* of the last one: storage_next_seq */
};

struct sim_zones {
	uint64_t zone_bytes, capacity_bytes;
	uint32_t nr, conventional_nr;
	uint32_t open_nr_max, active_nr_max; /* 0: no limit */
	uint32_t begun_active_nr;	     /* at the start, by a limit that was higher then */
	unsigned life;			     /* counts devices; from 1 */
	struct sim_zone *zone;
};

/* Shape and limits are set; all zones are empty. */
void sim_zones_reset(struct sim_zones *z);
/* A server has begun that knows nothing but what the one before has written at its end. */
void sim_zones_restart(struct sim_zones *z);

static inline uint64_t sim_zone_start(const struct sim_zones *z, uint32_t idx)
{
	return (uint64_t)idx * z->zone_bytes;
}

static inline unsigned sim_zone_inflight(const struct sim_zone *zone)
{
	return zone->write_nr + zone->append_nr + zone->manage_nr;
}

/* Nothing but the bytes of its writes is known of the zone. */
void sim_zone_lose(struct storage *st, uint32_t idx);
/* It is full: where its pointer was is of no more interest. */
void sim_zone_fill(struct sim_zone *zone);
/* It is empty. */
void sim_zone_empty(struct storage *st, uint32_t idx);
/* The pointer is there: what is behind it reads zeroes, and is nothing that a flush owes. */
void sim_zone_settle(struct storage *st, uint32_t idx, uint64_t bytes);

/* Whether the limits can be a reason for a request of this zone, begun at seq, to fail. */
bool sim_zones_may_be_open(const struct sim_zones *z, uint32_t idx, uint64_t seq);
bool sim_zones_may_be_active(const struct sim_zones *z, uint32_t idx, uint64_t seq);
/* Whether they must be one: so many others have been active all the time. */
bool sim_zones_are_active(const struct sim_zones *z, uint32_t idx, uint64_t seq);

/*
 * Fails the run when a report, asked for at seq, is wrong. can_settle: no READ of the zone is in
 * flight, whose answer may be older.
 */
void sim_zone_judge(struct storage *st, uint32_t idx, const struct blk_zone *found, uint64_t seq,
		    bool can_settle);
/* The same of all zones at once: the limits. */
void sim_zones_judge_limits(const struct storage *st, const struct blk_zone *found, uint32_t nr);

#endif
