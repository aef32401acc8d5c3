/*
 * resize, spec: a made-up node that sizes itself, as an image does: what is below it keeps its size
 * whatever becomes of the device's.
 */
#include "test/rig/tree_rig.h"
#include "storage/resize.h"

#define BOXED_BYTES 8192u

static const struct backend_child_option boxed_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "Where its bytes are." },
	{ .name = "backing", .nr_max = 1, .read_only = true, .help = "What it is over." },
	{ .name = NULL },
};

struct boxed_config {
	uint64_t size_bytes;
};

static const struct option boxed_options[] = {
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct boxed_config, size_bytes),
	  .max = INT64_MAX,
	  .help = "Of the image." },
	OPTION_END,
};

static uint64_t grown_bytes, shrunk_from_bytes, asked_from_bytes;
static unsigned leaf_calls;

static int boxed_open(struct backend_device *device)
{
	device->limits.size_bytes = BOXED_BYTES;
	return 0;
}

static int boxed_size_now(struct backend_device *device, uint64_t *ret_bytes)
{
	(void)device;
	*ret_bytes = 3 * BOXED_BYTES;
	return 0;
}

static int boxed_grow(struct backend_device *device, uint64_t size_bytes)
{
	(void)device;
	grown_bytes = size_bytes;
	return 0;
}

static enum backend_usage boxed_usage(struct backend_device *device, uint64_t start_bytes,
				      uint64_t end_bytes)
{
	(void)device, (void)end_bytes;
	asked_from_bytes = start_bytes;
	return BACKEND_USED;
}

static void boxed_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	(void)device, (void)end_bytes;
	shrunk_from_bytes = start_bytes;
}

static const struct backend_resize boxed_resize = {
	.size_now = boxed_size_now,
	.grow = boxed_grow,
	.usage = boxed_usage,
	.shrink = boxed_shrink,
};

static struct backend backend_boxed = {
	.name = "boxed",
	.data = BACKEND_DATA_ANY,
	.options = boxed_options,
	.size_option = &boxed_options[0],
	.config_bytes = sizeof(struct boxed_config),
	.children = boxed_children,
	.sizes_itself = true,
	.open = boxed_open,
	.submit = backend_forward,
	.cancel = backend_forward_cancel,
	.resize = &boxed_resize,
};

/* ---- leaves that can be resized, and are not to be ---- */

static int told_size_now(struct backend_device *device, uint64_t *ret_bytes)
{
	(void)device;
	leaf_calls++;
	*ret_bytes = 4096;
	return 0;
}

static int told_grow(struct backend_device *device, uint64_t size_bytes)
{
	(void)device, (void)size_bytes;
	leaf_calls++;
	return 0;
}

static enum backend_usage told_usage(struct backend_device *device, uint64_t start_bytes,
				     uint64_t end_bytes)
{
	(void)device, (void)start_bytes, (void)end_bytes;
	leaf_calls++;
	return BACKEND_UNUSED;
}

static void told_shrink(struct backend_device *device, uint64_t start_bytes, uint64_t end_bytes)
{
	(void)device, (void)start_bytes, (void)end_bytes;
	leaf_calls++;
}

static const struct backend_resize told_resize = {
	.size_now = told_size_now,
	.grow = told_grow,
	.usage = told_usage,
	.shrink = told_shrink,
};

static struct backend backend_told;

/* ---- registry, for the configuration ---- */

/* In the place of backends/registry.c. */
const struct backend *const backend_registry[] = { &backend_mem, &backend_stripe, &backend_boxed,
						   &backend_delay, NULL };

const struct backend *backend_find(const char *name)
{
	(void)name;
	return NULL;
}

/* A node that forwards, over the image, over two leaves; the device has this size. */
static void open_boxed(uint64_t device_bytes)
{
	static struct boxed_config config;
	static struct backend_spec boxed;
	static struct backend over;
	struct backend_open_params open_params = { .logical_block_bytes = 512,
						   .max_io_bytes = 1 << 20,
						   .queue_nr = 1,
						   .depth = DEPTH,
						   .size_bytes = device_bytes };

	grown_bytes = shrunk_from_bytes = asked_from_bytes = 0;
	leaf_calls = 0;
	backend_told = backend_leaf;
	backend_told.resize = &told_resize;
	over = (struct backend){ .name = "over",
				 .data = BACKEND_DATA_ANY,
				 .children = backend_one_child,
				 .submit = backend_forward };
	boxed = (struct backend_spec){ .ops = &backend_boxed,
				       .config = &config,
				       .child = &leaf_spec[0] };
	root_spec = (struct backend_spec){ .ops = &over, .child = &boxed };
	for (unsigned i = 0; i < 2; i++) {
		leaf_spec[i].ops = &backend_told;
		leaf_spec[i].as = &boxed_children[i];
		leaves[i].size_bytes = BOXED_BYTES;
	}
	leaf_spec[0].sibling = &leaf_spec[1];
	assert_int_equal(
		backend_open(&rig.device, &root_spec, "disk", &open_params, error, sizeof(error)),
		0);
}

