/* Failed I/Os in words. Reactor threads; only when one failed. */
#ifndef UBLK_QUEUE_IO_ERROR_H
#define UBLK_QUEUE_IO_ERROR_H

#include "base/log.h"
#include "ublk/queue/tag_io.h"

/* Of one node of a device, all its queues: a line per kind of request and errno and interval. */
struct io_error_limits {
	struct log_limit limit[BACKEND_OP_NR][QUEUE_ERRNO_NR];
};

/* Of one device. Each node has its own, so that one that fails always does not silence another. */
struct io_errors {
	unsigned node_nr;
	struct io_error_limits ublkd;  /* what we refused ourselves */
	struct io_error_limits node[]; /* by backend_device.node_idx */
};

/* For a tree of node_nr nodes, about 11 KiB each. NULL: out of memory. Freed with free(). */
struct io_errors *io_errors_create(unsigned node_nr);

/*
 * The request of this tag ends with err (negative). A negative io->request.result says that a
 * backend answered so; otherwise we refused it ourselves.
 */
void io_error_tell(struct tag_io *io, int err);

/* What an errno of a failed I/O usually means; never NULL. */
const char *io_error_words(int err);

#endif
