/*
 * zoned: a device with zones (storage/zones.h) over any backend that can be written, or over one
 * that has zones itself (zoned_below.c), whose they are then.
 *
 *	zoned_node.c    what the core sees: options, limits, who it is, what can be seen
 *	zoned.c         requests: reads, writes, appends, actions on zones
 *	zoned_sync.c    what is to be durable, one round after the other
 *	zoned_pages.c   the pages of the table: which are to be written, and with what
 *	zoned_open.c    opening: the table is read, or made
 *	zoned_close.c   the last words
 *	zoned_below.c, zoned_below_open.c   the same over zones below: requests, opening
 *	zoned_again.c   there, writes of the daemon before that come again
 *	zone_table.h    the zones as a state machine; zone_format.h: as bytes on the backend below;
 *	zone_memory.h   the memory that outlives the process; zone_below.h: as a drive reports them
 *
 * One queue, so that one reactor owns the zones. What a daemon that is killed knew is in memory
 * that outlives it; what a power cut leaves is in the table on the backend below, in front of the
 * bytes.
 *
 * That the table never says more than there is: a round of zoned_sync first flushes what is below,
 * then writes to the table how far the zones were complete before that, and flushes again. A FLUSH
 * is such a round; RESET and FINISH are complete when theirs is. When what is below has lost writes
 * (storage/owed.h), how far a zone is written is known from the table alone: the device fails all
 * requests until it is opened again, from that.
 */
#ifndef FILTERS_ZONED_ZONED_H
#define FILTERS_ZONED_ZONED_H

#include "filters/zoned/zone_format.h"
#include "filters/zoned/zone_memory.h"
#include "filters/zoned/zone_table.h"
#include "storage/node.h"
#include "storage/visit.h"
#include "storage/zones.h"

#define ZONED_ZONE_BYTES_MIN 65536u
#define ZONED_ZONE_BYTES_MAX (1ull << 31)
#define ZONED_OWN_NR 1u

/* Filled by the options; NULL: as if it were empty. */
struct zoned_zones_config {
	uint64_t zone_bytes, capacity_bytes; /* capacity 0: the whole zone */
	uint64_t open_nr_max, active_nr_max;
	uint64_t conventional_nr;
};

struct zoned_config {
	struct zoned_zones_config *zones;
};

extern const struct option zoned_options[];
void zoned_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* What a request of the node does now, in words for those who ask. */
enum zoned_io_state {
	ZONED_BELOW,
	ZONED_HELD,
	ZONED_WAITS_SYNC,
	ZONED_SYNCS,
	ZONED_WAITS_TURN,
	ZONED_IO_STATE_NR,
};

struct zoned_io {
	struct backend_io *io;
	struct list_node waiting; /* in d->held, sync.waiting, sync.running or a lane */
	uint64_t asked_at;	  /* REPORT of zones below: zoned_below's clock */
	uint32_t readable_bytes;  /* READ: so much comes from below, the rest is zeroes */
	/* Over zones below, what a write is compared with; NULL: nothing (zoned_again.c). */
	struct zone_write *old;
	uint32_t old_nr, compared_bytes;
	bool is_cancelled; /* while it is compared */
	uint8_t state;	   /* enum zoned_io_state */
};

enum zoned_sync_step {
	ZONED_SYNC_IDLE,
	ZONED_SYNC_DATA,  /* flushing what is below */
	ZONED_SYNC_PAGES, /* writing the table */
	ZONED_SYNC_TABLE, /* flushing it */
	ZONED_SYNC_TRIM,  /* giving space back of zones that were reset */
};

struct zoned_sync {
	enum zoned_sync_step step;
	struct list_node waiting, running; /* zoned_io: of the next round, of this one */
	struct backend_own *own;
	uint32_t trim_wanted_nr, trim_nr; /* zones: of the next round, of this one */
	bool is_cancelled;		  /* this round begins no further step */
	uint32_t trim_idx;		  /* the zone whose space is given back */
	uint64_t trimmed_bytes;		  /* of it */
};

