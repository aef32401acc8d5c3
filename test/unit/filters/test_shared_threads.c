/*
 * shared: two reactors on threads of their own, each with a queue of both users, and the home of
 * the tree on one of them by turns; random reads and cancels, while the main thread lets a third
 * user come and go. What is looked for is what sanitizers see, an assertion, wrong bytes, or a
 * request or a queue that never ends. Real time decides nothing else.
 */
#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "base/prng.h"
#include "base/util.h"
#include "filters/shared/shared.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "test/rig/config_check.h"

/* On any thread. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

#define DEPTH 96 /* four queues of it: more than there are tags */
#define THREADS 2
#define DEVICES 2
#define ROUNDS 20
#define BLOCK_BYTES 512u
#define SIZE_BYTES (1u << 20)

/* ---- the leaf: answers after a while, each word its own offset ---- */

struct late_io {
	struct backend_io *io;
	struct timer timer;
};

static int late_open(struct backend_device *device)
{
	device->limits.size_bytes = SIZE_BYTES;
	return 0;
}

static void late_answer(struct timer *timer)
{
	struct backend_io *io = container_of(timer, struct late_io, timer)->io;
	uint64_t *words = io->buf;

	for (unsigned i = 0; i < io->length_bytes / sizeof(*words); i++)
		words[i] = io->offset_bytes + i * sizeof(*words);
	backend_io_complete(io, 0);
}

static int late_queue_init(struct backend_queue *queue)
{
	prng_init(queue->priv, 7);
	return 0;
}

static int late_io_init(struct backend_io *io)
{
	struct late_io *late = io->priv;

	late->io = io;
	timer_init(&late->timer, late_answer);
	return 0;
}

static enum backend_submit late_submit(struct backend_io *io)
{
	struct late_io *late = io->priv;
	uint64_t after_ns = prng_below(io->queue->priv, 200 * NS_PER_US);

	reactor_timer_arm(io->queue->reactor, &late->timer, ring_clock_ns() + after_ns);
	return BACKEND_QUEUED;
}

static void late_cancel(struct backend_io *io)
{
	struct late_io *late = io->priv;

	reactor_timer_cancel(io->queue->reactor, &late->timer);
	backend_io_complete(io, -ECANCELED);
}

static const struct option no_options[] = { OPTION_END };

static const struct backend backend_late = { .name = "late",
					     .options = no_options,
					     .queue_bytes = sizeof(struct prng),
					     .io_bytes = sizeof(struct late_io),
					     .open = late_open,
					     .queue_init = late_queue_init,
					     .io_init = late_io_init,
					     .submit = late_submit,
					     .cancel = late_cancel };

/* ---- devices: the main thread ---- */

static char name[] = "s";
static const struct shared_config shared_config = { .name = name };
static const struct backend_spec late_spec = { .ops = &backend_late, .as = backend_one_child };
static const struct backend_spec spec = { .ops = &backend_shared,
					  .config = &shared_config,
					  .child = &late_spec };

static struct reactor control;
static struct backend_home home = { .reactor = &control };
static struct backend_device *devices[DEVICES + 1];
static bool walk_ended;

static void device_walked(void *arg, const struct backend_life_end *end)
{
	struct backend_device **device = arg;

	assert_int_equal(end->ret, 0);
	*device = end->device;
	walk_ended = true;
}

static void walk_to_the_end(struct backend_device **device, bool opens)
{
	static const struct backend_open_params params = { .logical_block_bytes = BLOCK_BYTES,
							   .queue_nr = THREADS,
							   .depth = DEPTH };
	const struct backend_life_owner owner = { .done = device_walked, .arg = device };
	struct backend_life *life;

	walk_ended = false;
	assert_int_equal(opens ? backend_open_begin(&life, &home, &spec, "t", &params, &owner)
			       : backend_close_begin(&life, &home, *device, &owner),
			 0);
	while (!walk_ended)
		reactor_turn(&control, true);
}

/* ---- a reactor's thread ---- */

struct user_io {
	struct backend_io io;
	bool is_out, is_cancelled;
	uint64_t buf[BLOCK_BYTES / sizeof(uint64_t)] __attribute__((aligned(512)));
};

struct thread {
	pthread_t thread;
	struct reactor reactor;
	struct backend_queue *queue[DEVICES];
	struct user_io io[DEVICES * DEPTH];
	struct prng prng;
	struct mail mail; /* to begin a round, to end; and the answers */
	bool works, ends;
	uint64_t read_nr, cancelled_nr;
};

static struct thread threads[THREADS];
static pthread_barrier_t ready, silent; /* all threads and main */
static unsigned ended_nr;		/* threads that have ended their round: main's */

static void user_done(struct backend_io *io)
{
	struct user_io *u = container_of(io, struct user_io, io);

	u->is_out = false;
	if (io->result < 0) {
		CHECK(u->is_cancelled);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(u->buf); i++)
		CHECK(u->buf[i] == io->offset_bytes + i * sizeof(u->buf[0]));
}

