/*
 * chain, life: a made-up node that finds what it stands over by itself, by the name that its file
 * stands for; chains, loops, and who is asked on which thread.
 */
#include "test/rig/life_rig.h"

/* ---- the node: `data` has its name, and `backing` is found by that ---- */

static const char *const words[] = { "auto", "none", NULL };

static const struct backend_child_option linked_children[] = {
	{ .name = "data", .nr_min = 1, .nr_max = 1, .help = "Its file." },
	{ .name = "backing",
	  .nr_max = 1,
	  .read_only = true,
	  .words = words,
	  .help = "What it stands over." },
	{ .name = "last", .nr_max = 1, .help = "Another one." },
	{ .name = NULL },
};

struct named_config {
	char *path;
};

static const struct option named_options[] = {
	{ .name = "path",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct named_config, path),
	  .flags = OPTION_REQUIRED,
	  .help = "Its name." },
	OPTION_END,
};
static const struct option no_options[] = { OPTION_END };

/* "/d/a" stands over "/d/b", and so on; in /n each over the next number, in /m down to 0. */
static const char *const links[][2] = {
	{ "/d/a", "/d/b" },	   { "/d/b", "/d/c" },		 { "/d/p", "/d/q" },
	{ "/d/q", "/d/r" },	   { "/d/r", "/d/q" },		 { "/d/self", "/d/self" },
	{ "/d/broken", "a \": " }, { "/d/fails", "/d/missing" },
};
static pthread_t resolved_by;
static unsigned resolved_nr;
static bool blocks;

static const char *next_of(const char *path, char buf[static 32])
{
	unsigned at;

	if (sscanf(path, "/n/%u", &at) == 1) {
		snprintf(buf, 32, "/n/%u", at + 1);
		return buf;
	}
	if (sscanf(path, "/m/%u", &at) == 1 && at > 0) {
		snprintf(buf, 32, "/m/%u", at - 1);
		return buf;
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (strcmp(links[i][0], path) == 0)
			return links[i][1];
	return NULL;
}

static int linked_resolve(const struct backend_spec *spec, struct backend_spec **ret_child,
			  char *error_buf, size_t error_bytes)
{
	const struct named_config *file = spec->child->config;
	char yaml[256], buf[32];
	const char *next;
	int ret;

	resolved_by = pthread_self();
	resolved_nr++;
	while (blocks && sem_wait(&go_on) < 0)
		;
	if (backend_spec_word(spec, &linked_children[1]) != words[0])
		return 0;
	next = next_of(file->path, buf);
	if (!next)
		return 0;
	if (strcmp(next, "/d/missing") == 0) {
		snprintf(error_buf, error_bytes, "%s is missing", next);
		return -ENOENT;
	}
	snprintf(yaml, sizeof(yaml),
		 "{type: linked, data: {type: named, path: \"%s\"}, "
		 "backing: auto}",
		 next);
	ret = backend_spec_from_text(ret_child, yaml, error_buf, error_bytes);
	if (ret == 0)
		(*ret_child)->as = &linked_children[1];
	return ret;
}

static int named_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 20;
	return 0;
}

static enum backend_submit named_submit(struct backend_io *io)
{
	io->result = 0;
	return BACKEND_DONE;
}

static struct backend backend_named = {
	.name = "named",
	.data = BACKEND_DATA_ANY,
	.options = named_options,
	.path_option = &named_options[0],
	.config_bytes = sizeof(struct named_config),
	.open = named_open,
	.submit = named_submit,
};

static struct backend backend_linked = {
	.name = "linked",
	.data = BACKEND_DATA_ANY,
	.options = no_options,
	.children = linked_children,
	.sizes_itself = true,
	.resolve = linked_resolve,
	.submit = backend_forward,
};

/* In the place of backends/registry.c. */
const struct backend *const backend_registry[] = { &backend_named, &backend_linked, &backend_delay,
						   &backend_stripe, NULL };

const struct backend *backend_find(const char *name)
{
	(void)name;
	return NULL;
}

/* ---- the rig ---- */

static struct backend_spec *parsed;

static struct backend_spec *parse(const char *yaml)
{
	resolved_nr = 0;
	assert_int_equal(backend_spec_from_text(&parsed, yaml, error, sizeof(error)), 0);
	return parsed;
}

static const struct backend_open_params params = {
	.logical_block_bytes = 512, .max_io_bytes = 1 << 20, .queue_nr = 1, .depth = 1
};

/* Without threads. */
static int open_with(const char *yaml, const struct backend_open_params *with)
{
	return backend_open(&rig.device, parse(yaml), "disk", with, error, sizeof(error));
}

