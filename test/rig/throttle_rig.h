/*
 * What the throttle tests stand on: devices, queues and a low backend in virtual time.
 * Included by one test program each.
 */
#ifndef TEST_RIG_THROTTLE_RIG_H
#define TEST_RIG_THROTTLE_RIG_H

#include "storage/registry.h"
#include "filters/throttle/throttle_group.h"
#include "test/rig/config_check.h"

#define DEPTH 16
#define QUEUES_MAX 4
#define DEVICES_MAX 3

static bool keep_all; /* the lowest backend answers nothing */
static unsigned cancelled_nr;

static int low_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 30;
	device->limits.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_DISCARD;
	return 0;
}

static enum backend_submit low_submit(struct backend_io *io)
{
	io->result = 0;
	return keep_all ? BACKEND_QUEUED : BACKEND_DONE;
}

static void low_cancel(struct backend_io *io)
{
	cancelled_nr++;
	backend_io_complete(io, -ECANCELED);
}

static const struct backend low = {
	.name = "low", .open = low_open, .submit = low_submit, .cancel = low_cancel
};

/* ---- the world ---- */

struct sim_io {
	struct backend_io io;
	bool out, answered_late; /* in flight; by done, not by submit */
};

struct sim_queue {
	struct reactor reactor;
	struct backend_queue *queue;
	struct sim_io io[DEPTH];
	unsigned busy_nr; /* keeps so many in flight; 0: none */
	enum backend_op op;
	uint32_t length_bytes;
	uint64_t done_nr, throttle_ns;
};

struct sim_device {
	struct throttle_config config;
	struct backend_spec low_spec, spec;
	struct backend_device *device;
	struct sim_queue queue[QUEUES_MAX];
	unsigned queue_nr;
};

static struct sim_device sim[DEVICES_MAX];
static uint64_t now_ns;
static unsigned timers_nr; /* that have fired */

static void sim_done(struct backend_io *io)
{
	struct sim_io *s = container_of(io, struct sim_io, io);
	struct sim_queue *q = container_of(s - io->tag, struct sim_queue, io[0]);

	assert_true(s->out);
	s->out = false;
	s->answered_late = true;
	q->done_nr++;
	q->throttle_ns += io->throttle_ns;
}

static enum backend_submit submit(struct sim_queue *q, unsigned tag, enum backend_op op,
				  uint32_t length_bytes)
{
	static char buf[512] __attribute__((aligned(4096)));
	struct sim_io *s = &q->io[tag];
	enum backend_submit answer;

	assert_false(s->out);
	s->out = true;
	s->answered_late = false;
	s->io.op = op;
	s->io.length_bytes = op == BACKEND_FLUSH ? 0 : length_bytes;
	s->io.buf = buf;
	q->reactor.now_ns = now_ns;
	answer = backend_io_submit(&s->io);
	if (answer == BACKEND_DONE) {
		s->out = false;
		q->done_nr++;
		assert_int_equal(s->io.throttle_ns, 0);
	}
	return answer;
}

/* True when something went. */
static bool keep_busy(struct sim_queue *q)
{
	bool any = false;

	for (unsigned tag = 0; tag < q->busy_nr; tag++)
		if (!q->io[tag].out)
			any |= submit(q, tag, q->op, q->length_bytes) == BACKEND_DONE;
	return any;
}

static bool run_queue(struct sim_queue *q)
{
	unsigned mail_nr, timer_nr;

	if (!q->queue)
		return false;
	q->reactor.now_ns = now_ns;
	mail_nr = mailbox_drain(&q->reactor.mailbox);
	timer_nr = timer_heap_run(&q->reactor.timers, now_ns);
	timers_nr += timer_nr;
	return mail_nr + timer_nr > 0;
}

#define FOR_EACH_QUEUE(q)                                                                          \
	for (struct sim_device *d_ = sim; d_ < sim + DEVICES_MAX; d_++)                            \
		for (struct sim_queue *q = d_->queue; q < d_->queue + d_->queue_nr; q++)

static void settle(void)
{
	bool any;

	do {
		any = false;
		FOR_EACH_QUEUE(q)
		{
			any |= run_queue(q);
			any |= q->queue && keep_busy(q);
		}
	} while (any);
}

