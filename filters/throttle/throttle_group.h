/*
 * Between throttle.c and throttle_group.c: who shares buckets, who waits, whose turn it is.
 *
 * A group is one set of buckets. Its members are devices, theirs are queues, each on its reactor.
 * What waits stands in a FIFO of its queue, one per direction; devices take turns, and a device's
 * queues do. One queue of the group, the owner, has a timer armed for the moment when somebody may
 * go: it grants as many requests as may go then, its own at once and those of other queues by mail.
 *
 * The lock guards everything that says so, for the tens of nanoseconds that the arithmetic takes.
 * It is the one lock on a data path, and only throttled requests pay for it: buckets that several
 * cores fill cannot be split without losing what QEMU promises, bursts included. It is a mutex that
 * spins first: a holder that lost its CPU costs a sleep, not a time slice of spinning.
 */
#ifndef FILTERS_THROTTLE_THROTTLE_GROUP_H
#define FILTERS_THROTTLE_THROTTLE_GROUP_H

#include <pthread.h>

#include "filters/throttle/throttle.h"
#include "reactor/reactor.h"

struct throttle_group {
	char *name; /* NULL: of one device */
	pthread_mutex_t lock;

	/* Under the lock of the list of groups. */
	struct list_node node;		   /* in the list of named groups */
	struct throttle_limits configured; /* as the devices said, whatever was changed since */
	unsigned device_nr;

	/* Under the lock. */
	struct throttle_state state;
	struct list_node turn[THROTTLE_DIR_NR]; /* devices where somebody waits, the next first */
	unsigned waiting_nr[THROTTLE_DIR_NR];
	enum throttle_dir next_dir;   /* who goes first when both directions may */
	struct throttle_queue *owner; /* NULL only while nobody waits */
	uint64_t deadline_ns;	      /* of the owner's timer */
};

struct throttle_device {
	struct throttle_group *group;
	/* Under the lock. */
	struct list_node turn[THROTTLE_DIR_NR];	  /* in group->turn */
	struct list_node queues[THROTTLE_DIR_NR]; /* those where somebody waits, the next first */
};

struct throttle_queue {
	struct throttle_device *device;
	struct backend_queue *queue;
	struct timer timer; /* its reactor's */
	struct mail mail;
	/* Under the lock. */
	struct list_node turn[THROTTLE_DIR_NR];	   /* in device->queues */
	struct list_node waiting[THROTTLE_DIR_NR]; /* FIFO of throttle_io */
	struct list_node granted; /* throttle_ios that may go, by another thread's decision */
	struct list_node wake;	  /* in a list of queues to be mailed to */
	bool mail_posted;	  /* only while something is granted: so the mail outlives nobody */
};

enum throttle_io_state {
	THROTTLE_IO_PASSED, /* idle, or in the child */
	THROTTLE_IO_WAITING,
	THROTTLE_IO_GRANTED,
};

struct throttle_io {
	struct backend_io *io;
	struct list_node node; /* in waiting or granted */
	uint64_t since_ns;
	enum throttle_io_state state; /* under the lock */
	bool cancelled;		      /* its reactor's */
};

/* Main thread. Returns 0 or -errno with words in the device's error. */
int throttle_group_join(struct backend_device *device);
/* Accepts a device that has not joined. */
void throttle_group_leave(struct throttle_device *device);

/* Each takes the lock. now_ns is the reactor's time. */

/* Reactor. True: the request goes at once, and is accounted. False: it waits. */
bool throttle_group_enter(struct throttle_queue *q, struct throttle_io *t, uint64_t now_ns);

/* Reactor, when mail has come, and only then: appends to ready what others have granted. */
void throttle_group_take(struct throttle_queue *q, struct list_node *ready);

/* Reactor: the timer, or mail. What may go now of q's own is appended to ready. */
void throttle_group_run(struct throttle_queue *q, uint64_t now_ns, struct list_node *ready);

/* Reactor. True: it waited, and does no longer. */
bool throttle_group_cancel(struct throttle_io *t);

/* Reactor: q will never be seen again. Nothing of its own waits. */
void throttle_group_quit(struct throttle_queue *q, uint64_t now_ns);

/* Main thread. */
void throttle_group_set(struct throttle_group *g, const struct throttle_limits *limits,
			uint64_t now_ns);
void throttle_group_get(struct throttle_group *g, struct throttle_limits *ret_limits);

/* throttle.c: runs on q's reactor when q->mail arrives. */
void throttle_queue_mail(struct mail *mail);

#endif