static int open_text(const char *yaml)
{
	return open_with(yaml, &params);
}

static void begin_text(const char *yaml)
{
	const struct backend_home where = home();

	assert_int_equal(
		backend_open_begin(&walk.life, &where, parse(yaml), "disk", &params, &owner), 0);
}

static int resolve_teardown(void **state)
{
	blocks = false;
	backend_named.data = BACKEND_DATA_ANY;
	backend_close(rig.device);
	rig.device = NULL;
	backend_spec_free(parsed);
	parsed = NULL;
	return life_teardown(state);
}

#define LINKED(path) "{type: linked, data: {type: named, path: " path "}, backing: auto}"

static void refused(const char *yaml, int err, const char *text)
{
	assert_int_equal(open_text(yaml), err);
	assert_string_equal(error, text);
	backend_spec_free(parsed);
	parsed = NULL;
}

/* ---- chains ---- */

static void test_chain(void **state)
{
	const struct backend_device *b, *c;
	char text[BACKEND_SPEC_TEXT_BYTES];

	(void)state;
	assert_int_equal(open_text(LINKED("/d/a")), 0);
	assert_int_equal(resolved_nr, 3);
	b = rig.device->child->sibling;
	c = b->child->sibling;
	assert_string_equal(b->name, "disk/backing");
	assert_string_equal(c->child->name, "disk/backing/backing/data");
	assert_int_equal(c->child_nr, 1);
	assert_false(rig.device->child->open_params.read_only);
	assert_true(b->child->open_params.read_only);
	assert_string_equal(((const struct named_config *)c->child->config)->path, "/d/c");
	assert_int_equal(backend_node_nr(rig.device), 6);
	/* The configuration is as it was. */
	assert_string_equal(backend_spec_text(parsed, text), "linked > named");
	assert_string_equal(backend_spec_text(rig.device->resolved, text),
			    "linked > (named, linked > (named, linked > named))");
}

static void test_nothing_to_find(void **state)
{
	(void)state;
	assert_int_equal(
		open_text("{type: linked, data: {type: named, path: /d/a}, backing: none}"), 0);
	assert_int_equal(rig.device->child_nr, 1);
	backend_close(rig.device);
	backend_spec_free(parsed);
	assert_int_equal(open_text("{type: named, path: /d/a}"), 0);
	assert_int_equal(resolved_nr, 0);
	assert_null(rig.device->resolved);
}

/* Where the table has it, and below other nodes. */
static void test_place(void **state)
{
	const struct backend_device *linked;

	(void)state;
	assert_int_equal(
		open_text("{type: delay, backend: {type: linked, data: {type: named, path: "
			  "/d/b}, last: {type: named, path: /x}, backing: auto}}"),
		0);
	linked = rig.device->child;
	assert_int_equal(linked->child_nr, 3);
	assert_string_equal(linked->child->name, "disk/data");
	assert_string_equal(linked->child->sibling->name, "disk/backing");
	assert_string_equal(linked->child->sibling->sibling->name, "disk/last");
}

/* ---- what is refused ---- */

static void test_loops(void **state)
{
	(void)state;
	refused(LINKED("/d/p"), -ELOOP, "/d/q stands over itself: p -> q -> r -> q");
	refused(LINKED("/d/self"), -ELOOP, "/d/self stands over itself: self -> self");
	refused("{type: delay, backend: " LINKED("/d/q") "}", -ELOOP,
		"/d/q stands over itself: q -> r -> q");
}

static void test_long_chains(void **state)
{
	char text[200];

	(void)state;
	/* Two for the node and its file at each end; the one before fits. */
	snprintf(text, sizeof(text),
		 "more than %d above each other, from 1 -> 2 -> 3 -> 4 -> %d (others between): "
		 "merge "
		 "some of them",
		 BACKEND_DEPTH_MAX, BACKEND_DEPTH_MAX);
	refused(LINKED("/n/1"), -E2BIG, text);
	refused("{type: stripe, backends: [" LINKED("/n/1") ", {type: named, path: /x}]}", -E2BIG,
		"more than 64 above each other, from 1 -> 2 -> 3 -> 63 (others between): merge "
		"some "
		"of them");
}

