/* Completion from a foreign thread. */
#ifndef STORAGE_FOREIGN_H
#define STORAGE_FOREIGN_H

#include "storage/backend.h"

/*
 * For backends whose library calls back from threads of its own. Embedded in the private area of
 * the I/O, so the ends on their way to a reactor are at most its I/Os in flight.
 */
struct backend_foreign_end {
	struct mail mail;
	struct backend_io *io;
	int result;
};

/*
 * Any thread, once for each time that submit has answered QUEUED, also while it still does: the I/O
 * is completed with result on its reactor, in the next turn. Waits for nobody. end stays as it is
 * until then.
 */
void backend_io_complete_from_thread(struct backend_foreign_end *end, struct backend_io *io,
				     int result);

#endif
