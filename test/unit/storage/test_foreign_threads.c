/*
 * A backend whose requests end on threads that are not the reactor's: each ends once, on the
 * reactor, which sleeps meanwhile. What else is looked for is what sanitizers see.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "storage/foreign.h"
#include "test/rig/config_check.h"

#define DEPTH 16
#define THREADS 3
#define REQUESTS 20000

struct far_io {
	struct backend_io *io;
	struct backend_foreign_end end;
	_Atomic bool mine; /* a thread's, to be ended */
};

static struct far_io *far[DEPTH];
static _Atomic bool over;
static pthread_t reactor_thread;

static int far_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 20;
	return 0;
}

static int far_io_init(struct backend_io *io)
{
	far[io->tag] = io->priv;
	far[io->tag]->io = io;
	return 0;
}

static enum backend_submit far_submit(struct backend_io *io)
{
	atomic_store_explicit(&far[io->tag]->mine, true, memory_order_release);
	return BACKEND_QUEUED;
}

static const struct backend backend_far = { .name = "far",
					    .io_bytes = sizeof(struct far_io),
					    .open = far_open,
					    .io_init = far_io_init,
					    .submit = far_submit };

/* The library's: takes what it finds, and ends it with what its offset says. */
static void *library(void *arg)
{
	(void)arg;
	while (!atomic_load(&over))
		for (unsigned tag = 0; tag < DEPTH; tag++) {
			struct far_io *f = far[tag];

			if (atomic_exchange_explicit(&f->mine, false, memory_order_acquire))
				backend_io_complete_from_thread(
					&f->end, f->io, f->io->offset_bytes % 1024 ? -EIO : 0);
		}
	return NULL;
}

/* ---- the reactor's thread ---- */

static struct rig {
	struct reactor reactor;
	struct backend_device *device;
	struct backend_queue *queue;
	struct backend_io io[DEPTH];
	unsigned submitted_nr, done_nr, failed_nr;
} rig;

static char buf[512];

static void submit(struct backend_io *io)
{
	if (rig.submitted_nr == REQUESTS)
		return;
	io->op = BACKEND_READ;
	io->offset_bytes = 512ull * (rig.submitted_nr++ % 2);
	io->length_bytes = 512;
	io->buf = buf;
	assert_int_equal(backend_io_submit(io), BACKEND_QUEUED);
}

static void rig_done(struct backend_io *io)
{
	assert_true(pthread_equal(pthread_self(), reactor_thread));
	assert_int_equal(io->result, io->offset_bytes ? -EIO : 0);
	rig.done_nr++;
	rig.failed_nr += io->result < 0;
	submit(io);
}

static void open_rig(void)
{
	static const struct backend_spec spec = { .ops = &backend_far };
	struct backend_open_params open_params = { .logical_block_bytes = 512,
						   .queue_nr = 1,
						   .depth = DEPTH };
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	char error[BACKEND_ERROR_BYTES];

	assert_int_equal(reactor_init(&rig.reactor, &params), 0);
	assert_int_equal(backend_open(&rig.device, &spec, "t", &open_params, error, sizeof(error)),
			 0);
	assert_int_equal(backend_queue_open(&rig.queue, rig.device, &rig.reactor, 0, DEPTH), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(backend_io_init(&rig.io[i], rig.queue, i, rig_done), 0);
}

static void close_rig(void)
{
	for (unsigned i = 0; i < DEPTH; i++)
		backend_io_fini(&rig.io[i]);
	backend_queue_close(rig.queue);
	backend_close(rig.device);
	reactor_fini(&rig.reactor);
}

static void test_each_ends_once(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	reactor_thread = pthread_self();
	open_rig();
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, library, NULL), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		submit(&rig.io[i]);
	while (rig.done_nr < REQUESTS)
		reactor_turn(&rig.reactor, true);
	atomic_store(&over, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(rig.failed_nr, REQUESTS / 2);
	close_rig();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_each_ends_once) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
