/* FLUSHes that fail, and those that are owed: storage/owed.h. */
#include <sys/mman.h>
#include <unistd.h>

#include "storage/node.h"
#include "storage/owed.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"

#define DEPTH 4

/* ---- the storage: its FLUSHes end when the test says how ---- */

static struct backend_io *out[DEPTH];
static unsigned out_nr;
static bool is_done_at_once;
static int done_result;

static int leaf_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 20;
	device->limits.caps = BACKEND_CAP_FLUSH;
	return 0;
}

static enum backend_submit leaf_submit(struct backend_io *io)
{
	if (is_done_at_once) {
		io->result = done_result;
		return BACKEND_DONE;
	}
	out[out_nr++] = io;
	return BACKEND_QUEUED;
}

static const struct backend leaf = { .name = "leaf", .open = leaf_open, .submit = leaf_submit };

/* As a cache over its store. */
static bool has_copies;

static int pass_open(struct backend_device *device)
{
	device->child->has_copies = has_copies && device->child->ops == &leaf;
	return 0;
}

static const struct backend pass = { .name = "pass",
				     .children = backend_one_child,
				     .open = pass_open,
				     .submit = backend_forward,
				     .cancel = backend_forward_cancel };

/* ---- two nodes over it, and what the user hears ---- */

static struct reactor reactor;
static struct backend_spec leaf_spec, middle_spec, top_spec;
static struct backend_device *top;
static struct backend_queue *queue;
static struct backend_io io[DEPTH];
static unsigned ended_nr;
static int kept_fd;

static void on_done(struct backend_io *ended)
{
	(void)ended;
	ended_nr++;
}

static void open_tree(void)
{
	const struct backend_open_params params = { .logical_block_bytes = 512,
						    .max_io_bytes = 65536,
						    .queue_nr = 1,
						    .depth = DEPTH,
						    .owed_fd = kept_fd };
	char error[BACKEND_ERROR_BYTES];

	leaf_spec = (struct backend_spec){ .ops = &leaf, .as = backend_one_child };
	middle_spec =
		(struct backend_spec){ .ops = &pass, .as = backend_one_child, .child = &leaf_spec };
	top_spec = (struct backend_spec){ .ops = &pass, .child = &middle_spec };
	assert_int_equal(backend_open(&top, &top_spec, "disk", &params, error, sizeof(error)), 0);
	assert_int_equal(backend_queue_open(&queue, top, &reactor, 0, DEPTH), 0);
	memset(io, 0, sizeof(io));
	for (unsigned i = 0; i < DEPTH; i++) {
		assert_int_equal(backend_io_init(&io[i], queue, i, on_done), 0);
		list_init(&io[i].waiting);
	}
	out_nr = ended_nr = 0;
	is_done_at_once = false;
	done_result = 0;
}

static void close_tree(void)
{
	for (unsigned i = 0; i < DEPTH; i++)
		backend_io_fini(&io[i]);
	backend_queue_close(queue);
	backend_close(top);
}

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };

	(void)state;
	assert_int_equal(reactor_init(&reactor, &params), 0);
	kept_fd = 0;
	open_tree();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close_tree();
	reactor_fini(&reactor);
	if (kept_fd > 0)
		close(kept_fd);
	return 0;
}

static void begin_flush(unsigned tag)
{
	io[tag].op = BACKEND_FLUSH;
	assert_int_equal(backend_io_submit(&io[tag]), BACKEND_QUEUED);
}

/* The oldest one at the storage. */
static void end_flush(int result)
{
	struct backend_io *first = out[0];

	memmove(out, out + 1, --out_nr * sizeof(out[0]));
	backend_io_complete(first, result);
}

static int flush(int result_below)
{
	begin_flush(0);
	end_flush(result_below);
	return io[0].result;
}

static struct backend_device *middle(void)
{
	return top->child;
}

/* ---- tests ---- */

static void test_all_is_well(void **state)
{
	(void)state;
	assert_int_equal(flush(0), 0);
	assert_int_equal(flush(0), 0);
	assert_int_equal(backend_losses(top), 0);
	assert_false(backend_is_owed(top));
}

