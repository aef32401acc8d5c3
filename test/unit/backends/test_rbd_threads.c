/*
 * Two queues of an image on reactors with threads of their own, while its client is put on the
 * blocklist again and again: each request ends once, and what was written last is there. What else
 * is looked for is what sanitizers see.
 */
#include <pthread.h>

#include "test/rig/rbd_rig.h"

#define REQUESTS 6000
#define LOSSES 12
#define SLOTS 64

struct worker {
	pthread_t thread;
	struct vol_rig *rig;
	struct vol_queue *queue;
	unsigned idx, submitted_nr;
	unsigned random;
	uint8_t byte[SLOTS]; /* what a slot of the image has */
	bool busy[SLOTS];
	unsigned slot[RBD_DEPTH];
	bool is_judged[RBD_DEPTH]; /* its slot may be another one's since */
};

static struct worker workers[RBD_QUEUES];
static atomic_bool losses_over;

static unsigned next_random(struct worker *w)
{
	w->random = w->random * 1103515245 + 12345;
	return w->random >> 16;
}

static uint64_t slot_offset(const struct worker *w, unsigned slot)
{
	return (w->idx * SLOTS + slot) * 4096ull;
}

/* The bytes of a READ are what the last WRITE has left there. */
static void worker_judge(struct worker *w, unsigned tag)
{
	const struct backend_io *io = &w->queue->io[tag];
	unsigned slot = w->slot[tag];

	assert_int_equal(io->result, 0);
	if (io->op == BACKEND_READ)
		for (unsigned i = 0; i < 4096; i += 511)
			assert_int_equal(w->queue->buf[tag][i], w->byte[slot]);
	w->busy[slot] = false;
	w->is_judged[tag] = true;
}

static void worker_submit(struct worker *w, unsigned tag)
{
	unsigned slot = next_random(w) % SLOTS;
	enum backend_op op = next_random(w) % 2 ? BACKEND_WRITE : BACKEND_READ;

	while (w->busy[slot])
		slot = (slot + 1) % SLOTS;
	w->busy[slot] = true;
	w->slot[tag] = slot;
	w->is_judged[tag] = false;
	if (op == BACKEND_WRITE)
		w->byte[slot] = (uint8_t)next_random(w);
	memset(w->queue->buf[tag], op == BACKEND_WRITE ? w->byte[slot] : ~w->byte[slot], 4096);
	w->submitted_nr++;
	vol_submit_on(w->rig, w->idx, tag, op, 0, slot_offset(w, slot), 4096);
	if (!w->queue->out[tag])
		worker_judge(w, tag);
}

static bool worker_wants_more(const struct worker *w)
{
	return w->submitted_nr < REQUESTS || !atomic_load(&losses_over);
}

/* A reactor belongs to the thread that makes it. */
static void *worker_run(void *arg)
{
	struct worker *w = arg;
	unsigned out_nr = 0;

	vol_open_queue_at(w->rig, w->idx);
	while (out_nr > 0 || worker_wants_more(w)) {
		unsigned done_nr = w->queue->done_nr;

		out_nr = 0;
		for (unsigned tag = 0; tag < RBD_DEPTH; tag++) {
			if (!w->queue->out[tag] && worker_wants_more(w))
				worker_submit(w, tag);
			out_nr += w->queue->out[tag];
		}
		while (out_nr > 0 && w->queue->done_nr == done_nr)
			reactor_turn(&w->queue->reactor, true);
		for (unsigned tag = 0; tag < RBD_DEPTH; tag++)
			if (!w->is_judged[tag] && !w->queue->out[tag])
				worker_judge(w, tag);
	}
	assert_int_equal(w->queue->done_nr, w->submitted_nr);
	vol_close_queue_at(w->rig, w->idx);
	return NULL;
}

static void start(struct vol_rig *rig)
{
	atomic_store(&losses_over, false);
	memset(workers, 0, sizeof(workers));
	for (unsigned i = 0; i < RBD_QUEUES; i++) {
		workers[i].rig = rig;
		workers[i].idx = i;
		workers[i].random = 1 + i;
		workers[i].queue = &rig->queue[i];
		memset(workers[i].is_judged, true, sizeof(workers[i].is_judged));
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]),
				 0);
	}
}

static void join(void)
{
	atomic_store(&losses_over, true);
	for (unsigned i = 0; i < RBD_QUEUES; i++)
		pthread_join(workers[i].thread, NULL);
}

static void hear(void *arg, enum backend_news news)
{
	assert_int_equal(news, BACKEND_NEWS_GROWN);
	atomic_fetch_add((atomic_uint *)arg, 1);
}

/* The main thread asks meanwhile what it may ask. */
static void look(const struct vol_rig *rig)
{
	char identity[BACKEND_IDENTITY_BYTES];

	backend_identity(rig->device, identity);
	assert_non_null(strstr(identity, "1a2b3c"));
	assert_null(backend_failure(rig->device, NULL));
}

static void test_losses(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_configure(&rig, RBD_VOL "on_disconnect: forever");
	rig.params.queue_nr = RBD_QUEUES;
	assert_int_equal(vol_open_device(&rig), 0);
	backend_on_news(rig.device, hear, &rig.grown_nr);
	start(&rig);
	for (unsigned i = 0; i < LOSSES; i++) {
		while (!atomic_load(&vol_device(&rig)->image))
			vol_pause_ms(1);
		vol_pause_ms(5);
		fake_resize((4u << 20) + i % 3 * 512);
		if (i % 3 == 0)
			fake_fail_answer(FAKE_WRITE, -ETIMEDOUT, 1);
		else
			fake_list_all();
		if (i % 4 == 0)
			fake_fail_call("rbd_open", -EIO, 1);
		while (atomic_load(&vol_device(&rig)->lost_nr) <= i)
			look(&rig);
	}
	join();
	assert_true(fake_call_nr("rbd_open") > LOSSES);
	backend_close(rig.device);
	vol_deconfigure(&rig);
	for (unsigned i = 0; i < RBD_QUEUES; i++)
		for (unsigned slot = 0; slot < SLOTS; slot++)
			assert_int_equal(fake_image()->data[slot_offset(&workers[i], slot)],
					 workers[i].byte[slot]);
}

/* Images that share a client lose it together. */
static void *image_run(void *arg)
{
	struct vol_rig *rig = arg;

	vol_open_queue(rig);
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(vol_do(rig, BACKEND_READ, 0, 4096), 0);
	vol_close_queues(rig);
	return NULL;
}

static void test_images(void **state)
{
	static struct vol_rig rigs[4];
	pthread_t threads[ARRAY_SIZE(rigs)];

	(void)state;
	/* Before: an image whose new client is listed while it opens the first time is not open. */
	for (unsigned i = 0; i < ARRAY_SIZE(rigs); i++) {
		vol_configure(&rigs[i], RBD_VOL "on_disconnect: forever");
		assert_int_equal(vol_open_device(&rigs[i]), 0);
	}
	assert_int_equal(fake_client_nr(), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(rigs); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, image_run, &rigs[i]), 0);
	for (unsigned i = 0; i < 5; i++) {
		vol_pause_ms(100);
		fake_list_all();
	}
	for (unsigned i = 0; i < ARRAY_SIZE(rigs); i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(rigs); i++)
		vol_close_rig(&rigs[i]);
	assert_int_equal(fake_client_nr(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { RBD_TEST(test_losses), RBD_TEST(test_images) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
