/* Filters over a backend that does as it is told: the passing on of requests, answers, BUSY. */
#include "storage/node.h"
#include "storage/registry.h"
#include "storage/spec.h"
#include "test/rig/config_check.h"

#define DEPTH 8

/* ---- the lowest one: completes what the test says, takes at most `room` ---- */

static struct fake {
	unsigned room, out_nr, busy_nr;
	int done_result; /* <= 0: answers DONE with it; 1: QUEUED */
	struct backend_io *out[DEPTH];
	unsigned cancelled_nr;
} fake;

static int fake_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 20;
	device->limits.caps = BACKEND_CAP_FLUSH;
	return 0;
}

static enum backend_submit fake_submit(struct backend_io *io)
{
	io->throttle_ns = 5;
	if (fake.out_nr == fake.room) {
		fake.busy_nr++;
		return BACKEND_BUSY;
	}
	if (fake.done_result <= 0) {
		io->result = fake.done_result;
		return BACKEND_DONE;
	}
	fake.out[fake.out_nr++] = io;
	return BACKEND_QUEUED;
}

static void fake_complete(int result)
{
	struct backend_io *io = fake.out[0];

	memmove(fake.out, fake.out + 1, sizeof(fake.out) - sizeof(fake.out[0]));
	fake.out_nr--;
	backend_io_complete(io, result);
}

static void fake_cancel(struct backend_io *io)
{
	fake.cancelled_nr++;
	assert_ptr_equal(io, fake.out[0]);
	fake_complete(-ECANCELED);
}

static const struct backend backend_fake = {
	.name = "fake", .open = fake_open, .submit = fake_submit, .cancel = fake_cancel
};

/* ---- a filter that does nothing, and one that always waits a turn ---- */

struct later_io {
	struct backend_io *io;
	struct task task;
};

static const struct backend backend_pass = { .name = "pass",
					     .children = backend_one_child,
					     .submit = backend_forward,
					     .cancel = backend_forward_cancel };

static int later_io_init(struct backend_io *io)
{
	((struct later_io *)io->priv)->io = io;
	return 0;
}

static void later_run(struct task *task)
{
	struct backend_io *io = container_of(task, struct later_io, task)->io;

	io->throttle_ns += 7;
	backend_forward_queued(io);
}

static enum backend_submit later_submit(struct backend_io *io)
{
	reactor_defer(io->queue->reactor, &((struct later_io *)io->priv)->task, later_run);
	return BACKEND_QUEUED;
}

static const struct backend backend_later = { .name = "later",
					      .children = backend_one_child,
					      .io_bytes = sizeof(struct later_io),
					      .io_init = later_io_init,
					      .submit = later_submit,
					      .cancel = backend_forward_cancel };

/* ---- the rig ---- */

static struct rig {
	struct reactor reactor;
	struct backend_device *device;
	struct backend_queue *queue;
	struct backend_io io[DEPTH];
	char buf[DEPTH][512];
	unsigned done_nr;
	unsigned order[64];
} rig;

static void rig_done(struct backend_io *io)
{
	rig.order[rig.done_nr++] = io->tag;
}

static int setup(void **state)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	int ret;

	(void)state;
	memset(&rig, 0, sizeof(rig));
	memset(&fake, 0, sizeof(fake));
	fake.room = DEPTH;
	fake.done_result = 1;
	ret = reactor_init(&rig.reactor, &params);
	assert_int_equal(ret, 0);
	return 0;
}

static void close_stack(void)
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
	close_stack();
	reactor_fini(&rig.reactor);
	return 0;
}

static void open_stack(const struct backend_spec *spec)
{
	static const struct backend_open_params open_params = { .logical_block_bytes = 512,
								.queue_nr = 1,
								.depth = DEPTH };
	char error[BACKEND_ERROR_BYTES];

	assert_int_equal(backend_open(&rig.device, spec, "t", &open_params, error, sizeof(error)),
			 0);
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, DEPTH), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(backend_io_init(&rig.io[i], rig.queue, i, rig_done), 0);
}

static void open_pass(void)
{
	static const struct backend_spec low = { .ops = &backend_fake };
	static const struct backend_spec spec = { .ops = &backend_pass, .child = &low };

	open_stack(&spec);
}

static void open_three(void)
{
	static const struct backend_spec low = { .ops = &backend_fake };
	static const struct backend_spec later = { .ops = &backend_later, .child = &low };
	static const struct backend_spec mid = { .ops = &backend_pass, .child = &later };
	static const struct backend_spec spec = { .ops = &backend_later, .child = &mid };

	open_stack(&spec);
}

static enum backend_submit submit(unsigned tag)
{
	struct backend_io *io = &rig.io[tag];

	io->op = BACKEND_WRITE;
	io->flags = 0;
	io->offset_bytes = 512ull * tag;
	io->length_bytes = 512;
	io->buf = rig.buf[tag];
	return backend_io_submit(io);
}

/* ---- tests ---- */

