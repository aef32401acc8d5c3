/*
 * The zones of a device as a state machine: write pointers, conditions, limits. Pure, but for the
 * memory that it works on; the queue's reactor, or one thread before and after it.
 *
 * Two kinds of memory. What another process must know to go on is `kept` (zone_memory.h): where
 * each zone is written to, its condition, and which write each tag has. The rest is made from that:
 * which zones are open by a write, oldest first, how many are in each condition, how many writes of
 * a zone are under way.
 *
 * A daemon may be killed between any two stores. A write is noted before the pointer moves, and the
 * driver sends again what was not answered (UBLK_F_USER_RECOVERY_REISSUE): a write that comes where
 * the pointer has passed is let through when it is one of those that the daemon before had under
 * way, and an append among them gets the place that it had. An append whose answer was on its way
 * is written at the pointer once more, since nobody can tell it from one that follows: what it
 * wrote first stays a gap that nobody has been told of.
 */
#ifndef FILTERS_ZONED_ZONE_TABLE_H
#define FILTERS_ZONED_ZONE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct blk_zone; /* linux/blkzoned.h */

#define ZONE_NR_MAX (1u << 20)
/* Lives of a daemon whose writes are remembered, when none of them comes again. */
#define ZONE_OLD_FACTOR 4u

struct zone_shape {
	uint64_t zone_bytes;	 /* a power of two */
	uint64_t capacity_bytes; /* of a zone with a write pointer */
	uint32_t zone_nr, conventional_nr;
	uint32_t open_nr_max, active_nr_max; /* 0: no limit */
	uint32_t depth;
	/*
	 * Who is below has the zones and keeps the limits: conditions are what it is likely to say,
	 * and nothing is refused for them.
	 */
	bool is_below;
};

enum zone_condition {
	ZONE_EMPTY,
	ZONE_IMPLICIT, /* open by a write */
	ZONE_EXPLICIT, /* open by a command */
	ZONE_CLOSED,
	ZONE_FULL,
	ZONE_CONDITION_NR,
};

/* Kept, of each zone; of a conventional one nothing of it is used. */
struct zone_kept {
	uint64_t written_bytes; /* from its start; a FULL zone may end behind it */
	uint32_t condition;	/* enum zone_condition */
	/* Nor is it one of the first, conventional_nr: of zones below. */
	uint32_t is_conventional;
};

enum zone_write_state {
	ZONE_WRITE_NONE,
	ZONE_WRITE_UNDER_WAY,
	ZONE_WRITE_DONE, /* by what is below; the driver may not have heard of it */
};

/* Kept, of each tag: its last write to a zone with a pointer. */
struct zone_write {
	uint64_t offset_bytes;
	uint32_t length_bytes;
	uint8_t state; /* enum zone_write_state */
	uint8_t is_append;
	uint8_t reserved[2];
};

/* What the table makes of that, of each zone. */
struct zone_now {
	struct list_node open; /* IMPLICIT: in zone_table's list */
	uint32_t under_way_nr;
	/* An action on the whole zone is under way, or waits for its writes: none may begin. */
	bool is_held;
};

struct zone_table {
	struct zone_shape shape;
	struct zone_kept *zone;
	struct zone_write *write; /* by tag */
	struct zone_write *old;	  /* of daemons before, ZONE_OLD_FACTOR * depth; NONE: free */
	struct zone_now *now;
	struct list_node implicit;	/* the one that was opened first is first */
	uint32_t nr[ZONE_CONDITION_NR]; /* read by others with relaxed loads */
	uint32_t under_way_nr;
	uint64_t refused, redone; /* the same */
	/*
	 * Called when what must get to the disk of a zone has changed. Never NULL.
	 */
	void (*changed)(struct zone_table *t, uint32_t idx);
};

/*
 * zone, write and old are the caller's, and outlive the table. Whatever they hold is made to fit:
 * conditions that contradict what is written, more zones open than may be. is_again: they are of a
 * process before, whose writes may come again. Returns 0 or -ENOMEM; zone_table_fini accepts what
 * is left.
 */
