/*
 * Trees: a made-up node with named children that cuts requests in two and issues requests of its
 * own, over leaves that do as they are told. What such a node needs is in this file
 * alone: nothing else had to change for it.
 */
#include <sys/mman.h>

#include "test/rig/tree_rig.h"
#include "net/session_look.h"

#define OWN_NR 2

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

static void spec_halves(void)
{
	root_spec = (struct backend_spec){ .ops = &backend_halves, .child = &leaf_spec[0] };
	leaf_spec[0].as = &halves_children[0];
	leaf_spec[0].sibling = &leaf_spec[1];
	leaf_spec[1].as = &halves_children[1];
	leaf_spec[1].as_idx = 0;
}

static void open_halves(void)
{
	spec_halves();
	assert_int_equal(open_device(), 0);
	open_queue();
}

/* ---- pieces ---- */

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

static bool is_in_memory(void *page)
{
	unsigned char in_core = 0;

	assert_int_equal(mincore(page, 4096, &in_core), 0);
	return in_core & 1;
}

/* Idle devices are many: a buffer takes memory when a request uses it, and not before. */
static void test_own_buffers_come_with_their_use(void **state)
{
	struct backend_own *own[OWN_NR];

	(void)state;
	open_halves();
	for (unsigned i = 0; i < OWN_NR; i++)
		own[i] = backend_own_take(rig.queue);
	for (unsigned i = 0; i < OWN_NR; i++)
		assert_false(is_in_memory(own[i]->buf));
	memset(own[1]->buf, 1, 4096);
	assert_true(is_in_memory(own[1]->buf));
	assert_false(is_in_memory(own[0]->buf));
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
	struct net_connection_look c;
	char text[BACKEND_IDENTITY_BYTES];

	(void)state;
	open_stripe(3);
	assert_int_equal(backend_stored_nr(rig.device), 3);
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

static int kept_with;

static int keeper_open(struct backend_device *device)
{
	kept_with = device->open_params.stored_fd;
	return 0;
}

static int keeper_stored_fd(const struct backend_device *device)
{
	(void)device;
	return 300;
}

/* A node that has something to keep is numbered before what is below it, others not at all. */
static void test_nodes_keep_descriptors(void **state)
{
	static const int kept[] = { 100, 300, 101, 102, 103, -1 };
	struct backend backend_keeper = backend_halves;
	struct backend_spec keeper = { .ops = &backend_keeper,
				       .as = backend_stripe.children,
				       .as_idx = 1,
				       .child = &leaf_spec[1],
				       .sibling = &leaf_spec[3] };

	(void)state;
	backend_keeper.open = keeper_open;
	backend_keeper.stored_fd = keeper_stored_fd;
	spec_stripe(4);
	leaf_spec[0].sibling = &keeper;
	for (unsigned i = 0; i < 2; i++)
		leaf_spec[1 + i].as = &halves_children[i];
	leaf_spec[2].sibling = NULL;
	assert_int_equal(open_device(), 0);
	assert_int_equal(backend_stored_nr(rig.device), 5);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(backend_stored_fd(rig.device, i), kept[i]);
	assert_int_equal(kept_with, 8);
	assert_int_equal(leaves[0].stored_fd, 7);
	assert_int_equal(leaves[1].stored_fd, 9);
	assert_int_equal(leaves[3].stored_fd, 11);
	/* Borrowed until open has returned. */
	assert_int_equal(rig.device->child->sibling->open_params.stored_fd, 0);
	close_tree();
}

static void mark_nodes(const struct backend_device *device, bool seen[static 8], unsigned nr)
{
	assert_true(device->node_idx < nr);
	assert_false(seen[device->node_idx]);
	seen[device->node_idx] = true;
	for (const struct backend_device *c = device->child; c; c = c->sibling)
		mark_nodes(c, seen, nr);
}

static void test_nodes_are_numbered(void **state)
{
	struct backend_spec inner = { .ops = &backend_halves, .as = &halves_children[0] };
	bool seen[8] = { false };

	(void)state;
	spec_halves();
	inner.child = root_spec.child;
	inner.sibling = &leaf_spec[2];
	leaf_spec[2].as = &halves_children[1];
	root_spec.child = &inner;
	assert_int_equal(open_device(), 0);
	assert_int_equal(backend_node_nr(rig.device), 5);
	assert_int_equal(rig.device->node_idx, 0);
	mark_nodes(rig.device, seen, 5);
	open_queue();
}

/* A node knows which child of its parent it is. */
static void test_nodes_know_their_place(void **state)
{
	(void)state;
	spec_halves();
	assert_int_equal(open_device(), 0);
	assert_null(rig.device->as);
	assert_ptr_equal(rig.device->child->as, &halves_children[0]);
	assert_ptr_equal(rig.device->child->sibling->as, &halves_children[1]);
}

static const struct backend_child_option over_base_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "It is written." },
	{ .name = "base", .nr_max = 1, .read_only = true, .help = "It is only read." },
	{ .name = NULL },
};

