/*
 * qcow2: an image of QEMU's format as a node over `data` (and `backing`, `data_file`). What the
 * files of this folder share:
 *
 *   qcow2_node.c     the node's table
 *   qcow2.c          a request's way as long as it touches no table
 *   qcow2_bounce.c   bytes that go through memory of our own: copies on write, LUKS, compressed
 *   qcow2_own.c      requests of the node's own
 *   qcow2_lookup.c   where a guest's bytes are; lock-free, any reactor
 *   qcow2_tables.c   the tables in memory
 *   qcow2_owner.c    who changes tables: one reactor, which the others ask
 *   qcow2_alloc.c    clusters are taken and given back
 *   qcow2_taken.c    ... and given back when the process dies in between
 *   qcow2_change.c   entries of L2 are changed
 *   qcow2_commit.c   the tables reach the disk, in order
 *   qcow2_undo.c     ... and what a failed FLUSH takes back
 *   qcow2_snapshot*.c  internal snapshots: qcow2_snapshot_change.h
 *   qcow2_resolve.c  what the image stands over, by its header
 *   qcow2_open.c     an image is opened (qcow2_opening.h); qcow2_close.c: the last commit
 *
 * The way of a request. It looks up where its first bytes are. In place: it is passed on to `data`
 * as it is, from whichever queue. Else it asks the owner, which is the reactor of queue 0, and goes
 * on with the answer: to read a slice, to allocate clusters, to enter them into L2 when the data is
 * there. Queues of the owner's reactor ask by a call, others by mail.
 */
#ifndef BACKENDS_QCOW2_QCOW2_H
#define BACKENDS_QCOW2_QCOW2_H

#include "backends/qcow2/codec/qcow2_decompress.h"
#include "backends/qcow2/codec/qcow2_luks.h"
#include "backends/qcow2/qcow2_lookup.h"
#include "backends/qcow2/qcow2_snapshots.h"
#include "reactor/reactor.h"
#include "storage/node.h"
#include "storage/visit.h"

/* Own requests of a queue: for its copies, and of queue 0 for the owner's tables. */
#define QCOW2_COPIES_NR 8u
#define QCOW2_TABLE_OWN_NR 8u
#define QCOW2_OWN_NR (QCOW2_COPIES_NR + QCOW2_TABLE_OWN_NR)
#define QCOW2_OWN_BYTES 65536u

struct qcow2_config {
	uint64_t cache_bytes;
	bool is_created; /* when `data` has no image yet, one is made */
	uint64_t size_bytes, cluster_bytes;
	bool with_subclusters;
	char *key_file;
	char *backing_folder; /* NULL: that of the image */
	char *snapshot;	      /* ID or name of the one to read; NULL: the disk itself */
	char *accepted_base;  /* qcow2_base.c's token of a version; NULL: none */
};

struct qcow2_io;
struct qcow2_owner;
struct qcow2_open;
struct qcow2_snapshots_reader;
struct qcow2_snapshot_op;

struct qcow2_device {
	struct backend_device *device;
	struct qcow2_header header;
	struct qcow2_tables *t;
	bool is_read_only;
	/* Several reactors look up while the owner changes. */
	_Atomic bool is_spread;
	/* This opening may have changed something: any thread, until it is closed. */
	_Atomic bool is_changed;
	uint32_t mark_found; /* before its own; 0: none. qcow2_mark.c */
	/* Children by what they are: indexes; backing -1: none. guest: where the clusters lie. */
	unsigned data_idx, guest_idx;
	int backing_idx;
	uint64_t backing_bytes;
	bool ignores_backing;	    /* backing: none */
	uint64_t image_bytes;	    /* of the image when it was opened */
	uint64_t data_bytes;	    /* of the child `data`: as far as it can be read */
	uint64_t guest_bytes;	    /* of the child guest_idx; its last cluster may end beyond */
	bool data_grows;	    /* what is beyond its end reads as zeroes, and may be written */
	uint32_t chunk_bytes;	    /* of an own request, at most */
	struct qcow2_luks *luks;    /* NULL: not encrypted */
	struct qcow2_owner *owner;  /* NULL: only read */
	struct qcow2_open *opening; /* qcow2_open.c */
	struct closing *closing;    /* qcow2_close.c */
	_Atomic uint64_t epoch;	    /* qcow2_alloc.c */
	_Atomic bool is_stopped;    /* qcow2_snapshot_op.c: no request looks up */
	/* struct backend's; is_stopped then, for ever: all requests fail. */
	const char *_Atomic failure;
	/* Control thread: the table, what reads it, and what changes it. */
	struct qcow2_snapshots *snapshots; /* NULL: none, or it is of no use */
	struct qcow2_snapshots_reader *snapshots_reader;
	struct qcow2_snapshot_op *snapshot_op;
};

