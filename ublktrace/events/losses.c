/*
 * The losses line. Pure.
 */
#include "ublktrace/events/losses.h"

#include <inttypes.h>

void losses_print(FILE *out, const struct losses *l)
{
	fprintf(out,
		"lost: %" PRIu64 " ring buffer full, %" PRIu64 " map full, %" PRIu64
		" missed by recursion, %" PRIu64 " unmatched\n",
		l->ring_full, l->map_full, l->recursion, l->unmatched);
}
