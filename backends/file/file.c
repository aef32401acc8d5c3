/*
 * file: a device in a regular file or on a block device; this is its I/O, file_open.c its opening.
 * Owns one registered file slot per queue and one op per I/O; runs on the queue's reactor.
 *
 * Happy path: one SQE per request, one CQE, complete. READ and WRITE go to the same offset of the
 * file, FLUSH is fdatasync, FUA is RWF_DSYNC, DISCARD punches a hole or is handed to the block
 * device, WRITE_ZEROES punches a hole or, with NOUNMAP, asks for a zeroed range.
 *
 *   READ, WRITE ---(rest of a short one)---> done
 *   DISCARD ---(EOPNOTSUPP, EBUSY)---> FALLOCATE
 *   FALLOCATE ---(EOPNOTSUPP)---> FALLOCATE in the other mode -> ZEROES, piece by piece
 *   FALLOCATE, ZEROES ---(FUA)---> SYNC -> done
 *   SYNC, WRITE with FUA ---(failed, through the page cache)---> DROP -> done
 *
 * Failure modes: a short transfer is continued where it stopped; one of nothing (the file was
 * truncated under us) is EIO, below an image format the end of the image; EINTR and EAGAIN are
 * tried again for RETRY_NS; a file system without hole punching is remembered and gets zeroes
 * written instead (a discard gets EOPNOTSUPP); all else (ENOSPC, EIO) is the request's answer and
 * the device lives on. A sync that fails is a loss (storage/owed.h), also as a part of FUA: the
 * kernel says once, to whoever syncs next, that pages could not be written. There is no cancel: the
 * kernel ends every file I/O by itself.
 */
#include "backends/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/uio.h>

#include "storage/registry.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "reactor/reactor.h"

/* An I/O that is told EAGAIN for longer than this, without a byte moving, has failed. */
#define RETRY_NS (10 * NS_PER_SEC)

/* linux/blkdev.h since 6.12; an older kernel answers EOPNOTSUPP. */
#ifndef BLOCK_URING_CMD_DISCARD
#define BLOCK_URING_CMD_DISCARD _IO(0x12, 0)
#endif

#define MODE_PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define MODE_ZERO_RANGE (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE)
#define MODE_NONE 0

struct file_queue {
	int file_slot;
	struct file_zones *zones; /* NULL: the file has none */
};

enum file_state {
	FILE_IDLE,
	FILE_READ,
	FILE_WRITE,
	FILE_DISCARD, /* block devices */
	FILE_FALLOCATE,
	FILE_ZEROES,
	FILE_SYNC,
	FILE_DROP, /* the page cache, after a sync that has failed */
	FILE_ZONE, /* file_zones.c has it */
};

struct file_io {
	struct backend_io *io;
	struct op op;
	enum file_state state;
	int mode;		 /* FILE_FALLOCATE */
	uint32_t left_bytes;	 /* of READ, WRITE, ZEROES */
	int file_slot;		 /* of the queue */
	int sync_result;	 /* FILE_DROP: what is to be answered */
	uint64_t retry_until_ns; /* 0: nothing has been tried again */
};

static void issue(struct op *op);

static bool is_move(const struct file_io *f)
{
	return f->state == FILE_READ || f->state == FILE_WRITE;
}

static struct file_device *file_of(const struct file_io *f)
{
	return f->io->queue->device->priv;
}

static uint64_t next_offset(const struct file_io *f)
{
	return f->io->offset_bytes + f->io->length_bytes - f->left_bytes;
}

static void file_begin(struct file_io *f, enum file_state state)
{
	f->state = state;
	f->left_bytes = f->io->length_bytes;
	f->retry_until_ns = 0;
}

static void enter_state(struct file_io *f, enum file_state state)
{
	file_begin(f, state);
	issue(&f->op);
}

static void file_complete(struct file_io *f, int result)
{
	f->state = FILE_IDLE;
	backend_io_complete(f->io, result);
}

