/* An image is opened: what fails, each in its words; what is found; whom the device is taken over
 * from.
 */
#include "net/session_look.h"
#include "test/rig/rbd_rig.h"

static void fails(const char *yaml, const char *call, int err, const char *words)
{
	if (call)
		fake_fail_call(call, err, 1);
	vol_open_fails(yaml, err, words);
	/* Nothing is left of it. */
	assert_int_equal(fake_client_nr(), 0);
}

/* ---- failures ---- */

static void test_no_such_thing(void **state)
{
	(void)state;
	fails("uri: rbd:p/vol", NULL, -ENOENT, "the cluster has no pool p: see ceph osd pool ls");
	fails("uri: rbd:rbd/v", NULL, -ENOENT, "there is no image rbd/v: see rbd ls --pool rbd");
	fails("uri: rbd:rbd/n/vol", NULL, -ENOENT,
	      "there is no image rbd/n/vol: see rbd ls --pool rbd");
	fails("uri: rbd:rbd/vol@s", NULL, -ENOENT,
	      "there is no image or snapshot rbd/vol@s: see rbd ls --pool rbd");
}

static void test_not_opened(void **state)
{
	(void)state;
	fails(RBD_VOL, "rados_connect", -EIO, "the cluster cannot be reached: EIO");
	fails(RBD_VOL, "rados_connect", -ESHUTDOWN, "the cluster cannot be reached: ESHUTDOWN");
	fails(RBD_VOL, "rados_ioctx_create", -EIO, "the pool rbd cannot be opened: EIO");
	fails(RBD_VOL, "rbd_open", -EPERM,
	      "client.admin may not use rbd/vol: give it mon 'profile rbd' and osd 'profile rbd "
	      "pool=rbd', or set read_only: true");
	fails(RBD_VOL, "rbd_open", -ETIMEDOUT, "rbd/vol cannot be opened: an OSD does not answer");
	fails(RBD_VOL, "rbd_open", -EIO, "rbd/vol cannot be opened: EIO");
	fails(RBD_VOL, "rbd_get_id", -EIO, "rbd/vol cannot be opened: EIO");
	fails(RBD_VOL, "rbd_get_features", -EIO, "rbd/vol cannot be opened: EIO");
	fails(RBD_VOL, "rbd_update_watch", -EIO, "rbd/vol cannot be watched: EIO");
	fails(RBD_VOL, "rbd_stat", -EIO, "rbd/vol cannot be asked what it is: EIO");
	fails(RBD_VOL, "rbd_get_size", -EIO, "rbd/vol cannot be asked what it is: EIO");
	fails(RBD_VOL, "rbd_get_stripe_unit", -EIO, "rbd/vol cannot be asked what it is: EIO");
}

static void test_empty(void **state)
{
	(void)state;
	fake_image()->size_bytes = 0;
	fails(RBD_VOL, NULL, -EINVAL, "rbd/vol is empty: see rbd resize");
	fake_image()->size_bytes = 511;
	fails(RBD_VOL, NULL, -EINVAL, "has 511 bytes, less than one block of 512");
}

static void test_the_lock(void **state)
{
	struct fake_image *image = fake_image();
	struct vol_rig rig;

	(void)state;
	fails(RBD_VOL "exclusive: off", NULL, -EINVAL,
	      "exclusive: off wants an image without that feature: rbd feature disable rbd/vol "
	      "object-map,fast-diff,exclusive-lock");
	fails(RBD_VOL "exclusive: hold", "rbd_lock_acquire", -EIO,
	      "the lock of rbd/vol cannot be had: EIO");
	snprintf(image->lock_owner, sizeof(image->lock_owner), "client.4");
	fails(RBD_VOL "exclusive: hold", NULL, -EROFS,
	      "another client, client.4, holds the lock of rbd/vol: see rbd lock ls rbd/vol");
	fake_fail_call("rbd_lock_get_owners", -ENOENT, 1);
	fails(RBD_VOL "exclusive: hold", NULL, -EROFS, "another client holds the lock of rbd/vol");
	image->lock_owner[0] = '\0';
	vol_open_rig(&rig, RBD_VOL "exclusive: hold");
	vol_close_rig(&rig);
	image->features = RBD_FEATURE_LAYERING;
	fails(RBD_VOL "exclusive: hold", NULL, -EINVAL,
	      "exclusive: hold wants an image with that feature: rbd feature enable rbd/vol "
	      "exclusive-lock");
	vol_open_rig(&rig, RBD_VOL "exclusive: off");
	vol_close_rig(&rig);
}

/* ---- what is found ---- */