static void test_the_user_hears_his_own(void **state)
{
	(void)state;
	assert_int_equal(flush(-ENOSPC), -ENOSPC);
	assert_false(backend_is_owed(top));
	assert_true(backend_losses(top) > 0);
	assert_int_equal(flush(0), 0);
	assert_int_equal(ended_nr, 2);
}

static void test_one_of_a_node_fails_the_users(void **state)
{
	(void)state;
	/* The node's own FLUSH, of what is below it. */
	backend_owe(middle()->child);
	assert_true(backend_is_owed(top));
	assert_int_equal(flush(0), -EIO);
	assert_false(backend_is_owed(top));
	assert_int_equal(flush(0), 0);
}

static void test_each_node_is_told(void **state)
{
	struct backend_queue *below = queue->child->child;
	struct backend_io own = { 0 };

	(void)state;
	/* Of the middle one's own: it hears, and the user still does. */
	list_init(&own.waiting);
	own.queue = below;
	own.done = on_done;
	own.op = BACKEND_FLUSH;
	own.buf_index = -1;
	backend_owe(below->device);
	assert_int_equal(backend_io_submit(&own), BACKEND_QUEUED);
	end_flush(0);
	assert_int_equal(own.result, -EIO);
	assert_true(backend_is_owed(middle()));
	assert_false(backend_is_owed(below->device));
	assert_int_equal(flush(0), -EIO);
	assert_int_equal(flush(0), 0);
}

/* A node that has seen the loss goes on; the user still hears of it. */
static void test_a_node_has_seen_it(void **state)
{
	(void)state;
	backend_owe(middle()->child);
	backend_owed_take(middle()->child, backend_losses(middle()->child));
	backend_owed_take(middle(), backend_losses(middle()));
	assert_true(backend_is_owed(top));
	assert_int_equal(flush(0), -EIO);
	assert_false(backend_is_owed(middle()));
	assert_int_equal(flush(0), 0);
}

static void test_of_what_a_node_sees_later_it_hears(void **state)
{
	struct backend_queue *below = queue->child->child;
	uint32_t seen;

	(void)state;
	backend_owe(below->device);
	seen = backend_losses(below->device);
	backend_owe(below->device);
	backend_owed_take(below->device, seen);
	assert_true(backend_is_owed(below->device));
	backend_owed_take(below->device, seen + 1);
	assert_false(backend_is_owed(below->device));
	/* Counts only grow. */
	backend_owed_take(below->device, seen);
	assert_false(backend_is_owed(below->device));
	/* What was under way before it stands for what is lost. */
	begin_flush(0);
	backend_owe(below->device);
	backend_owed_take(below->device, backend_losses(below->device));
	end_flush(0);
	assert_int_equal(io[0].result, -EIO);
}

static void test_found_while_one_is_under_way(void **state)
{
	(void)state;
	begin_flush(0);
	backend_owe(middle());
	end_flush(0);
	assert_int_equal(io[0].result, -EIO);
	assert_int_equal(flush(0), 0);
}

static void test_all_that_are_under_way_fail(void **state)
{
	(void)state;
	begin_flush(0);
	begin_flush(1);
	end_flush(-EIO);
	assert_int_equal(io[0].result, -EIO);
	/* It stands for the same writes, and its storage says that all is well. */
	end_flush(0);
	assert_int_equal(io[1].result, -EIO);
	assert_int_equal(flush(0), 0);
}

/* A failure below is one loss, also for those above: what began after it hears nothing of it. */
static void test_one_loss_is_one_at_each_node(void **state)
{
	(void)state;
	begin_flush(0);
	begin_flush(1);
	end_flush(-EIO);
	assert_int_equal(backend_losses(top), 1);
	begin_flush(2);
	end_flush(0);
	assert_int_equal(io[1].result, -EIO);
	end_flush(0);
	assert_int_equal(io[2].result, 0);
	assert_int_equal(backend_losses(top), 1);
}