static void user_read(struct thread *t, struct user_io *u)
{
	u->io.op = BACKEND_READ;
	u->io.offset_bytes = prng_below(&t->prng, SIZE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
	u->io.length_bytes = BLOCK_BYTES;
	u->io.buf = u->buf;
	u->is_out = true;
	u->is_cancelled = false;
	CHECK(backend_io_submit(&u->io) == BACKEND_QUEUED);
	t->read_nr++;
}

static void user_cancel(struct thread *t, struct user_io *u)
{
	u->is_cancelled = true;
	t->cancelled_nr++;
	backend_io_cancel(&u->io);
}

static void thread_work(struct thread *t)
{
	uint64_t end_ns = ring_clock_ns() + (5 + prng_below(&t->prng, 15)) * NS_PER_MS;

	while (ring_clock_ns() < end_ns) {
		for (unsigned i = 0; i < 32; i++) {
			struct user_io *u = &t->io[prng_below(&t->prng, DEVICES * DEPTH)];

			if (!u->is_out)
				user_read(t, u);
			else if (prng_one_in(&t->prng, 4))
				user_cancel(t, u);
		}
		reactor_turn(&t->reactor, false);
	}
}

/* At once or by themselves. */
static void thread_finish(struct thread *t)
{
	bool cancel = prng_one_in(&t->prng, 2), any;

	do {
		any = false;
		for (unsigned i = 0; i < DEVICES * DEPTH; i++) {
			if (t->io[i].is_out && cancel)
				user_cancel(t, &t->io[i]);
			any |= t->io[i].is_out;
		}
		reactor_turn(&t->reactor, any);
	} while (any);
}

static void thread_open_queues(struct thread *t)
{
	for (unsigned d = 0; d < DEVICES; d++) {
		struct user_io *u = &t->io[(size_t)d * DEPTH];

		CHECK(backend_queue_open(&t->queue[d], devices[d], &t->reactor,
					 (unsigned)(t - threads), DEPTH) == 0);
		for (unsigned tag = 0; tag < DEPTH; tag++)
			CHECK(backend_io_init(&u[tag].io, t->queue[d], tag, user_done) == 0);
	}
}

static void thread_close_queues(struct thread *t)
{
	for (unsigned d = 0; d < DEVICES; d++)
		while (!backend_queue_rest(t->queue[d]))
			reactor_turn(&t->reactor, false);
	for (unsigned i = 0; i < DEVICES * DEPTH; i++)
		backend_io_fini(&t->io[i].io);
	for (unsigned d = 0; d < DEVICES; d++)
		backend_queue_close(t->queue[d]);
}

static void round_ended(struct mail *mail)
{
	(void)mail;
	ended_nr++;
}

static void thread_round(struct thread *t)
{
	t->works = false;
	thread_open_queues(t);
	thread_work(t);
	thread_finish(t);
	thread_close_queues(t);
	reactor_post(&control, &t->mail, round_ended);
}

static void round_begins(struct mail *mail)
{
	container_of(mail, struct thread, mail)->works = true;
}

static void thread_ends(struct mail *mail)
{
	container_of(mail, struct thread, mail)->ends = true;
}

static void *run(void *arg)
{
	const struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct thread *t = arg;

	CHECK(reactor_init(&t->reactor, &params) == 0);
	pthread_barrier_wait(&ready);
	while (!t->ends) {
		reactor_turn(&t->reactor, !t->works);
		if (t->works)
			thread_round(t);
	}
	/* A reactor outlives whoever may still be ringing its bell. */
	pthread_barrier_wait(&silent);
	reactor_fini(&t->reactor);
	return NULL;
}

/* ---- the main thread ---- */

static void start_threads(void)
{
	pthread_barrier_init(&ready, NULL, THREADS + 1);
	pthread_barrier_init(&silent, NULL, THREADS + 1);
	for (unsigned i = 0; i < THREADS; i++) {
		prng_init(&threads[i].prng, i + 1);
		assert_int_equal(pthread_create(&threads[i].thread, NULL, run, &threads[i]), 0);
	}
	pthread_barrier_wait(&ready);
}

static void end_threads(void)
{
	for (unsigned i = 0; i < THREADS; i++)
		reactor_post(&threads[i].reactor, &threads[i].mail, thread_ends);
	pthread_barrier_wait(&silent);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i].thread, NULL);
}

static void round_of_all(void)
{
	for (unsigned d = 0; d < DEVICES; d++)
		walk_to_the_end(&devices[d], true);
	ended_nr = 0;
	for (unsigned i = 0; i < THREADS; i++)
		reactor_post(&threads[i].reactor, &threads[i].mail, round_begins);
	while (ended_nr < THREADS) {
		walk_to_the_end(&devices[DEVICES], true);
		walk_to_the_end(&devices[DEVICES], false);
		reactor_turn(&control, true);
	}
	for (unsigned d = 0; d < DEVICES; d++)
		walk_to_the_end(&devices[d], false);
}

static void test_threads(void **state)
{
	const struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct reactor *const data[THREADS] = { &threads[0].reactor, &threads[1].reactor };

	(void)state;
	assert_int_equal(reactor_init(&control, &params), 0);
	home.data = data;
	home.data_nr = THREADS;
	alarm(250); /* somebody waits for ever */
	start_threads();
	for (unsigned i = 0; i < ROUNDS; i++)
		round_of_all();
	end_threads();
	alarm(0);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_true(threads[i].read_nr > ROUNDS);
		assert_true(threads[i].cancelled_nr > 0);
	}
	reactor_fini(&control);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };

	log_init(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
