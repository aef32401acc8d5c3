/*
 * cache: blocks of a slow backend (the origin) kept on a fast one (the store). What the files of
 * this folder share:
 *
 *   cache_node.c      the node's table, its queue, what requests wait for, what can be seen
 *   cache_options.c   options
 *   cache.c           a request's way: steps, pieces, waits
 *   cache_read.c      reads: from the store, or from the origin and into the store
 *   cache_through.c   writes, discards and zeroes that go to the origin
 *   cache_back.c      writes that end in the store (mode: writeback)
 *   cache_clean.c     ... and come to the origin later
 *   cache_commit.c    the index reaches the store, in order; the store is given up
 *   cache_own.c       requests of the node's own
 *   cache_control.c   commands while it serves: their beginning and end
 *   cache_warm.c      ... a range is fetched ahead
 *   cache_drop.c      ... clean blocks are forgotten
 *   cache_aside.c     ... the origin has all, while a snapshot of it is created or applied
 *   cache_index.c     what is in which slot (cache_index.h)
 *   cache_format.c    the store's bytes
 *   cache_open.c      a cache is opened; cache_close.c: the last words
 *   cache_version.c   ... whether others have written to the origin meanwhile
 *   cache_store.c     a store without a daemon (cache_store.h)
 *
 * What keeps every byte right, also after a cut at any moment:
 *
 *   - The store's index names bytes only after a FLUSH of the store behind them, and only when the
 *     origin has them for sure (a FLUSH of it behind the last write), or when it says "dirty".
 *   - Before a change goes to the origin the store's index has forgotten what it changes, durably.
 *     In memory it is not valid from before the change until it has ended well in both places.
 *   - A slot takes another block when the store's index has forgotten the one before, durably;
 *     until then the block is found here, so that a change of it waits.
 *   - Before bytes are written over that the store's index calls clean it calls them dirty.
 *   - A unit has one who writes to its slot at a time (`owned`). A change that meets one takes
 *     `will` from it, so that what it brings is not used.
 *
 * One queue, so one reactor: nothing here is locked.
 */
#ifndef FILTERS_CACHE_CACHE_H
#define FILTERS_CACHE_CACHE_H

#include "filters/cache/cache_index.h"
#include "reactor/mailbox.h"
#include "reactor/reactor.h"
#include "storage/cache_control.h"
#include "storage/node.h"
#include "storage/visit.h"

/* Children by index. */
#define CACHE_ORIGIN 0u
#define CACHE_STORE 1u

/* Own requests by what they are for, so that none waits for another. */
enum cache_own_kind {
	CACHE_OWN_FILL,
	CACHE_OWN_CLEAN,
	CACHE_OWN_INDEX,
	CACHE_OWN_PASS, /* its buffer alone, for a piece of a request: cache_pass_waits */
	CACHE_OWN_KIND_NR
};
#define CACHE_FILLS_NR 16u
#define CACHE_CLEANS_NR 4u
#define CACHE_INDEX_NR 4u
#define CACHE_PASSES_NR 4u
#define CACHE_OWN_NR (CACHE_FILLS_NR + CACHE_CLEANS_NR + CACHE_INDEX_NR + CACHE_PASSES_NR)
/* Fills that nobody waits for leave so many to those that somebody does. */
#define CACHE_FILLS_KEPT 6u
/* Fills of a warm at a time; one while others fill. */
#define CACHE_WARM_NR 4u
#define CACHE_STREAMS_NR 8u
#define CACHE_EVICT_NR 256u
#define CACHE_CHANGE_BUCKETS 256u
/* Times that the store is told that it counts no more, when that is perhaps lost. */
#define CACHE_WIPES_NR 5u
/* losses_seen when the store was given up: what is being read there counts no more. */
#define CACHE_STORE_IN_DOUBT UINT64_MAX

enum cache_mode { CACHE_MODE_AUTO, CACHE_READTHROUGH, CACHE_WRITETHROUGH, CACHE_WRITEBACK };

struct cache_config {
	uint64_t block_bytes;
	int mode;
	uint64_t prefetch;  /* blocks */
	char *origin_id;    /* NULL: the origin's identity */
	double dirty_max;   /* part of the slots */
	uint64_t clean_ns;  /* how long a dirty block may wait */
	uint64_t commit_ns; /* how long the index may, of what nobody waits for */
};

