/*
 * What can be seen through nodes that share trees: counted once, by one device and from one of its
 * queues. And what two configurations share.
 */
#include "net/session_look.h"
#include "storage/cache_control.h"
#include "test/unit/filters/shared_rig.h"

/* ---- a leaf with something of each kind to look at ---- */

static void look_cache(const struct backend_queue *queue, struct backend_cache_look *look)
{
	look->mode = "readthrough";
	look->block_nr = 100;
	look->hits += 10;
	look->is_off = queue->idx > 0;
}

static bool look_connection(const struct backend_queue *queue, unsigned idx,
			    struct net_connection_look *ret_connection)
{
	if (idx > 1)
		return false;
	*ret_connection = (struct net_connection_look){ .connects = queue->depth + idx };
	return true;
}

static void look_file(const struct backend_queue *queue, struct backend_image_look *look)
{
	(void)queue;
	look->has_stored = true;
	look->stored_bytes += 4096;
}

static void library(struct backend_library_look *ret_look)
{
	*ret_look = (struct backend_library_look){ .name = "libgate" };
}

static const struct backend_cache_ops cache_ops;
static struct backend seen; /* a gate, with these */

static void look_image(const struct backend_queue *queue, struct backend_image_look *look)
{
	(void)queue;
	look->cluster_bytes = 65536;
	look->misses += 3;
}

static const struct option no_options[] = { OPTION_END };

static const struct backend backend_image_node = { .name = "image",
						   .options = no_options,
						   .is_image_format = true,
						   .children = backend_one_child,
						   .submit = backend_forward,
						   .cancel = backend_forward_cancel,
						   .look = look_image };

static struct backend_queue *second[USERS]; /* queue 1 of each; the rig has queue 0 */

static int look_setup(void **state)
{
	memset(second, 0, sizeof(second));
	seen = backend_gate;
	seen.look_cache = look_cache;
	seen.connection = look_connection;
	seen.look = look_file;
	seen.library = library;
	seen.cache_ops = &cache_ops;
	return setup_other_home(state);
}

static int look_teardown(void **state)
{
	for (unsigned i = 0; i < USERS; i++)
		backend_queue_close(second[i]);
	return teardown(state);
}

static void start(unsigned idx)
{
	struct user *u = &users[idx];

	open_user(u);
	open_queue(u, &rig.control);
	assert_int_equal(backend_queue_open(&second[idx], u->device, &rig.control, 1, 1), 0);
}

static void stop(unsigned idx)
{
	backend_queue_close(second[idx]);
	second[idx] = NULL;
	close_queue(&users[idx]);
	close_user(&users[idx]);
}

static void use_seen(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		users[i].below.ops = &seen;
}

/* ---- caches ---- */

/* As the device adds them up. */
static void check_cache(unsigned idx, bool is_repeated)
{
	struct backend_cache_look look = { 0 };

	assert_true(backend_cache_at(users[idx].queue, 0, &look));
	assert_true(backend_cache_at(second[idx], 0, &look));
	assert_int_equal(look.hits, 10);
	assert_int_equal(look.block_nr, 100);
	assert_false(look.is_off);
	assert_string_equal(look.node, "shared/s");
	assert_int_equal(look.is_repeated, is_repeated);
	assert_false(backend_cache_at(users[idx].queue, 1, &look));
	assert_false(backend_cache_at(second[idx], 1, &look));
}

static void test_caches(void **state)
{
	char words[BACKEND_ERROR_BYTES];

	(void)state;
	use_seen(2);
	start(0);
	start(1);
	check_cache(0, false);
	check_cache(1, true);
	/* Commands reach it. */
	assert_ptr_equal(backend_cache_node(users[1].device, NULL, words, sizeof(words)),
			 tree_of_user(&users[0])->device);
	stop(0);
	check_cache(1, false);
}

