/*
 * A node that reads its header from a child while it opens, writes to it before it is closed and
 * when it grows; walks of such a tree and how they ended.
 */
#ifndef TEST_RIG_LIFE_RIG_H
#define TEST_RIG_LIFE_RIG_H

#include "test/rig/tree_rig.h"

#include <pthread.h>
#include <semaphore.h>

#include "base/log.h"
#include "storage/life.h"
#include "storage/visit.h"

#define HEADER_BYTES 4096u

enum header_plan {
	READS,	     /* the header, then it is open */
	READS_MANY,  /* as many as may be under way, and one more */
	LEAVES_SOME, /* ends while requests are under way */
	GOES_ON,     /* asks again after each failure */
};

/* The config of a node. */
struct headed {
	enum header_plan plan;
	uint64_t timeout_ns;
	bool blocks;	     /* on the helper, until the semaphore is posted */
	bool close_blocks;   /* the same of its close */
	bool answers_itself; /* before the first call returns */
};

static struct headed headed;
static sem_t go_on;
static uint8_t header[HEADER_BYTES] __attribute__((aligned(4096)));
static char order[256]; /* what was called, in this order */
static pthread_t opened_by, asked_by;
static int first_error;

static void note(const char *word)
{
	strncat(order, word, sizeof(order) - strlen(order) - 1);
}

static int headed_open(struct backend_device *device)
{
	(void)device;
	opened_by = pthread_self();
	note("open ");
	while (headed.blocks && sem_wait(&go_on) < 0)
		;
	return 0;
}

static void header_read(struct backend_visit *visit, int result)
{
	note(result < 0 ? "unread " : "read ");
	if (first_error == 0)
		first_error = result;
	if (result < 0 && headed.plan == GOES_ON) {
		result = backend_visit_io(visit, 0, BACKEND_READ, 0, header, HEADER_BYTES,
					  header_read);
		if (result == 0)
			return;
		note("refused ");
	}
	visit->device->limits.size_bytes -= HEADER_BYTES;
	backend_visit_done(visit, result);
}

static void not_last(struct backend_visit *visit, int result)
{
	(void)visit, (void)result;
	note("one ");
}

static void ask_many(struct backend_visit *visit, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(backend_visit_io(visit, 0, BACKEND_READ, i * 4096ull, header,
						  HEADER_BYTES,
						  i + 1 < nr ? not_last : header_read),
				 0);
}

static void headed_ask(struct backend_visit *visit)
{
	asked_by = pthread_self();
	note("ask ");
	visit->doing = "reading the header";
	visit->timeout_ns = headed.timeout_ns;
	if (headed.answers_itself) {
		visit->device->limits.size_bytes -= HEADER_BYTES;
		backend_visit_done(visit, 0);
		return;
	}
	ask_many(visit, headed.plan == READS_MANY ? BACKEND_VISIT_IO_NR : 1);
	if (headed.plan == READS_MANY)
		assert_int_equal(
			backend_visit_io(visit, 0, BACKEND_READ, 0, header, HEADER_BYTES, not_last),
			-EAGAIN);
	if (headed.plan == LEAVES_SOME)
		backend_visit_done(visit, 0);
}

static void flushed(struct backend_visit *visit, int result)
{
	note("flushed ");
	backend_visit_done(visit, result);
}

static void written(struct backend_visit *visit, int result)
{
	note("written ");
	if (result == 0)
		result = backend_visit_io(visit, 0, BACKEND_FLUSH, 0, NULL, 0, flushed);
	if (result < 0)
		backend_visit_done(visit, result);
}

static void headed_write(struct backend_visit *visit)
{
	assert_int_equal(
		backend_visit_io(visit, 0, BACKEND_WRITE, 0, header, HEADER_BYTES, written), 0);
}

static void headed_close(struct backend_device *device)
{
	(void)device;
	while (headed.close_blocks && sem_wait(&go_on) < 0)
		;
	note("close ");
}

static uint64_t headed_over(const void *config, unsigned child_nr, uint64_t child_bytes)
{
	(void)config, (void)child_nr;
	return child_bytes - HEADER_BYTES;
}

static uint64_t headed_below(const void *config, unsigned child_nr, uint64_t size_bytes)
{
	(void)config, (void)child_nr;
	return size_bytes + HEADER_BYTES;
}

static const struct backend_resize headed_resize = { .grow_async = headed_write };

static const struct backend backend_headed = {
	.name = "headed",
	.data = BACKEND_DATA_ANY,
	.children = backend_one_child,
	.open = headed_open,
	.open_async = headed_ask,
	.close_async = headed_write,
	.close = headed_close,
	.size_over = headed_over,
	.size_below = headed_below,
	.submit = backend_forward,
	.cancel = backend_forward_cancel,
	.resize = &headed_resize,
};

/* ---- the rig: walks and how they ended ---- */

static struct walk {
	struct backend_life *life;
	struct helpers *helpers;
	int ret;
	unsigned done_nr;
	bool waited;
	_Atomic bool dropped;
	char words[BACKEND_LIFE_WORDS_BYTES];
} walk;

static void walk_done(void *arg, const struct backend_life_end *end)
{
	(void)arg;
	walk.done_nr++;
	walk.ret = end->ret;
	walk.waited = end->waited;
	if (end->device)
		rig.device = end->device;
	if (end->ret < 0)
		snprintf(walk.words, sizeof(walk.words), "%s", end->words);
}

static void walk_dropped(void *arg)
{
	(void)arg;
	walk.dropped = true;
}

static const struct backend_life_owner owner = { .done = walk_done, .drop = walk_dropped };

static struct backend_home home(void)
{
	return (struct backend_home){ .reactor = &rig.reactor, .helpers = walk.helpers };
}

static void turns(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		reactor_turn(&rig.reactor, false);
}

static void turn_until_done(void)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC;

	while (walk.done_nr == 0) {
		assert_true(ring_clock_ns() < until_ns);
		reactor_turn(&rig.reactor, false);
	}
}

static int life_setup(void **state)
{
	memset(&walk, 0, sizeof(walk));
	memset(order, 0, sizeof(order));
	headed = (struct headed){ 0 };
	first_error = 0;
	sem_init(&go_on, 0, 0);
	return setup(state);
}

static int life_teardown(void **state)
{
	helpers_close(walk.helpers);
	sem_destroy(&go_on);
	return teardown(state);
}

static inline int life_setup_helpers(void **state)
{
	int ret = life_setup(state);

	return ret < 0 ? ret : helpers_create(&walk.helpers, &rig.reactor);
}

/* Of the tree of root_spec. */
static void begin_open_tree(void)
{
	const struct backend_open_params open_params = {
		.logical_block_bytes = 512, .max_io_bytes = 1 << 20, .queue_nr = 1, .depth = DEPTH
	};
	const struct backend_home where = home();

	assert_int_equal(
		backend_open_begin(&walk.life, &where, &root_spec, "disk", &open_params, &owner),
		0);
}

static inline void begin_open(void)
{
	root_spec = (struct backend_spec){ .ops = &backend_headed,
					   .config = &headed,
					   .child = &leaf_spec[0] };
	leaf_spec[0].as = backend_one_child;
	begin_open_tree();
}

static inline void open_headed(void)
{
	headed.answers_itself = true;
	begin_open();
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	walk.done_nr = 0;
	order[0] = '\0';
}

#endif
