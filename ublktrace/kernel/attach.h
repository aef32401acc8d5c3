/* Whether a point can really be attached to: tries it with a program that does nothing. Main
 * thread. */
#ifndef UBLKTRACE_KERNEL_ATTACH_H
#define UBLKTRACE_KERNEL_ATTACH_H

#include "ublktrace/kernel/point.h"

/*
 * found: from point_look. A function of which fentry does not know the type, or that the kernel
 * refuses, is tried as a kprobe too. Returns 0 and *ret_how, the way that worked, or -errno of the
 * way that p wants. Nothing stays attached.
 */
int attach_try(const struct point *p, const char *found, enum point_how *ret_how);

/* One way only. Returns 0 or -errno. */
int attach_try_how(const struct point *p, const char *found, enum point_how how);

/* "tp_btf", "fentry", ... */
const char *attach_how_name(enum point_how how);

/* What -errno of it most likely means, with the cure; static. */
const char *attach_error_cure(enum point_how how, int err);

#endif
