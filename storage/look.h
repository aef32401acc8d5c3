/* What can be seen of a backend while it serves: what an I/O waits for, and what a leaf finds out;
 * net/session_look.h has the rest. */
#ifndef STORAGE_LOOK_H
#define STORAGE_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct backend_device;
struct backend_queue;
struct net_connection_look;

/* What an I/O that a backend has waits for. */
enum backend_wait_kind {
	BACKEND_WAIT_ANSWER,   /* the storage, or the backend below */
	BACKEND_WAIT_THROTTLE, /* a limit of rate: configured */
	BACKEND_WAIT_DELAY,    /* time to pass: configured */
	BACKEND_WAIT_KIND_NR,
};

/* "answer", "throttle", "delay" */
const char *backend_wait_kind_name(enum backend_wait_kind kind);

struct backend_wait {
	enum backend_wait_kind kind;
	const char *words; /* static, for people; NULL: nothing of its own */
};

/*
 * A library whose clients have threads of their own, which several devices share: all of them that
 * there are in the process.
 */
struct backend_library_look {
	const char *name; /* static: "librbd" */
	unsigned client_nr;
	unsigned image_nr;  /* that use them */
	unsigned thread_nr; /* of the process that are not ours; 0 without a client */
};

/*
 * Main thread, from open to close: that of the first leaf that has one; false: there is none.
 */
bool backend_library(const struct backend_device *top, struct backend_library_look *ret_look);

/*
 * Main thread, between queue_init and queue_fini: struct backend's connections of all leaves, one
 * after the other.
 */
bool backend_connection(const struct backend_queue *top, unsigned idx,
			struct net_connection_look *ret_connection);

/*
 * A node that is an image: what it holds, and its tables in memory. Counters are of all queues
 * since the device started.
 */
struct backend_image_look {
	const char *format; /* static: the node's type */
	const char *node;   /* its name: BACKEND_PATH_BYTES describes it */
	const char *file;   /* where it lies: the path, or the URI; NULL: no option says */
	unsigned depth;	    /* images over it */
	bool is_read_only;
	bool is_repeated; /* it is shared by devices (sharing.h), and another one counts it */
	uint64_t size_bytes, cluster_bytes; /* of the disk; the unit of its space */
	uint64_t end_bytes;		    /* the image needs no more of its file than that */
	bool has_stored;
	uint64_t stored_bytes; /* with has_stored: what the file takes, as stat(2) counts it */
	/* The cache of tables, by slices. */
	uint64_t slice_bytes, slice_nr, slice_max;
	bool is_dirty; /* tables in memory differ from the disk's */
	/*
	 * Lookups whose slice had to be read. All others of a request's pieces found theirs: these
	 * are not counted, as each request would pay for it.
	 */
	uint64_t misses;
	uint64_t allocations; /* clusters */
	uint64_t copies;      /* writes that copied what surrounds them into a new cluster */
	uint64_t unpacked;    /* compressed clusters read */
};

/* A node that is a cache. Counters are of all queues since the device started. */
struct backend_cache_look {
	const char *node; /* its name: BACKEND_PATH_BYTES describes it */
	const char *mode; /* static */
	bool is_off;	  /* its store has failed */
	bool is_repeated; /* it is shared by devices (sharing.h), and another one counts it */
	uint64_t block_bytes;
	uint64_t block_nr, used_nr; /* blocks that it has room for; that are there */
	uint64_t dirty_bytes;	    /* that the origin does not have yet */
	uint64_t hits, misses;	    /* parts of reads: from the store, from the origin */
	uint64_t hit_bytes, miss_bytes;
	uint64_t filled_bytes;	/* read from the origin and kept */
	uint64_t passed_by;	/* misses of which nothing was kept */
	uint64_t prefetched;	/* blocks fetched ahead */
	uint64_t evicted;	/* blocks given up */
	uint64_t cleaned_bytes; /* dirty ones that were written to the origin */
	uint64_t moved_bytes; /* dropped at the open, as the origin was changed without the cache */
};

/*
 * As backend_image: the cache of that index, with what this queue has counted added to *look.
 * False: there is none.
 */
bool backend_cache_at(const struct backend_queue *top, unsigned idx,
		      struct backend_cache_look *look);

/*
 * Main thread, between queue_init and queue_fini, for each queue of a device in turn, with *look
 * zeroed before the first: the image of that index, in the order of the configuration (an image
 * before what is below it), with what this queue has counted added to *look. False: there is none.
 */
bool backend_image(const struct backend_queue *top, unsigned idx, struct backend_image_look *look);

/*
 * Main thread, from open to close: what the user of a device has to know of it, the idx-th of its
 * nodes' notes, in words. False: there are fewer.
 */
#define BACKEND_NOTE_BYTES 256
bool backend_note(const struct backend_device *top, unsigned idx, char words[BACKEND_NOTE_BYTES]);

/* What a leaf finds out by itself. */
enum backend_news {
	BACKEND_NEWS_GROWN,  /* its storage has more bytes: resize.h */
	BACKEND_NEWS_STORED, /* its stored_fd gives another descriptor */
};

/* Of a leaf, any thread while a queue is open: it has news. */
void backend_tell(const struct backend_device *leaf, enum backend_news news);

/* Main thread, while no queue is open: fn hears of news, on whatever thread. NULL: nobody. */
void backend_on_news(struct backend_device *device, void (*fn)(void *arg, enum backend_news news),
		     void *arg);

#endif
