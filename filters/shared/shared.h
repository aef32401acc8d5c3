/*
 * shared: one tree of nodes for several devices. Its users are the devices' nodes of this type; the
 * first opens it, the last closes it. It has one queue, on a reactor that is chosen when it is
 * opened: its home. Requests of users on other reactors go there and back by mail, with their
 * bytes in memory, or in a buffer of the user's queue.
 *
 *	shared_node.c    what the core sees: options, limits, who it is, what can be seen through it
 *	shared_tree.c    opening and closing, who waits for what: the control reactor
 *	shared_home.c    the queue of the tree and its tags: home
 *	shared_queue.c   requests of users: their reactors
 *	shared_bounce.c  those whose bytes are not in memory
 *
 * What is shared is only read: nothing keeps the file systems of several devices from destroying
 * each other on one disk.
 */
#ifndef FILTERS_SHARED_SHARED_H
#define FILTERS_SHARED_SHARED_H

#include <stdatomic.h>

#include "storage/life.h"
#include "storage/visit.h"

/* Requests that the tree has at a time; more wait at home. */
#define SHARED_DEPTH 128u
#define SHARED_NAME_MAX 63u
#define SHARED_PREFIX "shared/"
/* Buffers of each queue of a user. */
#define SHARED_BOUNCE_NR 8u
#define SHARED_BOUNCE_BYTES (128u << 10)
/* How long a user waits for those of another tree of this name to stop, as in a reload. */
#define SHARED_OTHERS_NS 10000000000ull

struct shared_config {
	char *name;
};

/* ---- at home ---- */

/* One of the tree's requests. */
struct shared_tag {
	struct backend_io io;
	struct shared_home *home;
	struct shared_io *user; /* whose it is now */
	struct list_node free;
};

struct shared_home {
	struct backend_device *device; /* the tree */
	struct reactor *reactor, *control;
	struct backend_queue *queue;
	struct shared_tag tag[SHARED_DEPTH];
	struct list_node free, waiting; /* tags; struct shared_io that wait for one */
	unsigned busy_nr;		/* in tags, or waiting */
	int ret;			/* of shared_home_start */
	struct mail mail;		/* of start and stop, there and back */
	void (*answer)(struct shared_home *home);
	struct timer rest_timer;

	/* Of users' queues: any of their threads. */
	_Atomic unsigned awake_nr;  /* queues that are not at rest */
	_Atomic unsigned rested_nr; /* how often the tree's queue has said that it rests */
	_Atomic bool is_asked;	    /* rest_mail is under way */
	struct mail rest_mail;
};

/*
 * Control thread: opens the queue of device on home->reactor, and closes it when that rests; no
 * user has a request. answer is called from a turn of the control reactor, with home->ret.
 */
void shared_home_start(struct shared_home *home, void (*answer)(struct shared_home *home));
void shared_home_stop(struct shared_home *home, void (*answer)(struct shared_home *home));

/*
 * Home's thread. Takes a request of a user: true: it has ended, with s->result. False:
 * shared_io_tell follows, from a turn or inside of shared_home_cancel.
 */
bool shared_home_begin(struct shared_home *home, struct shared_io *s);
/* Asks it to end soon; harmless when it has. */
void shared_home_cancel(struct shared_home *home, struct shared_io *s);
/* Asks the tree's queue to rest, if it has no request. Returns whether it does. */
bool shared_home_rest(struct shared_home *home);

/* ---- requests of users ---- */

/*
 * A buffer of a user's queue, for requests whose bytes are not in memory: they are read into it
 * piece by piece, and go to the driver from there.
 */
struct shared_bounce {
	uint8_t *buf; /* SHARED_BOUNCE_BYTES */
	struct list_node free;
};

