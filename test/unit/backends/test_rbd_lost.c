/* The cluster serves an image no more: it is opened again, and what becomes of requests meanwhile.
 */
#include "net/session_look.h"
#include "test/rig/rbd_rig.h"

/* ---- lost, and found again ---- */

static void test_opened_again(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_events_clear();
	fake_list_client(1);
	assert_int_equal(vol_write(&rig, 512, 512, 2), 0);
	assert_int_equal(fake_seen_last().client, 2);
	vol_reads(&rig, 0, 512, 1);
	vol_reads(&rig, 512, 512, 2);
	RBD_TURN_UNTIL(&rig, fake_client_nr() == 1);
	assert_string_equal(fake_events(),
			    "list 1 by 0;connect 2;list 1 by 2;open 2;close 1;end 1;");
	/* And once more. */
	fake_events_clear();
	fake_list_client(2);
	vol_reads(&rig, 512, 512, 2);
	RBD_TURN_UNTIL(&rig, fake_client_nr() == 1);
	assert_string_equal(fake_events(),
			    "list 2 by 0;connect 3;list 2 by 3;open 3;close 2;end 2;");
	vol_close_rig(&rig);
}

/* All that it had, and what comes meanwhile. */
static void test_each_once(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	fake_hold(true);
	vol_submit_writes(&rig, RBD_DEPTH - 2);
	fake_block_call("rbd_open");
	fake_list_client(1);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rbd_open") > 0);
	RBD_TURN_FOR_MS(&rig, 60);
	vol_submit(&rig, RBD_DEPTH - 2, BACKEND_DISCARD, 1u << 20, 1u << 20);
	vol_submit(&rig, RBD_DEPTH - 1, BACKEND_READ, 0, 512);
	assert_int_equal(vol_out_nr(&rig), RBD_DEPTH);
	assert_int_equal(fake_seen_nr(), RBD_DEPTH - 2);
	fake_hold(false);
	fake_unblock_call("rbd_open");
	RBD_TURN_UNTIL(&rig, vol_out_nr(&rig) == 0);
	assert_int_equal(rig.queue[0].done_nr, RBD_DEPTH);
	assert_int_equal(fake_seen_nr(), 2 * RBD_DEPTH - 2);
	for (unsigned tag = 0; tag < RBD_DEPTH; tag++)
		assert_int_equal(rig.queue[0].io[tag].result, 0);
	for (unsigned tag = 0; tag < RBD_DEPTH - 2; tag++)
		assert_int_equal(fake_image()->data[512u * tag], tag + 1);
	vol_close_rig(&rig);
}

/* A write that was given up lands never once its successor has been sent. */
static void test_late_write(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "on_disconnect: forever");
	fake_fail_answer(FAKE_WRITE, -ETIMEDOUT, 1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_int_equal(vol_write(&rig, 0, 512, 2), 0);
	fake_late_land();
	vol_reads(&rig, 0, 512, 2);
	assert_true(fake_is_listed(1));
	assert_int_equal(fake_seen_at(1).client, 2);
	vol_close_rig(&rig);
}

