/* Numbers for texts, so that a file holds each of them once. One thread. */
#ifndef TRACEFILE_TEXT_TABLE_H
#define TRACEFILE_TEXT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "tracefile/map.h"

struct text_entry;

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

#endif
