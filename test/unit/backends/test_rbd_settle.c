/* A cache before a hand over: what is acknowledged reaches the OSDs, or is said to be lost. */
#include "test/rig/rbd_rig.h"

/* Behind the magic of a record: rbd_fence.c. */
#define RECORD_ADDRS_AT sizeof("ublkd rbd client 1\n")

#define CACHED RBD_VOL "cache: writeback\non_disconnect: forever\n"

/* With a write that is in the cache only. */
static void open_written(struct vol_rig *rig)
{
	vol_open_rig(rig, CACHED);
	assert_int_equal(vol_write(rig, 0, 512, 1), 0);
}

/* As an upgrade does it: asked again and again. */
static void settle(struct vol_rig *rig)
{
	for (unsigned i = 0; !backend_settle(rig->device); i++) {
		assert_true(i < RBD_WAIT_SECONDS * 1000);
		vol_pause_ms(1);
	}
}

/* The rest of an upgrade; the result of the next one's first FLUSH. */
static int flush_of_next(struct vol_rig *rig)
{
	struct vol_rig next;
	int fd = vol_record_copy(rig), ret;

	backend_abandon(rig->device);
	vol_open_over(&next, CACHED, fd);
	ret = vol_do(&next, BACKEND_FLUSH, 0, 0);
	assert_int_equal(vol_do(&next, BACKEND_FLUSH, 0, 0), 0);
	vol_close_rig(&next);
	close(fd);
	return ret;
}

static void test_nothing_to_do(void **state)
{
	static const char *const yaml[] = { RBD_VOL, RBD_VOL "cache: writethrough", CACHED };
	struct vol_rig rig;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(yaml); i++) {
		vol_open_rig(&rig, yaml[i]);
		if (i < 2)
			assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
		assert_true(backend_settle(rig.device));
		vol_close_rig(&rig);
	}
	assert_int_equal(fake_call_nr("rbd_aio_flush"), 0);
}

static void test_settles(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	fake_hold(true);
	assert_false(backend_settle(rig.device));
	assert_false(backend_settle(rig.device));
	assert_int_equal(fake_call_nr("rbd_aio_flush"), 1);
	fake_hold(false);
	settle(&rig);
	assert_int_equal(fake_call_nr("rbd_aio_flush"), 1);
	assert_int_equal(flush_of_next(&rig), 0);
	vol_close_rig(&rig);
}

/* The upgrade is called off, and the device goes on. */
static void test_writes_after(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	settle(&rig);
	assert_int_equal(vol_write(&rig, 0, 512, 2), 0);
	assert_int_equal(flush_of_next(&rig), -EIO);
	vol_close_rig(&rig);
}

/* What the next one has acknowledged is its own. */
static void test_the_next_is_killed(void **state)
{
	struct vol_rig rig, next;
	int fd;

	(void)state;
	vol_open_rig(&rig, CACHED);
	settle(&rig);
	fd = vol_record_copy(&rig);
	backend_abandon(rig.device);
	vol_open_over(&next, CACHED, fd);
	assert_int_equal(vol_write(&next, 0, 512, 2), 0);
	vol_close_queues(&next);
	backend_close(next.device);
	next.params.size_bytes = 4u << 20;
	assert_int_equal(vol_open_device(&next), 0);
	vol_open_queue(&next);
	assert_int_equal(vol_do(&next, BACKEND_FLUSH, 0, 0), -EIO);
	vol_close_rig(&next);
	vol_close_rig(&rig);
	close(fd);
}

static void test_a_flush_that_fails(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	fake_fail_call("rbd_aio_flush", -ENOMEM, 1);
	assert_false(backend_settle(rig.device));
	fake_fail_call("rbd_aio_create_completion", -ENOMEM, 1);
	assert_false(backend_settle(rig.device));
	fake_fail_answer(FAKE_FLUSH, -ENOSPC, 1);
	settle(&rig);
	assert_int_equal(fake_call_nr("rbd_aio_flush"), 3);
	/* Another one went well, which proves nothing. */
	assert_int_equal(flush_of_next(&rig), -EIO);
	vol_close_rig(&rig);
}