static void test_tried_until_it_works(void **state)
{
	static const char *const calls[] = { "rados_connect", "rados_blocklist_add", "rbd_open",
					     "rbd_update_watch" };
	const char *log;
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		fake_fail_call(calls[i], -EIO, 1);
	log_catch();
	fake_list_client(1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	log = log_end();
	assert_non_null(strstr(log,
			       "level=warn msg=\"the image is lost\" device=disk image=rbd/vol "
			       "client=10.0.0.1:0/1 why=\"the cluster has put the client on "
			       "its blocklist\""));
	assert_non_null(strstr(log, "msg=\"the image cannot be opened again\" device=disk "
				    "image=rbd/vol why=\"the cluster cannot be reached: EIO\""));
	assert_non_null(strstr(log, "why=\"rbd/vol cannot be opened: EIO\""));
	assert_non_null(strstr(log, "level=info msg=\"the image is open again\" device=disk"));
	assert_true(fake_is_listed(1));
	RBD_TURN_UNTIL(&rig, fake_client_nr() == 1);
	vol_close_rig(&rig);
}

/* It is idle: its client is listed as the first one's, and the image is not opened with that. */
static void test_two_images_of_a_client(void **state)
{
	struct vol_rig rig, idle;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	vol_open_rig(&idle, RBD_VOL);
	assert_int_equal(fake_client_nr(), 1);
	fake_list_all();
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	fake_list_all();
	assert_int_equal(vol_write(&rig, 0, 512, 2), 0);
	assert_int_equal(vol_write(&idle, 0, 512, 3), 0);
	vol_reads(&rig, 0, 512, 3);
	vol_close_rig(&rig);
	vol_close_rig(&idle);
}

/* Another image has a client with the same wish that is listed, too, and has not noticed. */
static void test_the_next_client_is_listed_too(void **state)
{
	struct vol_rig rig, idle;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "images_per_client: 1");
	vol_open_rig(&idle, RBD_VOL "images_per_client: 1");
	vol_close_rig(&rig);
	vol_open_rig(&rig, RBD_VOL "images_per_client: 1");
	fake_list_all();
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	vol_close_rig(&rig);
	vol_close_rig(&idle);
}

static void test_looks(void **state)
{
	struct net_connection_look look;
	struct backend_wait wait;
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	fake_list_client(1);
	fake_block_call("rados_connect");
	vol_submit(&rig, 0, BACKEND_READ, 0, 512);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rados_connect") > 0);
	RBD_TURN_FOR_MS(&rig, 5);
	backend_io_where(&rig.queue[0].io[0], &wait);
	assert_string_equal(wait.words, "waiting for the image to be open again");
	assert_true(backend_connection(rig.queue[0].queue, 0, &look));
	assert_string_equal(look.state, "connecting");
	assert_int_equal(look.lost, 1);
	assert_int_equal(look.last_end, NET_END_CLOSED);
	fake_unblock_call("rados_connect");
	assert_int_equal(vol_wait(&rig, 0), 0);
	assert_true(backend_connection(rig.queue[0].queue, 0, &look));
	assert_string_equal(look.state, "connected");
	assert_int_equal(look.connects, 2);
	assert_int_equal(look.resent, 1);
	vol_close_rig(&rig);
}

/* ---- another image ---- */

static void test_another_image(void **state)
{
	char identity[BACKEND_IDENTITY_BYTES], after[BACKEND_IDENTITY_BYTES];
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	backend_identity(rig.device, identity);
	fake_set_id("4d5e6f");
	fake_list_client(1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	assert_string_equal(backend_failure(rig.device, NULL),
			    "the image is not what it was: its id was 1a2b3c, is 4d5e6f: start the "
			    "device anew when that is wanted");
	assert_int_equal(vol_do(&rig, BACKEND_READ, 0, 512), -EIO);
	assert_int_equal(fake_image()->data[0], 0);
	RBD_TURN_UNTIL(&rig, fake_client_nr() == 0);
	backend_identity(rig.device, after);
	assert_string_equal(identity, after);
	vol_close_rig(&rig);
}

static void test_smaller_when_it_is_back(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL);
	fake_list_client(1);
	fake_resize(1u << 20);
	log_catch();
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_non_null(strstr(log_end(), "msg=\"the image is smaller than the device"));
	assert_int_equal(vol_write(&rig, 2u << 20, 512, 1), -EIO);
	vol_close_rig(&rig);
}

/* ---- on_disconnect ---- */

/* As if the requests that the queue holds had waited for so long already. */
static void let_pass(struct vol_rig *rig, unsigned seconds)
{
	struct ceph_queue *q = rig->queue[0].queue->priv;

	q->held_since_ns -= seconds * NS_PER_SEC;
}

static void lose_for_long(struct vol_rig *rig, const char *yaml)
{
	vol_open_rig(rig, yaml);
	fake_block_call("rados_connect");
	fake_list_client(1);
}

static void come_back(struct vol_rig *rig)
{
	fake_unblock_call("rados_connect");
	RBD_TURN_UNTIL(rig, atomic_load(&vol_device(rig)->image));
	/* The queue looks for it, if it has to. */
	RBD_TURN_FOR_MS(rig, 50);
	assert_int_equal(vol_write(rig, 0, 512, 9), 0);
}

