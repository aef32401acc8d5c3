/* An image is resized while it is open, from elsewhere and from here. */
#include "test/rig/rbd_rig.h"
#include "storage/resize.h"

#define MEBI (1ull << 20)

static void hear(void *arg, enum backend_news news)
{
	struct vol_rig *rig = arg;

	assert_int_equal(news, BACKEND_NEWS_GROWN);
	atomic_fetch_add(&rig->grown_nr, 1);
}

static void open_hearing(struct vol_rig *rig, const char *yaml)
{
	vol_configure(rig, yaml);
	assert_int_equal(vol_open_device(rig), 0);
	backend_on_news(rig->device, hear, rig);
	vol_open_queue(rig);
}

static uint64_t size_now(struct vol_rig *rig)
{
	uint64_t bytes = 0;

	assert_int_equal(backend_size_now(rig->device, &bytes, rig->error, sizeof(rig->error)), 0);
	return bytes;
}

static void resize(uint64_t size_bytes)
{
	fake_resize(size_bytes);
	fake_wait_told();
}

static void test_it_grows(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_hearing(&rig, RBD_VOL);
	assert_int_equal(size_now(&rig), 4 * MEBI);
	resize(6 * MEBI + 700);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	assert_int_equal(size_now(&rig), 6 * MEBI + 512);
	/* Told, but not of the size. */
	resize(6 * MEBI + 700);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	backend_set_size(rig.device, size_now(&rig));
	assert_int_equal(vol_write(&rig, 6 * MEBI, 512, 1), 0);
	vol_reads(&rig, 6 * MEBI, 512, 1);
	vol_close_rig(&rig);
}

/* Who hears of it is there only while a queue is open. */
static void test_nobody_hears(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_configure(&rig, RBD_VOL);
	assert_int_equal(vol_open_device(&rig), 0);
	backend_on_news(rig.device, hear, &rig);
	resize(5 * MEBI);
	assert_int_equal(atomic_load(&rig.grown_nr), 0);
	vol_open_queue(&rig);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	vol_open_queue(&rig);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	resize(6 * MEBI);
	assert_int_equal(atomic_load(&rig.grown_nr), 2);
	vol_close_queues(&rig);
	resize(7 * MEBI);
	assert_int_equal(atomic_load(&rig.grown_nr), 2);
	vol_close_rig(&rig);
}

/* While it is opened: between the question and its answer's use. */
static void *resize_and_go_on(void *arg)
{
	vol_wait_blocked("rbd_get_stripe_unit");
	resize(5 * MEBI);
	fake_unblock_call("rbd_get_stripe_unit");
	return arg;
}

static void test_it_grows_while_it_opens(void **state)
{
	struct vol_rig rig;
	pthread_t thread;

	(void)state;
	fake_block_call("rbd_get_stripe_unit");
	assert_int_equal(pthread_create(&thread, NULL, resize_and_go_on, NULL), 0);
	open_hearing(&rig, RBD_VOL);
	pthread_join(thread, NULL);
	assert_int_equal(backend_size(rig.device), 4 * MEBI);
	assert_int_equal(size_now(&rig), 5 * MEBI);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	vol_close_rig(&rig);
}

static void test_it_shrinks(void **state)
{
	const char *log;
	struct vol_rig rig;

	(void)state;
	open_hearing(&rig, RBD_VOL);
	log_catch();
	resize(2 * MEBI);
	log = log_end();
	assert_non_null(strstr(log, "level=error msg=\"the image is smaller than the device: "
				    "requests behind its end fail\" device=disk image=rbd/vol "
				    "image_size=2MiB device_size=4MiB"));
	assert_int_equal(atomic_load(&rig.grown_nr), 0);
	assert_int_equal(size_now(&rig), 2 * MEBI);
	assert_int_equal(vol_write(&rig, 2 * MEBI - 512, 512, 1), 0);
	assert_int_equal(vol_do(&rig, BACKEND_READ, 3 * MEBI, 512), -EIO);
	vol_close_rig(&rig);
}

/* The library says success of what it has cut off. */
static void test_cut_off(void **state)
{
	static const enum backend_op ops[] = { BACKEND_READ, BACKEND_WRITE, BACKEND_DISCARD,
					       BACKEND_WRITE_ZEROES };
	struct vol_rig rig;

	(void)state;
	open_hearing(&rig, RBD_VOL);
	fake_hold(true);
	for (unsigned i = 0; i < 4; i++) {
		vol_submit(&rig, i, ops[i], 2 * MEBI - 512, 1024);
		vol_submit(&rig, 4 + i, ops[i], 2 * MEBI - 1024, 1024);
	}
	resize(2 * MEBI);
	fake_hold(false);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(vol_wait(&rig, i), -EIO);
		assert_int_equal(vol_wait(&rig, 4 + i), 0);
	}
	fake_fail_call("rbd_get_size", -EIO, 1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	vol_close_rig(&rig);
}