/* Of a zone that was reset: its space may be given back in the next round, in this one. */
enum zoned_trim { ZONED_TRIM_NONE, ZONED_TRIM_WANTED, ZONED_TRIM_NOW };

/* The pages of the table; zoned_pages.c. */
struct zoned_pages {
	uint64_t *seq;	   /* by page: of what is on the backend below */
	uint8_t *is_dirty; /* by page: the backend below has other entries */
	uint8_t *is_now;   /* by page: of this round */
	uint64_t *entry;   /* by zone, a multiple of ZONE_PAGE_ENTRIES: of this round */
	uint32_t nr, next;
};

/* Of a zone below. */
struct zoned_lane {
	struct list_node waiting; /* zoned_io: writes that wait for their turn, in their order */
	struct list_node asking;  /* in zoned_below's asking */
	uint64_t changed_at;	  /* zoned_below's clock, when a write or action ended */
	bool is_unsure; /* how far it is written is to be asked below before the next write */
};

/* zoned_below.c. */
struct zoned_below {
	struct zoned_lane *lane;  /* by zone; NULL: the zones are our own */
	struct list_node asking;  /* zoned_lane: to be asked, the first one is being asked */
	uint64_t clock, asked_at; /* counts what changes zones; when the first one was asked */
	uint8_t *compare;	  /* by tag, ZONE_PAGE_BYTES; NULL: no write can come again */
};

struct zoned_visit;

struct zoned_device {
	struct backend_device *device;
	struct zone_header header;
	struct zone_shape shape;
	uint64_t data_at; /* where the zones begin on the child */
	int stored_fd;	  /* until open_async; 0: none */
	struct zone_memory memory;
	struct zone_table table;
	struct zoned_pages pages;
	struct backend_queue *queue;
	struct zoned_sync sync;
	struct list_node held; /* actions that wait for writes of their zones */
	uint8_t *trim;	       /* by zone: enum zoned_trim */
	struct zoned_below below;
	bool child_discards, is_read_only;
	/* What is below has lost writes to zones of our own: it serves no more. */
	bool is_lost;
	uint32_t losses; /* backend_losses of what is below, when it was looked at last */
	const char *_Atomic failure;
	uint64_t resets, finishes, commits; /* written by the reactor, read by the main thread */
	struct zoned_visit *visit;
};

/* ---- zoned.c ---- */

enum backend_submit zoned_submit(struct backend_io *io);
void zoned_child_done(struct backend_io *child);
void zoned_cancel(struct backend_io *io);
/* The round of an action has ended: writes of its zones may begin. */
void zoned_let_go(struct zoned_device *d, const struct backend_io *io);
/* A write of a zone that is held has ended: actions that have waited for it go on. */
void zoned_held_look(struct zoned_device *d);
/* RESET, RESET_ALL, FINISH: hold their zones until no write is under way, and on. */
enum backend_submit zoned_change(struct zoned_device *d, struct backend_io *io);
/* The zones of an action: [*ret_first, *ret_end). */
void zoned_zones_of(const struct zoned_device *d, const struct backend_io *io, uint32_t *ret_first,
		    uint32_t *ret_end);
/*
 * Gives the child length_bytes of the request from its byte at_bytes on. As backend_child_submit:
 * QUEUED, zoned_child_done follows.
 */
enum backend_submit zoned_pass_down(struct backend_io *io, uint32_t at_bytes,
				    uint32_t length_bytes);

/* ---- zoned_below.c ---- */

