/*
 * Flight recorder files as a list of events in the order of time, of running and of exited daemons.
 * Nothing in a file is trusted. Used by ublkctl; no daemon is needed.
 */
#ifndef UBLKCTL_FLIGHT_LOG_H
#define UBLKCTL_FLIGHT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/flight.h"

struct flight_line {
	struct flight_record record;
	int64_t wall_ns;     /* CLOCK_REALTIME */
	uint64_t latency_ns; /* COMMIT: since its FETCH; 0: that is no longer there */
	unsigned reactor;
	uint64_t seq; /* order within the reactor */
	char name[FLIGHT_NAME_BYTES];
};

struct flight_log {
	struct flight_line *lines;
	size_t nr, max;
	uint64_t torn;	      /* records that make no sense, left out */
	uint64_t overwritten; /* by a running daemon, while they were read */
};

/*
 * Reads a whole file into memory that the caller frees. A running daemon continues to write:
 * *ret_head_after says how far it had come when all was read. Returns 0, -errno, or -EBADMSG for
 * what is no recorder file.
 */
int flight_log_load(const char *path, struct flight_file **ret_file, uint64_t *ret_head_after);

/* Adds the records of a file; file is in private memory. Returns 0 or -ENOMEM. */
int flight_log_add(struct flight_log *log, const struct flight_file *file, uint64_t head_after);

/* After the last add: finds the latencies and sorts by time. */
void flight_log_finish(struct flight_log *log);

/* Accepts a zeroed log. */
void flight_log_fini(struct flight_log *log);

/* By (device, queue, tag), then time: the order of Perfetto's tracks. */
int flight_line_compare_tag(const void *a, const void *b);

#endif
