/*
 * stripe: RAID-0. Chunks of the device lie on the children in turn, so that many requests reach
 * many children at a time. Reactor threads, but for open. Chunk c is on child c % N, as that one's
 * chunk c / N, or the one behind it where the first has a label (`verify`, stripe_label.h): a row
 * of chunks is one of each child.
 *
 * Happy path: the block layer cuts READ and WRITE at chunks (limits.boundary_bytes), and such a
 * request is forwarded whole. One that crosses a chunk becomes pieces: of each child one after the
 * other, of all children at the same time. What a DISCARD or WRITE_ZEROES touches of one child is
 * one range there, and one piece. A FLUSH goes to all children.
 *
 * Failure modes: a piece that fails fails its request, which still waits for the others that are
 * under way and starts no more. cancel asks all of them to end.
 */
#include <errno.h>
#include <stdio.h>

#include "filters/stripe/stripe.h"
#include "storage/snapshot.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "storage/version.h"
#include "base/util.h"

#define CHUNK_BYTES_MIN 4096u
#define CHUNK_BYTES_MAX MIB(128)

static const char *const stripe_verify_values[] = { [STRIPE_VERIFY_OFF] = "false",
						    [STRIPE_VERIFY_ON] = "true",
						    [STRIPE_VERIFY_IGNORE] = "ignore",
						    NULL };

static const struct option stripe_options[] = {
	{ .name = "chunk",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct stripe_config, chunk_bytes),
	  .min = CHUNK_BYTES_MIN,
	  .max = CHUNK_BYTES_MAX,
	  .def = "64KiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "How many bytes lie on one backend before the next one has its turn. Requests up "
		  "to this size go to one backend; it cannot be changed without losing the "
		  "content." },
	{ .name = "verify",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct stripe_config, verify),
	  .values = stripe_verify_values,
	  .def = "false",
	  .help = "true: a label at the beginning of each backend says which stripe it belongs to, "
		  "and its place there: in another order, or with one of another stripe, the "
		  "device is refused. It costs a chunk of each backend, and is for new stripes: "
		  "one that was made without it has its data there. false: where a backend has a "
		  "label, the device is refused. ignore: the backends are not looked at; for a "
		  "stripe that is itself a backend of another one with labels, in another ublkd." },
	OPTION_END,
};

static const struct backend_child_option stripe_children[] = {
	{ .name = "backends",
	  .nr_min = 2,
	  .nr_max = BACKEND_CHILDREN_MAX,
	  .help = "Where the chunks lie, in this order: backends of any type." },
	{ .name = NULL },
};

/* Of a request in pieces. */
struct stripe_io {
	unsigned pieces; /* under way; one more while they are submitted or cancelled */
	int result;	 /* the first that failed */
};

/* ---- where bytes lie ---- */

static uint64_t stripe_size_over(const void *config, unsigned child_nr, uint64_t child_bytes)
{
	const struct stripe_config *c = config;
	uint64_t rows = child_bytes / c->chunk_bytes;

	return (rows - (stripe_is_labelled(c) && rows > 0)) * c->chunk_bytes * child_nr;
}

static uint64_t stripe_size_below(const void *config, unsigned child_nr, uint64_t size_bytes)
{
	const struct stripe_config *c = config;
	uint64_t row_bytes = c->chunk_bytes * child_nr;

	return ((size_bytes + row_bytes - 1) / row_bytes + stripe_is_labelled(c)) * c->chunk_bytes;
}

static inline const struct stripe_device *stripe_of(const struct backend_io *io)
{
	return io->queue->device->priv;
}

static inline uint32_t chunk_mask(const struct stripe_device *d)
{
	return (1u << d->shift) - 1;
}

/* Where a child's range begins that holds what of the device lies on it from offset_bytes on. */
static uint64_t child_offset_from(const struct stripe_device *d, unsigned idx,
				  uint64_t offset_bytes)
{
	uint64_t chunk = offset_bytes >> d->shift;
	uint64_t row = chunk / d->child_nr + d->first_row;
	unsigned at = (unsigned)(chunk % d->child_nr);

	if (at > idx)
		return (row + 1) << d->shift;
	return (row << d->shift) + (at == idx ? offset_bytes & chunk_mask(d) : 0);
}

