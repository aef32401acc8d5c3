/*
 * Where the oldest I/O of a device waits and what to do, from what the daemon and the kernel
 * report. ublkctl and the page at the metrics port judge with the same code. Pure: reads only its
 * arguments.
 */
#ifndef DAEMON_VERDICT_STUCK_H
#define DAEMON_VERDICT_STUCK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* An I/O younger than this is not stuck, nor is a reactor that was silent for less. */
#define STUCK_IO_NS 1000000000ull
#define STUCK_REACTOR_NS 200000000ull

enum stuck_kind {
	STUCK_NOTHING,
	STUCK_NOT_SERVING, /* the device is on its way up or down, or failed */
	STUCK_REACTOR,	   /* does not turn */
	STUCK_DRIVER,	   /* the driver reports another state or another server of a live device */
	STUCK_RING,	   /* the reactor turns, but its submissions or completions do not move */
	STUCK_NOT_ARMED,   /* the driver has no FETCH of a tag */
	STUCK_THROTTLED,
	STUCK_DELAYED,
	STUCK_BACKEND, /* does not answer */
	STUCK_BUSY,    /* does not take it */
	STUCK_NOT_HANDED_BACK,
	STUCK_UNSEEN, /* the kernel has requests that the daemon has not */
	STUCK_DRIVER_SILENT,
	STUCK_KIND_NR,
};

const char *stuck_kind_name(enum stuck_kind kind);

struct stuck_view {
	const char *name, *step; /* of the device, and its state machine's state */
	bool has_queues;	 /* the rest of the daemon's view is there */

	unsigned depth, armed, inflight;		/* summed over the queues */
	unsigned short_queue, short_armed, short_depth; /* the queue with most tags down */

	bool has_oldest;
	unsigned queue, tag;
	uint64_t sector, bytes, age_ns;
	const char *op, *state;		     /* enum inflight_state by name */
	const char *backend, *backend_state; /* or NULL */
	const char *backend_wait;	     /* "answer", "throttle" or "delay"; or NULL */

	int reactor; /* silent the longest of those that serve the device; -1: none */
	uint64_t silent_ns;
	const char *doing; /* what it does, in words; NULL: not known */

	/* Of that reactor's ring, in two looks between which nothing moved. */
	unsigned sq_waiting, cq_unseen, overflow;

	/* The driver's answer to GET_DEV_INFO. */
	const char *driver_state; /* "LIVE"; NULL: not known */
	const char *driver_error; /* by name; or NULL */
	int server_pid, daemon_pid;
	uint64_t driver_owed_ns; /* for how long it has not answered; 0: it has */

	/* Requests that the kernel had in flight in two looks, the smaller; -1: not known. */
	long kernel_nr;
	/* I/Os in the daemon in those looks, the larger. */
	unsigned seen_nr;
};

struct stuck_verdict {
	enum stuck_kind kind;
	char where[512];
	const char *cure; /* "" for nothing */
};

/* Where the oldest I/O is: " of 4KiB at sector 24"; "" of one without bytes, as FLUSH. */
#define STUCK_PLACE_BYTES 80
const char *stuck_place(const struct stuck_view *view, char text[static STUCK_PLACE_BYTES]);

void stuck_judge(const struct stuck_view *view, struct stuck_verdict *ret_verdict);

/*
 * device: one of the array "devices"; answer: the object with "pid" and "reactors". The view points
 * into both. The kernel's part is left unknown.
 */
void stuck_view_fill(struct stuck_view *ret_view, const json_t *device, const json_t *answer);

/* The I/Os in the daemon of one of a device's "queues". */
unsigned stuck_queue_inflight(const json_t *queue);

#endif
