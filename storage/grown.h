/* Storage that grows by itself, and who hears of it. */
#ifndef STORAGE_GROWN_H
#define STORAGE_GROWN_H

#include "storage/backend.h"

/* For a leaf, any thread while a queue is open: struct backend_resize's size_now says more. */
void backend_has_grown(const struct backend_device *leaf);

/* Main thread, while no queue is open: fn hears of that, on whatever thread. NULL: nobody. */
void backend_on_grown(struct backend_device *device, void (*fn)(void *arg), void *arg);

#endif
