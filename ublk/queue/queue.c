/*
 * The life of a queue, from the mail that attaches it to the one that releases it; what it does in
 * between is in tag.c and batch.c. Runs on the queue's reactor, except where said.
 *
 * Owns the tags, their buffers, the registered file of the driver's device and the range of
 * registered buffers. Failure modes: whatever cannot be had is told by `attached`, and released as
 * everything else is.
 */
#include "ublk/queue/queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/queue/queue_internal.h"

/* linux/mman.h since 5.18; the daemon's memory is locked. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* Buffers of a queue without requests for as long as this, twice at most, are given back. */
#define TRIM_NS (2 * NS_PER_SEC)
/* The timers of all queues go off at multiples of this, so by as much earlier: with one every few
 * milliseconds each sleep would need a time limit (reactor/alarm.c), and with all at once a turn
 * would take long. */
#define TRIM_STEP_NS (100 * NS_PER_MS)
/* Between two looks whether the kernel has taken what was prepared: nearly always it has. */
#define TRIM_LOOK_NS NS_PER_MS
/* Between two looks whether a gated queue is quiet: a part of an upgrade's pause. */
#define QUIESCE_LOOK_NS (100 * NS_PER_US)

static void drained_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, drained_mail);

	q->setup.drained(q);
}

/*
 * Buffers are address space until a request touches them. Huge pages are refused: one small
 * request would pin 2 MiB.
 */
static int queue_buffers_init(struct queue *q)
{
	size_t bytes = queue_buffer_bytes(q->setup.depth, q->setup.max_io_bytes);
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	madvise(mem, bytes, MADV_NOHUGEPAGE);
	q->buffers = mem;
	return 0;
}

static void trim_at(struct queue *q, uint64_t at_ns)
{
	queue_care_set(q, QUEUE_TRIM_DUE, false);
	reactor_timer_arm(q->setup.reactor, &q->trim_timer, at_ns);
}

void queue_trim_arm(struct queue *q)
{
	uint64_t at_ns;

	q->trim_started = q->stats.started;
	q->trim_marked = false;
	at_ns = q->setup.reactor->now_ns + TRIM_NS;
	trim_at(q, at_ns - at_ns % TRIM_STEP_NS);
}

/* Behind the gate a WRITE has its bytes in its buffer, and is not counted as in flight. */
static bool buffers_unused(const struct queue *q)
{
	return q->stats.started == q->trim_started && q->inflight_nr == 0 && q->commit_nr == 0 &&
	       list_empty(&q->kept);
}

/*
 * The driver writes to the buffer of an armed tag, but only inside an enter of this very thread:
 * what is given back here is zeroes when it comes to that. It reads the buffer of a READ when it
 * takes the COMMIT, which the kernel may have left in the SQ for want of memory: what was prepared
 * so far must have passed.
 */
static void queue_trim(struct timer *timer)
{
	struct queue *q = container_of(timer, struct queue, trim_timer);
	uint64_t look_ns = q->setup.reactor->now_ns + TRIM_LOOK_NS;

	queue_care_set(q, QUEUE_TRIM_DUE, true);
	if (!buffers_unused(q)) {
		queue_trim_arm(q);
	} else if (!q->trim_marked) {
		q->trim_marked = true;
		q->trim_mark = reactor_sq_mark(q->setup.reactor);
		trim_at(q, look_ns);
	} else if (!reactor_sq_passed(q->setup.reactor, q->trim_mark)) {
		trim_at(q, look_ns);
	} else {
		madvise(q->buffers, queue_buffer_bytes(q->setup.depth, q->setup.max_io_bytes),
			MADV_DONTNEED_LOCKED);
	}
}

/* What is the same for all requests of a tag. */
static void tag_data_init(struct tag_io *io, unsigned tag)
{
	struct queue *q = io->queue;

	io->request.buf = queue_buffer(q, tag);
	io->request.buf_index = -1;
	io->request.driver_fd = q->setup.cdev_fd;
	io->request.driver_pos = ublk_user_copy_pos(q->setup.idx, (uint16_t)tag);
	switch (q->setup.data.path) {
	case DATA_PATH_ZERO_COPY:
		io->request.buf = NULL; /* an address in the registered buffer */
		io->request.buf_index = queue_buffer_index(q, tag);
		io->reg_addr = ublk_auto_buf_reg_addr(queue_buffer_index(q, tag),
						      UBLK_AUTO_BUF_REG_FALLBACK);
		break;
	case DATA_PATH_USER_COPY:
		tag_place_user_copy(q, io);
		break;
	default:
		io->copy_addr = (uint64_t)(uintptr_t)io->request.buf;
	}
}