/* What is found would multiply what the queues take: depth by depth, to the last I/O that fits. */
static void test_memory(void **state)
{
	struct backend_open_params many = params;
	uint64_t found_bytes;

	(void)state;
	many.depth = 1024;
	assert_int_equal(open_with(LINKED("/m/20"), &many), 0);
	found_bytes = backend_spec_queue_bytes(rig.device->spec, many.depth) -
		      backend_spec_queue_bytes(parsed, many.depth);
	backend_close(rig.device);
	backend_spec_free(parsed);
	many.queue_nr = (uint32_t)(BACKEND_FOUND_BYTES_MAX / found_bytes);
	assert_int_equal(open_with(LINKED("/m/20"), &many), 0);
	backend_close(rig.device);
	backend_spec_free(parsed);
	rig.device = NULL;
	many.queue_nr++;
	assert_int_equal(open_with(LINKED("/m/20"), &many), -E2BIG);
	assert_non_null(strstr(error, "MiB of memory for requests, and may have 1024: merge"));
	assert_null(rig.device);
	/* Who writes all of it has chosen it. */
	backend_spec_free(parsed);
	assert_int_equal(open_with("{type: linked, data: {type: named, path: /x}, backing: {type: "
				   "linked, data: {type: named, path: /y}}}",
				   &(struct backend_open_params){ .logical_block_bytes = 512,
								  .queue_nr = UINT16_MAX,
								  .depth = UINT16_MAX }),
			 0);
}

static void test_words(void **state)
{
	(void)state;
	refused(LINKED("/d/fails"), -ENOENT, "/d/missing is missing");
	assert_int_equal(open_text(LINKED("/d/broken")), -EINVAL);
	assert_non_null(strstr(error, "backend:1:"));
	assert_null(strchr(error, '\n'));
}

static enum backend_submit never(struct backend_io *io)
{
	(void)io;
	return BACKEND_DONE;
}

/* The device has chosen how it moves bytes before anybody knows of the child. */
static void test_other_ways_of_bytes(void **state)
{
	static struct backend_spec file, top;
	static char path[] = "/d/a";
	static const struct named_config config = { .path = path };
	static const struct backend far = { .name = "far",
					    .data = BACKEND_DATA_ANY,
					    .options = named_options,
					    .path_option = &named_options[0],
					    .open = named_open,
					    .submit = never };

	(void)state;
	backend_named.data = BACKEND_DATA_FIXED;
	file = (struct backend_spec){ .ops = &far, .config = &config, .as = linked_children };
	top = (struct backend_spec){ .ops = &backend_linked, .child = &file };
	top.word[1] = words[0];
	assert_int_equal(backend_open(&rig.device, &top, "disk", &params, error, sizeof(error)),
			 -EOPNOTSUPP);
	assert_non_null(strstr(error, "write it into the configuration"));
}

/* ---- threads ---- */

static void test_at_a_helper(void **state)
{
	(void)state;
	blocks = true;
	begin_text(LINKED("/d/c"));
	assert_non_null(walk.life);
	turns(3);
	assert_int_equal(walk.done_nr, 0);
	sem_post(&go_on);
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_false(pthread_equal(resolved_by, pthread_self()));
}

static void test_cancelled_at_a_helper(void **state)
{
	(void)state;
	blocks = true;
	begin_text(LINKED("/d/c"));
	backend_life_cancel(walk.life);
	sem_post(&go_on);
	turn_until_done();
	assert_int_equal(walk.ret, -ECANCELED);
	assert_null(rig.device);
}

static void test_refused_at_a_helper(void **state)
{
	(void)state;
	begin_text(LINKED("/d/fails"));
	turn_until_done();
	assert_int_equal(walk.ret, -ENOENT);
	assert_string_equal(walk.words, "/d/missing is missing");
	assert_false(walk.waited);
}

static void test_dropped_at_a_helper(void **state)
{
	(void)state;
	blocks = true;
	begin_text(LINKED("/d/c"));
	helpers_close(walk.helpers);
	walk.helpers = NULL;
	sem_post(&go_on);
	while (!walk.dropped)
		usleep(1000);
	assert_int_equal(walk.done_nr, 0);
}

int main(void)
{
#define HERE(fn) cmocka_unit_test_setup_teardown(fn, life_setup, resolve_teardown)
#define HELPED(fn) cmocka_unit_test_setup_teardown(fn, life_setup_helpers, resolve_teardown)
	const struct CMUnitTest tests[] = {
		HERE(test_chain),
		HERE(test_nothing_to_find),
		HERE(test_place),
		HERE(test_loops),
		HERE(test_long_chains),
		HERE(test_memory),
		HERE(test_words),
		HERE(test_other_ways_of_bytes),
		HELPED(test_at_a_helper),
		HELPED(test_cancelled_at_a_helper),
		HELPED(test_refused_at_a_helper),
		HELPED(test_dropped_at_a_helper),
	};

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
