/*
 * reactor/ring.h on plain memory. A genuine struct io_uring is laid over calloc'ed memory, so that
 * liburing's inline functions work as on the real thing; "the kernel" is what happens in
 * ring_enter: SQEs are taken and given to the disk or to the driver, completions are posted.
 *
 * Nothing ever blocks: a ring_enter that would have slept returns as after a signal, and the
 * scheduler (run.c) moves the clock to the next event.
 * A reactor that waits for several CQEs sees none of them before; then also the scheduler lets it
 * sleep.
 * Faults: SQEs not taken or only some, CQ overflow, completions out of order, made up or twice.
 */
#include "test/sim/ring_sim.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/sim/disk.h"
#include "test/sim/net.h"
#include "test/sim/ublk_model.h"

#define SQE_BYTES 64
/* Longer than this nobody may be kept waiting for what has happened already. */
#define URGENT_NS NS_PER_SEC

struct list_node sim_rings = LIST_INIT(sim_rings);
static unsigned ring_created_nr;

static unsigned power_of_two(unsigned n)
{
	unsigned p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static struct sim_ring *sim_of(const struct ring *ring)
{
	return ring->sim;
}

/* One page of counters for each side, as the kernel lays them out, plus the entries. */
static void lay_out(struct ring *ring, unsigned sq_nr, unsigned cq_nr, bool sqe128)
{
	struct io_uring_sq *sq = &ring->uring.sq;
	struct io_uring_cq *cq = &ring->uring.cq;
	unsigned *counters = calloc(16, sizeof(*counters));

	*sq = (struct io_uring_sq){
		.khead = &counters[0],
		.ktail = &counters[1],
		.kflags = &counters[2],
		.kdropped = &counters[3],
		.sqes = calloc(sq_nr, sqe128 ? 2 * SQE_BYTES : SQE_BYTES),
		.ring_entries = sq_nr,
		.ring_mask = sq_nr - 1,
		.ring_ptr = counters,
	};
	*cq = (struct io_uring_cq){
		.khead = &counters[4],
		.ktail = &counters[5],
		.kflags = &counters[6],
		.koverflow = &counters[7],
		.cqes = calloc(cq_nr, sizeof(*cq->cqes)),
		.ring_entries = cq_nr,
		.ring_mask = cq_nr - 1,
	};
	/* Counters that wrap are what the code must live with. */
	counters[0] = counters[1] = sq->sqe_head = sq->sqe_tail = (unsigned)-5;
	counters[4] = counters[5] = (unsigned)-7;
	ring->uring.flags = sqe128 ? IORING_SETUP_SQE128 : 0;
}

int ring_init(struct ring *ring, const struct ring_params *params)
{
	enum sim_side side = sim_cross(SIM_WORLD);
	struct sim_ring *s = calloc(1, sizeof(*s));
	unsigned sq_nr = power_of_two(params->sq_entries);
	unsigned cq_nr = power_of_two(MAX(params->cq_entries, sq_nr));

	memset(ring, 0, sizeof(*ring));
	lay_out(ring, sq_nr, cq_nr, params->sqe128);
	*s = (struct sim_ring){
		.ring = ring,
		.idx = ring_created_nr++,
		.sqe128 = params->sqe128,
		.defer_taskrun = params->single_issuer,
		.event_fd = -1,
	};
	for (unsigned i = 0; i < SIM_FILE_NR; i++)
		s->files[i] = -1;
	list_init(&s->held);
	list_init(&s->ready);
	list_init(&s->tasks);
	s->cq_tail = *ring->uring.cq.ktail;
	list_push_back(&sim_rings, &s->node);
	ring->sim = s;
	sim_cross(side);
	return 0;
}

static unsigned cq_used(const struct sim_ring *s)
{
	return s->cq_tail - *s->ring->uring.cq.khead;
}

static bool cq_full(const struct sim_ring *s)
{
	return cq_used(s) == s->ring->uring.cq.ring_entries;
}

static void write_cqe(struct sim_ring *s, uint64_t user_data, int res, uint32_t flags)
{
	struct io_uring_cq *cq = &s->ring->uring.cq;

	cq->cqes[s->cq_tail & cq->ring_mask] = (struct io_uring_cqe){
		.user_data = user_data,
		.res = res,
		.flags = flags,
	};
	s->cq_tail++;
}

/* The server is awake: it sees what has been posted. */
static void publish(struct sim_ring *s)
{
	*s->ring->uring.cq.ktail = s->cq_tail;
	s->urgent_nr = 0;
}

static void post_cqe(struct sim_ring *s, const struct sim_op *op)
{
	write_cqe(s, op->sqe.user_data, op->res, op->cqe_flags);
	sim_trace("cqe", s->idx, op->sqe.user_data, op->stale, op->res);
	if (op->stale)
		s->stale_nr++;
	else
		s->recent[s->recent_nr++ % SIM_RECENT_NR] = op->sqe.user_data;
}

/* A CQE of those is no completion: made twice it would be a true one. */
bool sim_op_post_more(struct sim_op *op, int res, uint32_t flags)
{
	struct sim_ring *s = op->ring;

	if (s->overflow || cq_full(s))
		return false;
	write_cqe(s, op->sqe.user_data, res, flags | IORING_CQE_F_MORE);
	sim_trace("cqe-more", s->idx, op->sqe.user_data, flags, res);
	return true;
}

static struct sim_op *pick_ready(struct sim_ring *s)
{
	struct list_node *node = s->ready.next;

	/* A made up CQE says that its op is over: it must not come before the true one. */
	if (s->ready_nr > 1 && sim_fault(FAULT_CQE_REORDER)) {
		struct list_node *other = node;

		for (uint64_t skip = sim_below(s->ready_nr); skip > 0; skip--)
			other = other->next;
		if (!list_entry(other, struct sim_op, node)->stale)
			node = other;
	}
	list_remove(node);
	s->ready_nr--;
	return list_entry(node, struct sim_op, node);
}

static void make_stale(struct sim_ring *s, uint64_t user_data, int res)
{
	struct sim_op *op = calloc(1, sizeof(*op));

	op->ring = s;
	op->sqe.user_data = user_data;
	op->res = res;
	op->stale = true;
	list_push_back(&s->ready, &op->node);
	s->ready_nr++;
}

/* What a confused kernel would post: an old completion again, or one that never was asked for. */
static void maybe_make_stale(struct sim_ring *s)
{
	if (s->recent_nr > 0 && sim_fault(FAULT_CQE_DUPLICATE)) {
		unsigned back = (unsigned)sim_below(MIN(s->recent_nr, (unsigned)SIM_RECENT_NR));

		make_stale(s, s->recent[(s->recent_nr - 1 - back) % SIM_RECENT_NR],
			   (int)sim_below(8192));
	}
	if (sim_fault(FAULT_CQE_STALE))
		make_stale(s, prng_next(&sim.prng) | 1ull << 63 | USER_DATA_GENERATION_ONE << 10,
			   -(int)sim_below(100));
	/* The defect: a completion of what is still in flight. Nobody can know it from a true one.
	 */
	if (!list_empty(&s->held) && s->defer_taskrun && sim_one_in(50)) {
		const struct sim_op *op = list_entry(s->held.prev, struct sim_op, node);

		if (op != s->mail && user_data_kind(op->sqe.user_data) == OP_KIND_TAG &&
		    sim_defect(DEFECT_STALE))
			make_stale(s, op->sqe.user_data, 0);
	}
}

void sim_ring_task(struct sim_ring *s, struct sim_task *task, void (*fn)(struct sim_task *task))
{
	if (task->node.next && !list_empty(&task->node))
		return;
	task->fn = fn;
	list_push_back(&s->tasks, &task->node);
}

void sim_task_cancel(struct sim_task *task)
{
	if (task->node.next)
		list_remove(&task->node);
}

static void run_tasks(struct sim_ring *s)
{
	struct list_node *node;

	while ((node = list_pop_front(&s->tasks))) {
		struct sim_task *task = list_entry(node, struct sim_task, node);

		task->fn(task);
	}
}

static void signal_eventfd(const struct sim_ring *s)
{
	uint64_t one = 1;

	if (write(s->event_fd, &one, sizeof(one)) != sizeof(one))
		sim_fail("eventfd of ring %u", s->idx);
}

static void post_ready(struct sim_ring *s)
{
	while (s->ready_nr > 0 && !cq_full(s)) {
		struct sim_op *op = pick_ready(s);

		post_cqe(s, op);
		free(op);
	}
}

/* Task work in whatever order: completions are posted, as far as the CQ has room. */
static void flush_ready(struct sim_ring *s)
{
	unsigned tail = s->cq_tail;

	maybe_make_stale(s);
	if (sim_one_in(2))
		post_ready(s);
	run_tasks(s);
	post_ready(s);
	s->overflow = s->ready_nr > 0;
	*s->ring->uring.sq.kflags = s->ready_nr > 0 ? IORING_SQ_CQ_OVERFLOW : 0;
	if (s->ready_nr > 0)
		sim_saw(FAULT_CQ_OVERFLOW);
	if (s->defer_taskrun)
		return;
	publish(s);
	if (s->cq_tail != tail && s->event_fd >= 0)
		signal_eventfd(s);
}

static void make_ready(struct sim_op *op, int res)
{
	struct sim_ring *s = op->ring;

	sim_event_cancel(&op->event);
	op->res = res;
	list_remove(&op->node);
	list_push_back(&s->ready, &op->node);
	s->ready_nr++;
}

void sim_op_done(struct sim_op *op, int res)
{
	struct sim_ring *s = op->ring;

	make_ready(op, res);
	/* Without DEFER_TASKRUN the kernel posts whenever it likes. */
	if (!s->defer_taskrun)
		flush_ready(s);
}

void sim_op_done_inline(struct sim_op *op, int res, bool urgent)
{
	struct sim_ring *s = op->ring;

	s->urgent_nr += urgent;
	if (s->overflow || cq_full(s)) {
		make_ready(op, res);
		s->overflow = true;
		return;
	}
	op->res = res;
	list_remove(&op->node);
	post_cqe(s, op);
	free(op);
}

static void alarm_goes_off(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);

	op->ring->alarm[user_data_leg(op->sqe.user_data)] = NULL;
	sim_op_done(op, -ETIME);
}