static void test_fail(void **state)
{
	struct vol_rig rig;

	(void)state;
	lose_for_long(&rig, RBD_VOL "on_disconnect: fail");
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	come_back(&rig);
	vol_close_rig(&rig);
}

static void test_queue(void **state)
{
	const char *log;
	struct vol_rig rig;

	(void)state;
	lose_for_long(&rig, RBD_VOL "on_disconnect: {queue: 1h}");
	vol_submit(&rig, 0, BACKEND_WRITE, 0, 512);
	vol_submit(&rig, 1, BACKEND_READ, 0, 512);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rados_connect") > 0);
	RBD_TURN_FOR_MS(&rig, 60);
	let_pass(&rig, 3000);
	RBD_TURN_FOR_MS(&rig, 60);
	assert_int_equal(vol_out_nr(&rig), 2);
	log_catch();
	let_pass(&rig, 600);
	assert_int_equal(vol_wait(&rig, 0), -EIO);
	log = log_end();
	assert_non_null(strstr(log,
			       "level=error msg=\"requests fail until the image is open again\" "
			       "device=disk queue=0 image=rbd/vol"));
	assert_int_equal(vol_out_nr(&rig), 0);
	/* At once, until it is back. */
	vol_submit(&rig, 0, BACKEND_WRITE, 0, 512);
	assert_false(rig.queue[0].out[0]);
	assert_int_equal(rig.queue[0].io[0].result, -EIO);
	come_back(&rig);
	/* The next time it waits again. */
	fake_list_client(2);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	vol_close_rig(&rig);
}

static void test_forever(void **state)
{
	struct vol_rig rig;

	(void)state;
	lose_for_long(&rig, RBD_VOL "on_disconnect: forever");
	vol_submit(&rig, 0, BACKEND_WRITE, 0, 512);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rados_connect") > 0);
	RBD_TURN_FOR_MS(&rig, 60);
	let_pass(&rig, 1u << 24);
	RBD_TURN_FOR_MS(&rig, 60);
	assert_true(rig.queue[0].out[0]);
	fake_unblock_call("rados_connect");
	assert_int_equal(vol_wait(&rig, 0), 0);
	vol_close_rig(&rig);
}

/* ---- a request that librbd has given up ---- */

static void check_timeout(const char *yaml, int result)
{
	struct vol_rig rig;

	vol_open_rig(&rig, yaml);
	fake_fail_answer(FAKE_READ, -ETIMEDOUT, 1);
	log_catch();
	assert_int_equal(vol_do(&rig, BACKEND_READ, 0, 512), result);
	RBD_TURN_UNTIL(&rig, atomic_load(&vol_device(&rig)->image));
	assert_non_null(
		strstr(log_end(), "why=\"the cluster has not answered a request in time\""));
	assert_int_equal(vol_do(&rig, BACKEND_READ, 0, 512), 0);
	vol_close_rig(&rig);
}

static void test_timeout(void **state)
{
	(void)state;
	check_timeout(RBD_VOL "on_disconnect: fail", -ETIMEDOUT);
	check_timeout(RBD_VOL, -ETIMEDOUT);
	check_timeout(RBD_VOL "on_disconnect: forever", 0);
	assert_int_equal(fake_call_nr("rados_blocklist_add"), 3);
}

/* ---- cancel ---- */

static void test_cancel_of_a_held_one(void **state)
{
	struct vol_rig rig;

	(void)state;
	lose_for_long(&rig, RBD_VOL "on_disconnect: forever");
	for (unsigned tag = 0; tag < 3; tag++)
		vol_submit(&rig, tag, BACKEND_WRITE, 512u * tag, 512);
	RBD_TURN_UNTIL(&rig, fake_out_nr() == 0);
	RBD_TURN_FOR_MS(&rig, 10);
	backend_io_cancel(&rig.queue[0].io[1]);
	assert_false(rig.queue[0].out[1]);
	/* Told to the core as -EIO: io.c. */
	assert_true(rig.queue[0].io[1].result < 0);
	assert_int_equal(vol_out_nr(&rig), 2);
	fake_unblock_call("rados_connect");
	assert_int_equal(vol_wait(&rig, 0), 0);
	assert_int_equal(vol_wait(&rig, 2), 0);
	assert_int_equal(fake_seen_nr(), 5);
	vol_close_rig(&rig);
}