struct cache_io;
struct cache_own;
struct cache_queue;
struct cache_visit;

enum cache_commit_phase {
	CACHE_COMMIT_NONE,
	CACHE_COMMIT_DATA,  /* a FLUSH: bytes are durable before they are named */
	CACHE_COMMIT_PAGES, /* pages are written */
	CACHE_COMMIT_FLUSH,
	CACHE_COMMIT_WIPE, /* the store is given up: its header says so */
};

struct cache_commit {
	enum cache_commit_phase phase;
	unsigned under_way;
	uint32_t next; /* page, or header of a WIPE */
	uint32_t page_nr;
	unsigned wipe_nr; /* WIPEs that have failed */
	int result;
	bool is_wanted;	       /* somebody waits for one */
	bool is_forced;	       /* by a FLUSH: also when no page has changed */
	uint64_t begun, ended; /* counted */
	int ended_result;
	struct timer timer; /* of what nobody waits for */
	struct task task;
};

enum cache_drop_phase {
	CACHE_DROP_MARK,   /* slots forget, in memory */
	CACHE_DROP_COMMIT, /* so does the store's index */
	CACHE_DROP_FREE,   /* slots without a block */
};

/* A command under way. The control thread's before its beginning and after its end. */
struct cache_control {
	struct backend_cache_job *job; /* its owner's; NULL: none */
	struct mail mail;
	int result;
	bool is_aside; /* until BACK: no other command */
	/* The rest is the reactor's, once it has begun. */
	bool is_running;
	struct timer timer; /* when to look again */
	/* A warm. */
	uint64_t next, end; /* bytes of the origin */
	unsigned under_way; /* fills */
	uint64_t busy_ns;   /* since when the next block has been in others' hands; 0: is not */
	/* A drop. */
	enum cache_drop_phase phase;
	uint32_t slot_idx;
	uint64_t commit_nr; /* the commit that it waits for */
};

/* Written by the reactor, read by anybody. */
struct cache_stats {
	uint64_t hits, misses; /* pieces of READs */
	uint64_t filled_bytes, hit_bytes, missed_bytes, cleaned_bytes;
	uint64_t evictions, prefetches, passed_by; /* passed_by: misses that were not kept */
	uint64_t moved_bytes; /* dropped by the open: the origin was changed without the cache */
};

struct cache_device {
	struct backend_device *device;
	struct cache_index *ix;
	enum cache_mode mode;
	uint32_t block_bytes, chunk_bytes; /* chunk_bytes: of an own request, at most */
	unsigned block_shift;
	uint64_t origin_bytes;
	bool origin_flushes; /* has a volatile cache */
	bool is_read_only;   /* the origin is not written */
	uint8_t origin_data; /* enum backend_data */
	bool is_off;	     /* the store has failed: all goes to the origin */
	bool is_wiped;	     /* ... and has been told so, or cannot be */
	bool is_resting;     /* no own request begins until a request comes */
	/* cache_lost.c: of writeback, it serves no more; it rests then, too. */
	bool is_lost;
	bool is_doubtful; /* cache_lost.c: what is read from the origin need not be durable there */
	bool is_aside;	  /* cache_aside.c: writes go to the origin */
	bool keeps_nothing;   /* ... and nothing that is not here is kept */
	unsigned back_nr;     /* pieces of writes that are on their way to the store alone */
	uint32_t losses[2];   /* backend_losses by child, when they were looked at last */
	uint64_t losses_seen; /* backend_losses_anywhere then, or CACHE_STORE_IN_DOUBT */
	const char *_Atomic failure;
	/* FLUSHes of the origin: begun; the last one that went well; begun at the last write. */
	uint64_t flush_begun, flushed_nr, wrote_at;
	uint32_t dirty_max; /* slots */