/* The only timeouts are absolute ones of the reactor: its alarm, and its look at prompt ops. */
static void alarm_set(struct sim_op *op)
{
	struct sim_ring *s = op->ring;
	const struct __kernel_timespec *ts =
		(const struct __kernel_timespec *)(uintptr_t)op->sqe.addr;
	unsigned leg = user_data_leg(op->sqe.user_data);

	if (op->sqe.timeout_flags != IORING_TIMEOUT_ABS || op->sqe.len != 1 ||
	    leg >= ARRAY_SIZE(s->alarm) || s->alarm[leg])
		sim_fail("ring %u: a strange timeout, or two of them", s->idx);
	if (sim_fault(FAULT_TIMEOUT)) {
		sim_op_done(op, -ENOMEM);
		return;
	}
	s->alarm[leg] = op;
	s->alarm_ns[leg] = (uint64_t)ts->tv_sec * NS_PER_SEC + (uint64_t)ts->tv_nsec;
	sim_event_arm(&op->event, MAX(s->alarm_ns[leg], sim.now_ns), alarm_goes_off);
}

static void dispatch(struct sim_op *op)
{
	struct sim_ring *s = op->ring;

	op->fd = op->sqe.fd;
	if (op->sqe.flags & IOSQE_FIXED_FILE)
		op->fd = (unsigned)op->sqe.fd < SIM_FILE_NR ? s->files[op->sqe.fd] : -1;
	sim_trace("sqe", s->idx, op->sqe.user_data, op->sqe.opcode, op->sqe.len);
	if (op->sqe.opcode == IORING_OP_TIMEOUT) {
		alarm_set(op);
		return;
	}
	if (op->fd < 0)
		sim_fail("SQE of opcode %u names no file (fd %d, flags %x)", op->sqe.opcode,
			 op->sqe.fd, op->sqe.flags);
	if (op->sqe.opcode == IORING_OP_URING_CMD) {
		model_uring_cmd(op);
	} else if (user_data_kind(op->sqe.user_data) == OP_KIND_MAILBOX) {
		if (s->mail)
			sim_fail("ring %u: two reads of one mailbox", s->idx);
		s->mail = op;
	} else if (net_knows(op->sqe.opcode)) {
		net_submit(op);
	} else {
		disk_submit(op);
	}
}

