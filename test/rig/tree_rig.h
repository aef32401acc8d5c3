/*
 * A tree over leaves that do as they are told, on one reactor: each leaf keeps its requests until
 * the test completes them.
 */
#ifndef TEST_RIG_TREE_RIG_H
#define TEST_RIG_TREE_RIG_H

#include <errno.h>

#include "storage/node.h"
#include "storage/registry.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"
#include "net/session_look.h"

#define DEPTH 4
#define LEAVES 4

/* ---- leaves: each with the requests that it has, of which the test completes one at a time ----
 */

struct leaf {
	uint64_t size_bytes;
	uint32_t caps;
	unsigned room, out_nr;
	struct backend_io *out[2 * DEPTH];
	unsigned opened, closed, cancelled;
	bool fails;
	int stored_fd; /* what it was opened with */
	const char *failure;
	unsigned connection_nr;
};

static struct leaf leaves[LEAVES];
static unsigned close_order[64], close_nr;

static struct leaf *leaf_of(const struct backend_device *device)
{
	return (struct leaf *)(uintptr_t)device->config;
}

static int leaf_open(struct backend_device *device)
{
	struct leaf *leaf = leaf_of(device);

	if (leaf->fails)
		return backend_fail(device, -ENXIO, "is not there");
	leaf->opened++;
	leaf->stored_fd = device->open_params.stored_fd;
	device->limits.size_bytes = leaf->size_bytes;
	device->limits.caps = leaf->caps;
	return 0;
}

static void leaf_close(struct backend_device *device)
{
	leaf_of(device)->closed++;
	close_order[close_nr++] = (unsigned)(leaf_of(device) - leaves);
}

static enum backend_submit leaf_submit(struct backend_io *io)
{
	struct leaf *leaf = leaf_of(io->queue->device);

	if (leaf->out_nr == leaf->room)
		return BACKEND_BUSY;
	leaf->out[leaf->out_nr++] = io;
	return BACKEND_QUEUED;
}

static void leaf_complete(unsigned idx, int result)
{
	struct leaf *leaf = &leaves[idx];
	struct backend_io *io = leaf->out[0];

	assert_true(leaf->out_nr > 0);
	memmove(leaf->out, leaf->out + 1, sizeof(leaf->out) - sizeof(leaf->out[0]));
	leaf->out_nr--;
	backend_io_complete(io, result);
}

static void leaf_cancel(struct backend_io *io)
{
	struct leaf *leaf = leaf_of(io->queue->device);

	leaf->cancelled++;
	assert_ptr_equal(io, leaf->out[0]);
	leaf_complete((unsigned)(leaf - leaves), -ECANCELED);
}

static const char *leaf_words = ""; /* in the identity of each */

static void leaf_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	snprintf(text, BACKEND_IDENTITY_BYTES, "leaf %u%s", (unsigned)(leaf_of(device) - leaves),
		 leaf_words);
}

static int leaf_stored_fd(const struct backend_device *device)
{
	return 100 + (int)(leaf_of(device) - leaves);
}

static const char *leaf_failure(const struct backend_device *device)
{
	return leaf_of(device)->failure;
}

static bool leaf_connection(const struct backend_queue *queue, unsigned idx,
			    struct net_connection_look *ret_connection)
{
	if (idx >= leaf_of(queue->device)->connection_nr)
		return false;
	ret_connection->connects = 10 * (unsigned)(leaf_of(queue->device) - leaves) + idx;
	return true;
}

static const struct backend backend_leaf = {
	.name = "leaf",
	.data = BACKEND_DATA_ANY,
	.open = leaf_open,
	.close = leaf_close,
	.submit = leaf_submit,
	.cancel = leaf_cancel,
	.identity = leaf_identity,
	.stored_fd = leaf_stored_fd,
	.failure = leaf_failure,
	.connection = leaf_connection,
};

/* ---- the rig ---- */

static struct rig {
	struct reactor reactor;
	struct backend_device *device;
	struct backend_queue *queue;
	struct backend_io io[DEPTH];
	unsigned done_nr;
} rig;

static struct backend_spec leaf_spec[LEAVES], root_spec;
static const uint64_t chunk_bytes[] = { 4096, 0 }; /* a stripe's configuration, without verify */
static char error[BACKEND_ERROR_BYTES];
static uint64_t had_bytes; /* of a device that is taken over, the size that it had */

static void rig_done(struct backend_io *io)
{
	(void)io;
	rig.done_nr++;
}

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	memset(&rig, 0, sizeof(rig));
	memset(leaves, 0, sizeof(leaves));
	close_nr = 0;
	had_bytes = 0;
	for (unsigned i = 0; i < LEAVES; i++) {
		leaves[i].size_bytes = 1 << 20;
		leaves[i].room = DEPTH;
		leaf_spec[i] = (struct backend_spec){ .ops = &backend_leaf,
						      .config = &leaves[i],
						      .as_idx = i };
	}
	return reactor_init(&rig.reactor, &params);
}

static void close_tree(void)
{
	for (unsigned i = 0; i < DEPTH; i++)
		backend_io_fini(&rig.io[i]);
	backend_queue_close(rig.queue);
	backend_close(rig.device);
	rig.queue = NULL;
	rig.device = NULL;
}

static int teardown(void **state)
{
	(void)state;
	close_tree();
	reactor_fini(&rig.reactor);
	return 0;
}

static inline int open_device(void)
{
	static const int stored_fds[BACKEND_STORED_MAX] = { 7, 8, 9, 10, 11 };
	const struct backend_open_params open_params = { .logical_block_bytes = 512,
							 .max_io_bytes = 1 << 20,
							 .queue_nr = 1,
							 .depth = DEPTH,
							 .size_bytes = had_bytes,
							 .stored_fds = stored_fds };

	return backend_open(&rig.device, &root_spec, "disk", &open_params, error, sizeof(error));
}

static inline void open_queue(void)
{
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, DEPTH), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(backend_io_init(&rig.io[i], rig.queue, i, rig_done), 0);
}

static void spec_stripe(unsigned nr)
{
	root_spec = (struct backend_spec){ .ops = &backend_stripe,
					   .config = &chunk_bytes,
					   .child = &leaf_spec[0] };
	for (unsigned i = 0; i < nr; i++) {
		leaf_spec[i].as = backend_stripe.children;
		leaf_spec[i].sibling = i + 1 < nr ? &leaf_spec[i + 1] : NULL;
	}
}

static inline void open_stripe(unsigned nr)
{
	spec_stripe(nr);
	assert_int_equal(open_device(), 0);
	open_queue();
}

static inline struct backend_io *fill(unsigned tag, enum backend_op op, uint64_t offset_bytes,
				      uint32_t length_bytes)
{
	static uint8_t buf[DEPTH][64 * 1024] __attribute__((aligned(4096)));
	struct backend_io *io = &rig.io[tag];

	io->op = op;
	io->flags = 0;
	io->offset_bytes = offset_bytes;
	io->length_bytes = length_bytes;
	io->buf = buf[tag];
	io->buf_index = -1;
	return io;
}

static inline void check_piece(const struct backend_io *piece, uint64_t offset_bytes,
			       uint32_t length_bytes, const void *buf)
{
	assert_int_equal(piece->offset_bytes, offset_bytes);
	assert_int_equal(piece->length_bytes, length_bytes);
	assert_ptr_equal(piece->buf, buf);
}

#endif
