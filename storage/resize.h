/*
 * The size of storage as it was found, that of a whole tree while its queues serve, and storage
 * that grows by itself.
 */
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

/*
 * Storage that ends within a block of its device, of any backend and format. The rule:
 *
 *   a device that only reads it has all of its bytes, and zeroes behind them up to the block's end
 *   a device that may write has the whole blocks alone: the bytes behind them are left out, stay
 *   as they are, and this is told (log, ublkctl add, attach, list and show)
 *
 * For there is no place for what is written behind the end: zeroes would be read where other bytes
 * had been written, and to make the storage longer is the user's to ask for. What an image lies in
 * is longer as soon as its format writes there: see file_open.c.
 */

/*
 * From open or open_async, when limits.caps are set: the storage has so many bytes. Sets
 * limits.size_bytes and device->tail. Where is_padded, the core asks a leaf for what there is of
 * the last block and adds the zeroes; a node with children reads the whole block, and the core
 * clears what is behind the end. A leaf that gives the zeroes by itself takes is_padded back.
 */
void backend_set_found_size(struct backend_device *device, uint64_t bytes);

/* Any thread. So many bytes the storage must still have for the device to be what it is. */
uint64_t backend_size_needed(const struct backend_device *device);

/*
 * Main thread. How many bytes the storage of this node has behind the device, where it ends within
 * a block; 0: none. Below a stripe that is all behind its last whole chunk, whether the device may
 * write or not.
 */
uint32_t backend_left_out(const struct backend_device *node);

/* io.c: whether a READ that lies in the device reaches behind the end of the storage. */
static inline bool backend_reads_last(const struct backend_io *io,
				      const struct backend_device *device)
{
	return device->tail.is_padded && io->op == BACKEND_READ &&
	       io->offset_bytes + io->length_bytes > device->tail.found_bytes;
}

/* For a leaf, any thread while a queue is open: struct backend_resize's size_now says more. */
void backend_has_grown(const struct backend_device *leaf);

#endif
