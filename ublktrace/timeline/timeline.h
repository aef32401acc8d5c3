/*
 * Turns records into what a timeline shows: processes with tracks, slices that nest, arrows between
 * them. The encoders (perfetto.c, fxt.c) know only struct timeline_writer; what lies where is
 * decided here once. Main thread.
 *
 *   a ring         = a process "ring FD of COMM (PID)" with the tracks submit, waiting (poll armed,
 *                    queued to io-wq, deferred), complete, reaped, one for each io-wq thread that
 *                    worked for it, and the counters SQ depth, CQ depth
 *   a thread       = two tracks of its own process: its io_uring syscalls as slices, and beside
 *                    them when it was off the CPU
 *   a ublk device  = a process "ublkbN" with a track for each (queue, tag): a slice for the request
 *                    and in it queued, reap, daemon, backend, commit
 *   a request      = arrows submit -> (poll | io-wq | inline) -> complete -> reaped
 *
 * Submissions and completions are points in time: they are drawn 1 us wide, or less where the next
 * one comes earlier. Each arrow has both its ends: what was still open when the trace ended, or
 * whose end was lost, ends in a slice that says so.
 */
#ifndef UBLKTRACE_TIMELINE_TIMELINE_H
#define UBLKTRACE_TIMELINE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "ublktrace/events/event.h"
#include "ublktrace/events/losses.h"

struct timeline_arg {
	const char *name;
	const char *text; /* NULL: number */
	int64_t number;
	bool is_unsigned; /* number: of a uint64_t, as a user_data with its highest bit set */
};

#define TIMELINE_ARGS_MAX 15u /* as many as FXT takes */

/*
 * Processes and tracks have one space of ids, from 1. Each is told before the first slice on it,
 * and again when a better name is known; a counter track once. All times: CLOCK_MONOTONIC, ns. What
 * the pointers point to is valid during the call only.
 */
struct timeline_writer {
	void (*process)(void *w, uint64_t process, const char *name);
	void (*track)(void *w, uint64_t track, uint64_t process, const char *name);
	void (*counter_track)(void *w, uint64_t track, uint64_t process, const char *name);
	/*
	 * A slice with its end (after its start): those of one track come so that they nest,
	 * sorted by start, the outer one first; those of several tracks come in any order.
	 * flow_in, flow_out: arrows that end and begin here.
	 */
	void (*slice)(void *w, uint64_t track, uint64_t start_ns, uint64_t end_ns, const char *name,
		      const uint64_t *flow_in, unsigned flow_in_nr, const uint64_t *flow_out,
		      unsigned flow_out_nr, const struct timeline_arg *args, unsigned arg_nr);
	/* Sorted by time, track by track. */
	void (*counter)(void *w, uint64_t track, uint64_t time_ns, int64_t value);
};

struct timeline;

struct timeline *timeline_new(const struct timeline_writer *ops, void *w);
void timeline_event(struct timeline *t, const struct event *e);
/*
 * Ends what is open, tells all that was held back to be sorted, then the losses as counters of a
 * process "ublktrace" (NULL: none are known); frees t.
 */
void timeline_end(struct timeline *t, const struct losses *l);

#endif
