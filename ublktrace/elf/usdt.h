/* Static probe points (USDT) of programs: notes of their ELF files. Any thread. */
#ifndef UBLKTRACE_ELF_USDT_H
#define UBLKTRACE_ELF_USDT_H

#include <stdint.h>

struct usdt_place {
	char path[256];	 /* the program's file */
	uint64_t offset; /* of the probe's nop in it */
};

/*
 * Finds the probe ublkd:NAME in the running program of that name, else in the one beside ours, else
 * in /usr/sbin. Returns 0, or -ENOENT: no program, or it has no such probe (built without
 * sys/sdt.h).
 */
int usdt_find(const char *program, const char *name, struct usdt_place *ret_place);

/* The same in one file. */
int usdt_find_in(const char *path, const char *provider, const char *name, uint64_t *ret_offset);

#endif
