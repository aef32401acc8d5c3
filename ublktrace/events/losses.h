/*
 * What a trace did not see. Every command prints all counters, zeros too: a reader must know
 * whether a trace is complete.
 */
#ifndef UBLKTRACE_EVENTS_LOSSES_H
#define UBLKTRACE_EVENTS_LOSSES_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

struct losses {
	uint64_t ring_full; /* records for which the ring buffer had no room */
	uint64_t map_full;  /* requests that could not be remembered */
	/* Runs of BPF programs that the kernel skipped, because one ran already on that CPU
	 * (bpf_prog_info.recursion_misses). */
	uint64_t recursion;
	uint64_t unmatched; /* ends whose begin was not seen, such as what was in flight at the
			       start */
};

/* One line: "lost: 0 ring buffer full, 0 map full, 0 missed by recursion, 3 unmatched". */
static inline void losses_print(FILE *out, const struct losses *l)
{
	fprintf(out,
		"lost: %" PRIu64 " ring buffer full, %" PRIu64 " map full, %" PRIu64
		" missed by recursion, %" PRIu64 " unmatched\n",
		l->ring_full, l->map_full, l->recursion, l->unmatched);
}

#endif