/* ---- pieces ---- */

/*
 * Makes the child's I/O the next piece from its offset from_bytes on: for READ and WRITE up to the
 * end of the chunk there, else all that it has of the request. False: nothing is left.
 */
static bool next_piece(struct backend_io *io, unsigned idx, uint64_t from_bytes)
{
	const struct stripe_device *d = stripe_of(io);
	uint64_t end_bytes = child_offset_from(d, idx, io->offset_bytes + io->length_bytes);
	uint64_t row = from_bytes >> d->shift, at_bytes;

	if (from_bytes >= end_bytes)
		return false;
	if (io->op <= BACKEND_WRITE)
		end_bytes = MIN(end_bytes, (row + 1) << d->shift);
	at_bytes = (((row - d->first_row) * d->child_nr + idx) << d->shift) +
		   (from_bytes & chunk_mask(d)) - io->offset_bytes;
	backend_piece(&io->child[idx], io, (uint32_t)at_bytes, (uint32_t)(end_bytes - from_bytes),
		      from_bytes);
	return true;
}

/* How a piece ended. Nothing more is begun of a request that has failed. */
static bool piece_ended(struct backend_io *io, const struct backend_io *child)
{
	struct stripe_io *s = io->priv;

	io->throttle_ns = MAX(io->throttle_ns, child->throttle_ns);
	if (child->result < 0 && s->result == 0)
		s->result = child->result;
	return s->result == 0;
}

/* Submits pieces of one child from an offset there until one is under way or none is left. */
static void submit_pieces(struct backend_io *io, unsigned idx, uint64_t from_bytes)
{
	struct backend_io *child = &io->child[idx];
	struct stripe_io *s = io->priv;

	while (next_piece(io, idx, from_bytes)) {
		if (backend_child_submit(child) == BACKEND_QUEUED) {
			s->pieces++;
			return;
		}
		if (!piece_ended(io, child))
			return;
		from_bytes = child->offset_bytes + child->length_bytes;
	}
}

static void submit_flush(struct backend_io *io, unsigned idx)
{
	struct backend_io *child = &io->child[idx];
	struct stripe_io *s = io->priv;

	backend_piece(child, io, 0, 0, 0);
	if (backend_child_submit(child) == BACKEND_QUEUED)
		s->pieces++;
	else
		piece_ended(io, child);
}

static __attribute__((noinline)) enum backend_submit submit_split(struct backend_io *io)
{
	const struct stripe_device *d = stripe_of(io);
	struct stripe_io *s = io->priv;

	*s = (struct stripe_io){ 0 };
	for (unsigned idx = 0; idx < d->child_nr && s->result == 0; idx++) {
		if (io->op == BACKEND_FLUSH)
			submit_flush(io, idx);
		else
			submit_pieces(io, idx, child_offset_from(d, idx, io->offset_bytes));
	}
	if (s->pieces > 0)
		return BACKEND_QUEUED;
	io->result = s->result;
	return BACKEND_DONE;
}

static enum backend_submit stripe_submit(struct backend_io *io)
{
	const struct stripe_device *d = stripe_of(io);
	uint64_t chunk = io->offset_bytes >> d->shift;
	uint32_t within_bytes = (uint32_t)io->offset_bytes & chunk_mask(d);

	if (io->op == BACKEND_FLUSH ||
	    __builtin_expect((uint64_t)within_bytes + io->length_bytes > 1u << d->shift, 0))
		return submit_split(io);
	return backend_forward_to(io, (unsigned)(chunk % d->child_nr),
				  ((chunk / d->child_nr + d->first_row) << d->shift) +
					  within_bytes);
}

static void drop_piece(struct backend_io *io)
{
	struct stripe_io *s = io->priv;

	if (--s->pieces == 0)
		backend_io_complete(io, s->result);
}

