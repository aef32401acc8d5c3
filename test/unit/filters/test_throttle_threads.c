/*
 * Three reactors on threads of their own share one group, while the main thread changes its limits;
 * queues come and go, I/Os are cancelled. What is looked for is what sanitizers see, an assertion,
 * or a queue that waits for ever. The second of real time decides nothing else.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "storage/registry.h"
#include "filters/throttle/throttle.h"
#include "base/prng.h"
#include "test/rig/config_check.h"

#define DEPTH 8
#define THREADS 3
#define ROUNDS 40

struct user_io {
	struct backend_io io;
	bool out;
};

struct user {
	pthread_t thread;
	struct backend_device *device;
	struct reactor reactor;
	struct user_io io[DEPTH];
	struct prng prng;
	uint64_t done_nr;
};

static struct user users[THREADS];
static pthread_barrier_t worked, silent; /* all threads and main */
static _Atomic bool over;

static void user_done(struct backend_io *io)
{
	container_of(io, struct user_io, io)->out = false;
}

static void submit(struct user *u, struct user_io *io)
{
	static char buf[4096] __attribute__((aligned(4096)));

	io->io.op = prng_one_in(&u->prng, 2) ? BACKEND_READ : BACKEND_WRITE_ZEROES;
	io->io.offset_bytes = 0;
	io->io.length_bytes = 4096;
	io->io.buf = buf;
	io->out = true;
	if (backend_io_submit(&io->io) == BACKEND_DONE)
		io->out = false;
	u->done_nr++;
}

static void work(struct user *u)
{
	uint64_t end_ns = ring_clock_ns() + (5 + prng_below(&u->prng, 20)) * NS_PER_MS;

	while (ring_clock_ns() < end_ns) {
		struct user_io *io = &u->io[prng_below(&u->prng, DEPTH)];

		if (!io->out)
			submit(u, io);
		else if (prng_one_in(&u->prng, 20))
			backend_io_cancel(&io->io);
		reactor_turn(&u->reactor, false);
	}
}

/* At once or by themselves. */
static void finish(struct user *u)
{
	bool cancel = prng_one_in(&u->prng, 2), any;

	do {
		any = false;
		for (unsigned tag = 0; tag < DEPTH; tag++) {
			if (u->io[tag].out && cancel)
				backend_io_cancel(&u->io[tag].io);
			any |= u->io[tag].out;
		}
		reactor_turn(&u->reactor, any);
	} while (any);
}

static void round_of(struct user *u, unsigned idx)
{
	struct backend_queue *queue;

	if (backend_queue_open(&queue, u->device, &u->reactor, idx, DEPTH) < 0)
		abort();
	for (unsigned tag = 0; tag < DEPTH; tag++)
		if (backend_io_init(&u->io[tag].io, queue, tag, user_done) < 0)
			abort();
	work(u);
	finish(u);
	for (unsigned tag = 0; tag < DEPTH; tag++)
		backend_io_fini(&u->io[tag].io);
	backend_queue_close(queue);
}

static void *run(void *arg)
{
	struct reactor_params params = { .sq_entries = 8, .cq_entries = 16 };
	struct user *u = arg;

	if (reactor_init(&u->reactor, &params) < 0)
		abort();
	for (unsigned i = 0; i < ROUNDS; i++)
		round_of(u, (unsigned)(u - users));
	pthread_barrier_wait(&worked);
	/* A reactor outlives whoever may still be ringing its bell. */
	pthread_barrier_wait(&silent);
	reactor_fini(&u->reactor);
	return NULL;
}

static void *change_limits(void *arg)
{
	struct throttle_limits limits;
	struct prng prng;

	prng_init(&prng, 1);
	while (!atomic_load(&over)) {
		throttle_get(arg, &limits);
		/* At the slowest the last I/Os of a round take some milliseconds. */
		limits.rate[THROTTLE_TOTAL_IOPS].avg =
			prng_one_in(&prng, 10) ? 0 : 2000 << prng_below(&prng, 8);
		throttle_update(arg, &limits);
		usleep((useconds_t)prng_below(&prng, 2000));
	}
	return NULL;
}

static void open_device(struct backend_device **ret_device, const struct throttle_config *config)
{
	static const struct backend_open_params open_params = { .logical_block_bytes = 512 };
	static const uint64_t null_config = 1 << 20;
	static const struct backend_spec null_spec = { .ops = &backend_null,
						       .config = &null_config };
	struct backend_spec spec = { .ops = &backend_throttle,
				     .config = config,
				     .child = &null_spec };
	char error[BACKEND_ERROR_BYTES] = "";

	backend_open(ret_device, &spec, "t", &open_params, error, sizeof(error));
	assert_string_equal(error, "");
}

static void test_threads(void **state)
{
	static char group[] = "g";
	static struct throttle_config config = { .group = group };
	struct backend_device *device[2];
	pthread_t changer;

	(void)state;
	for (int i = 0; i < THROTTLE_BUCKET_NR; i++)
		config.limits.rate[i].max_length_s = 1;
	config.limits.rate[THROTTLE_TOTAL_IOPS].avg = 20000;
	open_device(&device[0], &config);
	open_device(&device[1], &config);
	pthread_barrier_init(&worked, NULL, THREADS + 1);
	pthread_barrier_init(&silent, NULL, THREADS + 1);
	alarm(250); /* somebody waits for ever */
	for (unsigned i = 0; i < THREADS; i++) {
		users[i].device = device[i / 2];
		prng_init(&users[i].prng, i + 1);
		pthread_create(&users[i].thread, NULL, run, &users[i]);
	}
	pthread_create(&changer, NULL, change_limits, device[0]);
	pthread_barrier_wait(&worked);
	atomic_store(&over, true);
	pthread_join(changer, NULL);
	pthread_barrier_wait(&silent);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(users[i].thread, NULL);
		assert_true(users[i].done_nr > ROUNDS);
	}
	alarm(0);
	backend_close(device[0]);
	backend_close(device[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