static void test_limits(void **state)
{
	const struct backend_limits *l;
	struct vol_rig rig;

	(void)state;
	fake_image()->size_bytes = (4u << 20) + 700;
	vol_open_rig(&rig, RBD_VOL);
	l = &rig.device->limits;
	assert_int_equal(l->size_bytes, (4u << 20) + 512);
	assert_int_equal(l->caps, BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES);
	assert_int_equal(l->io_opt_bytes, 1u << 20);
	assert_int_equal(l->boundary_bytes, 1u << 20);
	assert_int_equal(l->discard_granularity_bytes, 1u << 20);
	assert_int_equal(l->max_discard_bytes, 256ull << 20);
	assert_string_equal(fake_conf(1, "rbd_cache"), "false");
	vol_close_rig(&rig);
}

static void test_stripes(void **state)
{
	struct vol_rig rig;

	(void)state;
	fake_image()->stripe_unit_bytes = 16 << 10;
	fake_image()->object_bytes = 4 << 20;
	vol_open_rig(&rig, RBD_VOL);
	assert_int_equal(rig.device->limits.io_opt_bytes, 16 << 10);
	assert_int_equal(rig.device->limits.boundary_bytes, 0);
	assert_int_equal(rig.device->limits.discard_granularity_bytes, 4 << 20);
	vol_close_rig(&rig);
	fake_image()->stripe_unit_bytes = 512ull << 20;
	vol_open_rig(&rig, RBD_VOL);
	assert_int_equal(rig.device->limits.boundary_bytes, 0);
	vol_close_rig(&rig);
}

static uint32_t caps_of(const char *yaml)
{
	struct vol_rig rig;
	uint32_t caps;

	vol_open_rig(&rig, yaml);
	caps = rig.device->limits.caps;
	vol_close_rig(&rig);
	return caps;
}

static void test_caches(void **state)
{
	const uint32_t all = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES;
	const uint32_t is_volatile = all | BACKEND_CAP_FLUSH | BACKEND_CAP_FUA;

	(void)state;
	assert_int_equal(caps_of(RBD_VOL "cache: off"), all);
	assert_int_equal(caps_of(RBD_VOL "cache: writethrough"), all);
	assert_int_equal(caps_of(RBD_VOL "cache: writearound"), is_volatile);
	assert_int_equal(caps_of(RBD_VOL "cache: writeback"), is_volatile);
}

static void test_read_only(void **state)
{
	struct vol_rig rig;

	(void)state;
	snprintf(fake_image()->snapshot, sizeof(fake_image()->snapshot), "s");
	vol_open_rig(&rig, "uri: rbd:rbd/vol@s\ncache: writeback\nexclusive: hold");
	assert_int_equal(rig.device->limits.caps, BACKEND_CAP_READ_ONLY);
	vol_reads(&rig, 0, 4096, 0);
	vol_close_rig(&rig);
	vol_configure(&rig, RBD_VOL);
	rig.params.read_only = true;
	assert_int_equal(vol_open_device(&rig), 0);
	vol_close_rig(&rig);
	assert_int_equal(fake_call_nr("rbd_open"), 0);
	assert_int_equal(fake_call_nr("rbd_open_read_only"), 2);
	assert_int_equal(fake_call_nr("rbd_update_watch"), 0);
	assert_int_equal(fake_call_nr("rbd_lock_acquire"), 0);
}

static void check_seconds(const char *yaml, const char *connect_s, const char *request_s)
{
	struct vol_rig rig;
	unsigned client = fake_call_nr("rados_connect") + 1;

	vol_open_rig(&rig, yaml);
	assert_string_equal(fake_conf(client, "client_mount_timeout"), connect_s);
	assert_string_equal(fake_conf(client, "rados_osd_op_timeout"), request_s);
	vol_close_rig(&rig);
}

static void test_seconds(void **state)
{
	(void)state;
	check_seconds(RBD_VOL, "10", "30");
	check_seconds(RBD_VOL "timeout: 40s", "40", "40");
	check_seconds(RBD_VOL "timeout: 1100ms\non_disconnect: fail", "2", "2");
	check_seconds(RBD_VOL "on_disconnect: forever", "10", "60");
	check_seconds(RBD_VOL "on_disconnect: {queue: 48h}", "10", "86400");
}

/* ---- identity ---- */

static void identity(const char *yaml, char text[BACKEND_IDENTITY_BYTES])
{
	struct vol_rig rig;

	vol_open_rig(&rig, yaml);
	backend_identity(rig.device, text);
	vol_close_rig(&rig);
}