static void stripe_child_done(struct backend_io *child)
{
	struct backend_io *io = child->parent;

	if (piece_ended(io, child) && io->op != BACKEND_FLUSH)
		submit_pieces(io, (unsigned)(child - io->child),
			      child->offset_bytes + child->length_bytes);
	drop_piece(io);
}

/* A forwarded request is not in pieces: its only child completes it. */
static void stripe_cancel(struct backend_io *io)
{
	const struct stripe_device *d = stripe_of(io);
	struct stripe_io *s = io->priv;
	bool split = s->pieces > 0;

	if (split) {
		s->pieces++;
		s->result = s->result ? s->result : -ECANCELED;
	}
	for (unsigned idx = 0; idx < d->child_nr; idx++)
		if (backend_child_cancel(&io->child[idx]) && !split)
			return;
	if (split)
		drop_piece(io);
}

/* ---- open ---- */

static void stripe_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct stripe_config *config = device->config;

	snprintf(text, BACKEND_IDENTITY_BYTES, "stripe %llu%s",
		 (unsigned long long)config->chunk_bytes,
		 stripe_is_labelled(config) ? " verified" : "");
}

static const struct backend_version_ops stripe_version = { .found = backend_version_join,
							   .now = backend_version_join_now };

static int stripe_open(struct backend_device *device)
{
	const struct stripe_config *config = device->config;
	struct backend_limits *limits = &device->limits;
	struct stripe_device *d = device->priv;

	if (config->chunk_bytes < device->open_params.logical_block_bytes)
		return backend_fail(device, -EINVAL, "chunk of %llu bytes is less than a block",
				    (unsigned long long)config->chunk_bytes);
	d->shift = log2_floor(config->chunk_bytes);
	d->child_nr = device->child_nr;
	d->first_row = stripe_is_labelled(config);
	limits->size_bytes = stripe_size_over(config, d->child_nr, limits->size_bytes);
	if (limits->size_bytes == 0)
		return backend_fail(device, -EINVAL,
				    "the smallest of the backends has less than %s of %llu "
				    "bytes",
				    stripe_is_labelled(config) ? "two chunks" : "a chunk",
				    (unsigned long long)config->chunk_bytes);
	limits->boundary_bytes = (uint32_t)config->chunk_bytes;
	limits->io_opt_bytes =
		(uint32_t)MIN(config->chunk_bytes * d->child_nr, (uint64_t)UINT32_MAX);
	return 0;
}

/* An open that was given up may have left it. */
static void stripe_close(struct backend_device *device)
{
	stripe_open_end(device->priv);
}

/* ---- snapshots of a child ---- */

static const char *stripe_above_create(const struct backend_device *device,
				       const struct backend_device *child)
{
	(void)device, (void)child;
	return "lays its bytes out over several backends, and a snapshot of one has none of the "
	       "others: remove the device, and create one of each backend, each with a device of "
	       "its own";
}

static const char *stripe_above_apply(const struct backend_device *device,
				      const struct backend_device *child)
{
	(void)device, (void)child;
	return "lays its bytes out over several backends, and those of the others would stay as "
	       "they are: remove the device, and apply one of each backend, each with a device of "
	       "its own";
}

static const struct backend_above stripe_above = { .create = stripe_above_create,
						   .apply = stripe_above_apply };

const struct backend backend_stripe = {
	.name = "stripe",
	.summary = "A filter over 2 to 32 backends that lays the bytes out over them in turn "
		   "(RAID-0): as fast as all of them, as safe as the worst.",
	.options = stripe_options,
	.config_bytes = sizeof(struct stripe_config),
	.device_bytes = sizeof(struct stripe_device),
	.io_bytes = sizeof(struct stripe_io),
	.data = BACKEND_DATA_ANY | BACKEND_DATA_SHMEM,
	.test_options = "chunk: 16KiB",
	.children = stripe_children,
	.open = stripe_open,
	.open_async = stripe_open_async,
	.close = stripe_close,
	.submit = stripe_submit,
	.cancel = stripe_cancel,
	.child_done = stripe_child_done,
	.size_over = stripe_size_over,
	.size_below = stripe_size_below,
	.identity = stripe_identity,
	.version = &stripe_version,
	.above = &stripe_above,
};
