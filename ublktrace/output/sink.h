/*
 * Where records go: a file of one of the formats of `ublktrace record -o`. Main thread only.
 */
#ifndef UBLKTRACE_OUTPUT_SINK_H
#define UBLKTRACE_OUTPUT_SINK_H

#include <stdint.h>

#include "ublktrace/events/event.h"
#include "ublktrace/events/losses.h"

struct sink;

/* The clocks at the start of a trace, for formats that tell the time of day. */
struct sink_clock {
	int64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	int64_t boot_offset_ns; /* CLOCK_BOOTTIME - CLOCK_MONOTONIC: 0 if it never slept */
	uint64_t start_ns;	/* CLOCK_MONOTONIC of the start */
	int from_boot;		/* timelines count from the boot, not from the start */
};

struct sink_ops {
	/* Records come in the order of the ring buffer: of one CPU in order, of several nearly. */
	void (*event)(struct sink *s, const struct event *e);
	/* Writes what is still held, the losses as well where the format has a place for them, and
	 * closes. Frees s. Returns 0 or -errno of the first write that failed. */
	int (*close)(struct sink *s, const struct losses *l);
};

struct sink {
	const struct sink_ops *ops;
};

/* Each makes path anew. Return 0 or -errno; *ret_sink is the caller's until close. */
int csv_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink);
int perfetto_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink);
int fxt_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink);

/* Picks one of them by the ending of path: .csv, .pftrace, .fxt. -EINVAL: another ending. */
int sink_open(const char *path, const struct sink_clock *clock, struct sink **ret_sink);

#endif