static int tag_init(struct queue *q, unsigned tag)
{
	struct op_owner owner = { .kind = OP_KIND_TAG, .queue = q->setup.idx, .tag = tag };
	struct tag_io *io = &q->ios[tag];
	int ret;

	io->queue = q;
	io->id = (uint64_t)q->setup.dev_id << 32 | (uint64_t)q->setup.idx << 16 | tag;
	io->flight_key = (struct flight_key){
		.device = (uint16_t)q->setup.dev_id,
		.queue = q->setup.idx,
		.tag = (uint16_t)tag,
	};
	io->element.tag = (uint16_t)tag;
	io->element.buf_index = queue_buffer_index(q, tag);
	list_init(&io->busy);
	/* With batches no tag has a command of its own. */
	ret = q->batch ? 0 : op_init(&io->op, q->setup.reactor, owner, tag_event);
	if (ret < 0)
		return ret;
	ret = backend_io_init(&io->request, q->backend, tag, tag_backend_done);
	if (ret == 0)
		tag_data_init(io, tag);
	return ret;
}

static int tags_init(struct queue *q)
{
	q->ios = lines_zalloc(q->setup.depth, sizeof(*q->ios));
	q->commits = calloc(q->setup.depth, sizeof(*q->commits));
	if (!q->ios || !q->commits)
		return -ENOMEM;
	for (unsigned tag = 0; tag < q->setup.depth; tag++) {
		int ret = tag_init(q, tag);

		if (ret < 0)
			return ret;
	}
	return 0;
}

/*
 * Registered buffers for zero copy. When the ring has none left the driver is given an index that
 * does not exist: it then hands over each request as not registered, and the bytes go by hand.
 */
static void registered_init(struct queue *q)
{
	int ret;

	if (q->setup.data.path != DATA_PATH_ZERO_COPY)
		return;
	ret = reactor_buffers_add(q->setup.reactor, q->setup.depth);
	q->first_buffer = MAX(ret, -1);
	if (ret < 0)
		log_warn("no registered buffers are left: this queue copies",
			 "dev=%s queue=%u reactor=%u error=%s", q->setup.device_name, q->setup.idx,
			 q->setup.reactor->idx, errname(ret));
}

static int resources_init(struct queue *q)
{
	int ret = backend_queue_open(&q->backend, q->setup.backend, q->setup.reactor, q->setup.idx,
				     q->setup.depth);

	if (ret < 0)
		return ret;
	ret = queue_buffers_init(q);
	if (ret < 0)
		return ret;
	registered_init(q);
	if (q->setup.data.batch)
		ret = batch_init(q);
	if (ret == 0)
		ret = tags_init(q);
	if (ret == 0 && q->setup.cdev_registered)
		ret = q->cdev_slot = reactor_file_add(q->setup.reactor, q->setup.cdev_fd);
	if (ret < 0)
		return ret;
	tag_sqe_init(q);
	return 0;
}

/* Accepts whatever resources_init left behind. */
static void resources_fini(struct queue *q)
{
	reactor_timer_cancel(q->setup.reactor, &q->busy_timer);
	reactor_timer_cancel(q->setup.reactor, &q->trim_timer);
	reactor_timer_cancel(q->setup.reactor, &q->quiesce_timer);
	for (unsigned tag = 0; q->ios && tag < q->setup.depth; tag++) {
		backend_io_fini(&q->ios[tag].request);
		op_fini(&q->ios[tag].op);
	}
	batch_fini(q);
	backend_queue_close(q->backend);
	q->backend = NULL;
	reactor_file_remove(q->setup.reactor, q->cdev_slot);
	q->cdev_slot = -1;
	reactor_buffers_remove(q->setup.reactor, q->first_buffer, q->setup.depth);
	q->first_buffer = -1;
	if (q->buffers)
		munmap(q->buffers, queue_buffer_bytes(q->setup.depth, q->setup.max_io_bytes));
	q->buffers = NULL;
	free(q->ios);
	q->ios = NULL;
	free(q->commits);
	q->commits = NULL;
}

void queue_tag_gone(struct queue *q)
{
	ASSERT(q->up_nr > 0);
	if (--q->up_nr == 0 && !q->attaching)
		reactor_post(q->setup.home, &q->drained_mail, drained_on_main);
}

static void released_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, released_mail);

	q->setup.released(q);
}

/* When the backend has nothing of its own under way. */
static void release_look(struct timer *timer)
{
	struct queue *q = container_of(timer, struct queue, quiesce_timer);
	struct reactor *r = q->setup.reactor;

	if (!backend_queue_rest(q->backend)) {
		reactor_timer_arm(r, &q->quiesce_timer, r->now_ns + QUIESCE_LOOK_NS);
		return;
	}
	resources_fini(q);
	reactor_post(q->setup.home, &q->released_mail, released_on_main);
}

static void release(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, release_mail);

	ASSERT(q->up_nr == 0 && q->inflight_nr == 0 && q->commit_nr == 0 && !q->flush_io);
	reactor_timer_cancel(q->setup.reactor, &q->quiesce_timer);
	timer_init(&q->quiesce_timer, release_look);
	release_look(&q->quiesce_timer);
}

void queue_release(struct queue *q)
{
	reactor_post(q->setup.reactor, &q->release_mail, release);
}

static void attached_on_main(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, attached_mail);

	q->setup.attached(q, q->first_error);
}

