/*
 * Turns records into what a timeline shows: processes with tracks, slices that nest, arrows between
 * them. A struct trace_writer (tracefile/writer.h) makes a
 * file of it; what lies where is decided here once. Main thread.
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

#include "tracefile/writer.h"
#include "ublktrace/events/event.h"
#include "ublktrace/events/losses.h"

struct timeline;

/* w is the caller's. */
struct timeline *timeline_new(struct trace_writer *w);
void timeline_event(struct timeline *t, const struct event *e);
/*
 * Ends what is open, tells all that was held back to be sorted, then the losses as counters of a
 * process "ublktrace" (NULL: none are known); frees t.
 */
void timeline_end(struct timeline *t, const struct losses *l);

#endif