struct shared_io {
	/* Its reactor's. */
	struct backend_io *io;
	struct shared_home *home;
	struct mail mail, cancel_mail;
	bool is_cancelling;	      /* cancel_mail is under way */
	bool has_ended;		      /* meanwhile */
	bool is_cancelled;	      /* no further piece is asked for */
	struct shared_bounce *bounce; /* NULL: its bytes are in memory, or it waits for one */
	struct list_node starved;     /* in its queue's list: it waits for one */

	/* What home is asked for: its reactor's before and after. */
	void *buf;
	uint64_t offset_bytes;
	uint32_t bytes;

	/* From asking home to the answer: home's. */
	struct shared_tag *tag; /* relaxed loads by anybody; NULL: it waits for one, or has ended */
	struct list_node waiting;
	int result;
	uint64_t throttle_ns;
};

struct shared_queue {
	struct shared_home *home;
	bool is_resting;
	unsigned rested_nr; /* home's, of the last answer that was taken, or when it came to rest */
	void *buffers;	    /* mapped, of all bounces */
	struct shared_bounce bounce[SHARED_BOUNCE_NR];
	struct list_node free;	  /* bounces */
	struct list_node starved; /* struct shared_io */
	struct task feed;
};

/* Home's thread: s->result is there. */
void shared_io_tell(struct shared_io *s);

struct backend_wait shared_wait(const struct backend_io *io);
int shared_queue_init(struct backend_queue *queue);
void shared_queue_fini(struct backend_queue *queue);
bool shared_queue_rest(struct backend_queue *queue);
int shared_io_init(struct backend_io *io);
enum backend_submit shared_submit(struct backend_io *io);
void shared_cancel(struct backend_io *io);
const struct backend_io *shared_io_below(const struct backend_io *io);

/* ---- shared_bounce.c: buffers of a user's queue, on its reactor ---- */

int shared_bounces_init(struct shared_queue *q);
void shared_bounces_fini(struct shared_queue *q);
/* Begins a request whose bytes are not in memory. False: it waits for a buffer, and shared_io_fed
 * follows. */
bool shared_bounce_begin(struct shared_queue *q, struct shared_io *s);
/*
 * A piece has ended with s->result, of a request in memory too: moves its bytes. True: the next one
 * is to be asked for. False: the request has ended with s->result, and has no buffer any more.
 */
bool shared_bounce_next(struct shared_queue *q, struct shared_io *s);
/* Whether it waited for a buffer, and does no longer. */
bool shared_bounce_cancel(struct shared_io *s);
/* shared_queue.c: it has its buffer. */
void shared_io_fed(struct shared_io *s);

/* ---- trees: the control thread ---- */

enum shared_state {
	SHARED_OPENING,
	SHARED_STARTING, /* its queue */
	SHARED_OPEN,
	SHARED_STOPPING, /* its queue */
	SHARED_CLOSING,
};

struct shared_tree {
	struct list_node node; /* of all */
	char name[sizeof(SHARED_PREFIX) + SHARED_NAME_MAX];
	struct backend_spec *spec; /* its own */
	struct backend_device *device;
	struct backend_open_params params;
	struct backend_home where;
	struct backend_life *life; /* it opens */
	enum shared_state state;
	bool is_abandoned;
	bool is_leaving;	  /* the control reactor stays until what is under way has ended */
	struct list_node users;	  /* struct shared_device that have it open, the longest first */
	struct list_node joining; /* those that wait until it is open */
	struct list_node later;	  /* those that wait until it is gone */
	struct shared_device *last; /* the user that waits for its end; or NULL */
	struct shared_home home;
};

/* A user. */
struct shared_device {
	struct backend_device *device;
	struct backend_visit *visit; /* under way */
	struct shared_tree *tree;    /* NULL: it has none */
	struct list_node node;	     /* in one of the tree's lists */
	struct timer others;	     /* in later, for another tree of this name */
	bool is_timing;
};

void shared_open_async(struct backend_visit *visit);
void shared_close_async(struct backend_visit *visit);
void shared_cancel_async(struct backend_visit *visit);
/* What close_async has left, when the process ends without it. */
void shared_close(struct backend_device *device);

#endif
