/*
 * life, visit: how trees are opened, closed and grown; helpers, deadlines, cancel.
 */
#include "test/rig/life_rig.h"

/* ---- opening ---- */

static void test_reads_its_header(void **state)
{
	struct backend_life_look look;

	(void)state;
	begin_open();
	assert_non_null(walk.life);
	assert_int_equal(leaves[0].out_nr, 1);
	assert_int_equal(leaves[0].out[0]->op, BACKEND_READ);
	assert_ptr_equal(leaves[0].out[0]->buf, header);
	backend_life_look(walk.life, &look);
	assert_string_equal(look.doing, "reading the header");
	turns(3);
	assert_int_equal(walk.done_nr, 0);
	leaf_complete(0, 0);
	/* Not from inside of the completion. */
	assert_string_equal(order, "open ask ");
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_string_equal(order, "open ask read ");
	assert_int_equal(rig.device->limits.size_bytes, leaves[0].size_bytes - HEADER_BYTES);
}

static void test_nothing_to_wait_for(void **state)
{
	(void)state;
	headed.answers_itself = true;
	begin_open();
	assert_null(walk.life);
	assert_int_equal(walk.done_nr, 1);
	assert_int_equal(walk.ret, 0);
}

static void test_header_cannot_be_read(void **state)
{
	(void)state;
	begin_open();
	leaf_complete(0, -EIO);
	turn_until_done();
	assert_int_equal(walk.ret, -EIO);
	assert_true(walk.waited);
	assert_string_equal(walk.words, "headed: EIO");
	assert_string_equal(order, "open ask unread close ");
	assert_int_equal(leaves[0].closed, 1);
}

/* A request that the child has no room for waits its turn. */
static void test_many_requests(void **state)
{
	(void)state;
	headed.plan = READS_MANY;
	leaves[0].room = 3;
	begin_open();
	assert_int_equal(leaves[0].out_nr, 3);
	for (unsigned i = 0; i < BACKEND_VISIT_IO_NR; i++) {
		leaf_complete(0, 0);
		turns(2);
	}
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_string_equal(order, "open ask one one one one one one one read ");
}

static void test_requests_left_behind(void **state)
{
	(void)state;
	headed.plan = LEAVES_SOME;
	begin_open();
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_int_equal(leaves[0].cancelled, 1);
	assert_string_equal(order, "open ask ");
}

/* By a real file, on a ring like the control thread's, with its SQEs of 128 bytes. */
static void test_header_in_a_file(void **state)
{
	const struct reactor_params control = { .sq_entries = 8,
						.cq_entries = 16,
						.control = true };
	const struct backend_open_params open_params = {
		.logical_block_bytes = 512, .max_io_bytes = 1 << 20, .queue_nr = 1, .depth = DEPTH
	};
	char path[] = "/tmp/test_life.XXXXXX", yaml[128];
	struct backend_spec *file = NULL;
	struct config_errors errors;
	struct backend_home where;
	struct yaml_doc doc;
	int fd = mkstemp(path);

	(void)state;
	memset(header, 0, sizeof(header));
	assert_int_equal(pwrite(fd, "header", 7, 0), 7);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	reactor_fini(&rig.reactor);
	assert_int_equal(reactor_init(&rig.reactor, &control), 0);
	where = home();
	config_errors_init(&errors, "test");
	snprintf(yaml, sizeof(yaml), "{type: file, path: %s}", path);
	assert_int_equal(yaml_parse(&doc, yaml, strlen(yaml), &errors), 0);
	assert_int_equal(backend_spec_parse(&file, doc.root, &errors), 0);
	file->as = backend_one_child;
	root_spec =
		(struct backend_spec){ .ops = &backend_headed, .config = &headed, .child = file };
	assert_int_equal(
		backend_open_begin(&walk.life, &where, &root_spec, "disk", &open_params, &owner),
		0);
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_string_equal(order, "open ask read ");
	assert_string_equal((char *)header, "header");
	backend_close(rig.device);
	rig.device = NULL;
	backend_spec_free(file);
	yaml_doc_free(&doc);
	config_errors_fini(&errors);
	unlink(path);
}