static void take_sqe(struct sim_ring *s)
{
	struct io_uring_sq *sq = &s->ring->uring.sq;
	unsigned idx = (*sq->khead & sq->ring_mask) << s->sqe128;
	struct sim_op *op = calloc(1, sizeof(*op));

	op->ring = s;
	memcpy(op->bytes, &sq->sqes[idx], s->sqe128 ? 2 * SQE_BYTES : SQE_BYTES);
	/* The kernel is done with it: whoever reads it later shall notice. */
	memset(&sq->sqes[idx], 0xdb, s->sqe128 ? 2 * SQE_BYTES : SQE_BYTES);
	*sq->khead += 1;
	list_push_back(&s->held, &op->node);
	dispatch(op);
}

/* How many SQEs the kernel takes this time; negative for an errno. */
static int choose_take(struct sim_ring *s, unsigned pending)
{
	const struct io_uring_sq *sq = &s->ring->uring.sq;

	if (pending == sq->ring_entries)
		sim_saw(FAULT_SQ_FULL);
	if (pending == 0)
		return 0;
	if (s->ready_nr > 0 && cq_full(s) && sim_fault(FAULT_ENTER_EBUSY))
		return -EBUSY;
	if (sim_fault(FAULT_ENTER_EAGAIN))
		return -EAGAIN;
	if (pending > 1 && sim_fault(FAULT_ENTER_PARTIAL))
		return (int)sim_between(1, pending - 1);
	return (int)pending;
}

