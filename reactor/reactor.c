/*
 * The loop. Runs on the reactor's own thread (or, for control, inside libev on the main thread).
 *
 * Happy path: one io_uring_enter per turn submits what the last turn prepared and waits; each CQE
 * finds its op by slot and its callback prepares further SQEs; turn-end hooks prepare the commits.
 * Failure modes: SQ full (ops park), CQEs that belong to nothing (counted, never followed), a turn
 * that takes too long (counted).
 */
#include "reactor/reactor.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/probes.h"
#include "base/util.h"

/* A turn handles at most this many CQEs, so that timers and mail are never starved. */
#define CQE_BATCH_MAX 1024

static void mailbox_arm(struct op *op)
{
	struct reactor *r = op->reactor;
	struct io_uring_sqe *sqe = op_sqe(op);

	if (!sqe) {
		op_park(op, mailbox_arm);
		return;
	}
	io_uring_prep_read(sqe, r->mailbox.efd, &r->mailbox_buf, sizeof(r->mailbox_buf), 0);
	op_start(op, sqe);
}

static void mailbox_readable(struct op *op, int res, uint32_t cqe_flags)
{
	(void)cqe_flags;
	/* Interrupted or out of memory: the counter is still there, read it again. */
	if (res > 0)
		op->reactor->pending |= REACTOR_PENDING_MAIL;
	mailbox_arm(op);
}

/*
 * Both tables are reserved for the largest number of slots, and the kernel gives memory only for
 * the pages that are used: no allocation later, no memory for what does not exist.
 */
static int slots_init(struct reactor *r, unsigned nr)
{
	size_t bytes = nr * (sizeof(*r->slot) + sizeof(*r->slot_free));
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	r->slot = mem;
	r->slot_free = (uint32_t *)(r->slot + nr);
	r->slot_nr = nr;
	return 0;
}

static void slots_fini(struct reactor *r)
{
	if (r->slot)
		munmap(r->slot, r->slot_nr * (sizeof(*r->slot) + sizeof(*r->slot_free)));
	r->slot = NULL;
}

static int event_fd_init(struct reactor *r)
{
	r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->event_fd < 0)
		return -errno;
	return ring_eventfd_set(&r->ring, r->event_fd);
}

static int flight_init(struct reactor *r, const char *folder)
{
	int ret = flight_create(&r->flight, folder, r->idx);

	if (ret < 0)
		log_warn("the flight recorder has no file: it is in memory, and lost with the "
			 "process",
			 "reactor=%u folder=\"%s\" error=%s", r->idx, folder ? folder : "",
			 errname(ret));
	return r->flight ? 0 : -ENOMEM;
}

static int init_parts(struct reactor *r, const struct reactor_params *params)
{
	struct op_owner owner = { .kind = OP_KIND_MAILBOX };
	int ret = slots_init(r, params->op_nr ? params->op_nr : REACTOR_OP_NR_DEFAULT);

	if (ret < 0)
		return ret;
	ret = mailbox_init(&r->mailbox);
	if (ret < 0)
		return ret;
	ret = params->control ? event_fd_init(r) : flight_init(r, params->flight_folder);
	if (ret < 0)
		return ret;
	ret = op_init(&r->mailbox_op, r, owner, mailbox_readable);
	if (ret < 0)
		return ret;
	mailbox_arm(&r->mailbox_op);
	ret = prompt_init(&r->prompt, r);
	return ret < 0 ? ret : alarm_init(&r->alarm, r);
}

