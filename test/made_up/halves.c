/*
 * halves: a filter that no product has, which serves each request in two pieces. test/made_up shows
 * with it that a node is its folder and one row: nothing else in the tree knows of it. Reactor
 * threads.
 */
#include <errno.h>
#include <stdlib.h>

#include "storage/snapshot.h"
#include "storage/node.h"
#include "base/util.h"

struct halves_config {
	uint64_t smallest_bytes;
};

struct halves_io {
	uint32_t first_bytes; /* 0: the request is whole */
	bool second;	      /* the second half is under way */
	bool cancelled;
};

static const struct option halves_options[] = {
	{ .name = "smallest",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct halves_config, smallest_bytes),
	  .min = 1024,
	  .def = "4KiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "Requests of less than this are left whole." },
	OPTION_END,
};

/* Bytes of the first half in the place of those of the second: made_up.sh. */
static bool halves_break;

static int halves_open(struct backend_device *device)
{
	(void)device;
	halves_break = getenv("UBLKD_HALVES_BREAK");
	return 0;
}

/* The second half, or what came of the first. True: it is under way. */
static bool halves_go_on(struct backend_io *io)
{
	struct backend_io *child = &io->child[0];
	struct halves_io *h = io->priv;
	uint32_t at_bytes = h->first_bytes;

	if (h->second || child->result < 0 || h->cancelled)
		return false;
	h->second = true;
	backend_piece(child, io, halves_break ? 0 : at_bytes, io->length_bytes - at_bytes,
		      io->offset_bytes + at_bytes);
	return backend_child_submit(child) == BACKEND_QUEUED;
}

static enum backend_submit halves_submit(struct backend_io *io)
{
	const struct halves_config *config = io->queue->device->config;
	uint32_t block_bytes = io->queue->device->open_params.logical_block_bytes;
	uint32_t first_bytes = round_down(io->length_bytes / 2, block_bytes);
	struct halves_io *h = io->priv;

	*h = (struct halves_io){ 0 };
	if (io->length_bytes < config->smallest_bytes || first_bytes == 0)
		return backend_forward_to(io, 0, io->offset_bytes);
	h->first_bytes = first_bytes;
	backend_piece(&io->child[0], io, 0, first_bytes, io->offset_bytes);
	if (backend_child_submit(&io->child[0]) == BACKEND_QUEUED || halves_go_on(io))
		return BACKEND_QUEUED;
	io->result = io->child[0].result;
	return BACKEND_DONE;
}

static void halves_child_done(struct backend_io *piece)
{
	struct backend_io *io = piece->parent;
	struct halves_io *h = io->priv;

	if (halves_go_on(io))
		return;
	backend_io_complete(io, h->cancelled && !h->second ? -ECANCELED : piece->result);
}

static void halves_cancel(struct backend_io *io)
{
	struct halves_io *h = io->priv;

	h->cancelled = true;
	backend_child_cancel(&io->child[0]);
}

extern const struct backend backend_halves;

const struct backend backend_halves = {
	.name = "halves",
	.summary = "Serves each request in two pieces.",
	.options = halves_options,
	.config_bytes = sizeof(struct halves_config),
	.io_bytes = sizeof(struct halves_io),
	.data = BACKEND_DATA_ANY,
	.test_options = "smallest: 2KiB",
	.children = backend_one_child,
	.open = halves_open,
	.submit = halves_submit,
	.cancel = halves_cancel,
	.child_done = halves_child_done,
	.above = &backend_above_passes,
};