/* What an own request is for, and who hears of its end. */
struct qcow2_own {
	struct backend_own *own;
	void (*done)(struct qcow2_own *own, int result);
	void *arg;
	struct qcow2_owner *owner; /* for a table */
	bool is_table;
};

struct qcow2_unpacked;

struct qcow2_queue {
	struct backend_queue *queue;
	struct qcow2_device *d;
	/* Requests in place by the epoch in which they looked up; the owner reads it. */
	_Atomic uint32_t moving[2];
	unsigned copy_nr, table_nr; /* own requests in use */
	struct list_node waiting;   /* I/Os for which there was none */
	struct qcow2_own own[QCOW2_OWN_NR];
	struct task waiting_task;
	struct qcow2_unpacked *unpacked;
	struct qcow2_luks_cipher *cipher; /* NULL: not encrypted */
	uint64_t misses, copies, unpacks; /* counters: struct backend_image_look's */
};

/* Where a request is; for its next step, and for why-stuck. */
enum qcow2_state {
	QCOW2_IDLE,
	QCOW2_IN_PLACE,	    /* a piece is with data */
	QCOW2_FROM_BACKING, /* a piece is with backing */
	QCOW2_LOADING,	    /* reads a slice itself: of an image that is only read */
	QCOW2_ASKING,	    /* is with the owner: ask says what for */
	QCOW2_NEEDS_BUFFER, /* all own requests are in use */
	QCOW2_BOUNCE_FILL,  /* collects bytes in a buffer of ours */
	QCOW2_BOUNCE_WRITE,
	QCOW2_FLUSHING,
};

enum qcow2_ask {
	QCOW2_ASK_MAP,	   /* have the slice of this offset read */
	QCOW2_ASK_ALLOC,   /* clusters to write to */
	QCOW2_ASK_PUBLISH, /* the data is there: enter them */
	QCOW2_ASK_ABORT,   /* it is not: give them back */
	QCOW2_ASK_UNMAP,   /* whole clusters: DISCARD, WRITE_ZEROES */
	QCOW2_ASK_FLUSH,
	QCOW2_ASK_PASS,	    /* all requests are stopped: wait for the end of that */
	QCOW2_ASK_SNAPSHOT, /* no request: the next step of a change of snapshots */
};

/* Clusters that a write has got and that no table names yet. */
struct qcow2_alloc {
	struct list_node node;	  /* in the owner's list, while it is under way */
	struct list_node waiters; /* I/Os that want the same clusters of the guest */
	uint64_t guest, bytes;	  /* the part of the guest that becomes allocated */
	uint64_t host;		  /* of guest */
	uint64_t cluster_host;	  /* of the first cluster; cluster_nr of them are new */
	unsigned cluster_nr;
	unsigned taken_idx; /* of new clusters: qcow2_taken.c */
	uint32_t losses;    /* qcow2_losses when it began */
	bool is_stale;	    /* cluster_host is not of guest any more */
	bool is_new;	    /* taken just now: an abort gives them back */
	bool is_fresh;	    /* beyond the end of the file until now: reads as zeroes */
};

/* A part of a request that goes through memory of ours; qcow2_bounce.c. */
struct qcow2_bounce {
	struct qcow2_own *own;
	uint64_t at, end;     /* of the guest: what is to be moved */
	uint64_t chunk_end;   /* of what is in the buffer now */
	uint64_t filled;      /* up to here */
	uint64_t host;	      /* of `at`, to write to */
	uint64_t read_bytes;  /* being read into the buffer, */
	uint64_t read_host;   /* from there, */
	bool is_secret;	      /* encrypted */
	struct qcow2_run run; /* of a READ: all that is to be moved */
	void (*then)(struct qcow2_io *s);
};