int zone_table_init(struct zone_table *t, const struct zone_shape *shape, struct zone_kept *zone,
		    struct zone_write *write, struct zone_write *old, bool is_again,
		    void (*changed)(struct zone_table *t, uint32_t idx));
void zone_table_fini(struct zone_table *t);

static inline uint32_t zone_of(const struct zone_table *t, uint64_t offset_bytes)
{
	return (uint32_t)(offset_bytes >> __builtin_ctzll(t->shape.zone_bytes));
}

static inline uint64_t zone_start(const struct zone_table *t, uint32_t idx)
{
	return (uint64_t)idx << __builtin_ctzll(t->shape.zone_bytes);
}

static inline bool zone_is_conventional(const struct zone_table *t, uint32_t idx)
{
	return idx < t->shape.conventional_nr || t->zone[idx].is_conventional;
}

/*
 * A write begins, at an offset that is in no conventional zone; or an append to the zone that
 * begins there, and *offset_bytes becomes where it goes. Returns 0: it may go, and
 * zone_table_write_done follows. -EIO: not at the pointer, no room, the zone is held;
 * -ETOOMANYREFS, -EOVERFLOW: zones.h.
 */
int zone_table_write(struct zone_table *t, unsigned tag, uint64_t offset_bytes,
		     uint32_t length_bytes);
int zone_table_append(struct zone_table *t, unsigned tag, uint64_t *offset_bytes,
		      uint32_t length_bytes);
/*
 * What is below has answered. A write that failed gives its place back when none follows it, as it
 * is again where the next one has to begin; else the pointer stays, and what was to be written
 * there is not defined. Returns the zone.
 */
uint32_t zone_table_write_done(struct zone_table *t, unsigned tag, bool is_good);

/*
 * Of zones below, when the table is new: of writes of daemons before, forgets those that are
 * written as if they had never been: what begins at the pointer or behind it, and appends, but for
 * those that were not answered below and are there as a whole. Returns how many are left.
 */
unsigned zone_table_forget_unwritten(struct zone_table *t);
/*
 * Of these, the one with this number (from 0 on) in the zone that is as long; NULL: there are not
 * so many. It may be the one that comes again, when it has the same bytes: it was not answered, so
 * its place is nobody's. Valid until the zone is reset or finished.
 */
struct zone_write *zone_table_old_append(struct zone_table *t, uint32_t idx, uint32_t length_bytes,
					 unsigned nr);
/*
 * The same of a write to a zone that is full, or cannot be written any more: nobody says how far it
 * is written.
 */
struct zone_write *zone_table_old_of_full(struct zone_table *t, uint64_t offset_bytes,
					  uint32_t length_bytes);
/* It is: *offset_bytes becomes where. zone_table_write_done follows. */
void zone_table_found_again(struct zone_table *t, unsigned tag, struct zone_write *w,
			    uint64_t *offset_bytes);
/*
 * Who is below says so of a zone without a write under way. Returns 0, or -EIO: it makes no sense
 * (zone_below.h), and nothing has changed.
 */
int zone_table_learn(struct zone_table *t, uint32_t idx, const struct blk_zone *zone);

/* How many of the bytes from here to the end of the zone have been written. */
uint64_t zone_table_readable(const struct zone_table *t, uint64_t offset_bytes);

/* Return 0 or -errno. RESET and FINISH: no write of the zone is under way. */
int zone_table_open(struct zone_table *t, uint32_t idx);
int zone_table_close(struct zone_table *t, uint32_t idx);
int zone_table_finish(struct zone_table *t, uint32_t idx);
int zone_table_reset(struct zone_table *t, uint32_t idx);

/* As ZONE_REPORT has it. */
void zone_table_report(const struct zone_table *t, uint32_t idx, struct blk_zone *ret_zone);

#endif
