/*
 * What this machine says of itself: files of /proc and /sys, the running kernel, capabilities, BTF.
 * Main thread.
 */
#ifndef UBLKTRACE_KERNEL_MACHINE_H
#define UBLKTRACE_KERNEL_MACHINE_H

#include <linux/capability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct btf;

/* For tests: paths begin in that folder, "" by default; it must outlive all calls. */
void machine_root_set(const char *root);

/* Opens for reading; NULL when it cannot be. */
FILE *machine_open(const char *path);
bool machine_has(const char *path);

/*
 * A file of tracefs, wherever that is mounted; when it is not, from an instance of our own that
 * nobody else sees. NULL: cannot be had.
 */
FILE *machine_open_tracefs(const char *name);

/* As POINT_KERNEL(6, 12); 0 when it cannot be told. */
unsigned machine_kernel(void);

/* Loaded, or a part of the kernel. */
bool machine_has_module(const char *module);

/* CAP_... or, as in the kernel, CAP_SYS_ADMIN instead of it. */
bool machine_can(unsigned capability);

/* "CAP_BPF and CAP_PERFMON": those that tracing needs and this process lacks; "" when none is.
 * modules: also functions of modules are wanted. Returns buf. */
const char *machine_lacks(bool modules, char *buf, size_t bytes);

/* Whether BPF programs that trace may be loaded: 0, or -EPERM, said in one line on stderr. */
int machine_may_trace(void);

/*
 * Types of the kernel (NULL) or of a module, which is the kernel's own when it is built in. Read
 * once, kept. NULL: there are none. *ret_first: the first id that is its own.
 */
struct btf *machine_btf(const char *module, int *ret_first);

/* Forgets the types that were read, for a module that was loaded since. */
void machine_forget(void);

/* Whether a module (NULL: the kernel) has a function that can be traced by its type. */
bool machine_has_function(const char *module, const char *function);

/* A descriptor of a module's BTF, as attaching to its functions wants it; 0 for the kernel itself.
 * -errno: -EPERM without CAP_SYS_ADMIN. The caller closes it when it is above 0. */
int machine_btf_fd(const char *module);

#endif
