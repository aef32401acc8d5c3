/* Failed I/Os in words. Reactor threads; only when one failed. */
#ifndef UBLK_QUEUE_IO_ERROR_H
#define UBLK_QUEUE_IO_ERROR_H

#include "base/log.h"
#include "ublk/queue/tag_io.h"

/* Of one device, all its queues: a line per kind of request and errno and LOG_LIMIT_INTERVAL_NS. */
struct io_errors {
	struct log_limit limit[BACKEND_OP_NR][QUEUE_ERRNO_NR];
};

/*
 * The request of this tag ends with err (negative). A negative io->request.result says that a
 * backend answered so; otherwise we refused it ourselves.
 */
void io_error_tell(struct tag_io *io, int err);

/* What an errno of a failed I/O usually means; never NULL. */
const char *io_error_words(int err);

#endif