	struct cache_queue *q;
	struct cache_commit commit;
	struct list_node commit_waiters; /* I/Os that wait for the end of a commit */
	struct list_node block_waiters;	 /* ... for somebody who is at their block */
	struct list_node dirty_waiters;	 /* ... for fewer dirty blocks */
	struct list_node pass_waiters;	 /* ... for a buffer */
	struct list_node woken;
	struct task wake_task;
	struct list_node change[CACHE_CHANGE_BUCKETS]; /* I/Os that change a block at the origin */
	struct list_node ranges;		       /* ... or many */
	uint32_t evicting[CACHE_EVICT_NR], evicting_nr;
	struct cache_stats stats;

	/* cache_clean.c */
	uint32_t clean_hand, cleaned_nr, cleaned[CACHE_CLEANS_NR * 8];
	bool clean_flushes, clean_all, clean_waits;
	bool clean_lost; /* what is on its way to the origin is perhaps lost there */
	struct timer clean_timer;
	struct task clean_task;

	struct cache_control control;
	struct cache_visit *visit; /* cache_open.c, cache_close.c */
	int stored_fd;		   /* until open_async */
};

/* What an own request is for. */
struct cache_own {
	struct backend_own *own;
	void (*done)(struct cache_own *own, int result);
	enum cache_own_kind kind;
	/* A fill, a clean. */
	struct cache_slot *slot;
	uint64_t units, offset; /* of the origin */
	uint32_t bytes;
	struct cache_io *s; /* who waits for the bytes; NULL: nobody */
	bool is_warm;	    /* a fill of the command under way */
};

struct cache_stream {
	uint64_t next; /* where it goes on */
};

struct cache_queue {
	struct backend_queue *queue;
	struct cache_device *d;
	unsigned nr[CACHE_OWN_KIND_NR]; /* own requests in use */
	struct cache_own own[CACHE_OWN_NR];
	struct cache_stream stream[CACHE_STREAMS_NR];
	unsigned stream_hand;
};

/* Where a request is, for why-stuck. */
enum cache_state {
	CACHE_IDLE,
	CACHE_HIT,
	CACHE_PASSING,	    /* with the origin */
	CACHE_FILLING,	    /* its bytes come from the origin, for the store too */
	CACHE_WAITS_FILL,   /* another one brings them */
	CACHE_WAITS_COMMIT, /* the store's index must change first */
	CACHE_WAITS_DIRTY,
	CACHE_WAITS_BUFFER,
	CACHE_STORING,
	CACHE_FLUSHES,
};

struct cache_io {
	struct backend_io *io;
	struct cache_device *d;
	enum cache_state state;
	int result;
	uint32_t at_bytes, now_bytes; /* done; of the step under way */
	bool is_cancelled, is_flushed;
	bool avoids_store;		  /* of the step: the store could not read it */
	uint8_t pieces;			  /* under way */
	int answer[2];			  /* of a step's pieces, by child */
	void (*then)(struct cache_io *s); /* the pieces of the step have ended */

	struct list_node waiting; /* in one of the device's lists of waiters */
	uint64_t block;		  /* of the step, */
	uint64_t units;
	struct cache_slot *slot; /* pinned; or NULL */
	uint64_t owns;		 /* units that it writes to the slot */

	struct list_node change;	   /* in a bucket, or in ranges */
	uint64_t change_first, change_end; /* bytes of the origin */
	uint64_t flush_nr;		   /* of a FLUSH */
	uint64_t commit_nr;		   /* the commit that it waits for; 0: none */
	struct cache_own *fill;		   /* brings its bytes */
	struct cache_own *pass;		   /* has the bytes of the origin's piece in its buffer */
	uint32_t losses;		   /* FUA: backend_losses of the origin, when it began */
};

static inline struct cache_queue *cache_queue_of(const struct cache_io *s)
{
	return s->io->queue->priv;
}

static inline uint64_t cache_now(const struct cache_io *s)
{
	return s->io->offset_bytes + s->at_bytes;
}

static inline void cache_set_state(struct cache_io *s, enum cache_state state)
{
	__atomic_store_n(&s->state, state, __ATOMIC_RELAXED);
}