static void test_identity(void **state)
{
	char mine[BACKEND_IDENTITY_BYTES], again[BACKEND_IDENTITY_BYTES];
	char other[BACKEND_IDENTITY_BYTES], id[BACKEND_IDENTITY_BYTES];
	struct fake_image *image = fake_image();

	(void)state;
	identity(RBD_VOL, mine);
	identity(RBD_VOL "user: other\ncache: writeback", again);
	assert_string_equal(mine, again);
	assert_non_null(strstr(mine, "0f0e0d0c-0b0a-0908-0706-050403020100 7 1a2b3c "));
	snprintf(image->snapshot, sizeof(image->snapshot), "s");
	identity("uri: rbd:rbd/vol@s", other);
	assert_string_not_equal(mine, other);
	snprintf(image->namespace, sizeof(image->namespace), "n");
	identity("uri: rbd:rbd/n/vol", other);
	assert_string_not_equal(mine, other);
	image->namespace[0] = '\0';
	fake_set_id("1a2b3d");
	identity(RBD_VOL, id);
	assert_string_not_equal(mine, id);
}

/* ---- clients ---- */

static void test_images_share_clients(void **state)
{
	static struct vol_rig rig[4];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		vol_open_rig(&rig[i], RBD_VOL "images_per_client: 2");
	assert_int_equal(fake_client_nr(), 2);
	vol_open_rig(&rig[3], RBD_VOL "images_per_client: 2\nuser: other");
	assert_int_equal(fake_client_nr(), 3);
	for (unsigned i = 0; i < 4; i++)
		vol_close_rig(&rig[i]);
	assert_int_equal(fake_client_nr(), 0);
}

/* Nobody has noticed that it is on the blocklist: its image is idle. */
static void test_a_listed_client_is_replaced(void **state)
{
	struct vol_rig idle, rig;

	(void)state;
	vol_open_rig(&idle, RBD_VOL);
	fake_list_client(1);
	vol_open_rig(&rig, RBD_VOL);
	assert_int_equal(fake_client_nr(), 2);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_int_equal(fake_seen_last().client, 2);
	vol_close_rig(&rig);
	vol_close_rig(&idle);
}

static void *open_run(void *arg)
{
	struct vol_rig *rig = arg;

	vol_configure(rig, RBD_VOL);
	assert_int_equal(vol_open_device(rig), 0);
	return NULL;
}

/* The same, and the image that had it is closed before that is noticed. */
static void test_a_listed_client_is_left_behind(void **state)
{
	struct vol_rig idle, rig;
	pthread_t thread;

	(void)state;
	vol_open_rig(&idle, RBD_VOL);
	fake_block_call("rbd_open");
	assert_int_equal(pthread_create(&thread, NULL, open_run, &rig), 0);
	vol_wait_blocked("rbd_open");
	fake_list_client(1);
	vol_close_rig(&idle);
	fake_unblock_call("rbd_open");
	pthread_join(thread, NULL);
	assert_int_equal(fake_client_nr(), 1);
	vol_open_queue(&rig);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_int_equal(fake_seen_last().client, 2);
	vol_close_rig(&rig);
}

/* The same of several clients, one after the other. */
static void test_listed_clients_are_replaced(void **state)
{
	static struct vol_rig idle[5];
	struct vol_rig rig;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(idle); i++)
		vol_open_rig(&idle[i], RBD_VOL "images_per_client: 2");
	/* Each has room. */
	vol_close_rig(&idle[0]);
	vol_close_rig(&idle[2]);
	assert_int_equal(fake_client_nr(), 3);
	fake_list_all();
	vol_open_rig(&rig, RBD_VOL "images_per_client: 2");
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	assert_int_equal(fake_seen_last().client, 4);
	vol_close_rig(&rig);
	vol_close_rig(&idle[1]);
	vol_close_rig(&idle[3]);
	vol_close_rig(&idle[4]);
}

/* One that is listed at once is told. */
static void test_a_new_client_is_listed(void **state)
{
	(void)state;
	fake_list_client(1);
	fails(RBD_VOL, NULL, -ESHUTDOWN, "rbd/vol cannot be opened: ESHUTDOWN");
	assert_int_equal(fake_call_nr("rados_connect"), 1);
}

/* ---- whom it is taken over from ---- */

/* Of a device that was served by another client, and is closed. */
static int record_of_one_before(void)
{
	struct vol_rig before;
	int fd;

	vol_open_rig(&before, RBD_VOL "user: a");
	fd = vol_record_copy(&before);
	vol_close_rig(&before);
	return fd;
}

static void test_the_one_before_is_listed_first(void **state)
{
	struct vol_rig before, rig;
	int fd;

	(void)state;
	vol_open_rig(&before, RBD_VOL "user: a");
	fd = vol_record_copy(&before);
	fake_events_clear();
	vol_open_over(&rig, RBD_VOL "user: b", fd);
	assert_string_equal(fake_events(), "connect 2;list 1 by 2;open 2;");
	assert_int_equal(fake_call_nr("rados_wait_for_latest_osdmap"), 1);
	assert_int_equal(vol_write(&rig, 0, 512, 1), 0);
	vol_close_rig(&rig);
	close(fd);
	/* The next one finds its successor. */
	fd = vol_record_copy(&before);
	fake_events_clear();
	vol_open_over(&rig, RBD_VOL "user: b", fd);
	assert_string_equal(fake_events(), "connect 3;list 2 by 3;open 3;");
	vol_close_rig(&rig);
	vol_close_rig(&before);
	close(fd);
}

