/*
 * A file that is written from begin to end, and bytes that become a part of it. Remembers the first
 * write that failed. One thread.
 */
#ifndef TRACEFILE_OUT_H
#define TRACEFILE_OUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct out {
	FILE *file;
	int err; /* 0 or -errno */
};

/* Makes path anew. Returns 0 or -errno. */
int out_open(struct out *o, const char *path);
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

#endif
