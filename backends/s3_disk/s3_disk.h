/*
 * A disk that can be written, as objects under a prefix of an S3 bucket.
 *
 *	s3_disk_map.c       which object has which bytes                     pure
 *	s3_disk_manifest.c  what the disk is, who writes it                  pure
 *	s3_disk_options.c   what the user can configure                      main thread
 *	s3_disk_call.c      a request that is sent until it is answered
 *	s3_disk_lease.c     the manifest as a lock
 *	s3_disk_open.c      the lease is taken, at the end given back        control reactor
 *	s3_disk_load.c      the map of all generations before                control reactor
 *	s3_disk.c           the table: queues and requests
 *	s3_disk_part.c      a request, one object after the other
 *	s3_disk_slot.c      objects in memory, which are being written
 *	s3_disk_fence.c     FLUSH, and the lease while it serves
 *	s3_disk_snapshot.c  maps that are kept                               main thread too
 *	s3_disk_delete.c    objects that nothing refers to any more
 *	s3_disk_list.c      the objects that the store has, page by page     any client
 *	s3_disk_page.c      a page                                           pure
 *	s3_disk_keep.c      what is garbage                                  pure
 *	s3_disk_gc.c        finds and deletes it, beside a writer            ublkctl
 *
 * Those without a thread run on the reactor of the only queue.
 *
 * A write is complete when an object with its bytes is stored: the object is read, unless all of it
 * is written or it is in memory still, changed, and stored by another name. Writes to an object
 * that is being stored wait; then they are stored together. FLUSH writes into the manifest what
 * must be found by the next writer, on the condition that the lease is ours still. Reads of what is
 * not in memory are GETs of ranges.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_H
#define BACKENDS_S3_DISK_S3_DISK_H

#include "backends/http/s3_config.h"
#include "backends/s3_disk/s3_disk_call.h"
#include "backends/s3_disk/s3_disk_lease.h"
#include "backends/s3_disk/s3_disk_map.h"

/* Of the 1,024 bytes of a key: the rest is ours. */
#define S3_DISK_PREFIX_BYTES 900

struct s3_disk_config {
	struct s3_config s3; /* key: the prefix */
	uint64_t size_bytes; /* 0: as it is */
	uint64_t object_bytes, buffers, lease_ns;
	bool create;
	char *snapshot; /* to be read; NULL: none */
};

/* What a process leaves to the next one of the device: what it has seen stored. */
struct s3_disk_kept {
	uint32_t generation; /* 0: nothing */
	struct s3_disk_tally stored;
};

extern const struct option s3_disk_options[];
void s3_disk_check(const void *config, const struct yaml_node *map, struct config_errors *e);

struct s3_disk {
	struct web_device web; /* s3_open's: the URL of the prefix, the keys */
	const struct s3_disk_config *config;
	/* The same for all processes that serve this device, one after the other. */
	char owner[S3_DISK_ID_BYTES];
	char token[S3_DISK_ID_BYTES]; /* of this one: in names of maps */
	/* As the store has it; of who has the lease: first the visit, then the queue. */
	struct s3_disk_manifest manifest;
	char etag[HTTP_ETAG_BYTES];
	struct s3_disk_tally counted; /* of its generation, by the manifest that the store has */
	bool etag_is_bare;	      /* s3_disk_lease.h */
	struct s3_disk_map map;
	char found[S3_DISK_CONTENT_BYTES]; /* s3_disk_manifest_content, when it was opened */
	uint32_t seq;			   /* the last one given away, of this generation */
	uint32_t map_nr;		   /* maps that were stored, or tried to be */
	bool is_read_only;
	/* memfd with owner and, behind it, a struct s3_disk_kept; it outlives the process. -1: none
	 */
	int kept_fd;
	struct s3_disk_kept kept; /* by the process before */
	struct s3_disk_visit *visit;
	struct net_changed changed; /* another one writes it */
	/* Main thread, but for queue, which is atomic. */
	struct s3_disk_queue *queue; /* while it is open */
	struct s3_disk_change *change;
	struct s3_disk_snapshot shown[S3_DISK_SNAPSHOTS_MAX];
	unsigned shown_nr;
};

enum s3_disk_io_state {
	S3_DISK_IO_IDLE,
	S3_DISK_IO_WAITS_SLOT,
	S3_DISK_IO_WAITS_CALL,
	S3_DISK_IO_LOADS,
	S3_DISK_IO_WAITS_STORE,
	S3_DISK_IO_READS,
	S3_DISK_IO_STORES,
	S3_DISK_IO_CHECKS,
	S3_DISK_IO_WAITS_CHANGE,
};

