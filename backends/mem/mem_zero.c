/*
 * DISCARD and WRITE_ZEROES of mem: a state machine per I/O, on the reactor of its queue.
 *
 * Happy path: memset up to the first whole page -> punch a hole through the ring (io-wq does it, a
 * range of GiBs does not stall the reactor) -> memset after the last whole page. With NOUNMAP, or
 * for few pages, all of it is memset. A memset is cut in pieces, one per turn; what fits in one
 * piece is done inside submit. Pages that are not there are zeroes already and stay away, with
 * NOUNMAP too: `blkdiscard -z` of a disk larger than the memory must not ask for all of it.
 * Failure modes: the hole punch fails, then nothing was changed.
 */
#include "backends/mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

#include "base/util.h"

/* 256 KiB are about 20 us of memset: less than the I/Os of one turn cost together. */
#define PIECE_BYTES KIB(256)
/* Looking at the bit of a page that is not there costs about a hundredth of zeroing one. */
#define HOLES_PER_BYTE 64
/* Below this zeroing is cheaper than a trip to io-wq and the page faults of the next write. */
#define PUNCH_MIN_BYTES KIB(64)

/* A state's answer to mem_zero_step(). */
enum { STATE_DONE = 0, STATE_WAITS = 1 };

static void step_from_task(struct task *task);
static void punch(struct op *op);

static struct mem_device *mem_of(const struct mem_io *m)
{
	return m->io->queue->device->priv;
}

static void mem_zero_set_state(struct mem_io *m, enum mem_zero_state state, uint64_t pos,
			       uint64_t end)
{
	m->state = state;
	m->pos = pos;
	m->end = end;
}

/*
 * Pages that are not there are zero already: touching them would allocate them. Returns where it
 * ends, after PIECE_BYTES of memset, or of holes that cost about as much.
 */
static uint64_t zero_piece(struct mem_device *mem, uint64_t pos, uint64_t end)
{
	uint64_t cost_end = PIECE_BYTES, cost = 0;

	while (pos < end && cost < cost_end) {
		uint64_t run_max = MIN(end - pos, (cost_end - cost) * HOLES_PER_BYTE);
		bool present;
		uint64_t run_bytes = mem_run(mem, pos, run_max, &present);

		if (present) {
			run_bytes = MIN(run_bytes, cost_end - cost);
			memset(mem->base + pos, 0, run_bytes);
		}
		pos += run_bytes;
		cost += present ? run_bytes : run_bytes / HOLES_PER_BYTE + 1;
	}
	return pos;
}

static int state_memset(struct mem_io *m)
{
	if (m->pos == m->end)
		return STATE_DONE;
	m->pos = zero_piece(mem_of(m), m->pos, m->end);
	if (m->pos == m->end)
		return STATE_DONE;
	reactor_defer(m->io->queue->reactor, &m->task, step_from_task);
	return STATE_WAITS;
}

static bool any_present(const struct mem_device *mem, uint64_t start, uint64_t end)
{
	bool present;

	return mem_run(mem, start, end - start, &present) < end - start || present;
}

static void clear_present(struct mem_device *mem, uint64_t start, uint64_t end)
{
	uint64_t page = start >> mem->page_shift, page_end = end >> mem->page_shift;

	while (page < page_end) {
		uint64_t nr = MIN(page_end - page, 64 - page % 64);
		uint64_t mask = (nr == 64 ? ~0ull : (1ull << nr) - 1) << (page % 64);

		atomic_fetch_and(&mem->present[page / 64], ~mask);
		page += nr;
	}
}

/*
 * The bits go before the pages: a write that comes in between sets its bit again. If the punch
 * fails all bits are set, which is merely less sparse than the truth.
 */
static int state_punch(struct mem_io *m)
{
	struct mem_device *mem = mem_of(m);

	if (m->pos == m->end || !any_present(mem, m->pos, m->end))
		return STATE_DONE;
	clear_present(mem, m->pos, m->end);
	punch(&m->op);
	return STATE_WAITS;
}

/* Goes on until the I/O waits (1), is complete (0) or has failed. */
static int mem_zero_step(struct mem_io *m)
{
	for (;;) {
		int ret = m->state == MEM_ZERO_PUNCH ? state_punch(m) : state_memset(m);

		if (ret != STATE_DONE)
			return ret;
		switch (m->state) {
		case MEM_ZERO_HEAD:
			mem_zero_set_state(m, MEM_ZERO_PUNCH, m->punch_start, m->punch_end);
			break;
		case MEM_ZERO_PUNCH:
			mem_zero_set_state(m, MEM_ZERO_TAIL, m->punch_end, m->tail_end);
			break;
		default:
			mem_zero_set_state(m, MEM_ZERO_IDLE, 0, 0);
			return 0;
		}
	}
}

static void step_async(struct mem_io *m)
{
	int ret = mem_zero_step(m);

	if (ret != STATE_WAITS)
		backend_io_complete(m->io, ret);
}

static void step_from_task(struct task *task)
{
	step_async(container_of(task, struct mem_io, task));
}

static void punch(struct op *op)
{
	struct mem_io *m = container_of(op, struct mem_io, op);
	const struct mem_queue *q = m->io->queue->priv;
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, punch);
		return;
	}
	io_uring_prep_fallocate(sqe, q->file_slot, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)m->pos, (off_t)(m->end - m->pos));
	sqe->flags |= IOSQE_FIXED_FILE;
	op_start(op, sqe);
}

void mem_zero_punched(struct op *op, int res, uint32_t cqe_flags)
{
	struct mem_io *m = container_of(op, struct mem_io, op);

	(void)cqe_flags;
	if (res == -EINTR || res == -EAGAIN) {
		punch(op);
		return;
	}
	if (res < 0) {
		/* UNTESTED: tmpfs has no failure to provoke here; the simulator has. */
		mem_mark_present(mem_of(m), m->pos, m->end - m->pos);
		backend_io_complete(m->io, res);
		return;
	}
	mem_zero_set_state(m, MEM_ZERO_TAIL, m->punch_end, m->tail_end);
	step_async(m);
}

/* Whole pages in the middle; none when they are too few or must stay. */
static void plan(struct mem_io *m)
{
	const struct mem_device *mem = mem_of(m);
	const struct backend_io *io = m->io;
	uint64_t start = io->offset_bytes, end = start + io->length_bytes;
	uint64_t punch_end = round_down(end, mem->page_bytes);
	bool is_short = io->op == BACKEND_WRITE_ZEROES && io->length_bytes < PUNCH_MIN_BYTES;
	bool keep_space = io->op == BACKEND_WRITE_ZEROES && (io->flags & BACKEND_NOUNMAP);

	m->punch_start = round_up(start, mem->page_bytes);
	if (keep_space || is_short || m->punch_start >= punch_end) {
		m->punch_start = m->punch_end = m->tail_end = end;
	} else {
		m->punch_end = punch_end;
		m->tail_end = MAX(end, punch_end);
	}
	mem_zero_set_state(m, MEM_ZERO_HEAD, start, MIN(m->punch_start, end));
}

enum backend_submit mem_zero_submit(struct backend_io *io)
{
	struct mem_io *m = io->priv;
	int ret;

	plan(m);
	ret = mem_zero_step(m);
	if (ret == STATE_WAITS)
		return BACKEND_QUEUED;
	io->result = ret;
	return BACKEND_DONE;
}