static void run_until(uint64_t end_ns)
{
	for (;;) {
		uint64_t next_ns = UINT64_MAX;

		settle();
		FOR_EACH_QUEUE(q)
		next_ns = MIN(next_ns, timer_heap_next_ns(&q->reactor.timers));
		if (next_ns > end_ns)
			break;
		now_ns = MAX(next_ns, now_ns + 1);
	}
	now_ns = end_ns;
}

/* ---- opening and closing ---- */

static struct throttle_config unlimited(void)
{
	struct throttle_config config = { 0 };

	for (int i = 0; i < THROTTLE_BUCKET_NR; i++)
		config.limits.rate[i].max_length_s = 1;
	return config;
}

static struct throttle_config iops(enum throttle_bucket bucket, uint64_t avg, const char *group)
{
	struct throttle_config config = unlimited();

	config.limits.rate[bucket].avg = avg;
	config.group = (char *)(uintptr_t)group;
	return config;
}

static int open_device(unsigned idx, struct throttle_config config, char *error)
{
	static const struct backend_open_params open_params = { .logical_block_bytes = 512 };
	struct sim_device *d = &sim[idx];

	d->config = config;
	d->low_spec.ops = &low;
	d->spec = (struct backend_spec){ .ops = &backend_throttle,
					 .config = &d->config,
					 .child = &d->low_spec };
	return backend_open(&d->device, &d->spec, "t", &open_params, error, BACKEND_ERROR_BYTES);
}

static void open_queue(struct sim_device *d)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct sim_queue *q = &d->queue[d->queue_nr];
	unsigned idx = d->queue_nr++;

	assert_int_equal(reactor_init(&q->reactor, &params), 0);
	q->op = BACKEND_READ;
	q->length_bytes = 512;
	assert_int_equal(backend_queue_open(&q->queue, d->device, &q->reactor, idx, DEPTH), 0);
	for (unsigned tag = 0; tag < DEPTH; tag++)
		assert_int_equal(backend_io_init(&q->io[tag].io, q->queue, tag, sim_done), 0);
}

static struct sim_device *open_busy(unsigned idx, struct throttle_config config, unsigned queue_nr,
				    unsigned busy_nr)
{
	char error[BACKEND_ERROR_BYTES] = "";

	open_device(idx, config, error);
	assert_string_equal(error, "");
	for (unsigned i = 0; i < queue_nr; i++) {
		open_queue(&sim[idx]);
		sim[idx].queue[i].busy_nr = busy_nr;
	}
	return &sim[idx];
}

static void close_queue(struct sim_queue *q)
{
	if (!q->queue)
		return;
	q->busy_nr = 0;
	q->reactor.now_ns = now_ns;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		if (q->io[tag].out)
			backend_io_cancel(&q->io[tag].io);
	mailbox_drain(&q->reactor.mailbox); /* what was granted meanwhile */
	for (unsigned tag = 0; tag < DEPTH; tag++)
		backend_io_fini(&q->io[tag].io);
	backend_queue_close(q->queue);
	q->queue = NULL;
	assert_int_equal(timer_heap_next_ns(&q->reactor.timers), UINT64_MAX);
	reactor_fini(&q->reactor);
}

static void close_device(struct sim_device *d)
{
	for (unsigned i = 0; i < d->queue_nr; i++)
		close_queue(&d->queue[i]);
	backend_close(d->device);
	memset(d, 0, sizeof(*d));
}

static int setup(void **state)
{
	(void)state;
	memset(sim, 0, sizeof(sim));
	/* Ahead of the clock that open reads. */
	now_ns = ring_clock_ns() + 1000 * NS_PER_SEC;
	keep_all = false;
	cancelled_nr = timers_nr = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < DEVICES_MAX; i++)
		close_device(&sim[i]);
	return 0;
}

static uint64_t done_of(const struct sim_device *d)
{
	uint64_t nr = 0;

	for (unsigned i = 0; i < d->queue_nr; i++)
		nr += d->queue[i].done_nr;
	return nr;
}

/* ---- rates ---- */

#endif