static void test_request_arrives(void **state)
{
	struct backend_io *low;

	(void)state;
	open_pass();
	assert_int_equal(submit(3), BACKEND_QUEUED);
	low = fake.out[0];
	assert_int_equal(low->op, BACKEND_WRITE);
	assert_int_equal(low->offset_bytes, 3 * 512);
	assert_int_equal(low->length_bytes, 512);
	assert_int_equal(low->tag, 3);
	assert_ptr_equal(low->buf, rig.buf[3]);
	fake_complete(-ENOSPC);
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(rig.io[3].result, -ENOSPC);
	assert_int_equal(rig.io[3].throttle_ns, 5);
	/* A new use starts from nothing. */
	fake.done_result = 0;
	assert_int_equal(submit(3), BACKEND_DONE);
	assert_int_equal(rig.io[3].result, 0);
	assert_int_equal(rig.io[3].throttle_ns, 5);
	assert_int_equal(rig.done_nr, 1);
}

static void test_done_at_once_after_wait(void **state)
{
	(void)state;
	open_three();
	fake.done_result = -EIO;
	assert_int_equal(submit(1), BACKEND_QUEUED);
	for (int i = 0; i < 4 && rig.done_nr == 0; i++)
		reactor_turn(&rig.reactor, false);
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(rig.io[1].result, -EIO);
	assert_int_equal(rig.io[1].throttle_ns, 5 + 2 * 7);
}

static void test_busy_child_keeps_order(void **state)
{
	(void)state;
	open_pass();
	fake.room = 2;
	for (unsigned tag = 0; tag < DEPTH; tag++)
		assert_int_equal(submit(tag), BACKEND_QUEUED);
	assert_int_equal(fake.out_nr, 2);
	/* One was refused; those behind it are not even tried. */
	assert_int_equal(fake.busy_nr, 1);
	for (unsigned i = 0; i < DEPTH; i++) {
		fake_complete(0);
		reactor_turn(&rig.reactor, false);
	}
	assert_int_equal(rig.done_nr, DEPTH);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(rig.order[i], i);
}

static void test_parked_is_answered_at_once_when_retried(void **state)
{
	(void)state;
	open_pass();
	fake.room = 1;
	submit(0);
	submit(1);
	submit(2);
	fake.done_result = 0; /* from here on */
	fake_complete(0);
	reactor_turn(&rig.reactor, false);
	assert_int_equal(rig.done_nr, 3);
	assert_int_equal(rig.order[2], 2);
}

static void test_cancel(void **state)
{
	(void)state;
	open_pass();
	fake.room = 1;
	submit(0);
	submit(1);
	submit(2);
	backend_io_cancel(&rig.io[1]); /* parked */
	assert_int_equal(rig.done_nr, 1);
	assert_int_equal(rig.io[1].result, -EIO);
	assert_int_equal(fake.cancelled_nr, 0);
	backend_io_cancel(&rig.io[0]); /* in the child; the retry of 2 is on its way */
	assert_int_equal(fake.cancelled_nr, 1);
	assert_int_equal(rig.io[0].result, -EIO);
	backend_io_cancel(&rig.io[2]);
	assert_int_equal(rig.done_nr, 3);
	close_stack();
	/* The retry was still on the list of tasks when its queue went. */
	reactor_turn(&rig.reactor, false);
}

static void test_limits_and_caps_are_inherited(void **state)
{
	(void)state;
	open_three();
	assert_int_equal(rig.device->limits.size_bytes, 1 << 20);
	assert_int_equal(rig.device->limits.caps, BACKEND_CAP_FLUSH);
	assert_ptr_equal(rig.device->child->child->child->child, NULL);
}

static void test_failed_open_closes_what_is_below(void **state)
{
	static const struct backend_spec low = { .ops = &backend_fake };
	static const struct backend_spec spec = { .ops = &backend_pass, .child = &low };
	struct backend_open_params open_params = { .logical_block_bytes = 2 << 20 };
	char error[BACKEND_ERROR_BYTES];
	struct backend_device *device = NULL;

	(void)state;
	assert_int_equal(backend_open(&device, &spec, "t", &open_params, error, sizeof(error)),
			 -EINVAL);
	assert_null(device);
	assert_string_equal(error, "has 1048576 bytes, less than one block of 2097152");
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

static void test_spec(void **state)
{
	(void)state;
	check_spec("{type: mem, size: 1M}", "mem", "");
	check_spec("{size: 1M}", NULL, "f:1:1: backend: \"type\" is missing\n");
	check_spec("{type: [mem]}", NULL, "f:1:8: type: expected the name of a backend\n");
	check_spec("{type: null, backend: {type: mem}}", NULL,
		   "f:1:23: backend: null is no filter, nothing can stand below it\n");
}

int main(void)
{
#define RIG(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		RIG(test_request_arrives),
		RIG(test_done_at_once_after_wait),
		RIG(test_busy_child_keeps_order),
		RIG(test_parked_is_answered_at_once_when_retried),
		RIG(test_cancel),
		RIG(test_limits_and_caps_are_inherited),
		RIG(test_failed_open_closes_what_is_below),
		cmocka_unit_test(test_spec),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
