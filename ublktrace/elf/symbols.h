/* Names in lists of the kernel's functions: /proc/kallsyms, tracefs' available_filter_functions.
 * Main thread. */
#ifndef UBLKTRACE_ELF_SYMBOLS_H
#define UBLKTRACE_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define SYMBOL_BYTES 96u

struct symbol {
	const char *name;	  /* wanted, without a suffix */
	const char *module;	  /* NULL: of the kernel itself */
	char found[SYMBOL_BYTES]; /* NAME, or NAME.isra.0 and the like; "" when it is not there */
	bool traceable;		  /* ftrace knows it */
	int btf_id;		  /* its type in BTF; 0: none */
};

/*
 * Fills .found of each of them (sorted by symbols_sort) from the text of kallsyms. The plain name
 * wins over one with a suffix; NAME.cold, which is not where a function begins, is none.
 * A function of a module that is built in is the kernel's. Reads f to its end.
 */
void symbols_read_kallsyms(FILE *f, struct symbol *symbols, size_t nr);

/* Sets .traceable where available_filter_functions has .found. */
void symbols_read_traceable(FILE *f, struct symbol *symbols, size_t nr);

void symbols_sort(struct symbol *symbols, size_t nr);

/* NULL when it is not among them. */
struct symbol *symbols_find(struct symbol *symbols, size_t nr, const char *name);

#endif