static void test_only_the_node_is_asked(void **state)
{
	uint64_t bytes = 0;

	(void)state;
	open_boxed(0);
	assert_int_equal(rig.device->limits.size_bytes, BOXED_BYTES);
	assert_true(backend_can_resize(rig.device));
	assert_int_equal(backend_check_size(rig.device, 512, error, sizeof(error)), 0);
	assert_int_equal(backend_size_now(rig.device, &bytes, error, sizeof(error)), 0);
	assert_int_equal(bytes, 3 * BOXED_BYTES);
	assert_int_equal(backend_grow(rig.device, 2 * BOXED_BYTES, error, sizeof(error)), 0);
	assert_int_equal(grown_bytes, 2 * BOXED_BYTES);
	assert_int_equal(backend_usage(rig.device, 512, 1024), BACKEND_USED);
	assert_int_equal(asked_from_bytes, 512);
	backend_shrink(rig.device, 1024, 2048);
	assert_int_equal(shrunk_from_bytes, 1024);
	backend_set_size(rig.device, 2 * BOXED_BYTES);
	assert_int_equal(backend_size(rig.device->child), 2 * BOXED_BYTES);
	assert_int_equal(backend_size(rig.device->child->child), BOXED_BYTES);
	assert_int_equal(leaf_calls, 0);
}

/* The node lets requests in below by itself. */
static void test_sizes_below_are_the_nodes(void **state)
{
	const struct backend_device *boxed;

	(void)state;
	open_boxed(0);
	boxed = rig.device->child;
	backend_set_size(boxed->child, 1 << 30);
	assert_int_equal(backend_size(boxed->child), 1 << 30);
	assert_int_equal(backend_size(boxed), BOXED_BYTES);
}

static void test_size_is_for_life(void **state)
{
	(void)state;
	backend_boxed.resize = NULL;
	open_boxed(0);
	assert_false(backend_can_resize(rig.device));
	assert_int_equal(backend_grow(rig.device, 2 * BOXED_BYTES, error, sizeof(error)),
			 -EOPNOTSUPP);
	assert_string_equal(error, "the backend boxed cannot change its size");
	assert_int_equal(leaf_calls, 0);
	backend_boxed.resize = &boxed_resize;
}

/* A device that is taken over says its size to the image, not to what is below. */
static void test_size_of_a_device_taken_over(void **state)
{
	(void)state;
	open_boxed(4096);
	assert_int_equal(rig.device->child->open_params.size_bytes, 4096);
	assert_int_equal(rig.device->child->child->open_params.size_bytes, 0);
	assert_int_equal(rig.device->child->child->sibling->open_params.size_bytes, 0);
	/* That it is taken over they hear all the same. */
	assert_true(rig.device->child->open_params.is_taken_over);
	assert_true(rig.device->child->child->open_params.is_taken_over);
}

/* ---- the configuration ---- */

#define IMAGE(size, below)                                                                         \
	"{type: delay, backend: {type: boxed" size ", data: {type: mem, size: " below "}}}"

static uint64_t size_field(const struct backend_spec *spec)
{
	return *(const uint64_t *)((const char *)spec->config + spec->ops->size_option->offset);
}

/* How b is a: "equal", "resized", or "other". */
static const char *compared(const char *a_text, const char *b_text, uint64_t set_bytes)
{
	struct backend_spec *a = NULL, *b = NULL;
	uint64_t a_bytes = 0, b_bytes = 0;
	struct config_check ca, cb;
	const char *words = "other";

	check_good(&ca, a_text);
	check_good(&cb, b_text);
	assert_int_equal(backend_spec_parse(&a, ca.doc.root, &ca.errors), 0);
	assert_int_equal(backend_spec_parse(&b, cb.doc.root, &cb.errors), 0);
	if (backend_spec_equal(a, b))
		words = "equal";
	else if (backend_spec_resized(a, b, &a_bytes, &b_bytes))
		words = "resized";
	if (set_bytes) {
		backend_spec_set_size(a, set_bytes);
		assert_int_equal(size_field(a->child), set_bytes);
		assert_int_equal(size_field(a->child->child), 1 << 20);
	}
	if (a_bytes != b_bytes) {
		assert_int_equal(a_bytes, size_field(a->child));
		assert_int_equal(b_bytes, size_field(b->child));
	}
	backend_spec_free(a);
	backend_spec_free(b);
	check_fini(&ca);
	check_fini(&cb);
	return words;
}

static void test_config_sizes(void **state)
{
	(void)state;
	assert_string_equal(compared(IMAGE(", size: 1G", "1M"), IMAGE(", size: 1G", "1M"), 4096),
			    "equal");
	assert_string_equal(compared(IMAGE(", size: 1G", "1M"), IMAGE(", size: 2G", "1M"), 0),
			    "resized");
	assert_string_equal(compared(IMAGE(", size: 1G", "1M"), IMAGE(", size: 1G", "2M"), 0),
			    "other");
	assert_string_equal(compared(IMAGE(", size: 1G", "1M"), IMAGE(", size: 2G", "2M"), 0),
			    "other");
	assert_string_equal(compared(IMAGE("", "1M"), IMAGE("", "2M"), 0), "other");
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		RIG(test_only_the_node_is_asked),    RIG(test_sizes_below_are_the_nodes),
		RIG(test_size_is_for_life),	     RIG(test_size_of_a_device_taken_over),
		cmocka_unit_test(test_config_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