static uint64_t cpu_ns(const struct reactor *r)
{
	struct timespec ts = { 0 };

	clock_gettime(r->cpu_clock, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

void reactor_times(struct reactor *r, struct reactor_times *ret_times)
{
	uint64_t callback_ns = __atomic_load_n(&r->stats.callback_ns, __ATOMIC_RELAXED);
	uint64_t enter_ns = __atomic_load_n(&r->stats.enter_ns, __ATOMIC_RELAXED);
	uint64_t poll_ns = __atomic_load_n(&r->stats.poll_ns, __ATOMIC_RELAXED);
	uint64_t on_cpu_ns = cpu_ns(r) - r->cpu_start_ns, user_ns = callback_ns + poll_ns;
	uint64_t kernel_ns = on_cpu_ns > user_ns ? MIN(on_cpu_ns - user_ns, enter_ns) : 0;
	struct reactor_times *seen = &r->seen;

	/* They were not read at the same time. */
	seen->callback_ns = callback_ns;
	seen->poll_ns = poll_ns;
	seen->kernel_ns = MAX(seen->kernel_ns, kernel_ns);
	seen->idle_ns = MAX(seen->idle_ns, enter_ns - MIN(seen->kernel_ns, enter_ns));
	*ret_times = *seen;
}

int reactor_init(struct reactor *r, const struct reactor_params *params)
{
	struct ring_params ring_params = {
		.sq_entries = params->sq_entries,
		.cq_entries = params->cq_entries,
		.files_nr = REACTOR_FILE_NR,
		.sqe128 = params->control,
		.single_issuer = !params->control,
		.taskrun_flag = params->busy_poll_ns > 0,
	};
	int ret;

	*r = (struct reactor){
		.idx = params->idx,
		.timers = TIMER_HEAP_INIT,
		.event_fd = -1,
		.busy_poll_ns = params->busy_poll_ns,
		.before_enter = params->control || params->busy_poll_ns > 0,
	};
	r->mailbox.efd = -1;
	list_init(&r->parked);
	list_init(&r->tasks);
	list_init(&r->turn_end);
	list_init(&r->running);
	ret = ring_init(&r->ring, &ring_params);
	if (ret < 0)
		return ret;
	r->simple_sqe_nr = params->control ? 0 : r->ring.uring.sq.ring_entries;
	r->now_ns = ring_clock_ns();
	pthread_getcpuclockid(pthread_self(), &r->cpu_clock);
	r->cpu_start_ns = cpu_ns(r);
	ret = init_parts(r, params);
	if (ret < 0)
		reactor_fini(r);
	return ret;
}

void reactor_fini(struct reactor *r)
{
	while (r->leaving > 0)
		reactor_turn(r, true);
	/* The ring goes first: it ends the read of the mailbox, which is always out, and the alarm.
	 */
	ring_fini(&r->ring);
	mailbox_fini(&r->mailbox);
	if (r->event_fd > 0)
		close(r->event_fd);
	slots_fini(r);
	flight_close(r->flight);
	*r = (struct reactor){ .timers = TIMER_HEAP_INIT, .event_fd = -1 };
}

static inline void reactor_doing(struct reactor *r, uint64_t what)
{
	__atomic_store_n(&r->doing, what, __ATOMIC_RELAXED);
}

/* From now on in code, or in the kernel (0). */
static inline void code_since(struct reactor *r, uint64_t since_ns)
{
	__atomic_store_n(&r->code_since_ns, since_ns, __ATOMIC_RELAXED);
}

static __attribute__((cold, noinline)) void nudge_watcher(struct reactor *r)
{
	struct reactor_nudge *nudge = __atomic_exchange_n(&r->nudge, NULL, __ATOMIC_ACQUIRE);

	reactor_post(nudge->home, &nudge->mail, nudge->fn);
}

static __attribute__((cold, noinline)) void stale(struct reactor *r, const struct io_uring_cqe *cqe)
{
	counter_add(&r->stats.stale, 1);
	log_limited(LOG_LEVEL_WARN, "stale completion", "reactor=%u user_data=0x%llx res=%d",
		    r->idx, (unsigned long long)cqe->user_data, cqe->res);
}

static inline __attribute__((always_inline)) void dispatch(struct reactor *r,
							   const struct io_uring_cqe *cqe)
{
	unsigned slot = user_data_slot(cqe->user_data);
	struct op *op = slot < r->slot_fresh ? r->slot[slot] : NULL;

	if (!op || op->user_data != cqe->user_data || op->state != OP_INFLIGHT) {
		stale(r, cqe);
		return;
	}
	if (!(cqe->flags & IORING_CQE_F_MORE))
		op->state = OP_IDLE;
	reactor_doing(r, cqe->user_data);
	op->fn(op, cqe->res, cqe->flags);
}

/*
 * Callbacks may enter the kernel to make room in the SQ; that only appends CQEs behind tail:
 * entries are the kernel's again when head moves, after the last callback.
 */
static inline __attribute__((always_inline)) unsigned run_cqes(struct reactor *r)
{
	struct io_uring_cq *cq = &r->ring.uring.cq;
	const struct io_uring_cqe *cqes = cq->cqes;
	unsigned head = *cq->khead, mask = cq->ring_mask;
	unsigned nr = MIN(io_uring_smp_load_acquire(cq->ktail) - head, (unsigned)CQE_BATCH_MAX);

	for (unsigned at = head; at != head + nr; at++) {
		const struct io_uring_cqe *cqe = &cqes[at & mask];

		PROBE3(cqe__reap, r->ring.uring.ring_fd, cqe->user_data, cqe->res);
		dispatch(r, cqe);
	}
	io_uring_smp_store_release(cq->khead, head + nr);
	return nr;
}

static void run_parked(struct reactor *r)
{
	struct list_node *node;

	reactor_doing(r, REACTOR_DOING_RETRY);
	list_splice(&r->running, &r->parked);
	while ((node = list_pop_front(&r->running))) {
		struct op *op = list_entry(node, struct op, parked);

		op->state = OP_IDLE;
		op->retry(op);
	}
}

static void run_task(struct list_node *node)
{
	struct task *task = list_entry(node, struct task, node);

	task->fn(task);
}

/* What these queue waits for the next time. */
static void run_tasks(struct reactor *r, struct list_node *tasks, uint64_t doing)
{
	struct list_node *node = tasks->next;

	if (list_empty(tasks))
		return;
	reactor_doing(r, doing);
	/* One alone, as the commits of one queue are. */
	if (__builtin_expect(node->next == tasks, 1)) {
		list_init(tasks);
		list_init(node);
		run_task(node);
		return;
	}
	list_splice(&r->running, tasks);
	while ((node = list_pop_front(&r->running)))
		run_task(node);
}

static void run_mailbox(struct reactor *r)
{
	reactor_doing(r, REACTOR_DOING_MAIL);
	counter_add(&r->stats.mails, mailbox_drain(&r->mailbox));
}

static bool take_pending(struct reactor *r, enum reactor_pending what)
{
	bool pending = r->pending & what;

	r->pending &= (uint8_t)~what;
	return pending;
}

static __attribute__((noinline)) void run_pending(struct reactor *r)
{
	if (take_pending(r, REACTOR_PENDING_PARKED))
		run_parked(r);
	if (take_pending(r, REACTOR_PENDING_TASKS))
		run_tasks(r, &r->tasks, REACTOR_DOING_TASK);
	if (take_pending(r, REACTOR_PENDING_MAIL))
		run_mailbox(r);
}

static __attribute__((noinline)) void run_timers(struct reactor *r)
{
	unsigned nr;

	if (r->now_ns - timer_heap_next_ns(&r->timers) > REACTOR_TIMER_LATE_NS)
		counter_add(&r->stats.timers_late, 1);
	reactor_doing(r, REACTOR_DOING_TIMER);
	nr = timer_heap_run(&r->timers, r->now_ns);
	counter_add(&r->stats.timers, nr);
}

/* In the CQ, or kept by the kernel because it was full: those come with the next enter only. */
static bool cqes_waiting(const struct reactor *r)
{
	const struct io_uring_cq *cq = &r->ring.uring.cq;

	return io_uring_smp_load_acquire(cq->ktail) != *cq->khead || reactor_cq_overflows(r);
}

bool reactor_has_work(const struct reactor *r)
{
	const struct io_uring_sq *sq = &r->ring.uring.sq;

	return sq->sqe_tail != *sq->khead || cqes_waiting(r) || r->pending;
}

uint32_t reactor_sq_mark(const struct reactor *r)
{
	return r->ring.uring.sq.sqe_tail;
}

bool reactor_sq_passed(const struct reactor *r, uint32_t mark)
{
	uint32_t head = *r->ring.uring.sq.khead;

	/* Both wrap. */
	return (int32_t)(head - mark) >= 0 && !cqes_waiting(r);
}

uint64_t reactor_next_deadline_ns(const struct reactor *r)
{
	return timer_heap_next_ns(&r->timers);
}

/* How long this turn may sleep in the kernel: 0 when something is to be done at once. */
static uint64_t sleep_ns(const struct reactor *r, bool may_wait)
{
	uint64_t deadline_ns = timer_heap_next_ns(&r->timers);

	if (!may_wait || r->pending || cqes_waiting(r))
		return 0;
	if (deadline_ns == RING_NO_TIMEOUT)
		return RING_NO_TIMEOUT;
	return deadline_ns > r->now_ns ? deadline_ns - r->now_ns : 0;
}

/* -EAGAIN, -EBUSY: out of memory or the CQ is full; reaping is the cure. -EINTR: a signal. */
static __attribute__((cold, noinline)) void enter_failed(const struct reactor *r, int err)
{
	if (err == -EAGAIN || err == -EBUSY || err == -EINTR)
		return;
	log_error("io_uring_enter failed", "reactor=%u error=%s", r->idx, errname(err));
	ASSERT(!"io_uring_enter");
}

/* ret: of ring_wait or ring_enter. */
static inline __attribute__((always_inline)) void entered(struct reactor *r, int ret)
{
	uint64_t before_ns = r->now_ns;

	r->prompt.nr = 0;
	if (__builtin_expect(ret < 0, 0))
		enter_failed(r, ret);
	r->now_ns = ring_clock_ns();
	counter_add(&r->stats.enter_ns, r->now_ns - before_ns);
}

static __attribute__((noinline)) void enter_kernel(struct reactor *r, uint64_t timeout_ns)
{
	unsigned wait_nr = timeout_ns ? prompt_wait_nr(&r->prompt) : 0;

	entered(r, ring_enter(&r->ring, wait_nr, timeout_ns));
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Looks at memory only. With DEFER_TASKRUN nothing becomes a CQE before the next enter: what tells
 * of it is IORING_SQ_TASKRUN, which rings have that were made with taskrun_flag. A request of the
 * driver, the end of an I/O and mail (a read of an eventfd) all set it.
 */
static bool spin(struct reactor *r, uint64_t until_ns)
{
	const unsigned *kflags = r->ring.uring.sq.kflags;
	uint64_t start_ns = r->now_ns;
	bool found;

	while (!(found = cqes_waiting(r) || IO_URING_READ_ONCE(*kflags) & IORING_SQ_TASKRUN) &&
	       r->now_ns < until_ns) {
		cpu_relax();
		r->now_ns = ring_clock_ns();
	}
	counter_add(&r->stats.poll_ns, r->now_ns - start_ns);
	return found;
}

/*
 * After a turn with CQEs more of them are likely soon: hands over what was prepared, then spins
 * until the next timer at most. Task work need not end in a CQE, so that a look may be in vain.
 * True: the turn has what it waited for, or must go on; false: it may sleep.
 */
static bool busy_poll(struct reactor *r)
{
	uint64_t until_ns;

	if (r->stats.cqes == r->polled_cqes || sleep_ns(r, true) == 0)
		return false;
	r->polled_cqes = r->stats.cqes;
	enter_kernel(r, 0);
	until_ns = MIN(r->now_ns + r->busy_poll_ns, timer_heap_next_ns(&r->timers));
	while (!reactor_has_work(r)) {
		if (r->now_ns >= until_ns || !spin(r, until_ns))
			return false;
		enter_kernel(r, 0);
		counter_add(&r->stats.poll_hits, cqes_waiting(r));
	}
	return true;
}

/*
 * Nothing is to be done before an alarm that is set, or at all: then the enter needs no time limit.
 * What alarm_limit_ns says nearly always, in short. A CQE that waits to be run does not matter: it
 * is one of those that the enter waits for (io_cqring_wait counts from the CQ's head).
 */
static inline bool alarm_wakes(const struct reactor *r)
{
	return !r->pending && timer_heap_next_ns(&r->timers) >= r->alarm.at_ns;
}

static inline __attribute__((always_inline)) void enter(struct reactor *r, bool may_wait)
{
	if (may_wait && __builtin_expect(alarm_wakes(r), 1))
		entered(r, ring_wait(&r->ring, prompt_wait_nr(&r->prompt)));
	else
		enter_kernel(r, alarm_limit_ns(&r->alarm, sleep_ns(r, may_wait)));
}

/* A turn that was longer than all before it, or than REACTOR_STALL_NS. */
static __attribute__((cold, noinline)) void account_long(struct reactor *r, uint64_t busy_ns)
{
	counter_max(&r->stats.turn_ns_max, busy_ns);
	if (busy_ns > REACTOR_STALL_NS)
		counter_add(&r->stats.stalls, 1);
	r->notable_ns = MIN(r->stats.turn_ns_max, REACTOR_STALL_NS);
}

static inline void account(struct reactor *r, uint64_t start_ns, unsigned cqe_nr)
{
	uint64_t busy_ns = r->now_ns - start_ns;

	counter_add(&r->stats.turns, 1);
	counter_add(&r->stats.cqes, cqe_nr);
	counter_add(&r->stats.callback_ns, busy_ns);
	counter_max(&r->stats.cqes_max, cqe_nr);
	if (__builtin_expect(busy_ns > r->notable_ns, 0))
		account_long(r, busy_ns);
}

/* Before the CQEs are read, so that none is missed. */
static void event_fd_clear(const struct reactor *r)
{
	uint64_t signalled;

	if (read(r->event_fd, &signalled, sizeof(signalled)) < 0)
		ASSERT(errno == EAGAIN);
}

/* What few reactors have. True: busy polling found work, so that the turn need not enter. */
static __attribute__((noinline)) bool before_enter(struct reactor *r, bool may_wait)
{
	if (r->event_fd >= 0)
		event_fd_clear(r);
	return r->busy_poll_ns && may_wait && busy_poll(r);
}

static inline __attribute__((always_inline)) void turn(struct reactor *r, bool may_wait)
{
	uint64_t start_ns;
	unsigned cqe_nr;

	ASSERT(!r->in_turn);
	r->in_turn = true;
	if (__builtin_expect(!r->before_enter, 1) || !before_enter(r, may_wait))
		enter(r, may_wait);
	start_ns = r->now_ns;
	code_since(r, start_ns);
	if (__atomic_load_n(&r->nudge, __ATOMIC_RELAXED))
		nudge_watcher(r);
	cqe_nr = run_cqes(r);
	if (r->pending & ~REACTOR_PENDING_TURN_END)
		run_pending(r);
	if (timer_heap_next_ns(&r->timers) <= r->now_ns)
		run_timers(r);
	r->now_ns = ring_clock_ns();
	if (take_pending(r, REACTOR_PENDING_TURN_END))
		run_tasks(r, &r->turn_end, REACTOR_DOING_TURN_END);
	account(r, start_ns, cqe_nr);
	code_since(r, 0);
	r->in_turn = false;
}

void reactor_turn(struct reactor *r, bool may_wait)
{
	turn(r, may_wait);
}

void reactor_run(struct reactor *r, const bool *stop)
{
	while (!__atomic_load_n(stop, __ATOMIC_RELAXED))
		turn(r, true);
}

static void queue_task(struct list_node *tasks, struct task *task, task_fn *fn)
{
	/* A zeroed task was never queued; a popped one points at itself. */
	if (task->node.next && !list_empty(&task->node))
		return;
	task->fn = fn;
	list_push_back(tasks, &task->node);
}

void reactor_defer(struct reactor *r, struct task *task, task_fn *fn)
{
	queue_task(&r->tasks, task, fn);
	r->pending |= REACTOR_PENDING_TASKS;
}

void reactor_at_turn_end(struct reactor *r, struct task *task, task_fn *fn)
{
	queue_task(&r->turn_end, task, fn);
	r->pending |= REACTOR_PENDING_TURN_END;
}