/* ---- deadline and cancel ---- */

static void test_deadline(void **state)
{
	(void)state;
	headed.timeout_ns = 20 * NS_PER_MS;
	begin_open();
	turn_until_done();
	assert_int_equal(walk.ret, -ETIMEDOUT);
	assert_true(walk.waited);
	assert_string_equal(walk.words, "headed: no answer for 20ms: reading the header (leaf: "
					"waiting for an answer)");
	assert_int_equal(leaves[0].closed, 1);
}

/* A node that does not take no for an answer cannot ask any more. */
static void test_deadline_of_a_stubborn_one(void **state)
{
	(void)state;
	headed.timeout_ns = 20 * NS_PER_MS;
	headed.plan = GOES_ON;
	begin_open();
	leaf_complete(0, -EIO);
	turn_until_done();
	assert_int_equal(walk.ret, -ETIMEDOUT);
	assert_string_equal(order, "open ask unread unread refused close ");
}

static void test_cancelled(void **state)
{
	(void)state;
	begin_open();
	backend_life_cancel(walk.life);
	backend_life_cancel(walk.life);
	turn_until_done();
	assert_int_equal(walk.ret, -ECANCELED);
	assert_int_equal(leaves[0].cancelled, 1);
	assert_int_equal(leaves[0].closed, 1);
	assert_int_equal(rig.reactor.leaving, 0);
}

static void leaf_cannot_cancel(struct backend_io *io)
{
	leaf_of(io->queue->device)->cancelled++;
}

static struct backend backend_stubborn;

/* A file whose server is gone: the walk goes on when the request has ended. */
static void test_cannot_be_cancelled(void **state)
{
	(void)state;
	backend_stubborn = backend_leaf;
	backend_stubborn.cancel = leaf_cannot_cancel;
	leaf_spec[0].ops = &backend_stubborn;
	begin_open();
	backend_life_cancel(walk.life);
	turns(5);
	assert_int_equal(walk.done_nr, 0);
	assert_int_equal(leaves[0].cancelled, 1);
	assert_int_equal(leaves[0].closed, 0);
	leaf_complete(0, 0);
	turn_until_done();
	assert_int_equal(walk.ret, -ECANCELED);
	assert_int_equal(leaves[0].closed, 1);
}

/* The node has ended, and its request has not. */
static void test_request_left_behind_stays(void **state)
{
	(void)state;
	headed.plan = LEAVES_SOME;
	backend_stubborn = backend_leaf;
	backend_stubborn.cancel = leaf_cannot_cancel;
	leaf_spec[0].ops = &backend_stubborn;
	begin_open();
	turns(5);
	assert_int_equal(walk.done_nr, 0);
	leaf_complete(0, 0);
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_string_equal(order, "open ask ");
}

/* ---- closing and growing ---- */

static void close_headed(void)
{
	const struct backend_home where = home();

	assert_int_equal(backend_close_begin(&walk.life, &where, rig.device, &owner), 0);
	rig.device = NULL;
}

static void test_last_word(void **state)
{
	(void)state;
	leaves[0].caps = BACKEND_CAP_FLUSH;
	open_headed();
	close_headed();
	assert_int_equal(leaves[0].out[0]->op, BACKEND_WRITE);
	leaf_complete(0, 0);
	turns(3);
	assert_int_equal(leaves[0].out[0]->op, BACKEND_FLUSH);
	assert_int_equal(leaves[0].closed, 0);
	leaf_complete(0, 0);
	turn_until_done();
	assert_string_equal(order, "written flushed close ");
	assert_int_equal(leaves[0].closed, 1);
}

