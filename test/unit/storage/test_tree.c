/*
 * Trees: a made-up node with named children that cuts requests in two and issues requests of its
 * own, and stripe, over leaves that do as they are told. What such a node needs is in this file
 * alone: nothing else had to change for it.
 */
#include <errno.h>

#include "storage/node.h"
#include "storage/registry.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"

#define DEPTH 4
#define LEAVES 4
#define OWN_NR 2

/* ---- leaves: each with the requests that it has, of which the test completes one at a time ----
 */

struct leaf {
	uint64_t size_bytes;
	uint32_t caps;
	unsigned room, out_nr;
	struct backend_io *out[2 * DEPTH];
	unsigned opened, closed, cancelled;
	bool fails;
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

static void leaf_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	snprintf(text, BACKEND_IDENTITY_BYTES, "leaf %u", (unsigned)(leaf_of(device) - leaves));
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
			    struct backend_connection *ret_connection)
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

/* ---- the node: `data` and perhaps `backing`, the first half of a request here, the second there
 * ---- */

static const struct backend_child_option halves_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "For the first halves." },
	{ .name = "backing", .nr_max = 1, .help = "For the second halves." },
	{ .name = NULL },
};

struct halves_io {
	unsigned left;
	int result;
};

static unsigned own_done_nr;

static enum backend_submit halves_submit(struct backend_io *io)
{
	struct halves_io *h = io->priv;
	uint32_t half = io->length_bytes / 2;

	*h = (struct halves_io){ 0 };
	for (unsigned i = 0; i < 2; i++) {
		backend_piece(&io->child[i], io, i * half, half, io->offset_bytes + i * half);
		h->left += backend_child_submit(&io->child[i]) == BACKEND_QUEUED;
	}
	io->result = 0;
	return h->left ? BACKEND_QUEUED : BACKEND_DONE;
}

static void halves_child_done(struct backend_io *child)
{
	struct backend_io *io = child->parent;
	struct halves_io *h;

	if (!io) {
		own_done_nr++;
		backend_own_release(backend_own_of(child));
		return;
	}
	h = io->priv;
	if (child->result < 0)
		h->result = child->result;
	if (--h->left == 0)
		backend_io_complete(io, h->result);
}

static void halves_close(struct backend_device *device)
{
	(void)device;
	close_order[close_nr++] = LEAVES;
}

static const struct backend backend_halves = {
	.name = "halves",
	.data = BACKEND_DATA_ANY,
	.children = halves_children,
	.io_bytes = sizeof(struct halves_io),
	.own_nr = OWN_NR,
	.own_bytes = 4096,
	.close = halves_close,
	.submit = halves_submit,
	.child_done = halves_child_done,
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
static const uint64_t chunk_bytes = 4096;
static char error[BACKEND_ERROR_BYTES];

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
	own_done_nr = close_nr = 0;
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

static int open_device(void)
{
	static const int stored_fds[BACKEND_LEAVES_MAX] = { 7, 8, 9 };
	const struct backend_open_params open_params = { .logical_block_bytes = 512,
							 .max_io_bytes = 1 << 20,
							 .queue_nr = 1,
							 .depth = DEPTH,
							 .stored_fds = stored_fds };

	return backend_open(&rig.device, &root_spec, "disk", &open_params, error, sizeof(error));
}

static void open_queue(void)
{
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, DEPTH), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(backend_io_init(&rig.io[i], rig.queue, i, rig_done), 0);
}

