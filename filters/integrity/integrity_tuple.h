/*
 * Metadata as they are stored: as the client made them, but for two tuples that change places. All
 * bytes 0xff, which is "not to be checked", are stored as zeroes, and zeroes as 0xff. So a hole in
 * a sparse file and memory that was never written say "not to be checked", without a byte being
 * written. Pure.
 */
#ifndef FILTERS_INTEGRITY_INTEGRITY_TUPLE_H
#define FILTERS_INTEGRITY_INTEGRITY_TUPLE_H

#include "storage/limits.h"

/* Of interval_nr intervals, from one form to the other. */
void integrity_tuples_swap(const struct backend_integrity_limits *shape, void *metadata,
			   uint32_t interval_nr);

#endif
