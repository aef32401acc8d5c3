/*
 * What the writers of traces share: a file that remembers the first write that failed, bytes that
 * become a part of it, numbers for texts (so that a file holds each of them once), the clock. One
 * thread.
 */
#ifndef TRACEFILE_OUT_H
#define TRACEFILE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tracefile/map.h"
#include "tracefile/writer.h"

struct out {
	FILE *file;
	int err; /* 0 or -errno */
};

void out_write(struct out *o, const void *data, size_t bytes);
/* Returns 0 or -errno of the first write that failed. */
int out_close(struct out *o);

/* Grows as needed. All zero is empty. */
struct bytes {
	uint8_t *data;
	size_t nr, room;
};

void bytes_put(struct bytes *b, const void *data, size_t nr);
void bytes_free(struct bytes *b);

/* All zero is empty. */
struct text_table {
	struct map texts; /* by hash: a list of struct text_entry */
	uint32_t nr;
};

/*
 * Returns the number of text, from 1; *ret_new: it was not known. 0: the table holds nr_max already
 * and text is not among them.
 */
uint32_t text_number(struct text_table *t, const char *text, uint32_t nr_max, bool *ret_new);
void text_table_free(struct text_table *t);

/* Times in a file are BOOTTIME's, or count from the start of the trace. */
uint64_t trace_clock_file_ns(const struct trace_clock *c, uint64_t time_ns);

#endif