static void spec_halves(void)
{
	root_spec = (struct backend_spec){ .ops = &backend_halves, .child = &leaf_spec[0] };
	leaf_spec[0].as = &halves_children[0];
	leaf_spec[0].sibling = &leaf_spec[1];
	leaf_spec[1].as = &halves_children[1];
	leaf_spec[1].as_idx = 0;
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

static void open_halves(void)
{
	spec_halves();
	assert_int_equal(open_device(), 0);
	open_queue();
}

static void open_stripe(unsigned nr)
{
	spec_stripe(nr);
	assert_int_equal(open_device(), 0);
	open_queue();
}

static struct backend_io *fill(unsigned tag, enum backend_op op, uint64_t offset_bytes,
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

/* ---- pieces ---- */

static void check_piece(const struct backend_io *piece, uint64_t offset_bytes,
			uint32_t length_bytes, const void *buf)
{
	assert_int_equal(piece->offset_bytes, offset_bytes);
	assert_int_equal(piece->length_bytes, length_bytes);
	assert_ptr_equal(piece->buf, buf);
}

static void test_pieces_are_windows(void **state)
{
	struct backend_io *io;
	uint8_t *buf;

	(void)state;
	open_halves();
	io = fill(2, BACKEND_WRITE, 8192, 2048);
	buf = io->buf;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	check_piece(leaves[0].out[0], 8192, 1024, buf);
	check_piece(leaves[1].out[0], 9216, 1024, buf + 1024);
	assert_int_equal(leaves[1].out[0]->tag, 2);
	leaf_complete(1, -ENOSPC);
	assert_int_equal(rig.done_nr, 0);
	leaf_complete(0, 0);
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(io->result, -ENOSPC);
}

/* In a registered buffer, and with the driver alone. */
static void test_windows_without_memory(void **state)
{
	struct backend_io *io;

	(void)state;
	open_halves();
	io = fill(0, BACKEND_READ, 0, 2048);
	io->buf = NULL;
	io->buf_index = 5;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	check_piece(leaves[1].out[0], 1024, 1024, (void *)1024);
	assert_int_equal(leaves[1].out[0]->buf_index, 5);
	leaf_complete(0, 0);
	leaf_complete(1, 0);
	io->buf_index = -1;
	io->driver_fd = 3;
	io->driver_pos = 1 << 20;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	check_piece(leaves[1].out[0], 1024, 1024, NULL);
	assert_int_equal(leaves[1].out[0]->driver_pos, (1 << 20) + 1024);
	leaf_complete(0, 0);
	leaf_complete(1, 0);
	assert_int_equal(rig.done_nr, 2);
}

/* A busy child holds up only what is for it. */
static void test_busy_child(void **state)
{
	(void)state;
	open_halves();
	leaves[0].room = 1;
	for (unsigned tag = 0; tag < 3; tag++)
		assert_int_equal(backend_io_submit(fill(tag, BACKEND_WRITE, 0, 1024)),
				 BACKEND_QUEUED);
	assert_int_equal(leaves[0].out_nr, 1);
	assert_int_equal(leaves[1].out_nr, 3);
	for (unsigned i = 0; i < 3; i++) {
		leaf_complete(1, 0);
		leaf_complete(0, 0);
		assert_int_equal(rig.done_nr, i + 1);
		reactor_turn(&rig.reactor, false);
	}
}

static void test_where(void **state)
{
	struct backend_wait wait;

	(void)state;
	open_halves();
	assert_int_equal(backend_io_submit(fill(0, BACKEND_WRITE, 0, 1024)), BACKEND_QUEUED);
	assert_string_equal(backend_io_where(&rig.io[0], &wait)->name, "disk/data");
	leaf_complete(0, 0);
	assert_string_equal(backend_io_where(&rig.io[0], &wait)->name, "disk/backing");
	leaf_complete(1, 0);
	assert_null(backend_io_where(&rig.io[0], &wait));
}

/* ---- requests of a node's own ---- */

static void test_own_requests(void **state)
{
	struct backend_own *own[OWN_NR];
	struct backend_io *io;

	(void)state;
	open_halves();
	for (unsigned i = 0; i < OWN_NR; i++) {
		own[i] = backend_own_take(rig.queue);
		assert_non_null(own[i]);
		assert_int_equal((uintptr_t)own[i]->buf % 4096, 0);
		memset(own[i]->buf, 1, 4096);
	}
	assert_null(backend_own_take(rig.queue));
	io = &own[1]->child[1];
	io->op = BACKEND_READ;
	io->length_bytes = 4096;
	io->buf = own[1]->buf;
	assert_int_equal(backend_child_submit(io), BACKEND_QUEUED);
	assert_int_equal(leaves[1].out[0]->tag, DEPTH + 1);
	assert_ptr_equal(backend_own_of(io), own[1]);
	leaf_complete(1, 0);
	assert_int_equal(own_done_nr, 1);
	assert_ptr_equal(backend_own_take(rig.queue), own[1]);
}

static void test_memory_is_counted(void **state)
{
	size_t without, with;

	(void)state;
	spec_stripe(2);
	without = backend_spec_queue_bytes(&root_spec, DEPTH);
	spec_halves();
	with = backend_spec_queue_bytes(&root_spec, DEPTH);
	assert_true(with >= without + OWN_NR * 4096);
}

/* ---- open, close, names ---- */

static void test_second_child_fails(void **state)
{
	(void)state;
	spec_stripe(3);
	leaves[1].fails = true;
	assert_int_equal(open_device(), -ENXIO);
	assert_string_equal(error, "backends/1: is not there");
	assert_int_equal(leaves[0].closed, 1);
	assert_int_equal(leaves[2].opened, 0);
	assert_null(rig.device);
}

static void test_closed_from_the_top(void **state)
{
	(void)state;
	open_halves();
	close_tree();
	assert_int_equal(close_nr, 3);
	assert_int_equal(close_order[0], LEAVES);
}

static void test_leaves_are_asked(void **state)
{
	const struct backend_device *node;
	struct backend_connection c;
	char text[BACKEND_IDENTITY_BYTES];

	(void)state;
	open_stripe(3);
	assert_int_equal(backend_stored_fd(rig.device, 2), 102);
	assert_int_equal(backend_stored_fd(rig.device, 3), -1);
	backend_identity(rig.device, text);
	assert_string_equal(text, "stripe 4096[leaf 0,leaf 1,leaf 2]");
	assert_null(backend_failure(rig.device, NULL));
	leaves[2].failure = "it is another one";
	assert_string_equal(backend_failure(rig.device, &node), "it is another one");
	assert_string_equal(node->name, "disk/backends/2");
	leaves[0].connection_nr = 2;
	leaves[2].connection_nr = 1;
	assert_true(backend_connection(rig.queue, 1, &c));
	assert_int_equal(c.connects, 1);
	assert_true(backend_connection(rig.queue, 2, &c));
	assert_int_equal(c.connects, 20);
	assert_string_equal(c.node, "disk/backends/2");
	assert_false(backend_connection(rig.queue, 3, &c));
}

/* Too long to be stored: told apart all the same. */
static void test_long_identity(void **state)
{
	static struct backend_spec many[20];
	char first[BACKEND_IDENTITY_BYTES], second[BACKEND_IDENTITY_BYTES];

	(void)state;
	spec_stripe(2);
	for (unsigned i = 0; i < 20; i++) {
		many[i] = leaf_spec[0];
		many[i].sibling = i < 19 ? &many[i + 1] : NULL;
	}
	root_spec.child = many;
	assert_int_equal(open_device(), 0);
	backend_identity(rig.device, first);
	backend_close(rig.device);
	many[19].config = &leaves[1];
	assert_int_equal(open_device(), 0);
	backend_identity(rig.device, second);
	assert_true(strlen(first) < BACKEND_IDENTITY_BYTES - 1);
	assert_string_not_equal(first, second);
}

static void test_limits_are_joined(void **state)
{
	(void)state;
	leaves[1].size_bytes = 8192 + 512;
	leaves[0].caps = BACKEND_CAP_FLUSH | BACKEND_CAP_FUA | BACKEND_CAP_DISCARD;
	leaves[1].caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES;
	open_stripe(3);
	assert_int_equal(rig.device->limits.size_bytes, 3 * 8192);
	assert_int_equal(rig.device->limits.boundary_bytes, 4096);
	/* leaf 2 can nothing; a cache of one is a cache, which all that have one can write through.
	 */
	assert_int_equal(rig.device->limits.caps, BACKEND_CAP_FLUSH | BACKEND_CAP_FUA);
	leaves[2].caps = BACKEND_CAP_FLUSH;
	close_tree();
	open_stripe(3);
	assert_int_equal(rig.device->limits.caps, BACKEND_CAP_FLUSH);
}

/* ---- stripe ---- */

static void test_stripe_forwards_within_a_chunk(void **state)
{
	struct backend_io *io;

	(void)state;
	open_stripe(3);
	io = fill(0, BACKEND_WRITE, 4 * 4096 + 512, 1024);
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	check_piece(leaves[1].out[0], 4096 + 512, 1024, io->buf);
	leaf_complete(1, -EIO);
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(io->result, -EIO);
}

/* Chunks 2 to 6 of three leaves: of leaf 2 two chunks, one after the other. */
static void test_stripe_cuts(void **state)
{
	struct backend_io *io;
	uint8_t *buf;

	(void)state;
	open_stripe(3);
	io = fill(0, BACKEND_WRITE, 3 * 4096 - 512, 512 + 3 * 4096 + 1024);
	buf = io->buf;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	check_piece(leaves[2].out[0], 4096 - 512, 512, buf);
	check_piece(leaves[0].out[0], 4096, 4096, buf + 512);
	check_piece(leaves[1].out[0], 4096, 4096, buf + 512 + 4096);
	leaf_complete(2, 0);
	check_piece(leaves[2].out[0], 4096, 4096, buf + 512 + 2 * 4096);
	leaf_complete(0, 0);
	check_piece(leaves[0].out[0], 8192, 1024, buf + 512 + 3 * 4096);
	leaf_complete(0, 0);
	leaf_complete(1, 0);
	assert_int_equal(rig.done_nr, 0);
	leaf_complete(2, 0);
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(io->result, 0);
}

static void test_stripe_discards_one_range_of_each(void **state)
{
	struct backend_io *io;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		leaves[i].caps = BACKEND_CAP_DISCARD | BACKEND_CAP_FLUSH;
	open_stripe(3);
	io = fill(0, BACKEND_DISCARD, 4096 + 1024, 8 * 4096);
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	check_piece(leaves[0].out[0], 4096, 2 * 4096 + 1024, leaves[0].out[0]->buf);
	check_piece(leaves[1].out[0], 1024, 3 * 4096 - 1024, leaves[1].out[0]->buf);
	check_piece(leaves[2].out[0], 0, 3 * 4096, leaves[2].out[0]->buf);
	for (unsigned i = 0; i < 3; i++)
		leaf_complete(i, 0);
	assert_int_equal(rig.done_nr, 1);
	io = fill(1, BACKEND_FLUSH, 0, 0);
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rig.done_nr, 1);
		leaf_complete(i, 0);
	}
	assert_int_equal(rig.done_nr, 2);
}

