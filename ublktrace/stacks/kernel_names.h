/*
 * Names of the kernel's functions by address, from /proc/kallsyms. Main thread.
 */
#ifndef UBLKTRACE_STACKS_KERNEL_NAMES_H
#define UBLKTRACE_STACKS_KERNEL_NAMES_H

#include <stdint.h>
#include <stdio.h>

struct kernel_names;

/* Reads f to its end. Addresses that are hidden (all 0) are left out. Returns 0, -ENOMEM, or
 * -EACCES: all are hidden. */
int kernel_names_read(FILE *f, struct kernel_names **ret_names);

/* The function that address lies in; NULL: unknown. It lives as long as n. */
const char *kernel_names_find(const struct kernel_names *n, uint64_t address);
void kernel_names_free(struct kernel_names *n);

#endif
