/* FLUSH of an image whose cache is in the memory of its client: what it says when that is lost. */
#include "test/rig/rbd_rig.h"

#define CACHED RBD_VOL "cache: writeback\non_disconnect: forever\n"

static int flush(struct vol_rig *rig)
{
	return vol_do(rig, BACKEND_FLUSH, 0, 0);
}

static void test_one_fails(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_list_client(1);
	vol_reads(&rig, 512, 512, 0);
	/* It is lost, indeed. */
	vol_reads(&rig, 0, 512, 0);
	assert_int_equal(flush(&rig), -EIO);
	assert_int_equal(flush(&rig), 0);
	assert_int_equal(vol_write(&rig, 0, 512, 2), 0);
	assert_int_equal(flush(&rig), 0);
	assert_int_equal(fake_image()->data[0], 2);
	vol_close_rig(&rig);
}

/* Nothing was lost. */
static void test_none_fails(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_int_equal(flush(&rig), 0);
	assert_int_equal(vol_do_flags(&rig, BACKEND_WRITE, BACKEND_FUA, 512, 512), 0);
	fake_list_client(1);
	vol_reads(&rig, 0, 512, 1);
	assert_int_equal(flush(&rig), 0);
	vol_close_rig(&rig);
	assert_int_equal(fake_client_nr(), 0);
}

/* A cache that keeps nothing back. */
static void test_writethrough(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "cache: writethrough");
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_list_client(1);
	vol_reads(&rig, 0, 512, 1);
	assert_int_equal(flush(&rig), 0);
	vol_close_rig(&rig);
}

/* librbd has the FLUSH when the client is lost: that one says it, and the next one does not. */
static void test_on_its_way(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_hold(true);
	vol_submit(&rig, 1, BACKEND_FLUSH, 0, 0);
	vol_submit(&rig, 2, BACKEND_FLUSH, 0, 0);
	fake_list_client(1);
	/* The second one covers nothing by itself, and is sent again, but came before the loss. */
	assert_int_equal(vol_wait(&rig, 1), -EIO);
	fake_hold(false);
	assert_int_equal(vol_wait(&rig, 2), -EIO);
	assert_int_equal(flush(&rig), 0);
	vol_close_rig(&rig);
}

/* It covers nothing: it is sent again as any other. */
static void test_sent_again(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	fake_hold(true);
	vol_submit(&rig, 1, BACKEND_FLUSH, 0, 0);
	fake_list_client(1);
	fake_hold(false);
	assert_int_equal(vol_wait(&rig, 1), 0);
	assert_int_equal(fake_seen_last().client, 2);
	vol_close_rig(&rig);
}

static void test_held(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_block_call("rbd_open");
	fake_list_client(1);
	vol_submit(&rig, 1, BACKEND_READ, 0, 512);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rbd_open") > 0);
	vol_submit(&rig, 2, BACKEND_FLUSH, 0, 0);
	fake_unblock_call("rbd_open");
	assert_int_equal(vol_wait(&rig, 1), 0);
	assert_int_equal(vol_wait(&rig, 2), -EIO);
	assert_int_equal(flush(&rig), 0);
	vol_close_rig(&rig);
}

/* What a FLUSH that fails had covered is still to be flushed. */
static void test_failed_ones_cover_nothing(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_fail_answer(FAKE_FLUSH, -ENOSPC, 1);
	assert_int_equal(flush(&rig), -ENOSPC);
	fake_list_client(1);
	vol_reads(&rig, 0, 512, 0);
	assert_int_equal(flush(&rig), -EIO);
	/* The same of one that the library does not take. */
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_fail_call("rbd_aio_flush", -ENOMEM, 1);
	assert_int_equal(flush(&rig), -ENOMEM);
	fake_list_client(2);
	vol_reads(&rig, 0, 512, 0);
	assert_int_equal(flush(&rig), -EIO);
	assert_int_equal(flush(&rig), 0);
	vol_close_rig(&rig);
}

/* It says by itself what was lost. */
static void test_given_up(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "cache: writeback");
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_fail_answer(FAKE_FLUSH, -ETIMEDOUT, 1);
	assert_int_equal(flush(&rig), -ETIMEDOUT);
	RBD_TURN_UNTIL(&rig, atomic_load(&vol_device(&rig)->image));
	assert_int_equal(flush(&rig), 0);
	/* Nothing of it is left: with no write since, nothing is lost with the next client. */
	fake_list_client(2);
	vol_reads(&rig, 0, 512, 0);
	assert_int_equal(flush(&rig), 0);
	vol_close_rig(&rig);
}

/*
 * The cache has acknowledged a write, but its answer is read by the reactor only when the client is
 * lost already, as another queue has found out.
 */
static void test_acknowledged_late(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, CACHED);
	vol_open_queue(&rig);
	vol_submit_on(&rig, 0, 1, BACKEND_WRITE, 0, 0, 512);
	while (fake_out_nr() > 0)
		vol_pause_ms(1);
	fake_list_client(1);
	vol_submit_on(&rig, 1, 1, BACKEND_READ, 0, 0, 512);
	while (atomic_load(&vol_device(&rig)->lost_nr) == 0)
		reactor_turn(&rig.queue[1].reactor, false);
	assert_true(rig.queue[0].out[1]);
	assert_int_equal(vol_wait(&rig, 1), 0);
	assert_int_equal(flush(&rig), -EIO);
	assert_int_equal(flush(&rig), 0);
	RBD_TURN_UNTIL(&rig, vol_out_nr(&rig) == 0);
	vol_close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_one_fails),
		RBD_TEST(test_none_fails),
		RBD_TEST(test_writethrough),
		RBD_TEST(test_on_its_way),
		RBD_TEST(test_sent_again),
		RBD_TEST(test_held),
		RBD_TEST(test_failed_ones_cover_nothing),
		RBD_TEST(test_given_up),
		RBD_TEST(test_acknowledged_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
