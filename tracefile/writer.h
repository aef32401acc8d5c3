/*
 * Files of timelines: processes with tracks, slices that nest, arrows between them, counters. The
 * formats are Perfetto's protobuf and Fuchsia's (FXT); both are struct trace_writer, and neither
 * knows what the slices mean. One thread.
 *
 * Processes and tracks have one space of ids, from 1. Each is told before the first slice on it,
 * and again when a better name is known; a counter track once. All times: CLOCK_MONOTONIC, ns. What
 * pointers point to is valid during the call only. Without memory the process ends.
 */
#ifndef TRACEFILE_WRITER_H
#define TRACEFILE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The clocks at the start of a trace, for formats that tell the time of day. */
struct trace_clock {
	int64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	int64_t boot_offset_ns; /* CLOCK_BOOTTIME - CLOCK_MONOTONIC: 0 if it never slept */
	uint64_t start_ns;	/* CLOCK_MONOTONIC of the start */
	bool from_boot;		/* timelines count from the boot, not from the start */
};

struct trace_arg {
	const char *name;
	const char *text; /* NULL: number */
	int64_t number;
	bool is_unsigned; /* number: of a uint64_t, as a user_data with its highest bit set */
};

#define TRACE_ARGS_MAX 15u    /* as many as FXT takes */
#define TRACE_OPEN UINT64_MAX /* end_ns of a slice that has none (Perfetto only) */

/* Those of one track come so that they nest, sorted by start, the outer one first; those of several
 * tracks come in any order. */
struct trace_slice {
	uint64_t track;
	uint64_t start_ns, end_ns; /* the end is after the start */
	const char *name;
	const uint64_t *flow_in, *flow_out; /* arrows that end and begin here */
	unsigned flow_in_nr, flow_out_nr;
	const struct trace_arg *args;
	unsigned arg_nr;
};

struct trace_writer {
	const struct trace_writer_ops *ops;
};

struct trace_writer_ops {
	void (*process)(struct trace_writer *w, uint64_t process, const char *name);
	void (*track)(struct trace_writer *w, uint64_t track, uint64_t process, const char *name);
	void (*counter_track)(struct trace_writer *w, uint64_t track, uint64_t process,
			      const char *name);
	void (*slice)(struct trace_writer *w, const struct trace_slice *s);
	/* Sorted by time, track by track. */
	void (*counter)(struct trace_writer *w, uint64_t track, uint64_t time_ns, int64_t value);
	/* Closes the file and frees w. Returns 0 or -errno of the first write that failed. */
	int (*close)(struct trace_writer *w);
};

/* The file is the writer's from then on. */
struct trace_writer *perfetto_writer_new(FILE *file, const struct trace_clock *clock);
struct trace_writer *fxt_writer_new(FILE *file, const struct trace_clock *clock);

/* A point in time on a track, of a perfetto_writer_new. */
void perfetto_instant(struct trace_writer *w, uint64_t track, uint64_t time_ns, const char *name,
		      const struct trace_arg *args, unsigned arg_nr);

#endif
