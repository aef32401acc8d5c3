/* What backend.c needs of wrap.c. */
#ifndef STORAGE_WRAP_H
#define STORAGE_WRAP_H

struct backend_queue;

/* An address that is the calling thread's alone while it lives. */
const void *wrap_this_thread(void);

/* Asserts that the queue may be closed here and now. */
void wrap_check_queue_close(const struct backend_queue *queue);

#endif