/* READs have no flags that the kernel would have to know. */
static int move_flags(const struct backend_io *io)
{
	return io->op == BACKEND_WRITE && (io->flags & BACKEND_FUA) ? RWF_DSYNC : 0;
}

/*
 * What is left of a READ or WRITE. What the kernel registered is addressed by offsets from 0 on.
 * Without io_uring_prep_rw, which sets each field by itself.
 */
static inline void prep_move(const struct file_io *f, const struct backend_io *io,
			     struct io_uring_sqe *sqe, uint32_t left_bytes)
{
	uint32_t done_bytes = io->length_bytes - left_bytes;

	*sqe = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .flags = IOSQE_FIXED_FILE };
	sqe->opcode += io->op;
	sqe->fd = f->file_slot;
	sqe->off = io->offset_bytes + done_bytes;
	sqe->addr = (uintptr_t)io->buf + done_bytes;
	sqe->len = left_bytes;
	if (__builtin_expect(io->flags, 0))
		sqe->rw_flags = move_flags(io);
	if (io->buf_index < 0)
		return;
	sqe->opcode += IORING_OP_READ_FIXED - IORING_OP_READ;
	sqe->buf_index = (uint16_t)io->buf_index;
}
_Static_assert(IORING_OP_WRITE == IORING_OP_READ + 1 &&
		       IORING_OP_WRITE_FIXED == IORING_OP_READ_FIXED + 1 &&
		       (int)BACKEND_READ == 0 && (int)BACKEND_WRITE == 1 &&
		       (int)FILE_READ + 1 == (int)FILE_WRITE,
	       "prep_move, move_state");

/*
 * IOSQE_ASYNC is not for speed: it makes the kernel copy the SQE. Without it a discard that finds
 * the device's queue full is issued again from the SQ's memory, where another SQE stands by then
 * (6.12 and later: blk_cmd_complete, io_uring_cmd_issue_blocking): EINVAL at best, at worst the
 * range that a ublk command's bytes happen to spell.
 */
static void prep_discard(const struct file_io *f, struct io_uring_sqe *sqe, int slot)
{
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, slot, NULL, 0, 0);
	sqe->flags |= IOSQE_ASYNC;
	sqe->cmd_op = BLOCK_URING_CMD_DISCARD;
	sqe->addr = f->io->offset_bytes;
	sqe->addr3 = f->io->length_bytes;
}

static void prep_other(struct file_io *f, struct io_uring_sqe *sqe)
{
	struct backend_io *io = f->io;
	int slot = f->file_slot;

	switch (f->state) {
	case FILE_DISCARD:
		prep_discard(f, sqe, slot);
		break;
	case FILE_FALLOCATE:
		io_uring_prep_fallocate(sqe, slot, f->mode, (off_t)io->offset_bytes,
					(off_t)io->length_bytes);
		break;
	case FILE_ZEROES:
		io_uring_prep_write(sqe, slot, file_of(f)->zeroes,
				    MIN(f->left_bytes, FILE_ZEROES_BYTES), next_offset(f));
		break;
	case FILE_SYNC:
		io_uring_prep_fsync(sqe, slot, IORING_FSYNC_DATASYNC);
		break;
	case FILE_DROP:
		io_uring_prep_fadvise(sqe, slot, 0, 0, POSIX_FADV_DONTNEED);
		break;
	case FILE_READ:
	case FILE_WRITE:
	case FILE_ZONE:
	case FILE_IDLE:
		ASSERT(!"an idle I/O has nothing to issue");
	}
	sqe->flags |= IOSQE_FIXED_FILE;
}

static void issue(struct op *op)
{
	struct file_io *f = container_of(op, struct file_io, op);
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, issue);
		return;
	}
	if (is_move(f))
		prep_move(f, f->io, sqe, f->left_bytes);
	else
		prep_other(f, sqe);
	op_start(op, sqe);
}

