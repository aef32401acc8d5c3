/*
 * How much memory there is for the content of devices: of the machine, and of the control groups
 * (v2) that this process is in. Any thread; allocates nothing.
 */
#ifndef BACKENDS_MEM_MEM_AVAILABLE_H
#define BACKENDS_MEM_MEM_AVAILABLE_H

#include <stdint.h>

#define MEMORY_WHOSE_BYTES 128

struct memory_look {
	uint64_t limit_bytes; /* the smallest of: the machine's RAM, memory.max, memory.high */
	/* What can be taken before the first of them is used up, less a margin for all others. */
	uint64_t left_bytes;
	char whose[MEMORY_WHOSE_BYTES]; /* of the limit, in words: "this machine" */
};

/*
 * Reads /proc/meminfo and the files of the control groups below root ("" but in tests). What cannot
 * be read sets no limit: without any, both are UINT64_MAX. wanted_bytes: what left_bytes need not
 * exceed; above it costly files are not read.
 */
void memory_look(struct memory_look *look, const char *root, uint64_t wanted_bytes);

/*
 * Takes bytes of what is left, for pages that are about to be allocated; nobody gives them back, as
 * it is looked again every few MiB and milliseconds. Returns 0, or -ENOSPC when there are none.
 */
int memory_take(uint64_t bytes);

/* What is kept free of a limit, for everybody else. */
uint64_t memory_margin(uint64_t limit_bytes);

/* For tests: the root of the next looks. root is borrowed. */
void memory_set_root(const char *root);

#endif
