/*
 * Requests whose bytes lie in memory that a client shares with the device (ublk/shmem.h). On the
 * queue's reactor.
 *
 * Happy path: the driver says in which buffer and where; the backend gets that address, and nothing
 * is copied. Failure modes: the buffer is not (or no longer) known, is torn, or the address does
 * not suit the storage: the request is served as if its memory were its client's alone. Pages go
 * missing while the backend has the request: EIO.
 */
#include <errno.h>

#include "base/counter.h"
#include "ublk/queue/queue_internal.h"
#include "ublk/shmem.h"

void tag_place_user_copy(const struct queue *q, struct tag_io *io)
{
	io->bytes_are = q->setup.backend_moves ? TAG_BYTES_THERE : TAG_BYTES_BY_HAND;
	io->request.buf = q->setup.backend_moves ? NULL : queue_buffer(q, tag_of(io));
}

void tag_place_shmem(struct queue *q, struct tag_io *io, uint32_t op_flags, uint64_t addr)
{
	void *buf = NULL;
	unsigned idx;

	if (op_flags & UBLK_IO_F_SHMEM_ZC)
		buf = shmem_find(q->setup.shmem, addr, io->request.length_bytes,
				 io->request.op == BACKEND_READ, &idx);
	if (buf) {
		io->request.buf = buf;
		io->bytes_are = TAG_BYTES_SHMEM;
		io->shmem_idx = (uint8_t)idx;
		counter_add(&q->stats.shmem, 1);
	} else if (io->bytes_are == TAG_BYTES_SHMEM) {
		tag_place_user_copy(q, io);
	}
}

int tag_shmem_result(const struct queue *q, const struct tag_io *io)
{
	return shmem_map_torn(q->setup.shmem->buffer[io->shmem_idx].map) ? -EIO : 0;
}
