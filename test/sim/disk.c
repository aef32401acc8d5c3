/*
 * File SQEs: kept for a while, then executed with pread, pwrite or fallocate on the real file, so
 * that what the backends do with a file is judged by a real file. fsync is not executed: what it
 * must make durable is kept in the storage's model of a volatile cache, and checked there.
 *
 * Whatever goes wrong here is noted at the client's request that the SQE belongs to (queue and tag
 * stand in its user_data), so that the answer can be compared with it.
 */
#include "test/sim/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "test/sim/client.h"
#include "test/sim/ring_sim.h"
#include "test/sim/storage.h"
#include "test/sim/ublk_model.h"

#define SECTOR_BYTES 512u

static bool is_read(const struct sim_op *op)
{
	return op->sqe.opcode == IORING_OP_READ || op->sqe.opcode == IORING_OP_READV ||
	       op->sqe.opcode == IORING_OP_READ_FIXED;
}

static bool is_write(const struct sim_op *op)
{
	return op->sqe.opcode == IORING_OP_WRITE || op->sqe.opcode == IORING_OP_WRITEV ||
	       op->sqe.opcode == IORING_OP_WRITE_FIXED;
}

static bool is_fixed(const struct sim_op *op)
{
	return op->sqe.opcode == IORING_OP_READ_FIXED || op->sqe.opcode == IORING_OP_WRITE_FIXED;
}

static struct client_rq *request_of(const struct sim_op *op, const struct storage *st)
{
	struct client_rq *rq;

	if (!st || !st->user)
		return NULL;
	rq = model_rq(st->user, user_data_queue(op->sqe.user_data),
		      user_data_tag(op->sqe.user_data));
	return rq && op->sqe.opcode == IORING_OP_FSYNC && !client_rq_flushes(rq) ? NULL : rq;
}

static int note(const struct sim_op *op, struct storage *st, int err, bool must_fail)
{
	struct client_rq *rq = request_of(op, st);

	if (rq)
		client_rq_note(rq, err, must_fail);
	return err;
}

/* Errors that move nothing; 0 for none. Those that a caller may try again come first. */
static int fault_of(const struct sim_op *op, struct storage *st)
{
	if (sim_fault(FAULT_DISK_EINTR))
		return note(op, st, -EINTR, false);
	if (sim_fault(FAULT_DISK_EAGAIN))
		return note(op, st, -EAGAIN, false);
	if (sim_fault(FAULT_DISK_ECANCELED))
		return note(op, st, -ECANCELED, false);
	switch (op->sqe.opcode) {
	case IORING_OP_FSYNC:
		/* Zones are as after a power cut then: test/cuts. */
		if (st && st->zones)
			return 0;
		return sim_fault(FAULT_DISK_EIO_FSYNC) ? note(op, st, -EIO, true) : 0;
	case IORING_OP_FALLOCATE:
		if (sim_fault(FAULT_DISK_EIO_FALLOCATE))
			return note(op, st, -EIO, true);
		if (sim_fault(FAULT_DISK_ENOSPC_FALLOCATE))
			return note(op, st, -ENOSPC, true);
		/* Not of memory, which the mem backend knows to have it. */
		if (st && st->has_cache && sim_fault(FAULT_DISK_EOPNOTSUPP)) {
			st->no_punch = true;
			return note(op, st, -EOPNOTSUPP, false);
		}
		return 0;
	}
	if (is_read(op))
		return sim_fault(FAULT_DISK_EIO_READ) ? note(op, st, -EIO, true) : 0;
	if (sim_fault(FAULT_DISK_EIO_WRITE))
		return note(op, st, -EIO, true);
	if (sim_fault(FAULT_DISK_ENOSPC_WRITE))
		return note(op, st, -ENOSPC, true);
	return 0;
}

/* A transfer that stops early: at any byte, or at a sector for direct I/O. */
static size_t shorten(const struct sim_op *op, size_t bytes, enum fault fault)
{
	size_t unit = fcntl(op->fd, F_GETFL) & O_DIRECT ? SECTOR_BYTES : 1;

	if (bytes <= unit || !sim_fault(fault))
		return bytes;
	return (size_t)sim_between(1, (bytes - 1) / unit) * unit;
}