static struct backend backend_over_base;

/* data and base, which is a node over leaf 1. */
static void open_over_base(void)
{
	static struct backend_spec base;

	backend_over_base = backend_halves;
	backend_over_base.children = over_base_children;
	base = (struct backend_spec){ .ops = &backend_stripe,
				      .config = &chunk_bytes,
				      .as = &over_base_children[1],
				      .child = &leaf_spec[1] };
	root_spec = (struct backend_spec){ .ops = &backend_over_base, .child = &leaf_spec[0] };
	leaf_spec[0].as = &over_base_children[0];
	leaf_spec[0].sibling = &base;
	leaf_spec[1].as = backend_stripe.children;
	assert_int_equal(open_device(), 0);
}

/* Whatever the device is. */
static void test_base_is_only_read(void **state)
{
	const struct backend_device *base;

	(void)state;
	leaves[0].caps = BACKEND_CAP_DISCARD | BACKEND_CAP_GROWS;
	leaves[1].caps = BACKEND_CAP_READ_ONLY | BACKEND_CAP_ROTATIONAL | BACKEND_CAP_FLUSH;
	open_over_base();
	base = rig.device->child->sibling;
	assert_false(rig.device->open_params.read_only);
	assert_false(rig.device->child->open_params.read_only);
	assert_true(base->open_params.read_only);
	assert_true(base->child->open_params.read_only);
	assert_int_equal(rig.device->limits.caps, leaves[0].caps | BACKEND_CAP_ROTATIONAL);
}

/* It is kept as JSON: of a name that was cut, or never was UTF-8, too. */
static void test_identity_of_any_bytes(void **state)
{
	char text[BACKEND_IDENTITY_BYTES];

	(void)state;
	leaf_words = " \xe6\xbc\xa2\xff\xe6\xbc";
	open_stripe(2);
	backend_identity(rig.device, text);
	leaf_words = "";
	assert_string_equal(text, "stripe 4096[leaf 0 \xe6\xbc\xa2???,leaf 1 \xe6\xbc\xa2???]");
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
	leaves[0].caps =
		BACKEND_CAP_FLUSH | BACKEND_CAP_FUA | BACKEND_CAP_DISCARD | BACKEND_CAP_GROWS;
	leaves[1].caps = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES | BACKEND_CAP_GROWS;
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

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		RIG(test_pieces_are_windows),
		RIG(test_windows_without_memory),
		RIG(test_busy_child),
		RIG(test_where),
		RIG(test_own_requests),
		RIG(test_own_buffers_come_with_their_use),
		RIG(test_memory_is_counted),
		RIG(test_second_child_fails),
		RIG(test_closed_from_the_top),
		RIG(test_leaves_are_asked),
		RIG(test_long_identity),
		RIG(test_identity_of_any_bytes),
		RIG(test_limits_are_joined),
		RIG(test_nodes_are_numbered),
		RIG(test_nodes_know_their_place),
		RIG(test_base_is_only_read),
		RIG(test_nodes_keep_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