/*
 * Nothing sleeps here, but the product thinks so: it must not while it has something to do, longer
 * than to its next timer, or deaf to its mailbox.
 */
static void check_sleep(struct sim_ring *s, unsigned wait_nr, uint64_t timeout_ns)
{
	const struct reactor *r = container_of(s->ring, struct reactor, ring);
	uint64_t deadline_ns = reactor_next_deadline_ns(r);

	/* One that is due goes off at once. */
	for (unsigned i = 0; i < ARRAY_SIZE(s->alarm); i++)
		if (s->alarm[i])
			timeout_ns = MIN(timeout_ns, MAX(s->alarm_ns[i], r->now_ns) - r->now_ns);

	/* It expects all but one to be there by now. */
	if (cq_used(s) + 1 < wait_nr)
		sim_fail("reactor %u waits for %u CQEs, but %u are there", r->idx, wait_nr,
			 cq_used(s));
	if (s->urgent_nr > 0 && timeout_ns > URGENT_NS)
		sim_fail("reactor %u sleeps over a CQE that it must see", r->idx);
	if (!list_empty(&r->parked) || !list_empty(&r->tasks) || !list_empty(&r->turn_end))
		sim_fail("reactor %u sleeps with work to do", r->idx);
	if (deadline_ns != RING_NO_TIMEOUT && timeout_ns > deadline_ns - r->now_ns)
		sim_fail("reactor %u sleeps beyond a timer", r->idx);
	if (!s->mail)
		sim_fail("reactor %u sleeps without listening to its mailbox", r->idx);
}

/*
 * io_cqring_wait(): with fewer CQEs than it waits for, the server does not even see those. For the
 * product that is an enter that timed out; it is not turned again before there is a reason.
 */
static void wait_or_publish(struct sim_ring *s, unsigned wait_nr, uint64_t timeout_ns)
{
	wait_nr = MIN(wait_nr, s->ring->uring.cq.ring_entries);
	s->wait_nr = 0;
	if (cq_used(s) < wait_nr)
		check_sleep(s, wait_nr, timeout_ns);
	if (cq_used(s) >= wait_nr || !s->defer_taskrun) {
		publish(s);
		return;
	}
	s->wait_nr = wait_nr;
	s->wake_ns = timeout_ns == RING_NO_TIMEOUT ? UINT64_MAX : sim.now_ns + timeout_ns;
}

static void kill_between(struct sim_ring *s)
{
	s->entering = true;
	sim_kill_point();
	s->entering = false;
}