/* What is the device's own is counted from each queue. */
static void test_own_cache_above(void **state)
{
	struct backend own = backend_image_node;
	struct backend_cache_look look = { 0 };
	struct backend_spec top = { .ops = &own, .child = &users[0].spec };

	(void)state;
	use_seen(2);
	own.is_image_format = false;
	own.look_cache = look_cache;
	start(1);
	users[0].spec.as = backend_one_child;
	users[2].spec = top;
	start(2);
	assert_true(backend_cache_at(users[2].queue, 0, &look));
	assert_true(backend_cache_at(second[2], 0, &look));
	assert_int_equal(look.hits, 20);
	assert_false(look.is_repeated);
	assert_string_equal(look.node, "disk");
	memset(&look, 0, sizeof(look));
	assert_true(backend_cache_at(users[2].queue, 1, &look));
	assert_true(backend_cache_at(second[2], 1, &look));
	assert_int_equal(look.hits, 10);
	assert_true(look.is_repeated);
	stop(2);
}

/* ---- connections ---- */

static void test_connections(void **state)
{
	struct net_connection_look look;

	(void)state;
	use_seen(2);
	start(0);
	start(1);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned idx = 0; idx < 2; idx++) {
			assert_true(backend_connection(users[i].queue, idx, &look));
			assert_int_equal(look.connects, SHARED_DEPTH + idx);
			assert_string_equal(look.node, "shared/s");
			assert_int_equal(look.is_repeated, i);
		}
		assert_false(backend_connection(users[i].queue, 2, &look));
		assert_false(backend_connection(second[i], 0, &look));
	}
}

static void test_library(void **state)
{
	struct backend_library_look look;

	(void)state;
	use_seen(1);
	open_user(&users[0]);
	assert_true(backend_library(users[0].device, &look));
	assert_string_equal(look.name, "libgate");
}

/* ---- images ---- */

/* An image of the device over a file that is shared. */
static void test_image_above(void **state)
{
	struct backend_spec top = { .ops = &backend_image_node, .child = &users[0].spec };
	struct backend_image_look look = { 0 };

	(void)state;
	use_seen(1);
	users[0].spec.as = backend_one_child;
	users[1].spec = top;
	start(1);
	assert_true(backend_image(users[1].queue, 0, &look));
	assert_true(backend_image(second[1], 0, &look));
	assert_int_equal(look.misses, 6);
	assert_int_equal(look.stored_bytes, 4096);
	assert_false(look.is_repeated);
	assert_int_equal(look.depth, 0);
	assert_false(backend_image(users[1].queue, 1, &look));
	stop(1);
}

/* An image that is shared, over a file of its own and below an image of the device. */
static void test_image_below(void **state)
{
	static struct backend_spec file, image[2], shared[2], top[2];

	(void)state;
	use_seen(1);
	file = users[0].below;
	for (unsigned i = 0; i < 2; i++) {
		image[i] = (struct backend_spec){ .ops = &backend_image_node,
						  .child = &file,
						  .as = backend_one_child };
		shared[i] = users[i].spec;
		shared[i].child = &image[i];
		shared[i].as = backend_one_child;
		top[i] = (struct backend_spec){ .ops = &backend_image_node, .child = &shared[i] };
		users[i].spec = top[i];
		start(i);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct backend_image_look look = { 0 };

		assert_true(backend_image(users[i].queue, 1, &look));
		assert_true(backend_image(second[i], 1, &look));
		assert_int_equal(look.misses, 3);
		assert_int_equal(look.stored_bytes, 4096);
		assert_int_equal(look.depth, 1);
		assert_int_equal(look.is_repeated, i);
		memset(&look, 0, sizeof(look));
		assert_true(backend_image(users[i].queue, 0, &look));
		assert_int_equal(look.stored_bytes, 0);
		assert_false(look.is_repeated);
	}
	stop(1);
	stop(0);
}

/* ---- configurations ---- */

#define PATTERN(size) "{type: pattern, size: " size "}"
#define SHARED(name, below) "{type: shared, name: " name ", backend: " below "}"
#define STRIPE(a, b) "{type: stripe, backends: [" a ", " b "]}"

static struct backend_spec *spec_of(const char *yaml)
{
	char words[BACKEND_ERROR_BYTES] = "";
	struct backend_spec *spec = NULL;

	assert_int_equal(backend_spec_from_text(&spec, yaml, words, sizeof(words)), 0);
	return spec;
}