/* Main learns how it went, and at once also when there is nothing to wait for. */
static void attach_report(struct queue *q)
{
	q->attaching = false;
	reactor_post(q->setup.home, &q->attached_mail, attached_on_main);
	if (q->up_nr == 0)
		reactor_post(q->setup.home, &q->drained_mail, drained_on_main);
}

/*
 * A FETCH that the driver refuses is answered by the enter that submits it: when the kernel has
 * taken the last one and all it posted has been seen, those not refused are armed. (The CQE of an
 * accepted FETCH comes with the first request, perhaps never: it cannot be waited for.)
 */
static void attach_check(struct task *task)
{
	struct queue *q = container_of(task, struct queue, attach_task);
	struct reactor *r = q->setup.reactor;

	if (q->fetched_nr < q->setup.depth || !reactor_sq_passed(r, q->fetch_mark))
		reactor_defer(r, &q->attach_task, attach_check);
	else
		attach_report(q);
}

/* Handed back, or on the way: a COMMIT that the driver never sees is a request that comes again. */
static void look_quiet(struct timer *timer)
{
	struct queue *q = container_of(timer, struct queue, quiesce_timer);
	struct reactor *r = q->setup.reactor;

	q->quiet = q->inflight_nr == 0 && q->commit_nr == 0 && backend_queue_rest(q->backend);
	if (!q->quiet)
		reactor_timer_arm(r, &q->quiesce_timer, r->now_ns + QUIESCE_LOOK_NS);
}

void queue_serve_kept(struct queue *q)
{
	struct list_node list = LIST_INIT(list);
	struct list_node *node;

	list_splice(&list, &q->kept);
	while ((node = list_pop_front(&list)))
		tag_serve(list_entry(node, struct tag_io, busy));
}

static void quiesce_changed(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, quiesce_mail);

	/* First, so that a change behind it comes as a mail of its own. */
	q->quiesce_posted = false;
	queue_care_set(q, QUEUE_QUIESCED, q->quiesce_wanted);
	q->quiet = false;
	reactor_timer_cancel(q->setup.reactor, &q->quiesce_timer);
	if (q->care & QUEUE_QUIESCED)
		look_quiet(&q->quiesce_timer);
	else
		queue_serve_kept(q);
}

void queue_quiesce(struct queue *q, bool on)
{
	q->quiesce_wanted = on;
	if (!atomic_exchange(&q->quiesce_posted, true))
		reactor_post(q->setup.reactor, &q->quiesce_mail, quiesce_changed);
}

static void queue_attach_mail(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, attach_mail);

	q->first_error = resources_init(q);
	if (q->first_error < 0) {
		attach_report(q);
		return;
	}
	q->attaching = true;
	q->up_nr = q->setup.depth;
	/*
	 * All or none: where a server dies between two FETCHes of a queue, drivers before 6.16
	 * never end the first one, and with it the device.
	 */
	op_sqe_room(q->setup.reactor, q->setup.depth);
	if (q->batch)
		batch_fetch(q);
	for (unsigned tag = 0; !q->batch && tag < q->setup.depth; tag++)
		tag_fetch(&q->ios[tag].op);
	reactor_defer(q->setup.reactor, &q->attach_task, attach_check);
}

void queue_attach(struct queue *q, const struct queue_setup *setup)
{
	*q = (struct queue){
		.setup = *setup,
		.cdev_slot = -1,
		.first_buffer = -1,
		.care = QUEUE_TRIM_DUE,
	};
	list_init(&q->busy);
	list_init(&q->kept);
	timer_init(&q->busy_timer, tag_busy_timeout);
	timer_init(&q->quiesce_timer, look_quiet);
	timer_init(&q->trim_timer, queue_trim);
	timer_init(&q->fence_timer, queue_fence_look);
	timer_init(&q->flush_timer, queue_flush_look);
	reactor_post(setup->reactor, &q->attach_mail, queue_attach_mail);
}

static void cancel_io(struct tag_io *io)
{
	if (io->state == TAG_BUSY) {
		list_remove(&io->busy);
		tag_refuse(io, -EIO);
	} else if (io->state == TAG_SERVING) {
		backend_io_cancel(&io->request);
	}
}

static void cancel_changed(struct mail *mail)
{
	struct queue *q = container_of(mail, struct queue, cancel_mail);

	/* First, so that a change behind it comes as a mail of its own. */
	q->cancel_posted = false;
	queue_care_set(q, QUEUE_CANCELLING, q->cancel_wanted);
	for (unsigned tag = 0; (q->care & QUEUE_CANCELLING) && q->ios && tag < q->setup.depth;
	     tag++)
		cancel_io(&q->ios[tag]);
	if (q->care & QUEUE_CANCELLING)
		queue_flush_cancel(q);
}

void queue_cancel(struct queue *q, bool cancel)
{
	q->cancel_wanted = cancel;
	if (!atomic_exchange(&q->cancel_posted, true))
		reactor_post(q->setup.reactor, &q->cancel_mail, cancel_changed);
}