/* APPEND, and WRITE to a zone with a pointer; its end. */
enum backend_submit zoned_below_write(struct zoned_device *d, struct backend_io *io);
void zoned_below_write_done(struct zoned_device *d, struct backend_io *io);
/* ZONE_MANAGE; of a change, once its zones are held and quiet; its end: returns the result. */
enum backend_submit zoned_below_manage(struct zoned_device *d, struct backend_io *io);
enum backend_submit zoned_below_act(struct zoned_device *d, struct backend_io *io);
int zoned_below_act_end(struct zoned_device *d, struct backend_io *io);
/* As struct backend's rest: a zone may be asked for that no request waits for. */
bool zoned_below_rest(struct backend_queue *queue);
/* Its turn has come, and it has no place yet. DONE: io->result is set. */
enum backend_submit zoned_below_append(struct zoned_device *d, struct backend_io *io);
/* It has been answered, by the child or without it: DONE with this result. */
enum backend_submit zoned_below_ended(struct zoned_device *d, struct backend_io *io, int result);

/* ---- zoned_sync.c ---- */

/* QUEUED: it is complete when a round has ended that began after this. */
void zoned_sync_join(struct zoned_device *d, struct zoned_io *z);
/*
 * At the end of a FLUSH of what is below, also when no queue is open: whether that has lost writes
 * since it was asked last. If zones may have had them, is_lost from now on.
 */
bool zoned_has_lost(struct zoned_device *d);
/* Asks the round that is under way to end soon. */
void zoned_sync_cancel(struct zoned_device *d);
/* A request that has waited for the next round is not part of it. */
void zoned_sync_leave(struct zoned_device *d, const struct backend_io *io);
/* A zone was reset: its space may be given back by the next round. */
void zoned_sync_trim(struct zoned_device *d, uint32_t idx);

/* ---- zoned_pages.c ---- */

/* Return 0 or -ENOMEM; free accepts what is left. */
int zoned_pages_alloc(struct zoned_pages *p, uint32_t zone_nr);
void zoned_pages_free(struct zoned_pages *p);
/* zone_table's `changed`. */
void zoned_zone_changed(struct zone_table *t, uint32_t idx);
bool zoned_pages_are_clean(const struct zoned_device *d);
/* What the table has to say is not durable there, perhaps under way. */
bool zoned_pages_are_owed(const struct zoned_device *d);
/* The memory of a process before is used beside a table on the child: all pages are written with
 * the next FLUSH, as writes of that process may still be under way to the child. A read-only device
 * can write none: FLUSH fails there only when the table on the child differs. */
void zoned_pages_adopt(struct zoned_device *d, const struct zone_kept *on_child);
/* How far all zones of dirty pages are complete now. */
void zoned_pages_begin(struct zoned_device *d);
/* Fills buf with the next page, for the place *ret_at of the child; false: that was the last. */
bool zoned_pages_next(struct zoned_device *d, void *buf, uint64_t *ret_at);
/* is_good: they are durable. */
void zoned_pages_end(struct zoned_device *d, bool is_good);

/* ---- zoned_again.c ---- */

/*
 * Compares a write with what the daemon before had under way. Returns true: *ret_submit is its
 * answer as that of submit; false: there is nothing to compare it with.
 */
bool zoned_again_begin(struct zoned_device *d, struct backend_io *io,
		       enum backend_submit *ret_submit);
/* The child has read a part of that: DONE, io->result is set; QUEUED, not yet. */
enum backend_submit zoned_again_read(struct zoned_device *d, struct backend_io *io);

/* ---- zoned_open.c, zoned_close.c ---- */

int zoned_open(struct backend_device *device);
/* A limit that is none is 0: the driver refuses more than there are zones. */
uint32_t zone_limit_of(uint64_t wanted, uint32_t zone_nr);
/* The zones are in d->memory; a process before has left more, or nothing. */
void zoned_open_loaded(struct zoned_visit *v);
void zoned_open_async(struct backend_visit *visit);
void zoned_close_async(struct backend_visit *visit);
void zoned_close(struct backend_device *device);

/* ---- zoned_below_open.c ---- */

/* The options have no zones: those below are served. Returns 0 or -errno with words. */
int zoned_below_open(struct zoned_device *d);
void zoned_below_open_async(struct zoned_visit *v);
/* zone_table's `changed`: nothing is kept. */
void zoned_below_changed(struct zone_table *t, uint32_t idx);

#endif