/* The structs of options live as long as the last one that has them: ASan sees the rest. */
static void test_copies(void **state)
{
	struct backend_spec *spec = spec_of(STRIPE(SHARED("s", PATTERN("1M")), PATTERN("2M")));
	struct backend_spec *first = backend_spec_copy(spec), *second_child;
	char text[BACKEND_SPEC_TEXT_BYTES];

	(void)state;
	second_child = backend_spec_copy(spec->child->sibling);
	assert_true(backend_spec_equal(spec, first));
	assert_ptr_equal(spec->child->config, first->child->config);
	assert_ptr_not_equal(spec->child, first->child);
	assert_int_equal(*spec->config_refs, 2);
	assert_int_equal(*spec->child->sibling->config_refs, 3);
	backend_spec_free(spec);
	assert_int_equal(*first->config_refs, 1);
	assert_string_equal(backend_spec_text(first, text), "stripe > (shared > pattern, pattern)");
	assert_string_equal(((const struct shared_config *)first->child->config)->name, "s");
	/* Of one child, without those beside it. */
	assert_null(second_child->sibling);
	backend_spec_free(first);
	assert_int_equal(*second_child->config_refs, 1);
	assert_string_equal(backend_spec_text(second_child, text), "pattern");
	backend_spec_free(second_child);
}

/* Somebody else's structs stay his. */
static void test_copy_of_borrowed_options(void **state)
{
	const struct backend_spec leaf = { .ops = &backend_gate, .config = &gates[0] };
	struct backend_spec *copy = backend_spec_copy(&leaf);

	(void)state;
	assert_ptr_equal(copy->config, &gates[0]);
	assert_null(copy->config_refs);
	backend_spec_free(copy);
}

/* name NULL: they share nothing. */
static void check_shares(const char *a, const char *b, bool only_another, const char *name)
{
	struct backend_spec *spec_a = spec_of(a), *spec_b = spec_of(b);
	const struct backend_spec *found = backend_spec_shares(spec_a, spec_b, only_another);

	if (name)
		assert_string_equal(found->ops->shared->name(found->config), name);
	else
		assert_null(found);
	backend_spec_free(spec_a);
	backend_spec_free(spec_b);
}

static void test_what_two_share(void **state)
{
	(void)state;
	check_shares(SHARED("s", PATTERN("1M")), SHARED("s", PATTERN("1M")), false, "s");
	check_shares(SHARED("s", PATTERN("1M")), SHARED("s", PATTERN("1M")), true, NULL);
	check_shares(SHARED("s", PATTERN("1M")), SHARED("s", PATTERN("2M")), true, "s");
	check_shares(SHARED("s", PATTERN("1M")), SHARED("t", PATTERN("1M")), false, NULL);
	check_shares(PATTERN("1M"), SHARED("t", PATTERN("1M")), false, NULL);
	check_shares(STRIPE(SHARED("s", PATTERN("1M")), SHARED("t", PATTERN("1M"))),
		     STRIPE(SHARED("u", PATTERN("1M")), SHARED("t", PATTERN("1M"))), false, "t");
	/* The one that is the same does not hide the other. */
	check_shares(STRIPE(SHARED("s", PATTERN("1M")), SHARED("t", PATTERN("1M"))),
		     STRIPE(SHARED("s", PATTERN("1M")), SHARED("t", PATTERN("2M"))), true, "t");
	check_shares(SHARED("s", SHARED("t", PATTERN("1M"))), SHARED("t", PATTERN("1M")), false,
		     "t");
}

int main(void)
{
#define LOOK(fn) cmocka_unit_test_setup_teardown(fn, look_setup, look_teardown)
	const struct CMUnitTest tests[] = {
		LOOK(test_caches),
		LOOK(test_own_cache_above),
		LOOK(test_connections),
		LOOK(test_library),
		LOOK(test_image_above),
		LOOK(test_image_below),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_copy_of_borrowed_options),
		cmocka_unit_test(test_what_two_share),
	};

	return cmocka_run_group_tests(tests, log_errors_only, NULL);
}
