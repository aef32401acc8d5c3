/*
 * What the BPF programs of `ublktrace stacks` count in. Shared by both sides, so only fixed-width
 * types.
 */
#ifndef UBLKTRACE_STACKS_STACKS_MAP_H
#define UBLKTRACE_STACKS_STACKS_MAP_H

#ifndef TRACE_BPF
#include <linux/types.h>
#endif

#define STACKS_DEPTH 64u /* frames */
#define STACKS_MAX 16384u
#define STACKS_BATCH_MAX 128u /* that many requests at once, or more */

#define STACKS_ANY_OP 0xffffu /* the point does not say which command */

/* How often a stack was seen with a command (REQ_OP_* of the block layer). */
struct stacks_key {
	__s32 stack; /* of the map of stacks; -1: it could not be had */
	__u32 op;
};

#endif