/* Units of one block that bytes from `within` of it on touch. bytes above 0. */
static inline uint64_t cache_units(uint64_t within, uint64_t bytes)
{
	unsigned first = (unsigned)(within / CACHE_UNIT_BYTES);
	unsigned end = (unsigned)((within + bytes + CACHE_UNIT_BYTES - 1) / CACHE_UNIT_BYTES);
	uint64_t below = end == 64 ? UINT64_MAX : (1ull << end) - 1;

	return below & ~((1ull << first) - 1);
}

/* How many follow each other from this one on, of those that are set. */
static inline unsigned cache_units_run(uint64_t units, unsigned from)
{
	uint64_t not_set = ~(units >> from);

	return not_set == 0 ? 64 - from : (unsigned)__builtin_ctzll(not_set);
}

/* NULL: it is not here, or nothing is. */
static inline struct cache_slot *cache_find(const struct cache_device *d, uint64_t block)
{
	return d->is_off ? NULL : cache_slot_find(d->ix, block);
}

/* ---- cache.c ---- */

enum backend_submit cache_submit(struct backend_io *io);
void cache_child_done(struct backend_io *child);
void cache_cancel(struct backend_io *io);
/* Own requests begin again: harmless when they have not rested. */
void cache_rest_ends(struct cache_device *d);
/* After a step: the next one, or its end. From a turn. */
void cache_io_go_on(struct cache_io *s);
/* The same for all of a list, later in this turn: any caller. */
void cache_wake(struct cache_device *d, struct list_node *waiters);
/* A step: waits there. Returns true. */
bool cache_wait_for(struct cache_io *s, struct list_node *waiters, enum cache_state state);
/*
 * Before a piece of a READ or WRITE for the origin: true: the step waits for a buffer, which it
 * needs when the origin wants the bytes in memory and they are elsewhere. False: it has one, or
 * needs none.
 */
bool cache_pass_waits(struct cache_io *s);
/* A piece of the step, of now_bytes from the request's at_bytes + skip_bytes on. */
void cache_piece(struct cache_io *s, unsigned child_idx, uint32_t skip_bytes, uint32_t bytes,
		 uint64_t offset);
/* All pieces are submitted. True: under way; false: `then` has been called. */
bool cache_pieces_end(struct cache_io *s, enum cache_state state, void (*then)(struct cache_io *s));
/* A step: the origin does it, nothing is kept. After cache_pass_waits. */
bool cache_pass_by(struct cache_io *s, uint32_t bytes);
/* Advances by what the step did, or fails by an answer. */
void cache_step_ended(struct cache_io *s, int result);

/* ---- cache_read.c ---- */

bool cache_read_step(struct cache_io *s, uint32_t left);
/* A whole READ that lies in the store. */
struct cache_slot *cache_read_whole(struct cache_device *d, const struct backend_io *io,
				    uint64_t *ret_at);
void cache_read_hit_ended(struct cache_io *s);
/* Begins to fetch units of a slot; s: waits for bytes of it (may be NULL). NULL: not now. */
struct cache_own *cache_fill_begin(struct cache_queue *q, struct cache_slot *slot, uint64_t units,
				   struct cache_io *s);
/* Of those that are missing, the run from `from` on that one request may fetch. */
uint64_t cache_fill_units(const struct cache_device *d, const struct cache_slot *slot,
			  unsigned from, unsigned to);
/* How many units a block has: the last one of the origin may have less. */
unsigned cache_block_units(const struct cache_device *d, uint64_t block);
/* A slot for a block that has none; NULL: not now. */
struct cache_slot *cache_slot_new(struct cache_device *d, uint64_t block);
/* Gives up blocks, so that slots become unused. */
void cache_evict(struct cache_device *d);
/* So many are unused, or will be, before a further one is taken. */
uint32_t cache_evict_mark(const struct cache_device *d);
void cache_evict_reap(struct cache_device *d);

/* ---- cache_through.c ---- */

bool cache_through_step(struct cache_io *s, uint32_t left);
bool cache_range_step(struct cache_io *s, uint32_t left);
/* Units of a block that are being changed at the origin. */
uint64_t cache_changing(const struct cache_device *d, uint64_t block);

/* ---- cache_back.c ---- */

bool cache_back_step(struct cache_io *s, uint32_t left);
/* A FLUSH, or what a FUA adds. */
bool cache_back_flush_step(struct cache_io *s);

