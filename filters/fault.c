/*
 * fault, `type: error` in the configuration: fails some of the requests on purpose, or lets them
 * hang, for tests of whatever stands above. What it fails the child never sees. Reactor threads.
 *
 * Happy path: a request outside the range, of another operation, or while the trigger is absent is
 * forwarded. Of the others it fails each, each nth (counted over all queues), or a random part.
 * Failure modes are its purpose; a request that hangs is answered when it is cancelled, by nothing
 * else.
 *
 * The trigger is looked for at most every TRIGGER_NS, with access(2): that can block the reactor
 * for as long as a look-up of a local path takes, which a tool for tests may.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/snapshot.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/util.h"

#define TRIGGER_NS (100 * NS_PER_MS)
#define SECTOR_SHIFT 9

struct fault_config {
	char *errno_text;
	uint64_t ops; /* bits of enum backend_op; 0: all */
	double rate;
	uint64_t every;
	uint64_t from_sector, to_sector;
	char *trigger;
	bool hang;
	uint64_t seed;
};

/* Order of enum backend_op. */
static const char *const op_names[] = { "read", "write", "flush", "discard", "write_zeroes", NULL };

static const struct option fault_options[] = {
	{ .name = "errno",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct fault_config, errno_text),
	  .min = 1,
	  .def = "EIO",
	  .help = "The error of failed requests, by name or number: EIO, ENOSPC, EOPNOTSUPP, "
		  "ETIMEDOUT, ENOLINK, EREMOTEIO, ENODATA, EILSEQ or ENOMEM. The block layer "
		  "knows no others." },
	{ .name = "op",
	  .type = OPTION_SET,
	  .offset = offsetof(struct fault_config, ops),
	  .values = op_names,
	  .help = "Fail only these operations. Default: all." },
	{ .name = "rate",
	  .type = OPTION_RATIO,
	  .offset = offsetof(struct fault_config, rate),
	  .def = "1",
	  .help = "The fraction of requests that fail, chosen at random." },
	{ .name = "every",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct fault_config, every),
	  .def = "0",
	  .help = "Fail every Nth request instead of a random fraction: 3 fails the third, the "
		  "sixth ..." },
	{ .name = "from_sector",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct fault_config, from_sector),
	  .def = "0",
	  .help = "Fail only requests that touch this sector (of 512 bytes) or later ones. With "
		  "from_sector or to_sector no flush fails." },
	{ .name = "to_sector",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct fault_config, to_sector),
	  .def = "0",
	  .help = "Fail only requests that touch sectors before this one. 0: up to the end of "
		  "the device." },
	{ .name = "trigger",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct fault_config, trigger),
	  .min = 1,
	  .help = "Fail requests only while this path exists. The filter checks ten times a "
		  "second; use a local file system." },
	{ .name = "hang",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct fault_config, hang),
	  .def = "false",
	  .help = "Do not fail the requests but never answer them, until the device is stopped "
		  "by force." },
	{ .name = "seed",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct fault_config, seed),
	  .def = "1",
	  .help = "The same seed fails the same requests. Each queue has its own sequence." },
	OPTION_END,
};

struct fault_device {
	int err;		      /* negative */
	_Atomic uint64_t matching_nr; /* requests that may fail, so far */
	_Atomic uint64_t look_ns;     /* when the trigger is to be looked for again */
	_Atomic bool is_triggered;
};

struct fault_queue {
	struct prng prng;
};

struct fault_io {
	bool hangs;
};

/* ---- options ---- */

static const int errnos[] = { EIO,	 ENOSPC,  EOPNOTSUPP, ETIMEDOUT, ENOLINK,
			      EREMOTEIO, ENODATA, EILSEQ,     ENOMEM };

/* By name or number; 0: none of those the block layer knows. */
static int errno_of(const char *text)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	for (size_t i = 0; i < ARRAY_SIZE(errnos); i++)
		if (strcmp(text, errname(errnos[i])) == 0 ||
		    (*end == '\0' && number == (unsigned long)errnos[i]))
			return errnos[i];
	return 0;
}

static void check_errno(const struct fault_config *config, const struct yaml_node *map,
			struct config_errors *e)
{
	const char *names[ARRAY_SIZE(errnos)], *nearest;
	char excerpt[CONFIG_EXCERPT_BYTES];

	if (errno_of(config->errno_text))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(errnos); i++)
		names[i] = errname(errnos[i]);
	nearest = option_nearest(config->errno_text, names, sizeof(names[0]), ARRAY_SIZE(names));
	config_errors_add(
		e, yaml_pos(map, "errno"), "errno: \"%s\" is none that the block layer knows%s%s%s",
		config_excerpt(config->errno_text, excerpt), nearest ? " (did you mean \"" : "",
		nearest ? nearest : "", nearest ? "\"?)" : "");
}