/* What others have, too, is no loss: the node above has one of its own if it fails. */
static void test_of_copies_the_node_above_loses(void **state)
{
	(void)state;
	middle()->child->has_copies = true;
	assert_int_equal(flush(-EIO), -EIO);
	assert_int_equal(backend_losses(middle()), 1);
	assert_int_equal(flush(0), 0);
}

static void test_at_once(void **state)
{
	(void)state;
	is_done_at_once = true;
	io[0].op = BACKEND_FLUSH;
	assert_int_equal(backend_io_submit(&io[0]), BACKEND_DONE);
	assert_int_equal(io[0].result, 0);
	backend_owe(middle());
	assert_int_equal(backend_io_submit(&io[0]), BACKEND_DONE);
	assert_int_equal(io[0].result, -EIO);
	done_result = -EIO;
	assert_int_equal(backend_io_submit(&io[0]), BACKEND_DONE);
	assert_int_equal(io[0].result, -EIO);
	done_result = 0;
	assert_int_equal(backend_io_submit(&io[0]), BACKEND_DONE);
	assert_int_equal(io[0].result, 0);
	assert_int_equal(ended_nr, 0);
}

static void test_others_are_not_judged(void **state)
{
	(void)state;
	backend_owe(middle());
	io[0].op = BACKEND_READ;
	io[0].buf = io;
	io[0].length_bytes = 512;
	assert_int_equal(backend_io_submit(&io[0]), BACKEND_QUEUED);
	end_flush(0);
	assert_int_equal(io[0].result, 0);
	assert_true(backend_is_owed(top));
}

/* ---- over a process ---- */

static void keep(void)
{
	close_tree();
	kept_fd = memfd_create("owed", MFD_CLOEXEC);
	assert_true(kept_fd > 0);
	assert_int_equal(ftruncate(kept_fd, BACKEND_OWED_BYTES), 0);
	open_tree();
}

static void open_again(void)
{
	close_tree();
	open_tree();
}

static void test_a_loss_is_kept(void **state)
{
	(void)state;
	keep();
	assert_int_equal(flush(0), 0);
	open_again();
	assert_int_equal(flush(0), 0);
	backend_owe(middle());
	open_again();
	open_again();
	assert_true(backend_is_owed(top));
	/* The nodes have asked. */
	assert_true(backend_was_owed(middle()));
	assert_false(backend_is_owed(middle()));
	assert_int_equal(flush(0), -EIO);
	assert_int_equal(flush(0), 0);
	open_again();
	assert_false(backend_was_owed(middle()));
	assert_int_equal(flush(0), 0);
}

/* Of before, too: nobody is owed it. */
static void test_copies_over_a_process(void **state)
{
	(void)state;
	keep();
	backend_owe(middle()->child);
	has_copies = true;
	open_again();
	has_copies = false;
	assert_false(backend_was_owed(middle()));
	assert_int_equal(flush(0), 0);
	assert_int_equal(flush(0), 0);
}

/* The answer has perhaps never reached the user. */
static void test_told_without_a_good_one(void **state)
{
	(void)state;
	keep();
	assert_int_equal(flush(-EIO), -EIO);
	open_again();
	assert_int_equal(flush(0), -EIO);
	assert_int_equal(flush(0), 0);
	open_again();
	assert_int_equal(flush(0), 0);
}

static void test_nothing_to_keep_it_in(void **state)
{
	const struct backend_open_params params = {
		.logical_block_bytes = 512, .queue_nr = 1, .depth = DEPTH, .owed_fd = 9999
	};
	struct backend_device *device;
	char error[BACKEND_ERROR_BYTES];

	(void)state;
	assert_int_equal(backend_open(&device, &top_spec, "disk", &params, error, sizeof(error)),
			 -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all_is_well, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_user_hears_his_own, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_of_a_node_fails_the_users, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_each_node_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_node_has_seen_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_of_what_a_node_sees_later_it_hears, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_found_while_one_is_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_that_are_under_way_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_loss_is_one_at_each_node, setup, teardown),
		cmocka_unit_test_setup_teardown(test_of_copies_the_node_above_loses, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others_are_not_judged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_loss_is_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_copies_over_a_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_told_without_a_good_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_to_keep_it_in, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