/* ---- cache_clean.c ---- */

void cache_clean_kick(struct cache_device *d);
void cache_clean_init(struct cache_device *d);
void cache_clean_fini(struct cache_device *d);
bool cache_clean_is_quiet(const struct cache_device *d);

/* ---- cache_commit.c ---- */

void cache_commit_init(struct cache_device *d);
void cache_commit_fini(struct cache_device *d);
void cache_commit_want(struct cache_device *d);
/* A step: waits for a commit that begins from now on. False: that has failed, and so does s. */
bool cache_commit_wait(struct cache_io *s);
/* A page has changed, and may wait. */
void cache_commit_later(struct cache_device *d, const struct cache_slot *slot);
/* The store has failed at something that is no write of the user's. */
void cache_store_failed(struct cache_device *d, const char *what, int err);
bool cache_commit_is_quiet(const struct cache_device *d);

/* ---- cache_lost.c ---- */

/* At the end of each FLUSH, and before something is said to be durable. */
void cache_look_for_losses(struct cache_device *d);
/*
 * At the end of a READ of the store: true: it has perhaps lost the bytes meanwhile, as somebody
 * has lost something; cache_look_for_losses tells.
 */
static inline bool cache_read_is_doubtful(const struct cache_device *d)
{
	return d->losses_seen != backend_losses_anywhere();
}
/* Of the origin alone, also when no queue is open: whether there were any. */
bool cache_look_at_origin(struct cache_device *d);
/* The same of the store, while dirty blocks are read there; nothing else follows from it. */
bool cache_look_at_store(struct cache_device *d);
/*
 * Open: what was lost before is no news. Returns whether the origin has lost something that no
 * FLUSH has told, so that the first one will fail: of a process before.
 */
bool cache_losses_begin(struct cache_device *d);
/* What the cache has of what the origin has perhaps lost is not valid. */
void cache_forget_unflushed(struct cache_device *d);

/* ---- cache_own.c ---- */

/* NULL: all of the kind are in use. */
struct cache_own *cache_own_take(struct cache_queue *q, enum cache_own_kind kind);
void cache_own_release(struct cache_queue *q, struct cache_own *own);
/* buf NULL: the own buffer. done is called from a turn, never from inside. */
void cache_own_submit(struct cache_own *own, unsigned child_idx, enum backend_op op,
		      uint64_t offset, void *buf, uint32_t bytes,
		      void (*done)(struct cache_own *own, int result));

/* ---- cache_control.c ---- */

extern const struct backend_cache_ops cache_control_ops;

/* What a step of a command answers, beside 0 (its end) and -errno. */
enum cache_control_step {
	CACHE_CONTROL_WAITS = 1, /* for the end of something, or a while */
	CACHE_CONTROL_YIELDS,	 /* goes on in another turn */
};
/* Something has ended for which the command may wait; harmless when none is under way. */
void cache_control_go_on(struct cache_device *d);
/* It ends now. */
void cache_control_stop(struct cache_device *d);

/* cache_warm.c; _init: the control thread, of the job that is to begin. */
void cache_warm_init(struct cache_device *d);
int cache_warm_step(struct cache_device *d);
/* A fill of it has ended, of which so many bytes are kept. */
void cache_warm_filled(struct cache_device *d, const struct cache_own *own, uint64_t kept,
		       int result);

/* cache_drop.c, the same. */
void cache_drop_init(struct cache_device *d);
int cache_drop_step(struct cache_device *d);

/* cache_aside.c, the same. */
int cache_aside_step(struct cache_device *d);
/* It is not aside any more; harmless when it was not. */
void cache_aside_end(struct cache_device *d);
/* A step of a write of writeback, to units of this block, while it is aside. slot: may be NULL. */
bool cache_aside_write_step(struct cache_io *s, struct cache_slot *slot, uint64_t units,
			    uint32_t left);
extern const struct backend_above cache_above;

/* ---- cache_options.c, cache_open.c, cache_close.c ---- */

extern const struct option cache_options[];
int cache_open(struct backend_device *device);
void cache_open_async(struct backend_visit *visit);
void cache_close_async(struct backend_visit *visit);
void cache_close(struct backend_device *device);

#endif
