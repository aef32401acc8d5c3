/* What backend.c needs of stack.c. */
#ifndef STORAGE_STACK_H
#define STORAGE_STACK_H

struct backend_io;

/* The `done` of every I/O that stands below one of a filter. */
void stack_child_done(struct backend_io *child);

#endif