struct qcow2_io {
	struct backend_io *io;
	enum qcow2_state state;
	int result;
	bool is_zero; /* a WRITE_ZEROES: there are no bytes to get */
	bool is_cancelled;
	bool is_cancelling; /* cancel_mail is out */
	bool is_flushed;    /* FUA: the flush has begun */
	uint32_t losses;    /* FUA: backend_losses of the device, when it began */
	bool is_moving;
	bool moves_middle; /* a piece of an allocating write is with data */
	uint8_t epoch_idx;
	uint64_t at_bytes;	  /* done so far */
	uint64_t now_bytes;	  /* of the step under way */
	struct list_node waiting; /* in one list, of the owner or of the queue */

	enum qcow2_ask ask;
	int answer;	     /* 0 or -errno */
	bool flushes_itself; /* FLUSH: no table was dirty */
	bool is_behind;	     /* waits for a change of snapshots; why-stuck reads it */
	struct mail mail, cancel_mail;
	struct task task;
	struct qcow2_alloc alloc;

	struct qcow2_own *loaded; /* LOADING: a slice in its buffer */
	uint64_t loaded_at;
	struct qcow2_bounce bounce;
};

static inline struct qcow2_queue *qcow2_queue_of(const struct qcow2_io *s)
{
	return s->io->queue->priv;
}

static inline struct qcow2_device *qcow2_device_of(const struct qcow2_io *s)
{
	return s->io->queue->device->priv;
}

static inline uint64_t qcow2_now(const struct qcow2_io *s)
{
	return s->io->offset_bytes + s->at_bytes;
}

static inline void qcow2_set_changed(struct qcow2_device *d)
{
	/* Queues share it: it is written once. */
	if (!atomic_load_explicit(&d->is_changed, memory_order_relaxed))
		atomic_store_explicit(&d->is_changed, true, memory_order_relaxed);
}

static inline void qcow2_set_state(struct qcow2_io *s, enum qcow2_state state)
{
	__atomic_store_n(&s->state, state, __ATOMIC_RELAXED);
}

/*
 * Before a lookup: what it finds stays where it is until moving_end, although it may be freed. The
 * owner uses freed clusters again when no request of that epoch is under way.
 */
static inline void qcow2_moving_begin(struct qcow2_io *s)
{
	struct qcow2_device *d = qcow2_device_of(s);
	struct qcow2_queue *q = qcow2_queue_of(s);
	uint32_t nr;

	if (s->is_moving || !d->owner)
		return;
	s->is_moving = true;
	s->epoch_idx = atomic_load_explicit(&d->epoch, memory_order_relaxed) & 1;
	nr = atomic_load_explicit(&q->moving[s->epoch_idx], memory_order_relaxed);
	atomic_store_explicit(&q->moving[s->epoch_idx], nr + 1, memory_order_relaxed);
	/* The owner changes an entry, then reads the count; here it is the other way round. */
	if (__builtin_expect(atomic_load_explicit(&d->is_spread, memory_order_relaxed), 0))
		qcow2_fence(memory_order_seq_cst);
}

static inline void qcow2_moving_end(struct qcow2_io *s)
{
	struct qcow2_queue *q = qcow2_queue_of(s);
	uint32_t nr;

	if (!s->is_moving)
		return;
	s->is_moving = false;
	nr = atomic_load_explicit(&q->moving[s->epoch_idx], memory_order_relaxed);
	/* What was read or written is done with before the owner sees the count. */
	atomic_store_explicit(&q->moving[s->epoch_idx], nr - 1, memory_order_release);
}

/* ---- qcow2.c ---- */

enum backend_submit qcow2_submit(struct backend_io *io);
void qcow2_child_done(struct backend_io *child);
void qcow2_cancel(struct backend_io *io);

/* After a step of a QUEUED request: the next one, or its end. */
void qcow2_io_go_on(struct qcow2_io *s);
/* The step failed: so does the request. */
void qcow2_io_fail(struct qcow2_io *s, int err);
/* What is unmapped before this offset is zeroes: beyond the end of the backing, or without one. */
bool qcow2_below_is_zero(const struct qcow2_device *d, uint64_t offset);

/* ---- qcow2_own.c ---- */