static void fault_check(const void *arg, const struct yaml_node *map, struct config_errors *e)
{
	const struct fault_config *config = arg;

	check_errno(config, map, e);
	if (config->every && config->rate != 1.)
		config_errors_add(e, yaml_pos(map, "every"),
				  "every: cannot be used together with rate");
	if (config->to_sector && config->to_sector <= config->from_sector)
		config_errors_add(e, yaml_pos(map, "to_sector"),
				  "to_sector: must be above from_sector: %llu",
				  (unsigned long long)config->from_sector);
}

/* ---- which ones ---- */

static const struct fault_config *config_of(const struct backend_io *io)
{
	return io->queue->device->config;
}

/* A flush has no length: it touches no sector. */
static bool fault_in_range(const struct backend_io *io)
{
	const struct fault_config *config = config_of(io);
	uint64_t first = io->offset_bytes >> SECTOR_SHIFT;
	uint64_t end = (io->offset_bytes + io->length_bytes) >> SECTOR_SHIFT;

	if (config->from_sector == 0 && config->to_sector == 0)
		return true;
	return end > config->from_sector && (config->to_sector == 0 || first < config->to_sector);
}

/* One thread of those that come at the same time looks; the others take what was seen last. */
static bool triggered(const struct backend_io *io)
{
	struct fault_device *d = io->queue->device->priv;
	uint64_t now_ns = io->queue->reactor->now_ns;
	uint64_t look_ns = atomic_load(&d->look_ns);

	if (now_ns >= look_ns &&
	    atomic_compare_exchange_strong(&d->look_ns, &look_ns, now_ns + TRIGGER_NS))
		atomic_store(&d->is_triggered, access(config_of(io)->trigger, F_OK) == 0);
	return atomic_load(&d->is_triggered);
}

static bool may_fail(const struct backend_io *io)
{
	const struct fault_config *config = config_of(io);

	if (config->ops && !(config->ops >> io->op & 1))
		return false;
	if (!fault_in_range(io))
		return false;
	return !config->trigger || triggered(io);
}

static bool is_chosen(const struct backend_io *io)
{
	const struct fault_config *config = config_of(io);
	struct fault_device *d = io->queue->device->priv;
	struct fault_queue *q = io->queue->priv;

	if (config->every)
		return (atomic_fetch_add(&d->matching_nr, 1) + 1) % config->every == 0;
	/* 53 bits: [0, 1), so that 0 fails none and 1 all. */
	return (double)(prng_next(&q->prng) >> 11) * 0x1p-53 < config->rate;
}

/* ---- the backend ---- */

static enum backend_submit fault_submit(struct backend_io *io)
{
	const struct fault_device *d = io->queue->device->priv;
	struct fault_io *e = io->priv;

	if (!may_fail(io) || !is_chosen(io))
		return backend_forward(io);
	e->hangs = config_of(io)->hang;
	if (e->hangs)
		return BACKEND_QUEUED;
	io->result = d->err;
	return BACKEND_DONE;
}

static void fault_cancel(struct backend_io *io)
{
	struct fault_io *e = io->priv;

	if (!e->hangs) {
		backend_forward_cancel(io);
		return;
	}
	e->hangs = false;
	backend_io_complete(io, -ECANCELED);
}

static struct backend_wait fault_wait(const struct backend_io *io)
{
	const struct fault_io *e = io->priv;
	bool hangs = __atomic_load_n(&e->hangs, __ATOMIC_RELAXED);

	return (struct backend_wait){ .words = hangs ? "hanging" : NULL };
}

static int fault_open(struct backend_device *device)
{
	const struct fault_config *config = device->config;
	struct fault_device *d = device->priv;

	d->err = -errno_of(config->errno_text);
	log_warn("this device fails requests on purpose", "device=%s errno=%s hang=%s",
		 device->name, errname(d->err), config->hang ? "true" : "false");
	return 0;
}

static int fault_queue_init(struct backend_queue *queue)
{
	const struct fault_config *config = queue->device->config;
	struct fault_queue *q = queue->priv;

	prng_init(&q->prng, config->seed + queue->idx);
	return 0;
}

const struct backend backend_fault = {
	.name = "error",
	.summary = "A filter for tests: fails requests on purpose, or never answers them.",
	.options = fault_options,
	.config_bytes = sizeof(struct fault_config),
	.device_bytes = sizeof(struct fault_device),
	.queue_bytes = sizeof(struct fault_queue),
	.io_bytes = sizeof(struct fault_io),
	.data = BACKEND_DATA_ANY | BACKEND_DATA_SHMEM,
	.test_options = "trigger: /nonexistent\nhang: true",
	.children = backend_one_child,
	.check = fault_check,
	.open = fault_open,
	.queue_init = fault_queue_init,
	.submit = fault_submit,
	.cancel = fault_cancel,
	.wait = fault_wait,
	.above = &backend_above_passes,
};
