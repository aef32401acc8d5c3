/* stripe: where requests go, in how many pieces, and what becomes of their ends; trees in
 * configuration. */
#include "test/rig/tree_rig.h"
#include "storage/resize.h"

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

/* A backend ends within a block: nothing behind its last whole chunk is the device's. */
static void test_stripe_leaves_out(void **state)
{
	const uint64_t odd_bytes = (1 << 20) + 3491, whole_bytes = (1 << 20) + 3072;
	struct backend_device *child;
	char words[BACKEND_NOTE_BYTES];

	(void)state;
	leaves[0].size_bytes = leaves[1].size_bytes = whole_bytes;
	open_stripe(2);
	assert_int_equal(rig.device->limits.size_bytes, 2 << 20);
	child = rig.device->child;
	assert_false(backend_note(rig.device, 0, words));
	child->tail.found_bytes = odd_bytes;
	assert_true(backend_note(rig.device, 0, words));
	assert_string_equal(words, "the storage ends within a block of 512 bytes: its last 3491 "
				   "bytes are left out");
	/* Which is only read: with zeroes up to the end of the block. */
	child->limits.size_bytes = whole_bytes + 512;
	assert_int_equal(backend_left_out(child), 3491);
	/* A smaller size was configured. */
	child->tail.found_bytes = odd_bytes + 4096;
	assert_int_equal(backend_left_out(child), 0);
	/* It ends with a block: such a remainder is no surprise. */
	child->tail.found_bytes = whole_bytes;
	assert_int_equal(backend_left_out(child), 0);
	/* Nobody has said how large its blocks are. */
	child->open_params.logical_block_bytes = 0;
	assert_int_equal(backend_left_out(child), 0);
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
	check_spec(
		"type: stripe\nbackends:\n- &c {type: stripe, backends: [&b {type: stripe, "
		"backends: [&a {type: stripe, backends: [&m {type: mem, size: 1M}, *m, *m, *m, "
		"*m]}, *a, *a, *a, *a]}, *b, *b, *b, *b]}\n- *c\n- *c\n",
		NULL,
		"f:3:90: backend: more than 256 backends in one device, or more than 128 of them "
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
		RIG(test_stripe_forwards_within_a_chunk),
		RIG(test_stripe_cuts),
		RIG(test_stripe_discards_one_range_of_each),
		RIG(test_stripe_piece_fails),
		RIG(test_stripe_cancel),
		RIG(test_stripe_sizes),
		RIG(test_stripe_leaves_out),
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_config_bomb),
		cmocka_unit_test(test_config_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
