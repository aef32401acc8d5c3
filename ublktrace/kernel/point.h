/*
 * Points of the kernel that ublktrace wants, and what became of them: the one place that knows
 * names of kernel functions and of their predecessors. Main thread; reads BTF, kallsyms, tracefs
 * once.
 */
#ifndef UBLKTRACE_KERNEL_POINT_H
#define UBLKTRACE_KERNEL_POINT_H

#include <stdbool.h>
#include <stddef.h>

struct symbol; /* ublktrace/elf/symbols.h */

enum point_state {
	POINT_OK,	     /* can be attached by .how */
	POINT_INLINED,	     /* no such symbol in a kernel or module that is there */
	POINT_SUFFIXED,	     /* only as NAME.isra.0 and the like: no BTF, a kprobe at most */
	POINT_NO_BTF,	     /* the symbol is there, its type is not */
	POINT_NOT_TRACEABLE, /* the symbol is there, ftrace does not know it (notrace) */
	POINT_NO_MODULE,     /* its module is not loaded */
	POINT_NO_RIGHT,	     /* a capability is missing */
	POINT_NO_KERNEL,     /* this kernel never had it: too old, or an option is off */
};

enum point_how {
	POINT_BTF_TRACEPOINT, /* tp_btf */
	POINT_TRACEPOINT,     /* tracefs */
	POINT_FENTRY,
	POINT_KPROBE,
	POINT_USDT,
};

struct point {
	const char *what;   /* "dispatch of a ublk request" */
	const char *symbol; /* io_uring_complete, ublk_queue_rq */
	const char *module; /* NULL: the kernel itself */
	enum point_how how;
	bool required;	     /* without it there is no trace at all */
	const char *instead; /* what is used when it is missing, in words; NULL: nothing */
	/* Kernels that have it, as POINT_KERNEL(6, 15); 0: no bound. Of no weight when it is found:
	 * only to tell "inlined" from "this kernel never had it". */
	unsigned since, until;
};

#define POINT_KERNEL(major, minor) ((unsigned)(major) << 16 | (unsigned)(minor))

/* The table, in the order of a request's way. */
const struct point *points(size_t *ret_nr);

/* What this machine says of p; *ret_found: the symbol as it is here, "" when none. found_bytes of
 * it. */
enum point_state point_look(const struct point *p, char *found, size_t found_bytes);

/* What was found for p, which is no USDT; NULL without memory. Valid until the next call. */
const struct symbol *point_symbol(const struct point *p);

/* Forgets what was read, for a module that was loaded since, or another root. */
void point_forget(void);

/* "attached", "inlined", ... and the cure, for people. */
const char *point_state_name(enum point_state state);
const char *point_state_cure(enum point_state state);

/* The number of parameters of tp_btf's NAME (btf_trace_NAME, without the void * of the probe), or
 * -errno: -ENOENT there is none, -ENOTSUP no BTF at all. */
int point_tracepoint_args(const char *name);

#endif