void file_drop_cached(const struct file_device *file)
{
	if (!file->direct)
		posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Counted before the page cache goes, as other bytes are read from then on. */
static void sync_failed(struct file_io *f, int res)
{
	if (res != -ECANCELED) {
		backend_owe(f->io->queue->device);
		f->io->loss_is_counted = true;
	}
	f->sync_result = res;
	if (res == -ECANCELED || file_of(f)->direct)
		file_complete(f, res);
	else
		enter_state(f, FILE_DROP);
}

/* A kernel that does not know the request: this thread waits for it. */
static void dropped(struct file_io *f, int res)
{
	if (res < 0)
		file_drop_cached(file_of(f));
	file_complete(f, f->sync_result);
}

/* Zeroes are there; FUA wants them on the medium. */
static void zeroed(struct file_io *f)
{
	if (f->io->flags & BACKEND_FUA)
		enter_state(f, FILE_SYNC);
	else
		file_complete(f, 0);
}

/* Whether zeroes follow where the file has ended, after so many bytes of what was asked for. */
static bool may_end(const struct file_io *f, uint32_t got_bytes)
{
	const struct backend_io *io = f->io;

	return io->offset_bytes + io->length_bytes - f->left_bytes + got_bytes >=
	       file_of(f)->zeroes_from_bytes;
}

/*
 * A READ where the file may end got less than it asked for: it ends there, when nothing came, or
 * with O_DIRECT less than a block. What is beyond the end is zeroes.
 */
static void read_short(struct file_io *f, uint32_t got_bytes)
{
	const struct file_device *file = file_of(f);
	struct backend_io *io = f->io;
	uint32_t block_bytes = io->queue->device->open_params.logical_block_bytes;
	uint32_t done_bytes =
		file->direct ? (uint32_t)round_down(got_bytes, block_bytes) : got_bytes;

	if (done_bytes > 0) {
		f->left_bytes -= done_bytes;
		f->retry_until_ns = 0;
		issue(&f->op);
		return;
	}
	file_complete(f, backend_data_put_zeroes(io, io->length_bytes - f->left_bytes + got_bytes,
						 f->left_bytes - got_bytes));
}

static void moved(struct file_io *f, int res)
{
	if (res >= 0 && f->state == FILE_READ && (uint32_t)res < f->left_bytes &&
	    may_end(f, (uint32_t)res)) {
		read_short(f, (uint32_t)res);
		return;
	}
	if (res < 0 && f->state == FILE_WRITE && (f->io->flags & BACKEND_FUA)) {
		sync_failed(f, res);
		return;
	}
	if (res <= 0) {
		/* Nothing moved: the end of a truncated file, or a medium that takes no more. */
		file_complete(f, res < 0 ? res : -EIO);
		return;
	}
	ASSERT((uint32_t)res <= f->left_bytes);
	f->left_bytes -= (uint32_t)res;
	f->retry_until_ns = 0;
	if (f->left_bytes > 0)
		issue(&f->op);
	else if (f->state == FILE_ZEROES)
		zeroed(f);
	else
		file_complete(f, 0);
}

/* The best way to zero this range that is not known to fail. */
static int zero_mode(const struct file_io *f)
{
	struct file_device *file = file_of(f);

	if (!(f->io->flags & BACKEND_NOUNMAP) && !atomic_load(&file->no_punch))
		return MODE_PUNCH;
	return atomic_load(&file->no_zero_range) ? MODE_NONE : MODE_ZERO_RANGE;
}

static void start_zeroing(struct file_io *f)
{
	f->mode = zero_mode(f);
	enter_state(f, f->mode == MODE_NONE ? FILE_ZEROES : FILE_FALLOCATE);
}

/* False: there is no way left to discard. */
static bool start_discard(struct file_io *f)
{
	struct file_device *file = file_of(f);

	if (file->is_block && !atomic_load(&file->no_discard)) {
		enter_state(f, FILE_DISCARD);
		return true;
	}
	if (atomic_load(&file->no_punch))
		return false;
	f->mode = MODE_PUNCH;
	enter_state(f, FILE_FALLOCATE);
	return true;
}

static void try_other_way(struct file_io *f)
{
	if (f->io->op == BACKEND_WRITE_ZEROES)
		start_zeroing(f);
	else if (!start_discard(f))
		file_complete(f, -EOPNOTSUPP);
}

static void remember_unsupported(struct file_io *f)
{
	struct file_device *file = file_of(f);
	const char *what = "zero_range";

	if (f->state == FILE_DISCARD) {
		what = "discard";
		atomic_store(&file->no_discard, true);
	} else if (f->mode == MODE_PUNCH) {
		what = "punch_hole";
		atomic_store(&file->no_punch, true);
	} else {
		atomic_store(&file->no_zero_range, true);
	}
	log_limited(LOG_LEVEL_INFO, "not supported below", "device=%s operation=%s", file->name,
		    what);
}

static bool is_unsupported(int res)
{
	return res == -EOPNOTSUPP || res == -ENOSYS;
}

/*
 * EBUSY: pages of the page cache in the range are in use by buffered I/O beside it (a large folio).
 * Punching waits for them. Where that is impossible nothing was discarded, which a discard may do.
 */
static void discarded(struct file_io *f, int res)
{
	if (is_unsupported(res)) {
		remember_unsupported(f);
		try_other_way(f);
	} else if (res == -EBUSY && !atomic_load(&file_of(f)->no_punch)) {
		f->mode = MODE_PUNCH;
		enter_state(f, FILE_FALLOCATE);
	} else {
		file_complete(f, res == -EBUSY ? 0 : res);
	}
}

static void fallocated(struct file_io *f, int res)
{
	if (is_unsupported(res)) {
		remember_unsupported(f);
		try_other_way(f);
	} else if (res < 0) {
		file_complete(f, res);
	} else {
		zeroed(f);
	}
}

/* True when the SQE went out again. */
static bool tried_again(struct file_io *f, int res)
{
	uint64_t now_ns = f->op.reactor->now_ns;

	if (res != -EINTR && res != -EAGAIN)
		return false;
	if (f->retry_until_ns == 0)
		f->retry_until_ns = now_ns + RETRY_NS;
	if (now_ns > f->retry_until_ns)
		return false;
	issue(&f->op);
	return true;
}

/* What is not simply all of a READ or WRITE. */
static __attribute__((noinline)) void went_on(struct file_io *f, int res)
{
	if (tried_again(f, res))
		return;
	switch (f->state) {
	case FILE_READ:
	case FILE_WRITE:
	case FILE_ZEROES:
		moved(f, res);
		break;
	case FILE_DISCARD:
		discarded(f, res);
		break;
	case FILE_FALLOCATE:
		fallocated(f, res);
		break;
	case FILE_SYNC:
		if (res < 0)
			sync_failed(f, res);
		else
			file_complete(f, res);
		break;
	case FILE_DROP:
		dropped(f, res);
		break;
	case FILE_ZONE:
	case FILE_IDLE:
		ASSERT(!"a completion for an idle I/O");
	}
}

static void on_cqe(struct op *op, int res, uint32_t cqe_flags)
{
	struct file_io *f = container_of(op, struct file_io, op);

	(void)cqe_flags;
	if (is_move(f) && res == (int)f->left_bytes)
		file_complete(f, 0);
	else
		went_on(f, res);
}

static enum backend_submit submit_other(struct backend_io *io)
{
	const struct file_queue *q = io->queue->priv;
	struct file_io *f = io->priv;

	switch (io->op) {
	case BACKEND_FLUSH:
		enter_state(f, FILE_SYNC);
		break;
	case BACKEND_DISCARD:
		if (start_discard(f))
			break;
		io->result = -EOPNOTSUPP;
		return BACKEND_DONE;
	case BACKEND_WRITE_ZEROES:
		start_zeroing(f);
		break;
	case BACKEND_ZONE_MANAGE:
		f->state = FILE_ZONE;
		return file_zones_submit(q->zones, io);
	case BACKEND_ZONE_APPEND:
		/* No program can ask a block device for one. */
		io->result = -EOPNOTSUPP;
		return BACKEND_DONE;
	}
	return BACKEND_QUEUED;
}

static enum file_state move_state(const struct backend_io *io)
{
	return FILE_READ + io->op;
}

static __attribute__((noinline)) enum backend_submit file_submit_any(struct backend_io *io)
{
	if (io->op > BACKEND_WRITE)
		return submit_other(io);
	enter_state(io->priv, move_state(io));
	return BACKEND_QUEUED;
}

/* A READ or WRITE that finds room in the SQ: enter_state for what is known of it. */
static enum backend_submit file_submit(struct backend_io *io)
{
	struct file_io *f = io->priv;
	struct io_uring_sqe *sqe;

	if (io->op > BACKEND_WRITE)
		return file_submit_any(io);
	sqe = op_sqe_at_hand(&f->op);
	if (!sqe)
		return file_submit_any(io);
	prep_move(f, io, sqe, io->length_bytes);
	op_start(&f->op, sqe);
	f->state = move_state(io);
	f->left_bytes = io->length_bytes;
	f->retry_until_ns = 0;
	return BACKEND_QUEUED;
}

static struct backend_wait file_wait(const struct backend_io *io)
{
	static const char *const name[] = {
		[FILE_READ] = "reading",
		[FILE_WRITE] = "writing",
		[FILE_DISCARD] = "discarding",
		[FILE_FALLOCATE] = "in fallocate",
		[FILE_ZEROES] = "writing zeroes",
		[FILE_SYNC] = "syncing",
		[FILE_DROP] = "dropping the page cache, as a sync has failed",
		[FILE_ZONE] = "in a command for a zone",
	};
	const struct file_io *f = io->priv;
	unsigned state = __atomic_load_n(&f->state, __ATOMIC_RELAXED);

	return (struct backend_wait){ .words = state < ARRAY_SIZE(name) ? name[state] : NULL };
}

static int file_queue_init(struct backend_queue *queue)
{
	const struct file_device *file = queue->device->priv;
	struct file_queue *q = queue->priv;
	int ret = 0;

	q->file_slot = reactor_file_add(queue->reactor, file->fd);
	if (q->file_slot >= 0 && file->is_zoned)
		q->zones = file_zones_create(queue, &ret);
	return MIN(q->file_slot, ret);
}

static void file_queue_fini(struct backend_queue *queue)
{
	struct file_queue *q = queue->priv;

	file_zones_free(q->zones);
	reactor_file_remove(queue->reactor, q->file_slot);
}

static int file_io_init(struct backend_io *io)
{
	struct op_owner owner = { .kind = OP_KIND_BACKEND,
				  .queue = io->queue->idx,
				  .tag = io->tag };
	const struct file_queue *q = io->queue->priv;
	struct file_io *f = io->priv;

	f->io = io;
	f->file_slot = q->file_slot;
	return op_init(&f->op, io->queue->reactor, owner, on_cqe);
}

static void file_io_fini(struct backend_io *io)
{
	struct file_io *f = io->priv;

	op_fini(&f->op);
}

const struct backend backend_file = {
	.name = "file",
	.summary = "A regular file or a block device.",
	.options = file_options,
	.size_option = &file_options[FILE_OPTION_SIZE],
	.path_option = &file_options[FILE_OPTION_PATH],
	.config_bytes = sizeof(struct file_config),
	.device_bytes = sizeof(struct file_device),
	.queue_bytes = sizeof(struct file_queue),
	.io_bytes = sizeof(struct file_io),
	.data = BACKEND_DATA_FIXED | BACKEND_DATA_SHMEM,
	.batches = true,
	.is_bytewise = true,
	.open = file_open,
	.close = file_close,
	.queue_init = file_queue_init,
	.queue_fini = file_queue_fini,
	.io_init = file_io_init,
	.io_fini = file_io_fini,
	.submit = file_submit,
	.wait = file_wait,
	.identity = file_identity,
	.stored_fd = file_stored_fd,
	.version = &file_version,
	.abandon = file_close,
	.look = file_look,
	.resize = &file_resize,
};