/* It is closed all the same, and the owner is told. */
static void test_last_word_fails(void **state)
{
	(void)state;
	open_headed();
	close_headed();
	leaf_complete(0, -EIO);
	turn_until_done();
	assert_int_equal(walk.ret, -EIO);
	assert_string_equal(order, "written close ");
	assert_int_equal(leaves[0].closed, 1);
}

static uint64_t leaf_grown_bytes;

static int leaf_grow_to(struct backend_device *device, uint64_t size_bytes)
{
	(void)device;
	note("leaf ");
	leaf_grown_bytes = size_bytes;
	return 0;
}

static const struct backend_resize leaf_resize = { .grow = leaf_grow_to };

static void begin_growing(int leaf_result)
{
	const struct backend_home where = home();

	backend_stubborn = backend_leaf;
	backend_stubborn.resize = &leaf_resize;
	leaf_spec[0].ops = &backend_stubborn;
	open_headed();
	assert_int_equal(backend_grow_begin(&walk.life, &where, rig.device, 2 << 20, &owner), 0);
	assert_string_equal(order, "leaf ");
	assert_int_equal(leaf_grown_bytes, (2 << 20) + HEADER_BYTES);
	leaf_complete(0, leaf_result);
	turn_until_done();
}

static void test_grows_from_the_bottom(void **state)
{
	(void)state;
	begin_growing(0);
	assert_int_equal(walk.ret, 0);
	assert_string_equal(order, "leaf written flushed ");
}

static void test_cannot_grow(void **state)
{
	(void)state;
	begin_growing(-ENOSPC);
	assert_int_equal(walk.ret, -ENOSPC);
	assert_string_equal(walk.words, "headed: ENOSPC");
	/* Still open: it is closed by the teardown. */
	assert_int_equal(leaves[0].closed, 0);
}

/* ---- helpers ---- */

static void test_threads(void **state)
{
	struct backend_life_look look;

	(void)state;
	headed.blocks = true;
	begin_open();
	backend_life_look(walk.life, &look);
	assert_null(look.doing);
	sem_post(&go_on);
	while (leaves[0].out_nr == 0)
		turns(1);
	leaf_complete(0, 0);
	turn_until_done();
	assert_int_equal(walk.ret, 0);
	assert_false(pthread_equal(opened_by, pthread_self()));
	assert_true(pthread_equal(asked_by, pthread_self()));
}

static void test_cancelled_while_it_blocks(void **state)
{
	(void)state;
	headed.blocks = true;
	begin_open();
	backend_life_cancel(walk.life);
	turns(3);
	assert_int_equal(walk.done_nr, 0);
	sem_post(&go_on);
	turn_until_done();
	assert_int_equal(walk.ret, -ECANCELED);
	assert_string_equal(order, "open close ");
}

/* A helper closes what was opened, and that takes its time: why it failed is known already. */
static void test_words_before_the_close(void **state)
{
	uint64_t until_ns = ring_clock_ns() + 20 * NS_PER_SEC, ends_ns;
	struct backend_life_look look = { 0 };

	(void)state;
	headed.close_blocks = true;
	begin_open();
	while (leaves[0].out_nr == 0) {
		assert_true(ring_clock_ns() < until_ns);
		reactor_turn(&rig.reactor, false);
	}
	backend_life_look(walk.life, &look);
	assert_int_equal(look.ends_ns, 0);
	assert_string_equal(look.waits_for, "");
	leaf_complete(0, -EIO);
	do {
		assert_true(ring_clock_ns() < until_ns);
		reactor_turn(&rig.reactor, false);
		backend_life_look(walk.life, &look);
	} while (!look.tid);
	assert_string_equal(look.waits_for, "headed: EIO");
	ends_ns = look.ends_ns;
	assert_in_range(ends_ns, 1, ring_clock_ns());
	/* It does not move on: who waits a moment for the end waits once. */
	backend_life_look(walk.life, &look);
	assert_int_equal(look.ends_ns, ends_ns);
	assert_int_equal(walk.done_nr, 0);
	sem_post(&go_on);
	turn_until_done();
	assert_string_equal(walk.words, "headed: EIO");
}

