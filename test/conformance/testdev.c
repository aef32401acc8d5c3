/*
 * testdev: bytes on the heap; I/Os complete by timers in random order, some are refused with BUSY.
 * Its option `fault` makes it break the contract (storage/io.c must notice) or lose data (the model
 * must notice). Reactor thread; test programs only.
 */
#include "testdev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "base/util.h"
#include "reactor/reactor.h"

enum fault {
	FAULT_NONE,
	/* Against the contract. */
	FAULT_TWICE,	/* completes again */
	FAULT_NEVER,	/* is closed with an I/O in flight */
	FAULT_INSIDE,	/* completes inside submit */
	FAULT_OTHER,	/* completes another I/O inside submit */
	FAULT_POSITIVE, /* answers the number of bytes */
	FAULT_SHORT,	/* DONE with half the bytes */
	FAULT_UNSET,	/* DONE without a result */
	FAULT_BUSY,	/* BUSY with nothing in flight */
	FAULT_NONSENSE, /* an answer that is none */
	/* Legal: an errno that the block layer does not know, at once or later. */
	FAULT_ODD_DONE,
	FAULT_ODD_QUEUED,
	/* Against the data. */
	FAULT_LOSE_WRITE,
	FAULT_LONG_ZEROES,
	FAULT_SHIFT_READ,
	FAULT_STALE_BUFFER, /* a read that fills all but the last bytes */
};

static const char *const fault_values[] = {
	"none",	      "twice",	     "never",	   "inside",	   "other",    "positive",
	"short",      "unset",	     "busy",	   "nonsense",	   "odd_done", "odd_queued",
	"lose_write", "long_zeroes", "shift_read", "stale_buffer", NULL,
};

struct testdev_config {
	uint64_t size_bytes;
	int fault;
};

static const struct option testdev_options[] = {
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct testdev_config, size_bytes),
	  .def = "1MiB",
	  .help = "Size." },
	{ .name = "fault",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct testdev_config, fault),
	  .values = fault_values,
	  .def = "none",
	  .flags = OPTION_HIDDEN,
	  .help = "What goes wrong." },
	OPTION_END,
};

struct testdev_device {
	uint8_t *bytes;
	struct prng prng; /* one thread turns all reactors of a test */
};

struct testdev_io {
	struct backend_io *io;
	struct timer timer;
};

static enum fault fault_of(const struct backend_io *io)
{
	const struct testdev_config *config = io->queue->device->config;

	return config->fault;
}

/* One of sixteen, so that a test has to look closely. */
static bool data_fault(const struct backend_io *io, enum fault fault)
{
	struct testdev_device *dev = io->queue->device->priv;

	return fault_of(io) == fault && prng_one_in(&dev->prng, 16);
}

static void transfer(struct backend_io *io)
{
	struct testdev_device *dev = io->queue->device->priv;
	uint8_t *at = dev->bytes + io->offset_bytes;
	uint64_t size_bytes = io->queue->device->limits.size_bytes;

	if (io->op == BACKEND_READ && data_fault(io, FAULT_SHIFT_READ) && io->offset_bytes > 0)
		memcpy(io->buf, at - 1, io->length_bytes);
	else if (io->op == BACKEND_READ && data_fault(io, FAULT_STALE_BUFFER))
		memcpy(io->buf, at, io->length_bytes - 8);
	else if (io->op == BACKEND_READ)
		memcpy(io->buf, at, io->length_bytes);
	else if (io->op == BACKEND_WRITE && !data_fault(io, FAULT_LOSE_WRITE))
		memcpy(at, io->buf, io->length_bytes);
	else if (io->op == BACKEND_WRITE_ZEROES)
		memset(at, 0, io->length_bytes);
	if (io->op == BACKEND_WRITE_ZEROES && data_fault(io, FAULT_LONG_ZEROES) &&
	    io->offset_bytes + io->length_bytes < size_bytes)
		at[io->length_bytes] = 0;
}

static void on_timer(struct timer *timer)
{
	struct backend_io *io = container_of(timer, struct testdev_io, timer)->io;
	enum fault fault = fault_of(io);

	if (fault == FAULT_NEVER)
		return;
	transfer(io);
	if (fault == FAULT_ODD_QUEUED)
		backend_io_complete(io, -ENOENT);
	else
		backend_io_complete(io, fault == FAULT_POSITIVE ? (int)io->length_bytes : 0);
	if (fault == FAULT_TWICE)
		backend_io_complete(io, 0);
}

static enum backend_submit queue_up(struct backend_io *io)
{
	struct testdev_device *dev = io->queue->device->priv;
	struct testdev_io *t = io->priv;
	struct reactor *r = io->queue->reactor;

	reactor_timer_arm(r, &t->timer, r->now_ns + prng_below(&dev->prng, 50000));
	return BACKEND_QUEUED;
}

static void complete_early(struct backend_io *io)
{
	struct testdev_io *t = io->priv;

	reactor_timer_cancel(io->queue->reactor, &t->timer);
	backend_io_complete(io, 0);
}

static enum backend_submit testdev_submit(struct backend_io *io)
{
	struct testdev_device *dev = io->queue->device->priv;
	static struct backend_io *last;

	switch (fault_of(io)) {
	case FAULT_INSIDE:
		backend_io_complete(io, 0);
		return BACKEND_QUEUED;
	case FAULT_OTHER:
		if (last && last != io && backend_io_is_queued(last))
			complete_early(last);
		last = io;
		return queue_up(io);
	case FAULT_SHORT:
		io->result = (int32_t)io->length_bytes / 2;
		return BACKEND_DONE;
	case FAULT_ODD_DONE:
		io->result = -ENOENT;
		return BACKEND_DONE;
	case FAULT_UNSET:
		return BACKEND_DONE;
	case FAULT_BUSY:
		return BACKEND_BUSY;
	case FAULT_NONSENSE:
		return (enum backend_submit)7;
	default:
		break;
	}
	if (io->queue->inflight > 0 && prng_one_in(&dev->prng, 4))
		return BACKEND_BUSY;
	return queue_up(io);
}

static int testdev_open(struct backend_device *device)
{
	const struct testdev_config *config = device->config;
	struct testdev_device *dev = device->priv;

	dev->bytes = calloc(1, config->size_bytes);
	if (!dev->bytes)
		return -ENOMEM;
	prng_init(&dev->prng, 1);
	device->limits = (struct backend_limits){
		.size_bytes = config->size_bytes,
		.caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES | BACKEND_CAP_FLUSH |
			BACKEND_CAP_FUA,
	};
	return 0;
}

static void testdev_close(struct backend_device *device)
{
	struct testdev_device *dev = device->priv;

	free(dev->bytes);
}

static int testdev_io_init(struct backend_io *io)
{
	struct testdev_io *t = io->priv;

	t->io = io;
	timer_init(&t->timer, on_timer);
	return 0;
}

const struct backend backend_testdev = {
	.name = "testdev",
	.summary = "for the tests of the tests",
	.options = testdev_options,
	.size_option = &testdev_options[0],
	.config_bytes = sizeof(struct testdev_config),
	.device_bytes = sizeof(struct testdev_device),
	.io_bytes = sizeof(struct testdev_io),
	.open = testdev_open,
	.close = testdev_close,
	.io_init = testdev_io_init,
	.submit = testdev_submit,
};