/* On the blocklist: what the cache had is lost. */
static void test_lost(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	fake_list_client(1);
	settle(&rig);
	assert_int_equal(flush_of_next(&rig), -EIO);
	vol_close_rig(&rig);
	assert_int_equal(fake_client_nr(), 0);
}

/* The same, but another has found out before our FLUSH is answered. */
static void test_lost_meanwhile(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	fake_hold(true);
	assert_false(backend_settle(rig.device));
	ceph_revive(vol_device(&rig), atomic_load(&vol_device(&rig)->image), -ESHUTDOWN);
	fake_hold(false);
	settle(&rig);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), -EIO);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), 0);
	vol_close_rig(&rig);
}

/* The new image serves before librbd has answered our FLUSH of the old one. */
static void test_flush_before_the_answer(void **state)
{
	struct net_flush *f;
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	f = &vol_device(&rig)->flush;
	net_flush_begin_own(f);
	fake_list_client(1);
	vol_reads(&rig, 0, 512, 0);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), -EIO);
	net_flush_end_own(f, -ESHUTDOWN);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), 0);
	vol_close_rig(&rig);
}

/* Writes the record as another process does, whose client has these addresses. */
static void note_other(int fd, const char *addrs)
{
	char record[CEPH_ADDRS_BYTES] = "";

	snprintf(record, sizeof(record), "%s", addrs);
	assert_int_equal(pwrite(fd, record, sizeof(record), RECORD_ADDRS_AT), sizeof(record));
}

static void record_says(int fd, const char *addrs)
{
	char record[CEPH_ADDRS_BYTES];

	assert_int_equal(pread(fd, record, sizeof(record), RECORD_ADDRS_AT), sizeof(record));
	assert_string_equal(record, addrs);
}

/*
 * The image is being opened again, as far as this call, when another process takes it: that one is
 * neither put on the blocklist nor is its note overwritten.
 */
static void lost_when_handed_over(const char *call, unsigned listed_nr)
{
	struct vol_rig rig;
	int fd;

	vol_open_rig(&rig, RBD_VOL);
	fd = vol_record_copy(&rig);
	record_says(fd, "10.0.0.1:0/1");
	fake_block_call(call);
	fake_list_client(1);
	vol_submit(&rig, 0, BACKEND_READ, 0, 512);
	RBD_TURN_UNTIL(&rig, fake_blocked_nr(call) == 1);
	backend_abandon(rig.device);
	note_other(fd, "10.0.0.9:0/9");
	fake_unblock_call(call);
	RBD_TURN_UNTIL(&rig, atomic_load(&vol_device(&rig)->revive_nr) == 0);
	assert_null(atomic_load(&vol_device(&rig)->image));
	assert_int_equal(fake_call_nr("rados_blocklist_add"), listed_nr);
	record_says(fd, "10.0.0.9:0/9");
	backend_io_cancel(&rig.queue[0].io[0]);
	assert_int_equal(vol_wait(&rig, 0), -EIO);
	vol_close_rig(&rig);
	close(fd);
}

static void test_lost_when_handed_over(void **state)
{
	(void)state;
	lost_when_handed_over("rados_connect", 0);
}

/* Its own client of before is on the blocklist, as the next process wants it. */
static void test_lost_just_before(void **state)
{
	(void)state;
	lost_when_handed_over("rbd_open", 1);
}

/* The device is closed, and waits for the answer. */
static void test_closed_meanwhile(void **state)
{
	struct vol_rig rig;

	(void)state;
	open_written(&rig);
	assert_false(backend_settle(rig.device));
	vol_close_rig(&rig);
	assert_int_equal(fake_client_nr(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_nothing_to_do),
		RBD_TEST(test_settles),
		RBD_TEST(test_writes_after),
		RBD_TEST(test_the_next_is_killed),
		RBD_TEST(test_a_flush_that_fails),
		RBD_TEST(test_lost),
		RBD_TEST(test_lost_meanwhile),
		RBD_TEST(test_lost_when_handed_over),
		RBD_TEST(test_lost_just_before),
		RBD_TEST(test_closed_meanwhile),
		RBD_TEST(test_flush_before_the_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