static void test_dropped_while_it_blocks(void **state)
{
	(void)state;
	headed.blocks = true;
	begin_open();
	backend_life_cancel(walk.life);
	helpers_close(walk.helpers);
	walk.helpers = NULL;
	sem_post(&go_on);
	while (!walk.dropped)
		usleep(1000);
	assert_string_equal(order, "open close ");
	assert_int_equal(leaves[0].closed, 1);
	assert_int_equal(walk.done_nr, 0);
}

/* The process ends while a server is asked: reactor_fini waits for that, and a helper closes. */
static void test_dropped_while_it_waits(void **state)
{
	(void)state;
	begin_open();
	while (leaves[0].out_nr == 0)
		turns(1);
	backend_life_cancel(walk.life);
	helpers_close(walk.helpers);
	walk.helpers = NULL;
	assert_int_equal(rig.reactor.leaving, 1);
	while (rig.reactor.leaving > 0)
		turns(1);
	while (!walk.dropped)
		usleep(1000);
	assert_int_equal(leaves[0].closed, 1);
	assert_int_equal(walk.done_nr, 0);
}

static void leaf_open_at_once(struct backend_visit *visit)
{
	visit->device->limits.size_bytes = leaf_of(visit->device)->size_bytes;
	backend_visit_done(visit, 0);
}

static const struct backend backend_waits_alone = {
	.name = "alone",
	.children = backend_one_child,
	.open_async = headed_ask,
	.submit = backend_forward,
};

/* The same without a part for a helper: the walk ends in a turn, and its owner may be gone. */
static void test_dropped_at_home(void **state)
{
	const struct backend_open_params open_params = {
		.logical_block_bytes = 512, .max_io_bytes = 1 << 20, .queue_nr = 1, .depth = DEPTH
	};
	const struct backend_home where = home();

	(void)state;
	backend_stubborn = backend_leaf;
	backend_stubborn.open = NULL;
	backend_stubborn.close = NULL;
	backend_stubborn.open_async = leaf_open_at_once;
	leaf_spec[0].ops = &backend_stubborn;
	leaf_spec[0].as = backend_one_child;
	root_spec = (struct backend_spec){ .ops = &backend_waits_alone,
					   .config = &headed,
					   .child = &leaf_spec[0] };
	assert_int_equal(
		backend_open_begin(&walk.life, &where, &root_spec, "disk", &open_params, &owner),
		0);
	backend_life_cancel(walk.life);
	helpers_close(walk.helpers);
	walk.helpers = NULL;
	while (rig.reactor.leaving > 0)
		turns(1);
	assert_true(walk.dropped);
	assert_int_equal(walk.done_nr, 0);
}

#define LIFE(fn) cmocka_unit_test_setup_teardown(fn, life_setup, life_teardown)
#define HELPED(fn) cmocka_unit_test_setup_teardown(fn, life_setup_helpers, life_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIFE(test_reads_its_header),
		LIFE(test_nothing_to_wait_for),
		LIFE(test_header_cannot_be_read),
		LIFE(test_many_requests),
		LIFE(test_requests_left_behind),
		LIFE(test_header_in_a_file),
		LIFE(test_deadline),
		LIFE(test_deadline_of_a_stubborn_one),
		LIFE(test_cancelled),
		LIFE(test_cannot_be_cancelled),
		LIFE(test_request_left_behind_stays),
		LIFE(test_last_word),
		LIFE(test_last_word_fails),
		LIFE(test_grows_from_the_bottom),
		LIFE(test_cannot_grow),
		HELPED(test_threads),
		HELPED(test_cancelled_while_it_blocks),
		HELPED(test_words_before_the_close),
		HELPED(test_dropped_while_it_blocks),
		HELPED(test_dropped_while_it_waits),
		HELPED(test_dropped_at_home),
	};

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