struct s3_disk_read;

struct s3_disk_io {
	struct list_node node; /* of what it waits for */
	struct backend_io *io;
	uint32_t at_bytes;	   /* of the request: done so far */
	struct s3_disk_read *read; /* that brings its bytes */
	struct s3_disk_name name;  /* that it has asked for */
	bool has_begun;		   /* counted */
	uint64_t covers;	   /* FLUSH: writes that were complete before, counted */
	uint8_t state;		   /* enum s3_disk_io_state; any thread may read it */
};

/* The part of a request that lies in one object. */
struct s3_disk_part {
	uint32_t index, in_bytes, bytes; /* the object, where in it, how much */
	bool is_whole;			 /* all of the disk's bytes in it */
};

/* A GET of a range. */
struct s3_disk_read {
	struct s3_disk_call call;
	struct s3_disk_queue *q;
	struct list_node node; /* free */
	struct s3_disk_io *w;  /* NULL: it was cancelled */
};

enum s3_disk_slot_state {
	S3_DISK_SLOT_FREE,
	S3_DISK_SLOT_LOADS,
	S3_DISK_SLOT_READY,   /* buf is what is stored */
	S3_DISK_SLOT_CHANGED, /* buf has bytes of `storing` too: it will be stored in this turn */
	S3_DISK_SLOT_STORES,
};

/* An object in memory. */
struct s3_disk_slot {
	struct s3_disk_call call;
	struct s3_disk_queue *q;
	struct list_node node; /* the one used longest ago first */
	uint8_t state;	       /* enum s3_disk_slot_state */
	uint32_t index;
	struct s3_disk_name next; /* being stored by this name */
	bool is_pinned;		  /* it is not to be taken */
	bool is_hole;		  /* all of it is zeroes: it is stored without bytes */
	uint8_t *buf;
	struct list_node waiting; /* s3_disk_io: for it to be loaded or stored */
	struct list_node storing; /* s3_disk_io: complete when it is stored */
};

#define S3_DISK_DELETES 4u
#define S3_DISK_DELETES_WAITING 256u

/* An object that another one has replaced. */
struct s3_disk_doomed {
	struct s3_disk_name name;
	uint32_t index;
	uint64_t stores; /* of the queue when it was replaced */
};

struct s3_disk_delete {
	struct s3_disk_call call;
	struct s3_disk_queue *q;
	bool is_busy;
};

struct s3_disk_queue {
	struct s3_disk *d;
	struct backend_queue *queue;
	struct s3_disk_client client;
	struct task task;
	struct list_node incoming;     /* s3_disk_io */
	unsigned begun_nr;	       /* requests that have begun and not ended */
	struct s3_disk_change *change; /* of snapshots: what comes waits for it */
	bool has_change_begun;
	struct s3_disk_read *read; /* connections */
	struct list_node free_reads, reads_waiting, slots_waiting;
	struct s3_disk_slot *slot; /* config->buffers */
	struct list_node slots;
	uint8_t *buffers;
	size_t buffers_bytes;

	/* s3_disk_fence.c's. */
	struct s3_disk_lease lease;
	struct timer renewal;
	struct list_node flushes; /* s3_disk_io */
	bool is_asking, is_resting;
	bool renewal_is_due;			       /* as soon as nothing is asked */
	uint64_t written, asked_covers, checked;       /* writes that were complete */
	uint64_t stores, asked_stores, checked_stores; /* objects that were stored */
	struct s3_disk_tally asked_tally;	       /* what they were when it was asked */
	int write_result;    /* of the manifest, which is read to decide what was done */
	unsigned refused_nr; /* writes, one after the other, though it names us */

	struct s3_disk_delete deletes[S3_DISK_DELETES];
	struct s3_disk_doomed deleting[S3_DISK_DELETES_WAITING]; /* a ring */
	unsigned deleting_first, deleting_nr;
};

/* s3_disk_open.c */
int s3_disk_open(struct backend_device *device);
void s3_disk_open_async(struct backend_visit *visit);
void s3_disk_close_async(struct backend_visit *visit);
void s3_disk_cancel_async(struct backend_visit *visit);
void s3_disk_close(struct backend_device *device);

static inline uint32_t s3_disk_object_nr(const struct s3_disk_manifest *m)
{
	return (uint32_t)((m->size_bytes + m->object_bytes - 1) / m->object_bytes);
}