/*
 * The registered buffer of the SQE. It must be that of the request, which must be in the server's
 * hands until the kernel is done with it; all else the kernel answers with -EFAULT, or lets pass.
 */
static const struct sim_buffer *in_buffer(const struct sim_op *op)
{
	const struct sim_buffer *buffer = sim_buffer_find(op->ring, op->sqe.buf_index);
	const struct client_rq *rq = buffer ? buffer->rq : NULL;

	if (!rq)
		sim_fail("buffer %u is used, but not registered", op->sqe.buf_index);
	if (op->buffer_generation && op->buffer_generation != buffer->generation)
		sim_fail("buffer %u is used after its request", op->sqe.buf_index);
	if (rq->queue != user_data_queue(op->sqe.user_data) ||
	    rq->tag != user_data_tag(op->sqe.user_data))
		sim_fail("buffer %u is not that of queue %u tag %u", op->sqe.buf_index,
			 user_data_queue(op->sqe.user_data), user_data_tag(op->sqe.user_data));
	if (op->sqe.addr + op->sqe.len > client_rq_data_bytes(rq))
		sim_fail("buffer %u is used beyond its end", op->sqe.buf_index);
	if (is_read(op) != (client_rq_op(rq) == UBLK_IO_OP_READ))
		sim_fail("buffer %u is used in the wrong direction", op->sqe.buf_index);
	return buffer;
}

/* The buffers of the SQE, cut to `bytes`. */
static unsigned vectors_of(const struct sim_op *op, struct iovec *iov, unsigned iov_max)
{
	const struct iovec *from = (const void *)(uintptr_t)op->sqe.addr;
	bool is_vector = op->sqe.opcode == IORING_OP_READV || op->sqe.opcode == IORING_OP_WRITEV;

	if (is_fixed(op)) {
		iov[0] = (struct iovec){ in_buffer(op)->rq->pages + op->sqe.addr, op->sqe.len };
		return 1;
	}
	if (!is_vector) {
		iov[0] = (struct iovec){ (void *)(uintptr_t)op->sqe.addr, op->sqe.len };
		return 1;
	}
	if (op->sqe.len > iov_max)
		sim_fail("too many vectors: %u", op->sqe.len);
	memcpy(iov, from, op->sqe.len * sizeof(*iov));
	return op->sqe.len;
}

static size_t cut(struct iovec *iov, unsigned nr, size_t bytes)
{
	size_t total = 0;

	for (unsigned i = 0; i < nr; i++) {
		if (total + iov[i].iov_len > bytes)
			iov[i].iov_len = bytes - total;
		total += iov[i].iov_len;
	}
	return total;
}

static int transfer(struct sim_op *op, struct storage *st)
{
	struct iovec iov[64];
	unsigned nr = vectors_of(op, iov, ARRAY_SIZE(iov));
	size_t bytes = cut(iov, nr, SIZE_MAX);
	size_t wanted = bytes;
	off_t offset = (off_t)op->sqe.off;
	ssize_t n;

	bytes = cut(
		iov, nr,
		shorten(op, bytes, is_read(op) ? FAULT_DISK_SHORT_READ : FAULT_DISK_SHORT_WRITE));
	if (is_read(op)) {
		n = preadv(op->fd, iov, (int)nr, offset);
		if (n > 0 && is_fixed(op))
			memset(in_buffer(op)->rq->touched + op->sqe.addr, 1, (size_t)n);
		/* Beyond the end of a truncated file. */
		if (n == 0)
			note(op, st, -EIO, true);
		return n < 0 ? -errno : (int)n;
	}
	n = pwritev(op->fd, iov, (int)nr, offset);
	if (n > 0 && st) {
		storage_dirty(st, op->sqe.off, (uint64_t)n);
		if (op->sqe.rw_flags & (RWF_DSYNC | RWF_SYNC) &&
		    !sim_defect_always(DEFECT_NO_DSYNC))
			storage_clean(st, op->sqe.off, (uint64_t)n);
	}
	return n < 0 ? -errno : sim_defect_always(DEFECT_SHORT_WRITE) ? (int)wanted : (int)n;
}