/* What has failed begins nothing more, and waits for what is under way. */
static void test_stripe_piece_fails(void **state)
{
	struct backend_io *io;

	(void)state;
	open_stripe(2);
	io = fill(0, BACKEND_READ, 0, 6 * 4096);
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	leaf_complete(0, -ENOSPC);
	assert_int_equal(leaves[0].out_nr, 0);
	assert_int_equal(rig.done_nr, 0);
	leaf_complete(1, -EIO);
	assert_int_equal(leaves[1].out_nr, 0);
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(io->result, -ENOSPC);
}

static void test_stripe_cancel(void **state)
{
	struct backend_io *io;

	(void)state;
	open_stripe(3);
	leaves[1].room = 1;
	assert_int_equal(backend_io_submit(fill(1, BACKEND_READ, 4096, 4096)), BACKEND_QUEUED);
	io = fill(0, BACKEND_READ, 0, 6 * 4096);
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
	backend_io_cancel(io); /* two are at their leaves, one waits for a busy one */
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(io->result, -EIO);
	assert_int_equal(leaves[0].cancelled + leaves[2].cancelled, 2);
	backend_io_cancel(&rig.io[1]);
	assert_int_equal(leaves[1].cancelled, 1);
	assert_int_equal(rig.done_nr, 2);
}