static void test_it_cannot_be_listed(void **state)
{
	static const char *const calls[] = { "rados_blocklist_add",
					     "rados_wait_for_latest_osdmap" };
	int fd = record_of_one_before();
	struct vol_rig rig;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		vol_configure(&rig, RBD_VOL);
		rig.stored_fds[0] = fd;
		fake_fail_call(calls[i], -EACCES, 1);
		assert_int_equal(vol_open_device(&rig), -EACCES);
		assert_string_equal(rig.error,
				    "the client that served rbd/vol before, 10.0.0.1:0/1, cannot "
				    "be put on the cluster's blocklist: EACCES; client.admin needs "
				    "mon 'profile rbd'");
		vol_deconfigure(&rig);
	}
	assert_int_equal(fake_call_nr("rbd_open"), 1);
	close(fd);
}

/* Nothing of it was written. */
static void test_not_for_reading(void **state)
{
	int fd = record_of_one_before();
	struct vol_rig rig;

	(void)state;
	vol_configure(&rig, RBD_VOL);
	rig.stored_fds[0] = fd;
	rig.params.read_only = true;
	assert_int_equal(vol_open_device(&rig), 0);
	assert_int_equal(fake_call_nr("rados_blocklist_add"), 0);
	vol_close_rig(&rig);
	close(fd);
}

static void test_garbage_is_no_record(void **state)
{
	static const char magic[] = "ublkd rbd client 1\n";
	char text[sizeof(magic) + CEPH_ADDRS_BYTES] = "garbage";
	size_t bytes[] = {
		0, 100, sizeof(text), sizeof(text), sizeof(text), sizeof(text) - 1, sizeof(text)
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
		struct vol_rig rig;
		int fd = memfd_create("record", MFD_CLOEXEC);

		if (i == 3) /* no end */
			memset(text + sizeof(magic), 'a', CEPH_ADDRS_BYTES);
		if (i >= 3)
			memcpy(text, magic, sizeof(magic));
		if (i == 4) /* nobody */
			memset(text + sizeof(magic), 0, CEPH_ADDRS_BYTES);
		if (i == 5) /* cut off */
			strcpy(text + sizeof(magic), "10.0.0.1:0/9");
		if (i == 6) /* whole, but of another kind */
			text[0] = 'U';
		assert_int_equal(write(fd, text, bytes[i]), bytes[i]);
		vol_open_over(&rig, RBD_VOL, fd);
		assert_int_equal(fake_call_nr("rados_blocklist_add"), 0);
		/* From now on it is a record. */
		assert_int_equal(lseek(fd, 0, SEEK_END), sizeof(text) + 1);
		vol_close_rig(&rig);
		close(fd);
	}
}

/* Of a program that does not know of a clean end. */
static void test_an_older_record(void **state)
{
	int fd = record_of_one_before();
	struct vol_rig rig;

	(void)state;
	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	vol_open_over(&rig, RBD_VOL, fd);
	assert_int_equal(fake_call_nr("rados_blocklist_add"), 1);
	vol_close_rig(&rig);
	close(fd);
}

/* The memory of the one before had what it acknowledged. */
static void test_taken_over_from_a_cache(void **state)
{
	struct vol_rig rig;

	(void)state;
	vol_open_over(&rig, RBD_VOL "cache: writeback", 0);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), -EIO);
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), 0);
	vol_close_rig(&rig);
	vol_open_rig(&rig, RBD_VOL "cache: writeback");
	assert_int_equal(vol_do(&rig, BACKEND_FLUSH, 0, 0), 0);
	vol_close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_no_such_thing),
		RBD_TEST(test_not_opened),
		RBD_TEST(test_empty),
		RBD_TEST(test_the_lock),
		RBD_TEST(test_limits),
		RBD_TEST(test_stripes),
		RBD_TEST(test_caches),
		RBD_TEST(test_read_only),
		RBD_TEST(test_seconds),
		RBD_TEST(test_identity),
		RBD_TEST(test_images_share_clients),
		RBD_TEST(test_a_listed_client_is_replaced),
		RBD_TEST(test_a_listed_client_is_left_behind),
		RBD_TEST(test_listed_clients_are_replaced),
		RBD_TEST(test_a_new_client_is_listed),
		RBD_TEST(test_the_one_before_is_listed_first),
		RBD_TEST(test_it_cannot_be_listed),
		RBD_TEST(test_not_for_reading),
		RBD_TEST(test_garbage_is_no_record),
		RBD_TEST(test_an_older_record),
		RBD_TEST(test_taken_over_from_a_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
