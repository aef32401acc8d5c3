/* What io.c and io_queue.c share. */
#ifndef STORAGE_IO_INTERNAL_H
#define STORAGE_IO_INTERNAL_H

#include "storage/backend.h"

/* Its address is the calling thread's alone while it lives. */
extern _Thread_local char backend_this_thread;

/* The `done` of I/Os below a node that only forwards: completes the I/O above with the result. */
void backend_forward_done(struct backend_io *child);

#endif