/* NULL: all are in use. For tables: on queue 0 alone. */
struct qcow2_own *qcow2_own_take(struct qcow2_queue *q, bool for_table);
void qcow2_own_release(struct qcow2_queue *q, struct qcow2_own *own);
/*
 * A request to the child with this index; done is called from a turn, never from inside. buf NULL:
 * the own buffer.
 */
void qcow2_own_submit(struct qcow2_own *own, unsigned child_idx, enum backend_op op,
		      uint64_t offset, void *buf, uint64_t bytes,
		      void (*done)(struct qcow2_own *own, int result));
/* Asks what a request has under way of its own to end soon. */
void qcow2_own_cancel(struct qcow2_io *s);

/* ---- qcow2_bounce.c ---- */

/* A step: reads bytes of the request that are compressed or encrypted. */
void qcow2_bounce_read(struct qcow2_io *s, const struct qcow2_run *run);
/* A step: writes bytes in place, at host: zeroes, or encrypted ones. */
void qcow2_bounce_in_place(struct qcow2_io *s, uint64_t host, uint64_t bytes);
/* A step: writes to the clusters of s->alloc, with what surrounds the request's bytes in them. */
void qcow2_bounce_alloc(struct qcow2_io *s);
/* A piece of that has been written as it is. */
void qcow2_bounce_moved(struct qcow2_io *s, const struct backend_io *child);
/* An own request has become free for an I/O that waited for it. */
void qcow2_bounce_has_buffer(struct qcow2_io *s);
/* What a bounce asked for is there (s->answer). */
void qcow2_bounce_looked(struct qcow2_io *s);

/* ---- qcow2_unpacked.c ---- */

int qcow2_unpacked_init(struct qcow2_queue *q);
void qcow2_unpacked_fini(struct qcow2_queue *q);
/* The bytes of a compressed cluster, until the queue's next turn; NULL: ask for them. */
const uint8_t *qcow2_unpacked_find(const struct qcow2_queue *q, uint64_t entry);
/* By the own request of s->bounce; qcow2_bounce_looked follows. */
void qcow2_unpacked_ask(struct qcow2_io *s, uint64_t entry);

/* ---- qcow2_owner.c ---- */

struct qcow2_owner *qcow2_owner_new(struct qcow2_device *d);
void qcow2_owner_free(struct qcow2_owner *o); /* accepts NULL */
/* On the queue's reactor; that of queue 0 is the owner's. */
void qcow2_owner_add_queue(struct qcow2_owner *o, struct qcow2_queue *q);
void qcow2_owner_remove_queue(struct qcow2_owner *o, struct qcow2_queue *q);
/* From any queue: s->ask; the answer comes with qcow2_io_answered. */
void qcow2_owner_ask(struct qcow2_io *s, enum qcow2_ask ask);
void qcow2_io_answered(struct qcow2_io *s);
/*
 * The request is to end soon, and waits for the owner: what that has under way of its own is
 * cancelled, for all. From another reactor qcow2_io_cancelled follows.
 */
void qcow2_owner_cancel(struct qcow2_io *s);
void qcow2_io_cancelled(struct qcow2_io *s);
/* Any thread: whether a FLUSH has to wait for tables. */
bool qcow2_owner_is_dirty(const struct qcow2_owner *o);

/* ---- qcow2_mark.c ---- */

extern const struct backend_version_ops qcow2_version;
/* The mark of the image after a close in order, if no request comes any more. Any thread. */
uint32_t qcow2_mark_left(const struct qcow2_device *d);

/* ---- qcow2_resolve.c: struct backend's resolve ---- */

int qcow2_resolve(const struct backend_spec *spec, struct backend_spec **ret_child, char *error,
		  size_t error_bytes);
/* What stands in the place of a backing backend: "auto", "none"; NULL: nothing, or a backend. */
const char *qcow2_backing_word(const struct backend_spec *spec);

/* ---- qcow2_look.c: struct backend's look ---- */

void qcow2_look(const struct backend_queue *queue, struct backend_image_look *look);

/* ---- qcow2_open.c, qcow2_close.c ---- */

extern const struct option qcow2_options[];
int qcow2_open(struct backend_device *device);
void qcow2_open_async(struct backend_visit *visit);
void qcow2_close_async(struct backend_visit *visit);
void qcow2_close(struct backend_device *device);
void qcow2_opening_free(struct qcow2_device *d);
struct backend_device *qcow2_child(const struct backend_device *device, unsigned idx);

#endif
