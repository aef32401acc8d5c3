/*
 * Where records go: a file of one of the formats of `ublktrace record -o`. Main thread only.
 */
#ifndef UBLKTRACE_OUTPUT_SINK_H
#define UBLKTRACE_OUTPUT_SINK_H

#include "tracefile/writer.h"
#include "ublktrace/events/event.h"
#include "ublktrace/events/losses.h"

struct sink;

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

/* Makes path anew, in the format that its ending says: .csv, .pftrace, .fxt. Returns 0 or -errno
 * (-EINVAL: another ending); *ret_sink is the caller's until close. */
int sink_open(const char *path, const struct trace_clock *clock, struct sink **ret_sink);

/* The same for a path of any ending. */
int csv_open(const char *path, const struct trace_clock *clock, struct sink **ret_sink);

#endif
