/*
 * Memory that clients share with a device (UBLK_F_SHMEM_ZC, Linux 7.1): a request whose pages lie
 * in it says where, instead of having its bytes copied. The driver finds out by comparing page
 * frames; docs/shared-memory.md is for users.
 *
 * Who shares memory can change it at any time, and take it away. Backends see it only when all
 * nodes of the tree have BACKEND_DATA_SHMEM, or BACKEND_DATA_SEALED where it cannot be taken away.
 *
 * A device with shared memory goes by user_copy. So a request can be served by pread and pwrite on
 * /dev/ublkcN whatever the driver says of its memory: when a buffer is not known (any more), when
 * it is torn, when an address is not aligned for the storage.
 */
#ifndef UBLK_SHMEM_H
#define UBLK_SHMEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ublk/data_path.h"
#include "ublk/shmem_map.h"
#include "ublk/ublk_abi.h"

struct backend_spec;

/* Of one device. The driver could take 65536. */
#define SHMEM_BUFFERS_MAX 16u
/* Of one buffer: the driver's own limit (UBLK_SHMEM_BUF_SIZE_MAX). */
#define SHMEM_BUFFER_BYTES_MAX (1ull << 32)

#define SHMEM_ERROR_BYTES 320

/*
 * Whether a device can have shared memory: its data path as configured, its backends, the driver's
 * features (UBLK_F_*; ~0: not known). Pure, any thread. Returns 0, or -EINVAL or -EOPNOTSUPP with
 * words.
 */
int shmem_check(enum data_path wish, const struct backend_spec *spec, uint64_t features,
		char error[static SHMEM_ERROR_BYTES]);

/* Of such a device: whether a page that goes missing would harm more than a request in it. */
bool shmem_wants_sealed(const struct backend_spec *spec);

/* What a descriptor that a client hands over is. */
struct shmem_file {
	uint64_t bytes;
	size_t page_bytes;
	bool read_only; /* it cannot be written through this descriptor, or not at all */
};

/*
 * Any thread, waits for no storage: F_GET_SEALS, which only memory has, comes first. Refuses all
 * but a memfd that is sealed against shrinking and files in tmpfs and hugetlbfs, which no
 * descriptor can seal; with wants_sealed these, too, and huge pages. Returns 0, or -EINVAL with
 * words.
 */
int shmem_file_check(int fd, bool wants_sealed, struct shmem_file *ret_file,
		     char error[static SHMEM_ERROR_BYTES]);

/*
 * A buffer by the driver's index. usable_bytes is the main thread's word to the reactors: 0 until
 * the driver has it and again before the driver is told to forget it. The map stays until the
 * driver has forgotten it: it waits for all requests then (ublk_lock_buf_tree).
 */
struct shmem_buffer {
	_Atomic uint64_t usable_bytes;
	bool read_only;
	uint8_t *base;
	struct shmem_map *map; /* NULL: the driver has no buffer of this index, or none of ours */
};

struct shmem_buffers {
	struct shmem_buffer buffer[SHMEM_BUFFERS_MAX];
	uintptr_t align_mask; /* of an address that the backends take */
};

/*
 * Reactor thread. Where the bytes of a request are: addr of its descriptor with UBLK_IO_F_SHMEM_ZC.
 * NULL: not where they may be used.
 */
static inline void *shmem_find(const struct shmem_buffers *all, uint64_t addr, uint32_t bytes,
			       bool writes_to_it, unsigned *ret_idx)
{
	unsigned idx = ublk_shmem_zc_index(addr);
	uint32_t at_bytes = ublk_shmem_zc_offset(addr);
	const struct shmem_buffer *buffer = &all->buffer[idx < SHMEM_BUFFERS_MAX ? idx : 0];
	uint64_t usable_bytes = atomic_load_explicit(&buffer->usable_bytes, memory_order_acquire);

	if (idx >= SHMEM_BUFFERS_MAX || (uint64_t)at_bytes + bytes > usable_bytes ||
	    (at_bytes & all->align_mask) || (writes_to_it && buffer->read_only) ||
	    shmem_map_torn(buffer->map))
		return NULL;
	*ret_idx = idx;
	return buffer->base + at_bytes;
}

#endif