/* librbd has it: it comes to its end with the answer, and is not held for ever then. */
static void test_cancel_of_one_on_its_way(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "on_disconnect: forever");
	fake_hold(true);
	vol_submit(&rig, 0, BACKEND_WRITE, 0, 512);
	vol_submit(&rig, 1, BACKEND_WRITE, 512, 512);
	backend_io_cancel(&rig.queue[0].io[0]);
	assert_true(rig.queue[0].out[0]);
	fake_block_call("rados_connect");
	fake_list_client(1);
	assert_true(vol_wait(&rig, 0) < 0);
	assert_true(rig.queue[0].out[1]);
	fake_hold(false);
	fake_unblock_call("rados_connect");
	assert_int_equal(vol_wait(&rig, 1), 0);
	/* Its tag is as good as before. */
	fake_list_client(2);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	/* An answer that was on its way counts. */
	fake_hold(true);
	vol_submit(&rig, 0, BACKEND_READ, 0, 512);
	backend_io_cancel(&rig.queue[0].io[0]);
	fake_hold(false);
	assert_int_equal(vol_wait(&rig, 0), 0);
	vol_close_rig(&rig);
}

/* ---- close ---- */

static void test_close_while_it_is_opened_again(void **state)
{
	struct vol_rig rig;

	(void)state;
	lose_for_long(&rig, RBD_VOL "on_disconnect: fail");
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rados_connect") > 0);
	fake_fail_call("rados_connect", -ETIMEDOUT, 1);
	vol_close_queues(&rig);
	fake_unblock_call("rados_connect");
	vol_close_rig(&rig);
	assert_int_equal(fake_client_nr(), 0);
}

static void *let_it_connect(void *arg)
{
	vol_pause_ms(100);
	fake_unblock_call("rados_connect");
	return arg;
}

/* It connects while the device is being closed. */
static void test_close_when_it_is_open_again(void **state)
{
	struct vol_rig rig;
	pthread_t thread;

	(void)state;
	lose_for_long(&rig, RBD_VOL "on_disconnect: fail");
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr("rados_connect") > 0);
	assert_int_equal(pthread_create(&thread, NULL, let_it_connect, NULL), 0);
	vol_close_rig(&rig);
	pthread_join(thread, NULL);
	assert_int_equal(fake_client_nr(), 0);
}

/* A pause between two tries ends with the device. */
static void test_close_in_a_pause(void **state)
{
	struct vol_rig rig;
	uint64_t start_ns;

	(void)state;
	vol_open_rig(&rig, RBD_VOL "on_disconnect: fail");
	fake_fail_call("rados_connect", -EIO, 1000);
	fake_list_client(1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), -EIO);
	RBD_TURN_UNTIL(&rig, fake_call_nr("rados_connect") >= 6);
	/* It is one of 3.2 s now. */
	start_ns = ring_clock_ns();
	vol_close_rig(&rig);
	assert_true(ring_clock_ns() - start_ns < 2500 * NS_PER_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_opened_again),
		RBD_TEST(test_each_once),
		RBD_TEST(test_late_write),
		RBD_TEST(test_tried_until_it_works),
		RBD_TEST(test_two_images_of_a_client),
		RBD_TEST(test_the_next_client_is_listed_too),
		RBD_TEST(test_looks),
		RBD_TEST(test_another_image),
		RBD_TEST(test_smaller_when_it_is_back),
		RBD_TEST(test_fail),
		RBD_TEST(test_queue),
		RBD_TEST(test_forever),
		RBD_TEST(test_timeout),
		RBD_TEST(test_cancel_of_a_held_one),
		RBD_TEST(test_cancel_of_one_on_its_way),
		RBD_TEST(test_close_while_it_is_opened_again),
		RBD_TEST(test_close_when_it_is_open_again),
		RBD_TEST(test_close_in_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
