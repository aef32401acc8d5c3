/* The size of a whole tree, while its queues serve; storage that grows by itself, and who hears of
 * it. */
#ifndef STORAGE_RESIZE_H
#define STORAGE_RESIZE_H

#include "storage/backend.h"

/*
 * struct backend_resize for a whole tree, whose root is device. One thread at a time, which may
 * block (backend_can_resize, _check_size and _set_size: the main thread, and do not), while queues
 * serve. What needs them returns -EOPNOTSUPP with words where a leaf cannot. A tree that grows only
 * in part keeps what it has gained below; nothing is asked of it.
 */
bool backend_can_resize(const struct backend_device *device);
/* Whether the nodes can make this size of their children's; -EINVAL: words, with one they can. */
int backend_check_size(const struct backend_device *device, uint64_t size_bytes, char *error,
		       size_t error_bytes);
int backend_size_now(struct backend_device *device, uint64_t *ret_bytes, char *error,
		     size_t error_bytes);
int backend_grow(struct backend_device *device, uint64_t size_bytes, char *error,
		 size_t error_bytes);
enum backend_usage backend_usage(struct backend_device *device, uint64_t start_bytes,
				 uint64_t end_bytes);
void backend_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes);

/* The limits of the whole tree: from now on requests up to here are taken. */
void backend_set_size(struct backend_device *device, uint64_t size_bytes);

/* For a leaf, any thread while a queue is open: struct backend_resize's size_now says more. */
void backend_has_grown(const struct backend_device *leaf);

/* Main thread, while no queue is open: fn hears of that, on whatever thread. NULL: nobody. */
void backend_on_grown(struct backend_device *device, void (*fn)(void *arg), void *arg);

#endif