static int allocate(struct sim_op *op, struct storage *st)
{
	int ret = fallocate(op->fd, (int)op->sqe.len, (off_t)op->sqe.off, (off_t)op->sqe.addr);

	if (ret == 0 && st)
		storage_dirty(st, op->sqe.off, op->sqe.addr);
	return ret < 0 ? note(op, st, -errno, false) : 0;
}

/* What a failed write left behind is anybody's guess: here, half of it. */
static void write_half(struct sim_op *op, struct storage *st)
{
	struct iovec iov;

	if (!is_write(op) || op->sqe.opcode == IORING_OP_WRITEV || op->sqe.len <= 1 ||
	    fcntl(op->fd, F_GETFL) & O_DIRECT)
		return;
	vectors_of(op, &iov, 1);
	if (pwrite(op->fd, iov.iov_base, op->sqe.len / 2, (off_t)op->sqe.off) > 0 && st)
		storage_dirty(st, op->sqe.off, op->sqe.len / 2);
}

static bool is_through(const struct sim_op *op)
{
	switch (op->sqe.opcode) {
	case IORING_OP_WRITE:
	case IORING_OP_WRITEV:
	case IORING_OP_WRITE_FIXED:
		return op->sqe.rw_flags & RWF_DSYNC;
	}
	return false;
}

static int execute(struct sim_op *op, struct storage *st)
{
	int err = fault_of(op, st);

	if (err < 0) {
		if (err == -EINTR || err == -EAGAIN)
			return err;
		write_half(op, st);
		/* FUA is a FLUSH of its own bytes, and owed as one. */
		if (st && (op->sqe.opcode == IORING_OP_FSYNC || is_through(op)))
			st->flush_failed_seq = storage_next_seq();
		return err;
	}
	switch (op->sqe.opcode) {
	case IORING_OP_READ:
	case IORING_OP_READV:
	case IORING_OP_READ_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITEV:
	case IORING_OP_WRITE_FIXED:
		return transfer(op, st);
	case IORING_OP_FALLOCATE:
		return allocate(op, st);
	case IORING_OP_FSYNC:
		if (st && !sim_defect_always(DEFECT_NO_FSYNC))
			storage_flush(st, op->at_submit);
		return 0;
	case IORING_OP_FADVISE: /* its page cache is none; not each kernel has it */
		return sim_one_in(8) ? -EINVAL : 0;
	}
	sim_fail("the disk does not know opcode %u", op->sqe.opcode);
}

static void disk_done(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	int res = execute(op, storage_by_fd(op->fd));

	sim_trace("disk", op->sqe.opcode, op->sqe.off, op->sqe.len, res);
	sim_op_done(op, res);
}

void disk_submit(struct sim_op *op)
{
	uint64_t delay_ns = sim_skewed(5 * NS_PER_US, 2 * NS_PER_MS);

	if (sim_fault(FAULT_DISK_SLOW))
		delay_ns += sim_between(NS_PER_MS, 3 * NS_PER_SEC);
	if (is_fixed(op)) {
		op->buffer_generation = in_buffer(op)->generation;
		sim_saw(FAULT_PATH_FIXED);
	}
	/* What was written before now is what an fsync owes. */
	op->at_submit = storage_next_seq();
	sim_event_arm(&op->event, sim.now_ns + delay_ns, disk_done);
}

/* ---- of a server that was killed ---- */

/* A change of a file that lands after the death of who wanted it. */
struct orphan {
	struct sim_event event;
	struct list_node node;
	struct io_uring_sqe sqe;
	int fd; /* of the same open file: as long as it is open, the file's lock is held */
	uint64_t at_submit;
	uint64_t serve_nr; /* of the storage, then */
	uint8_t *data;
	size_t bytes;
};

static struct list_node orphans = LIST_INIT(orphans);

static void orphan_free(struct orphan *o)
{
	sim_event_cancel(&o->event);
	list_remove(&o->node);
	sim_fd_close(o->fd);
	free(o->data);
	free(o);
}

void disk_fini(void)
{
	while (!list_empty(&orphans))
		orphan_free(list_entry(orphans.next, struct orphan, node));
}

bool disk_has_orphans(int fd)
{
	list_for_each (node, &orphans)
		if (storage_by_fd(list_entry(node, struct orphan, node)->fd) == storage_by_fd(fd))
			return true;
	return false;
}

