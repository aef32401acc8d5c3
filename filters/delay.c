/*
 * delay: lets each request wait before it goes to the child, to play a slow disk or network. The
 * wait counts as the backend's time, unlike that of a throttle. Reactor threads.
 *
 * Happy path: a timer per I/O, then forward. Any number wait at the same time; an operation without
 * a time goes at once. Failure modes: none of its own. cancel answers what waits.
 */
#include "filters/delay.h"

#include <errno.h>

#include "storage/snapshot.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "base/util.h"

struct delay_config {
	uint64_t all_ns;
	uint64_t op_ns[BACKEND_OP_NR]; /* 0: as all */
	int distribution;
	uint64_t spread_ns, max_ns;
	uint64_t seed;
};

static const char *const distributions[] = { "fixed",	    "uniform", "normal",
					     "exponential", "pareto",  NULL };

#define OP_TIME(op_name, op_idx)                                                                   \
	{                                                                                          \
		.name = op_name, .type = OPTION_DURATION,                                          \
		.offset = offsetof(struct delay_config, op_ns[op_idx]), .def = "0",                \
		.help = "The mean time of this operation. 0: the value of all."                    \
	}

static const struct option delay_options[] = {
	{ .name = "all",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct delay_config, all_ns),
	  .def = "0",
	  .help = "The mean time that each request waits before it is passed on: 500us, 10ms." },
	OP_TIME("read", BACKEND_READ),
	OP_TIME("write", BACKEND_WRITE),
	OP_TIME("flush", BACKEND_FLUSH),
	OP_TIME("discard", BACKEND_DISCARD),
	OP_TIME("write_zeroes", BACKEND_WRITE_ZEROES),
	{ .name = "distribution",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct delay_config, distribution),
	  .values = distributions,
	  .def = "fixed",
	  .help = "How the delays vary around their mean. pareto has a long tail: each delay is "
		  "at least half of the mean, and one in a hundred is above five times the mean." },
	{ .name = "spread",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct delay_config, spread_ns),
	  .def = "0",
	  .help = "uniform: the largest difference from the mean. normal: the standard "
		  "deviation." },
	{ .name = "max",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct delay_config, max_ns),
	  .def = "0",
	  .help = "The longest delay. 0: no limit." },
	{ .name = "seed",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct delay_config, seed),
	  .def = "1",
	  .help = "The same seed gives the same delays. Each queue has its own sequence." },
	OPTION_END,
};

struct delay_queue {
	struct prng prng;
	struct delay_shape shape;
};

struct delay_io {
	struct backend_io *io;
	struct timer timer; /* armed: it waits */
};

/* A uniform delay below zero would be cut, and the mean no longer be the mean. */
static void check_uniform(const struct delay_config *config, const struct yaml_node *map,
			  struct config_errors *e)
{
	if (config->all_ns && config->spread_ns > config->all_ns)
		config_errors_add(e, yaml_pos(map, "spread"), "spread: is longer than all");
	for (int op = 0; op < BACKEND_OP_NR; op++)
		if (config->op_ns[op] && config->spread_ns > config->op_ns[op])
			config_errors_add(e, yaml_pos(map, "spread"), "spread: is longer than %s",
					  backend_op_name(op));
}

static void delay_check(const void *arg, const struct yaml_node *map, struct config_errors *e)
{
	const struct delay_config *config = arg;
	bool spreads =
		config->distribution == DELAY_UNIFORM || config->distribution == DELAY_NORMAL;

	if (spreads && config->spread_ns == 0)
		config_errors_add(e, yaml_pos(map, "distribution"), "distribution: %s needs spread",
				  distributions[config->distribution]);
	if (!spreads && config->spread_ns != 0)
		config_errors_add(e, yaml_pos(map, "spread"),
				  "spread: is for distribution: uniform or normal, not %s",
				  distributions[config->distribution]);
	if (config->distribution == DELAY_UNIFORM)
		check_uniform(config, map, e);
}

static uint64_t mean_of(const struct backend_io *io)
{
	const struct delay_config *config = io->queue->device->config;
	uint64_t op_ns = config->op_ns[io->op];

	return op_ns ? op_ns : config->all_ns;
}

static void over(struct timer *timer)
{
	backend_forward_queued(container_of(timer, struct delay_io, timer)->io);
}

static enum backend_submit delay_submit(struct backend_io *io)
{
	struct delay_queue *q = io->queue->priv;
	struct reactor *r = io->queue->reactor;
	struct delay_io *d = io->priv;
	uint64_t mean_ns = mean_of(io);
	uint64_t delay_ns = mean_ns ? delay_draw(&q->shape, mean_ns, &q->prng) : 0;

	if (delay_ns == 0)
		return backend_forward(io);
	reactor_timer_arm(r, &d->timer, r->now_ns + delay_ns);
	return BACKEND_QUEUED;
}

static void delay_cancel(struct backend_io *io)
{
	struct delay_io *d = io->priv;

	if (!d->timer.armed) {
		backend_forward_cancel(io);
		return;
	}
	reactor_timer_cancel(io->queue->reactor, &d->timer);
	backend_io_complete(io, -ECANCELED);
}

static struct backend_wait delay_wait(const struct backend_io *io)
{
	const struct delay_io *d = io->priv;

	if (!__atomic_load_n(&d->timer.armed, __ATOMIC_RELAXED))
		return (struct backend_wait){ 0 };
	return (struct backend_wait){ BACKEND_WAIT_DELAY, "delaying" };
}

static int delay_queue_init(struct backend_queue *queue)
{
	const struct delay_config *config = queue->device->config;
	struct delay_queue *q = queue->priv;

	prng_init(&q->prng, config->seed + queue->idx);
	q->shape = (struct delay_shape){
		.distribution = config->distribution,
		.spread_ns = config->spread_ns,
		.max_ns = config->max_ns,
	};
	return 0;
}

static int delay_io_init(struct backend_io *io)
{
	struct delay_io *d = io->priv;

	d->io = io;
	timer_init(&d->timer, over);
	return 0;
}

const struct backend backend_delay = {
	.name = "delay",
	.summary = "A filter that simulates a slow device: fixed or random delays.",
	.options = delay_options,
	.config_bytes = sizeof(struct delay_config),
	.queue_bytes = sizeof(struct delay_queue),
	.io_bytes = sizeof(struct delay_io),
	.data = BACKEND_DATA_ANY | BACKEND_DATA_SHMEM,
	.test_options = "all: 50us\ndistribution: exponential\nmax: 1ms",
	.children = backend_one_child,
	.check = delay_check,
	.queue_init = delay_queue_init,
	.io_init = delay_io_init,
	.submit = delay_submit,
	.cancel = delay_cancel,
	.wait = delay_wait,
	.above = &backend_above_passes,
};