/* s3_disk_part.c */
/* What comes next of it; false: all is done. */
bool s3_disk_io_part(const struct s3_disk_io *w, struct s3_disk_part *ret_part);
/* Begins its next part, or completes it. It is in no list. */
void s3_disk_io_go(struct s3_disk_io *w);
/* The same, after this part is done. */
void s3_disk_io_next(struct s3_disk_io *w);
void s3_disk_io_end(struct s3_disk_io *w, int result);
void s3_disk_io_cancel(struct s3_disk_io *w);
/* All of the list ends with this. */
void s3_disk_ios_fail(struct list_node *list, int result);
int s3_disk_reads_init(struct s3_disk_queue *q);
void s3_disk_reads_fini(struct s3_disk_queue *q);

/* s3_disk_slot.c */
struct s3_disk_slot *s3_disk_slot_find(struct s3_disk_queue *q, uint32_t index);
/* For this part, whose object has none; is_overwritten: all of it will be. NULL: all are in use. */
struct s3_disk_slot *s3_disk_slot_take(struct s3_disk_queue *q, uint32_t index,
				       bool is_overwritten);
/* Does the next part of a request with the object, now or when it can be. */
void s3_disk_slot_use(struct s3_disk_slot *slot, struct s3_disk_io *w);
/* Whether none is being loaded or stored, also for requests that were cancelled. */
bool s3_disk_slots_rest(const struct s3_disk_queue *q);
/* All of them: what they hold is not the disk's any more. They rest. */
void s3_disk_slots_forget(struct s3_disk_queue *q);
/* Later in this turn: what has come begins, and objects that have changed are stored. */
void s3_disk_run_later(struct s3_disk_queue *q);
int s3_disk_slots_init(struct s3_disk_queue *q);
void s3_disk_slots_fini(struct s3_disk_queue *q);

/* s3_disk_fence.c */
int s3_disk_fence_init(struct s3_disk_queue *q);
void s3_disk_fence_fini(struct s3_disk_queue *q);
/* Completes it when the disk was ours after all that was complete before, and the manifest says how
 * much that is. */
void s3_disk_flush(struct s3_disk_io *w);
/* Asks whether the disk is ours still, and tells the manifest what is stored if it does not know.
 */
void s3_disk_fence_ask(struct s3_disk_queue *q);
/* Instead of a renewal: `next` becomes the manifest; then returned is to be called. Nothing is
 * under way. */
void s3_disk_fence_write(struct s3_disk_queue *q, const struct s3_disk_manifest *next,
			 void (*done)(struct s3_disk_lease *lease, int result));
void s3_disk_fence_returned(struct s3_disk_queue *q, int result);
/* It begins no renewal any more until a request comes; whether none is under way. */
bool s3_disk_fence_rest(struct s3_disk_queue *q);
void s3_disk_fence_wake(struct s3_disk_queue *q);

/* s3_disk_delete.c */
int s3_disk_deletes_init(struct s3_disk_queue *q);
void s3_disk_deletes_fini(struct s3_disk_queue *q);
/* Whether none is under way. */
bool s3_disk_deletes_rest(const struct s3_disk_queue *q);
/* Of this generation, and replaced by what was stored just now. */
void s3_disk_delete(struct s3_disk_queue *q, uint32_t index, struct s3_disk_name name);
/* checked_stores has grown. */
void s3_disk_deletes_go_on(struct s3_disk_queue *q);

/* s3_disk_snapshot.c */
extern const struct backend_snapshots s3_disk_snapshots;
/* Main thread. */
void s3_disk_snapshots_show(struct s3_disk *d, const struct s3_disk_manifest *m);
/* All that had begun has ended. */
void s3_disk_change_go(struct s3_disk_queue *q);

/* s3_disk.c: a change is to have the disk for itself, until release. */
void s3_disk_queue_hold(struct s3_disk_queue *q, struct s3_disk_change *change);
void s3_disk_queue_release(struct s3_disk_queue *q);
/* Whether one waits, and can begin now. */
bool s3_disk_queue_is_free(const struct s3_disk_queue *q);
/* Whenever something has ended: it may begin now. */
void s3_disk_queue_look(struct s3_disk_queue *q);

/*
 * s3_disk_load.c: a name that nobody has used. Of two who try to be the next writer each has its
 * own; map_nr tells those of one apart, of which the store may execute an earlier PUT later.
 */
void s3_disk_map_name(const struct s3_disk *d, uint32_t generation, char name[S3_DISK_MAP_BYTES]);

static inline void s3_disk_io_set_state(struct s3_disk_io *w, enum s3_disk_io_state state)
{
	__atomic_store_n(&w->state, (uint8_t)state, __ATOMIC_RELAXED);
}

#endif
