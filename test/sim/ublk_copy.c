/*
 * pread and pwrite on /dev/ublkcN (ublk_user_copy): the server moves the bytes of a request itself.
 * What the driver answers with -EINVAL or -EACCES is a bug of the server, and fails the run.
 *
 * Faults: memory of the server that cannot be had: fewer bytes are moved, or none (-EFAULT). Such a
 * request must be answered with EIO.
 */
#include <errno.h>
#include <string.h>

#include "test/sim/client.h"
#include "test/sim/ublk_model.h"

#define TAG_MASK 0xffffu
#define QUEUE_MASK 0xfffu
#define OFFSET_MASK ((1u << UBLK_TAG_OFF) - 1)

static uint32_t place_of(uint64_t pos)
{
	return (uint32_t)(pos - UBLKSRV_IO_BUF_OFFSET) & OFFSET_MASK;
}

/* At once, as the product does. */
static void check_metadata(const struct model_dev *dev, const struct client_rq *rq, uint32_t at,
			   size_t bytes)
{
	if (!(dev->info.flags & UBLK_F_INTEGRITY) || !rq->metadata)
		sim_fail("dev %u queue %u tag %u: metadata, which it has not", dev->id, rq->queue,
			 rq->tag);
	if (at != 0 || bytes != client_rq_metadata_bytes(rq))
		sim_fail("dev %u queue %u tag %u: %zu bytes of metadata at %u, not %u", dev->id,
			 rq->queue, rq->tag, bytes, at, client_rq_metadata_bytes(rq));
	sim_saw(FAULT_PATH_METADATA);
}

static struct client_rq *request_at(const struct model_dev *dev, uint64_t pos, size_t bytes)
{
	unsigned queue = (unsigned)((pos - UBLKSRV_IO_BUF_OFFSET) >> UBLK_QID_OFF) & QUEUE_MASK;
	unsigned tag = (unsigned)((pos - UBLKSRV_IO_BUF_OFFSET) >> UBLK_TAG_OFF) & TAG_MASK;
	uint32_t at = place_of(pos);
	const struct model_tag *t;

	if (!(dev->info.flags & UBLK_F_USER_COPY) || !dev->has_disk)
		sim_fail("dev %u: user copy, which it does not have", dev->id);
	if (queue >= dev->info.nr_hw_queues || tag >= dev->info.queue_depth)
		sim_fail("dev %u: user copy of queue %u tag %u", dev->id, queue, tag);
	t = model_tag(dev, queue, tag);
	if (!t->owned)
		sim_fail("dev %u queue %u tag %u: user copy of a tag that the server does not have",
			 dev->id, queue, tag);
	if (pos & UBLKSRV_IO_INTEGRITY_FLAG)
		check_metadata(dev, t->rq, at, bytes);
	else if (bytes == 0 || at + bytes > client_rq_data_bytes(t->rq))
		sim_fail("dev %u queue %u tag %u: user copy of %zu bytes at %u, beyond the request",
			 dev->id, queue, tag, bytes, at);
	return t->rq;
}

static size_t bytes_of(const struct iovec *iov, unsigned nr)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < nr; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* How many of the bytes are moved, or -errno. */
static ssize_t choose_bytes(struct client_rq *rq, size_t bytes)
{
	if (!sim_fault(FAULT_COPY_SHORT))
		return (ssize_t)bytes;
	client_rq_note(rq, -EIO, true);
	return sim_one_in(4) ? -EFAULT : (ssize_t)sim_below(bytes);
}

static const uint8_t *bytes_at(const struct client_rq *rq, uint64_t pos)
{
	return pos & UBLKSRV_IO_INTEGRITY_FLAG ? (const uint8_t *)rq->metadata
					       : rq->pages + place_of(pos);
}

static ssize_t copy_out_of(struct client_rq *rq, void *buf, size_t bytes, uint64_t pos)
{
	ssize_t n = choose_bytes(rq, bytes);

	if (!client_rq_gives(rq))
		sim_fail("queue %u tag %u: pread of a request that is no WRITE", rq->queue,
			 rq->tag);
	if (sim_one_in(20) && sim_defect(DEFECT_SHORT_COPY))
		bytes /= 2;
	if (n > 0)
		memcpy(buf, bytes_at(rq, pos), MIN((size_t)n, bytes));
	return n;
}

static void copy_pieces(struct client_rq *rq, const struct iovec *iov, size_t left, uint32_t at)
{
	for (; left > 0; iov++) {
		size_t now = MIN(left, iov->iov_len);

		memcpy(rq->pages + at, iov->iov_base, now);
		if (rq->touched)
			memset(rq->touched + at, 1, now);
		at += (uint32_t)now;
		left -= now;
	}
}

static ssize_t copy_into(struct client_rq *rq, const struct iovec *iov, size_t bytes, uint64_t pos)
{
	ssize_t n = choose_bytes(rq, bytes);

	if (client_rq_gives(rq) || client_rq_data_bytes(rq) == 0)
		sim_fail("queue %u tag %u: pwrite of a request that is no READ", rq->queue,
			 rq->tag);
	if (n <= 0 || sim_defect_always(DEFECT_NO_HAND_COPY))
		return n;
	if (pos & UBLKSRV_IO_INTEGRITY_FLAG)
		memcpy(rq->metadata, iov->iov_base, (size_t)n);
	else
		copy_pieces(rq, iov, (size_t)n, place_of(pos));
	return n;
}

ssize_t ring_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	struct client_rq *rq = request_at(model_by_file(fd), offset, bytes);
	ssize_t n;

	sim_kill_point();
	n = copy_out_of(rq, buf, bytes, offset);

	sim_trace("pread", (uint64_t)rq->queue << 32 | rq->tag, place_of(offset), bytes, n);
	sim_cross(side);
	return n;
}

ssize_t ring_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
	const struct iovec piece = { .iov_base = (void *)(uintptr_t)buf, .iov_len = bytes };

	return ring_pwritev(fd, &piece, 1, offset);
}

ssize_t ring_pwritev(int fd, const struct iovec *iov, unsigned nr, uint64_t offset)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	size_t bytes = bytes_of(iov, nr);
	struct client_rq *rq = request_at(model_by_file(fd), offset, bytes);
	ssize_t n;

	sim_kill_point();
	n = copy_into(rq, iov, bytes, offset);

	sim_trace("pwrite", (uint64_t)rq->queue << 32 | rq->tag, place_of(offset), bytes, n);
	sim_cross(side);
	return n;
}