static void test_stripe_sizes(void **state)
{
	uint64_t bytes;

	(void)state;
	open_stripe(3);
	assert_int_equal(rig.device->limits.size_bytes, 3 << 20);
	assert_int_equal(backend_check_size(rig.device, 3 * 8192, error, sizeof(error)), 0);
	assert_int_equal(backend_check_size(rig.device, 3 * 8192 + 4096, error, sizeof(error)),
			 -EINVAL);
	assert_string_equal(error, "stripe cannot have 28672 bytes: the next size that it can have "
				   "is 36864");
	backend_set_size(rig.device, 3 * 8192);
	assert_int_equal(backend_size(rig.device->child->sibling), 8192);
	assert_false(backend_can_resize(rig.device));
	assert_int_equal(backend_size_now(rig.device, &bytes, error, sizeof(error)), -EOPNOTSUPP);
}

/* ---- the configuration ---- */

static void check_spec(const char *yaml, const char *text, const char *errors)
{
	char buf[BACKEND_SPEC_TEXT_BYTES];
	struct backend_spec *spec = NULL;
	struct config_check c;
	int ret;

	check_good(&c, yaml);
	ret = backend_spec_parse(&spec, c.doc.root, &c.errors);
	check_errors(&c.errors, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	if (text)
		assert_string_equal(backend_spec_text(spec, buf), text);
	assert_true(*errors || backend_spec_equal(spec, spec));
	backend_spec_free(spec);
	check_fini(&c);
}

static void test_config(void **state)
{
	(void)state;
	check_spec("{type: stripe, backends: [{type: mem, size: 1M}, {type: mem, size: 1M}, {type: "
		   "delay, backend: {type: mem, size: 1M}}]}",
		   "stripe > (2 mem, delay > mem)", "");
	check_spec("{type: stripe, backends: [{type: mem, size: 1M}]}", NULL,
		   "f:1:26: backends: 1 backends, and it takes 2 to 32\n");
	check_spec("{type: stripe, backends: {type: mem, size: 1M}}", NULL,
		   "f:1:26: backends: expected a list of backends\n");
	check_spec("{type: stripe}", NULL,
		   "f:1:1: \"backends\" is missing: stripe stands over other backends\n");
	check_spec("{type: stripe, backends: [{type: mem}, {type: mem, size: 1M, sise: 2}]}", NULL,
		   "f:1:27: \"size\" is missing\n"
		   "f:1:62: unknown key \"sise\" (did you mean \"size\"?)\n");
}

/* Few lines whose aliases stand for millions of backends. */
static void test_config_bomb(void **state)
{
	(void)state;
	check_spec("type: stripe\nbackends:\n- &c {type: stripe, backends: [&b {type: stripe, "
		   "backends: [&a {type: stripe, backends: [&m {type: mem, size: 1M}, *m, *m, *m, "
		   "*m]}, *a, *a, *a, *a]}, *b, *b, *b, *b]}\n- *c\n- *c\n",
		   NULL,
		   "f:3:90: backend: more than 128 backends in one device, or more than 64 of them "
		   "with nothing below\n");
}

static uint64_t size_of(const struct backend_spec *spec, unsigned idx)
{
	return *(const uint64_t *)((const char *)backend_spec_leaf(spec, idx)->config +
				   backend_spec_leaf(spec, idx)->ops->size_option->offset);
}

static void test_config_sizes(void **state)
{
	static const char yaml[] = "{type: stripe, backends: [{type: mem, size: %s}, {type: mem, "
				   "size: 1M}]}";
	struct backend_spec *a = NULL, *b = NULL;
	uint64_t a_bytes, b_bytes;
	struct config_check ca, cb;
	char text[2][128];

	(void)state;
	snprintf(text[0], sizeof(text[0]), yaml, "512k");
	snprintf(text[1], sizeof(text[1]), yaml, "1M");
	check_good(&ca, text[0]);
	check_good(&cb, text[1]);
	assert_int_equal(backend_spec_parse(&a, ca.doc.root, &ca.errors), 0);
	assert_int_equal(backend_spec_parse(&b, cb.doc.root, &cb.errors), 0);
	assert_false(backend_spec_equal(a, b));
	assert_true(backend_spec_resized(a, b, &a_bytes, &b_bytes));
	assert_int_equal(a_bytes, 1 << 20);
	assert_int_equal(b_bytes, 2 << 20);
	backend_spec_set_size(a, 4 << 20);
	assert_int_equal(size_of(a, 0), 2 << 20);
	assert_int_equal(size_of(a, 1), 2 << 20);
	backend_spec_free(a);
	backend_spec_free(b);
	check_fini(&ca);
	check_fini(&cb);
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		RIG(test_pieces_are_windows),
		RIG(test_windows_without_memory),
		RIG(test_busy_child),
		RIG(test_where),
		RIG(test_own_requests),
		RIG(test_memory_is_counted),
		RIG(test_second_child_fails),
		RIG(test_closed_from_the_top),
		RIG(test_leaves_are_asked),
		RIG(test_long_identity),
		RIG(test_limits_are_joined),
		RIG(test_stripe_forwards_within_a_chunk),
		RIG(test_stripe_cuts),
		RIG(test_stripe_discards_one_range_of_each),
		RIG(test_stripe_piece_fails),
		RIG(test_stripe_cancel),
		RIG(test_stripe_sizes),
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_config_bomb),
		cmocka_unit_test(test_config_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
