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
#ifndef STORAGE_TAIL_H
#define STORAGE_TAIL_H

#include "storage/backend.h"

/*
 * From open or open_async, when limits.caps are set: the storage has so many bytes. Sets
 * limits.size_bytes and device->tail. Where is_padded, the core asks a leaf for what there is of
 * the last block and adds the zeroes; a node with children reads the whole block, and the core
 * clears what is behind the end. A leaf that gives the zeroes by itself takes is_padded back.
 */
void backend_set_found_size(struct backend_device *device, uint64_t bytes);

/* resize.c: what backend_set_found_size was told of is now so long; the device has another size. */
void backend_tail_found(struct backend_device *device, uint64_t bytes);
void backend_tail_follow(struct backend_device *device);

/* Any thread. So many bytes the storage must still have for the device to be what it is. */
uint64_t backend_size_needed(const struct backend_device *device);

/* Main thread. How many bytes the storage of this node has behind the device; 0: none. */
uint32_t backend_left_out(const struct backend_device *node);

/*
 * Main thread, from open to close: what the user of a device has to know of it, the idx-th of its
 * nodes' notes, in words. False: there are fewer.
 */
#define BACKEND_NOTE_BYTES 256
bool backend_note(const struct backend_device *top, unsigned idx, char words[BACKEND_NOTE_BYTES]);

/* io.c: whether a READ that lies in the device reaches behind the end of the storage. */
static inline bool backend_reads_last(const struct backend_io *io,
				      const struct backend_device *device)
{
	return device->tail.is_padded && io->op == BACKEND_READ &&
	       io->offset_bytes + io->length_bytes > device->tail.found_bytes;
}

#endif