int ring_enter(struct ring *ring, unsigned wait_nr, uint64_t timeout_ns)
{
	struct sim_ring *s = sim_of(ring);
	struct io_uring_sq *sq = &ring->uring.sq;
	enum sim_side side = sim_cross(SIM_WORLD);
	unsigned pending;
	int take;

	*sq->ktail = sq->sqe_tail;
	sq->sqe_head = sq->sqe_tail;
	pending = *sq->ktail - *sq->khead;
	take = choose_take(s, pending);
	sim_kill_point();
	for (int i = 0; i < take; i++) {
		take_sqe(s);
		if (i + 1 < take)
			kill_between(s);
	}
	/* io_uring_enter returns at once when it did not take everything. */
	if (take == (int)pending)
		flush_ready(s);
	wait_or_publish(s, take == (int)pending ? wait_nr : 0, timeout_ns);
	sim_kill_point();
	sim_cross(side);
	return take < 0 ? take : 0;
}

int ring_wait(struct ring *ring, unsigned wait_nr)
{
	return ring_enter(ring, wait_nr, RING_NO_TIMEOUT);
}

int ring_file_set(struct ring *ring, unsigned slot, int fd)
{
	struct sim_ring *s = sim_of(ring);
	int old = s->files[slot];

	sim_kill_point();
	if (fd >= 0 && sim_fault(FAULT_FILE_SET))
		return -ENOMEM;
	if (fd >= 0 && old >= 0)
		sim_fail("ring %u: file slot %u is in use", s->idx, slot);
	/* The table holds a reference of its own. */
	if (fd >= SIM_FD_BASE)
		model_file_ref(fd);
	else if (fd >= 0)
		fd = sim_fd_dup(fd);
	s->files[slot] = fd;
	if (old >= SIM_FD_BASE)
		model_file_unref(old);
	else if (old >= 0)
		sim_fd_close(old);
	return 0;
}

int ring_eventfd_set(struct ring *ring, int efd)
{
	sim_of(ring)->event_fd = efd;
	return 0;
}

uint64_t ring_clock_ns(void)
{
	sim.now_ns += sim_between(20, 200);
	/* Not scheduled for a while. */
	if (sim_fault(FAULT_CLOCK_STALL))
		sim.now_ns += sim_skewed(NS_PER_MS, 2 * NS_PER_SEC);
	return sim.now_ns;
}

bool sim_ring_ready(const struct ring *ring)
{
	const struct sim_ring *s = sim_of(ring);
	unsigned nr = s->ready_nr + !list_empty(&s->tasks);

	if (s->wait_nr > 0)
		return nr + cq_used(s) >= s->wait_nr || sim.now_ns >= s->wake_ns;
	return nr > 0;
}

uint64_t sim_ring_wake_ns(const struct ring *ring)
{
	const struct sim_ring *s = sim_of(ring);

	return s->wait_nr > 0 ? s->wake_ns : UINT64_MAX;
}

uint64_t sim_ring_stale_nr(const struct ring *ring)
{
	return sim_of(ring)->stale_nr;
}

static void mail_arrived(struct sim_event *event)
{
	struct sim_op *op = container_of(event, struct sim_op, event);
	int res = -EINTR;

	if (!sim_fault(FAULT_MAIL_EINTR))
		res = (int)read(op->fd, (void *)(uintptr_t)op->sqe.addr, op->sqe.len);
	op->ring->mail = NULL;
	sim_op_done(op, res < 0 ? -EINTR : res);
}

void sim_ring_poll_mail(struct ring *ring)
{
	const struct reactor *r = container_of(ring, struct reactor, ring);
	struct sim_op *op = sim_of(ring)->mail;
	struct pollfd poll_fd = { .events = POLLIN };

	/* The stack is looked at first only to save the system call: poll(2) has the say. */
	if (!op || op->event.pos != 0 ||
	    !atomic_load_explicit(&r->mailbox.top, memory_order_relaxed))
		return;
	poll_fd.fd = op->fd;
	if (poll(&poll_fd, 1, 0) == 1)
		sim_event_arm(&op->event, sim.now_ns + sim_skewed(0, 20 * NS_PER_US), mail_arrived);
}