/* storage/resize.h's rule. */
static void test_it_ends_within_a_block(void **state)
{
	struct vol_rig rig;

	(void)state;
	fake_image()->size_bytes = 4 * MEBI + 700;
	open_hearing(&rig, RBD_VOL);
	assert_int_equal(backend_size(rig.device), 4 * MEBI + 512);
	assert_int_equal(backend_left_out(rig.device), 188);
	assert_int_equal(vol_write(&rig, 4 * MEBI, 512, 0x11), 0);
	/* No whole block more; one byte is enough. */
	resize(4 * MEBI + 1023);
	assert_int_equal(atomic_load(&rig.grown_nr), 0);
	resize(4 * MEBI + 1024);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	vol_close_rig(&rig);
	/* Only read: all of it, and zeroes. */
	fake_image()->size_bytes = 4 * MEBI + 700;
	vol_configure(&rig, RBD_VOL);
	rig.params.read_only = true;
	assert_int_equal(vol_open_device(&rig), 0);
	vol_open_queue(&rig);
	assert_int_equal(backend_size(rig.device), 4 * MEBI + 1024);
	assert_int_equal(backend_left_out(rig.device), 0);
	memset(rig.queue[0].buf[0], 0xee, 1024);
	assert_int_equal(vol_do(&rig, BACKEND_READ, 4 * MEBI, 1024), 0);
	for (uint32_t i = 0; i < 1024; i++)
		assert_int_equal(rig.queue[0].buf[0][i], i < 512 ? 0x11 : 0);
	vol_close_rig(&rig);
}

/* ---- from here ---- */

static int grow(struct vol_rig *rig, uint64_t size_bytes)
{
	return backend_grow(rig->device, size_bytes, rig->error, sizeof(rig->error));
}

static void test_grow(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_hearing(&rig, RBD_VOL);
	assert_int_equal(grow(&rig, 5 * MEBI), 0);
	assert_int_equal(fake_call_nr("rbd_resize2"), 1);
	fake_wait_told();
	assert_int_equal(fake_image()->size_bytes, 5 * MEBI);
	assert_int_equal(size_now(&rig), 5 * MEBI);
	backend_set_size(rig.device, 5 * MEBI);
	/* It has grown already. */
	resize(7 * MEBI);
	assert_int_equal(grow(&rig, 6 * MEBI), 0);
	assert_int_equal(fake_call_nr("rbd_resize2"), 1);
	assert_int_equal(fake_image()->size_bytes, 7 * MEBI);
	fake_fail_call("rbd_resize2", -EDQUOT, 1);
	assert_int_equal(grow(&rig, 8 * MEBI), -EDQUOT);
	assert_string_equal(rig.error, "the image does not grow: EDQUOT");
	assert_int_equal(size_now(&rig), 7 * MEBI);
	vol_close_rig(&rig);
}

/* It is not closed meanwhile. */
static void *grow_run(void *arg)
{
	struct vol_rig *rig = arg;

	return (void *)(intptr_t)grow(rig, 5 * MEBI);
}

static void test_grow_while_it_is_lost(void **state)
{
	struct vol_rig rig;
	pthread_t thread;
	void *ret;

	(void)state;
	open_hearing(&rig, RBD_VOL);
	fake_block_call("rbd_resize2");
	assert_int_equal(pthread_create(&thread, NULL, grow_run, &rig), 0);
	vol_wait_blocked("rbd_resize2");
	fake_list_client(1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	vol_pause_ms(50);
	assert_int_equal(fake_call_nr("rbd_close"), 0);
	fake_unblock_call("rbd_resize2");
	pthread_join(thread, &ret);
	assert_int_equal((intptr_t)ret, -ESHUTDOWN);
	RBD_TURN_UNTIL(&rig, fake_call_nr("rbd_close") == 1);
	vol_close_rig(&rig);
}

static void test_grow_without_an_image(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_hearing(&rig, RBD_VOL);
	fake_list_client(1);
	fake_block_call("rbd_open");
	vol_submit(&rig, 0, BACKEND_READ, 0, 512);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rbd_open") > 0);
	assert_int_equal(grow(&rig, 5 * MEBI), -EAGAIN);
	assert_string_equal(rig.error, "the image is being opened again: try later");
	/* Other bytes may be there when it is open again. */
	fake_resize(6 * MEBI);
	fake_unblock_call("rbd_open");
	assert_int_equal(vol_wait(&rig, 0), 0);
	assert_int_equal(size_now(&rig), 6 * MEBI);
	assert_int_equal(atomic_load(&rig.grown_nr), 1);
	vol_close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_it_grows),
		RBD_TEST(test_nobody_hears),
		RBD_TEST(test_it_grows_while_it_opens),
		RBD_TEST(test_it_shrinks),
		RBD_TEST(test_it_ends_within_a_block),
		RBD_TEST(test_cut_off),
		RBD_TEST(test_grow),
		RBD_TEST(test_grow_while_it_is_lost),
		RBD_TEST(test_grow_without_an_image),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