static void check_nobody_has_served(const struct orphan *o, const struct storage *st)
{
	if (st && st->serve_nr != o->serve_nr)
		sim_fail("storage %u: I/O of a dead server lands when the next one has served it",
			 st->idx);
}

static void land(struct sim_event *event)
{
	struct orphan *o = container_of(event, struct orphan, event);
	struct storage *st = storage_by_fd(o->fd);

	check_nobody_has_served(o, st);
	sim_trace("orphan", o->sqe.opcode, o->sqe.off, o->sqe.len, 0);
	if (o->sqe.opcode == IORING_OP_FSYNC) {
		if (st)
			storage_flush(st, o->at_submit);
	} else if (o->sqe.opcode == IORING_OP_FALLOCATE) {
		if (fallocate(o->fd, (int)o->sqe.len, (off_t)o->sqe.off, (off_t)o->sqe.addr) == 0 &&
		    st)
			storage_dirty(st, o->sqe.off, o->sqe.addr);
	} else if (pwrite(o->fd, o->data, o->bytes, (off_t)o->sqe.off) > 0 && st) {
		storage_dirty(st, o->sqe.off, o->bytes);
	}
	orphan_free(o);
}

static struct orphan *orphan_make(const struct sim_op *op)
{
	const struct storage *st = storage_by_fd(op->fd);
	struct orphan *o = calloc(1, sizeof(*o));
	struct iovec iov[64];
	unsigned nr;

	*o = (struct orphan){ .sqe = op->sqe, .at_submit = op->at_submit };
	o->fd = sim_fd_dup(op->fd);
	o->serve_nr = st ? st->serve_nr : 0;
	list_push_back(&orphans, &o->node);
	if (!is_write(op))
		return o;
	/* Its memory goes with it. */
	nr = vectors_of(op, iov, ARRAY_SIZE(iov));
	o->data = aligned_alloc(4096, round_up(cut(iov, nr, SIZE_MAX), 4096));
	for (unsigned i = 0; i < nr; i++) {
		memcpy(o->data + o->bytes, iov[i].iov_base, iov[i].iov_len);
		o->bytes += iov[i].iov_len;
	}
	o->bytes = shorten(op, o->bytes, FAULT_DISK_SHORT_WRITE);
	return o;
}

/* The planted defect: nobody is kept from using the file at once. */
static void unlock_early(const struct orphan *o)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (sim_defect_always(DEFECT_EARLY_SERVE))
		fcntl(o->fd, F_OFD_SETLK, &lock);
}

/*
 * Writes may be with the device, with nobody of the dead process waiting for them. All else is done
 * by its own threads, which end before its files are closed.
 */
static uint64_t landing_ns(const struct sim_op *op)
{
	if (!is_write(op))
		return sim.now_ns + sim_skewed(NS_PER_US, 100 * NS_PER_MS);
	if (sim.defect == DEFECT_EARLY_SERVE || sim_one_in(4))
		return sim.now_ns + sim_between(2, 5) * NS_PER_SEC;
	return sim.now_ns + sim_skewed(NS_PER_US, NS_PER_SEC);
}

static uint64_t orphan_later(const struct sim_op *op)
{
	uint64_t at_ns = landing_ns(op);
	struct orphan *o = orphan_make(op);

	if (is_write(op))
		sim_saw(FAULT_KILL_IO_LATE);
	unlock_early(o);
	sim_event_arm(&o->event, at_ns, land);
	/* Only a ring that has registered the driver's file keeps that from being released. */
	return is_write(op) && !model_registers_files() ? 0 : at_ns;
}

uint64_t disk_orphan(struct sim_op *op)
{
	if (op->event.pos == 0 || op->event.fn != disk_done || is_read(op))
		return 0;
	switch (sim.defect == DEFECT_EARLY_SERVE ? 2 : sim_below(3)) {
	case 0:
		sim_saw(FAULT_KILL_IO_LOST);
		return 0;
	case 1:
		sim_saw(FAULT_KILL_IO_LANDS);
		execute(op, storage_by_fd(op->fd));
		return 0;
	default:
		return orphan_later(op);
	}
}
