/* Clients of clusters: who shares one, how it is configured, and what becomes of a failed one. */
#include <pthread.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "test/rig/key_file.h"
#include "test/rig/rbd_rig.h"

static struct config_check options_check;

static struct ceph_wish wish_of(const char *options)
{
	struct ceph_wish wish = {
		.cluster = "ceph",
		.user = "admin",
		.conf = "/c",
		.connect_s = 10,
		.request_s = 30,
		.image_nr_max = 3,
	};

	if (options)
		wish.options = check_good(&options_check, options);
	return wish;
}

static struct ceph_client *get(const struct ceph_wish *wish)
{
	struct ceph_client *client = NULL;
	const struct ceph_api *api;
	char error[256] = "";
	bool is_older;

	assert_int_equal(ceph_api_get(&api, error, sizeof(error)), 0);
	assert_int_equal(ceph_client_get(&client, &is_older, api, wish, error, sizeof(error)), 0);
	assert_string_equal(error, "");
	return client;
}

static void get_fails(const struct ceph_wish *wish, int err, const char *words)
{
	struct ceph_client *client = NULL;
	const struct ceph_api *api;
	char error[256] = "";
	bool is_older;

	assert_int_equal(ceph_api_get(&api, error, sizeof(error)), 0);
	assert_int_equal(ceph_client_get(&client, &is_older, api, wish, error, sizeof(error)), err);
	assert_string_equal(error, words);
	assert_int_equal(fake_client_nr(), 0);
}

/* ---- sharing ---- */

static void test_equal_wishes_share(void **state)
{
	const struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *a = get(&wish), *b = get(&wish), *c = get(&wish), *d = get(&wish);

	(void)state;
	assert_ptr_equal(a, b);
	assert_ptr_equal(a, c);
	/* It is full. */
	assert_ptr_not_equal(a, d);
	assert_int_equal(fake_client_nr(), 2);
	/* There is room again. */
	ceph_client_put(b);
	b = get(&wish);
	assert_ptr_equal(a, b);
	ceph_client_put(a);
	ceph_client_put(b);
	assert_int_equal(fake_client_nr(), 2);
	ceph_client_put(c);
	assert_int_equal(fake_client_nr(), 1);
	ceph_client_put(d);
	assert_int_equal(fake_client_nr(), 0);
	ceph_client_put(NULL);
}

static void check_look(unsigned client_nr, unsigned image_nr, unsigned thread_nr)
{
	struct backend_library_look look;

	backend_rbd.library(&look);
	assert_string_equal(look.name, "librbd");
	assert_int_equal(look.client_nr, client_nr);
	assert_int_equal(look.image_nr, image_nr);
	assert_int_equal(look.thread_nr, thread_nr);
}

static void test_look(void **state)
{
	const struct ceph_wish wish = wish_of(NULL);
	/* The fake has three, however many clients there are; a sanitizer may have one. */
	unsigned thread_nr = thread_foreign_nr();
	struct ceph_client *c[4];

	(void)state;
	assert_in_range(thread_nr, 3, 4);
	check_look(0, 0, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		c[i] = get(&wish);
		check_look(i < 3 ? 1 : 2, i + 1, thread_nr);
	}
	/* One that is lost has its threads until its last image is closed. */
	ceph_client_lost(c[3]);
	check_look(2, 4, thread_nr);
	ceph_client_put(c[3]);
	check_look(1, 3, thread_nr);
	for (unsigned i = 0; i < 3; i++)
		ceph_client_put(c[i]);
	fake_fail_call("rados_connect", -EIO, 1);
	get_fails(&wish, -EIO, "the cluster cannot be reached: EIO");
	check_look(0, 0, 0);
}

static void test_other_wishes_do_not(void **state)
{
	const struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *mine = get(&wish), *other;
	struct ceph_wish w[10];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		w[i] = wish;
	w[0].cluster = "other";
	w[1].user = "adm";
	w[2].conf = NULL;
	w[3].mon_host = "h";
	w[4].keyring = "h";
	w[5].key_file = key_path;
	w[6].cache = "writeback";
	w[7].connect_s = 11;
	w[8].request_s = 31;
	w[9].image_nr_max = 4;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
		other = get(&w[i]);
		assert_ptr_not_equal(other, mine);
		assert_int_equal(fake_client_nr(), 2);
		ceph_client_put(other);
	}
	ceph_client_put(mine);
}

static void test_other_options_do_not(void **state)
{
	const struct ceph_wish none = wish_of(NULL);
	struct ceph_client *a = get(&none), *b, *c;
	struct ceph_wish wish = wish_of("{a: 1, b: 2}");

	(void)state;
	b = get(&wish);
	c = get(&wish);
	assert_ptr_not_equal(a, b);
	assert_ptr_equal(b, c);
	ceph_client_put(c);
	check_fini(&options_check);
	wish = wish_of("{a: 1, b: 3}");
	c = get(&wish);
	assert_ptr_not_equal(b, c);
	ceph_client_put(a);
	ceph_client_put(b);
	ceph_client_put(c);
	check_fini(&options_check);
}

/* Requests go down in the reactor's thread, so nothing may let it wait. */
static void test_threads(void **state)
{
	struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *c = get(&wish), *derives;

	(void)state;
	assert_string_equal(fake_conf(1, "rbd_non_blocking_aio"), "false");
	assert_string_equal(fake_conf(1, "objecter_inflight_ops"), "0");
	assert_string_equal(fake_conf(1, "objecter_inflight_op_bytes"), "0");
	assert_string_equal(fake_conf(1, "librados_thread_count"), "1");
	wish.derives = true;
	derives = get(&wish);
	assert_ptr_not_equal(derives, c);
	assert_string_equal(fake_conf(2, "librados_thread_count"), "2");
	ceph_client_put(derives);
	ceph_client_put(c);
}

/* Too long to be compared: each image has a client of its own. */
static void test_a_long_wish(void **state)
{
	static char mon_host[5000];
	struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *a, *b;

	(void)state;
	memset(mon_host, 'h', sizeof(mon_host) - 1);
	wish.mon_host = mon_host;
	a = get(&wish);
	b = get(&wish);
	assert_ptr_not_equal(a, b);
	ceph_client_lost(a);
	ceph_client_put(a);
	ceph_client_put(b);
}

static void test_a_lost_one_is_not_shared(void **state)
{
	const struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *a = get(&wish), *b, *c;

	(void)state;
	ceph_client_lost(a);
	ceph_client_lost(a);
	b = get(&wish);
	assert_ptr_not_equal(a, b);
	c = get(&wish);
	assert_ptr_equal(b, c);
	assert_int_equal(fake_client_nr(), 2);
	ceph_client_put(a);
	assert_int_equal(fake_client_nr(), 1);
	ceph_client_put(b);
	ceph_client_put(c);
}

/* ---- the configuration ---- */

static void test_configuration(void **state)
{
	struct ceph_wish wish = wish_of("{rados_osd_op_timeout: 7, ms_mode: crc}");
	struct ceph_client *c;

	(void)state;
	wish.user = "vm";
	wish.cluster = "far";
	wish.mon_host = "a,b";
	wish.keyring = "/k";
	c = get(&wish);
	assert_string_equal(fake_conf(1, "name"), "client.vm");
	assert_string_equal(fake_conf(1, "cluster"), "far");
	assert_string_equal(fake_conf(1, "conf"), "/c");
	assert_string_equal(fake_conf(1, "mon_host"), "a,b");
	assert_string_equal(fake_conf(1, "keyring"), "/k");
	assert_string_equal(fake_conf(1, "keyfile"), "");
	assert_string_equal(fake_conf(1, "rbd_cache"), "false");
	assert_string_equal(fake_conf(1, "ms_mode"), "crc");
	assert_string_equal(fake_conf(1, "log_to_stderr"), "false");
	/* What our own life depends on cannot be set by others. */
	assert_string_equal(fake_conf(1, "rados_osd_op_timeout"), "30");
	assert_string_equal(fake_conf(1, "client_mount_timeout"), "10");
	assert_string_equal(fake_conf(1, "rados_mon_op_timeout"), "10");
	assert_string_equal(ceph_client_addrs(c), "10.0.0.1:0/1");
	ceph_client_put(c);
	check_fini(&options_check);
}

static void test_cache(void **state)
{
	struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *c;

	(void)state;
	wish.cache = "writearound";
	wish.conf = NULL;
	wish.key_file = key_path;
	c = get(&wish);
	assert_string_equal(fake_conf(1, "rbd_cache"), "true");
	assert_string_equal(fake_conf(1, "rbd_cache_policy"), "writearound");
	assert_string_equal(fake_conf(1, "keyfile"), key_path);
	assert_string_equal(fake_conf(1, "conf"), "");
	ceph_client_put(c);
}

/* ---- failures ---- */

static void test_no_file(void **state)
{
	struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *c;

	(void)state;
	fake_fail_call("rados_conf_read_file", -ENOENT, 2);
	get_fails(&wish, -ENOENT, "/c does not exist: set conf, or mon_host and keyring");
	/* Who says where the monitors are needs none. */
	wish.mon_host = "h";
	c = get(&wish);
	ceph_client_put(c);
	fake_fail_call("rados_conf_read_file", -EINVAL, 1);
	get_fails(&wish, -EINVAL, "/c cannot be read (EINVAL)");
}

static void test_refused_options(void **state)
{
	struct ceph_wish wish = wish_of("{no_such_option: 1}");

	(void)state;
	get_fails(&wish, -ENOENT, "Ceph does not take the option no_such_option: ENOENT");
	check_fini(&options_check);
	wish.options = NULL;
	wish.conf = NULL;
	fake_fail_call("rados_create2", -EINVAL, 1);
	get_fails(&wish, -EINVAL, "librados does not start: EINVAL");
	fake_fail_call("rados_conf_set", -EINVAL, 1);
	get_fails(&wish, -EINVAL, "Ceph does not take the option log_to_stderr: EINVAL");
}

static void test_not_connected(void **state)
{
	static const struct {
		int err;
		const char *words;
	} cases[] = {
		{ -ETIMEDOUT, "no monitor of the cluster answers within 10 s: is mon_host right, "
			      "and is the cluster up?" },
		{ -EACCES, "the cluster refuses client.admin: does it exist, and is the key of "
			   "keyring or key_file its own?" },
		{ -EPERM, "the cluster refuses client.admin: does it exist, and is the key of "
			  "keyring or key_file its own?" },
		{ -ENOENT, "there is no key of client.admin: set keyring or key_file" },
		{ -EIO, "the cluster cannot be reached: EIO" },
	};
	const struct ceph_wish wish = wish_of(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_fail_call("rados_connect", cases[i].err, 1);
		get_fails(&wish, cases[i].err, cases[i].words);
	}
	/* The next one is a new one. */
	ceph_client_put(get(&wish));
	assert_int_equal(fake_call_nr("rados_create2"), ARRAY_SIZE(cases) + 1);
}

/* No record of it can be made, but it works. */
static void test_no_addrs(void **state)
{
	const struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *c;

	(void)state;
	fake_fail_call("rados_getaddrs", -EIO, 1);
	c = get(&wish);
	assert_string_equal(ceph_client_addrs(c), "");
	ceph_client_put(c);
}

/* ---- who may read the key ---- */

static void set_key_mode(mode_t mode)
{
	assert_int_equal(chmod(key_path, mode), 0);
}

static void test_an_open_key_file(void **state)
{
	struct ceph_wish wish = wish_of(NULL);
	char words[200];

	(void)state;
	wish.key_file = key_path;
	snprintf(words, sizeof(words),
		 "%s: its key is open to everybody on this machine: chmod o= %s", key_path,
		 key_path);
	set_key_mode(0644);
	get_fails(&wish, -EPERM, words);
	set_key_mode(0602);
	get_fails(&wish, -EPERM, words);
	/* The client is not connected with it. */
	assert_int_equal(fake_call_nr("rados_connect"), 0);
	set_key_mode(0660);
	ceph_client_put(get(&wish));
	set_key_mode(0600);
	wish.key_file = "/nowhere/f";
	get_fails(&wish, -ENOENT, "/nowhere/f: No such file or directory");
	fake_fail_call("rados_conf_get", -EIO, 1);
	get_fails(&wish, -EIO, "Ceph does not tell the option keyfile: EIO");
}

/* The paths as Ceph takes them: the first that it can open. */
static bool is_warned(const char *paths)
{
	struct ceph_wish wish = wish_of(NULL);
	struct ceph_client *c;
	const char *log;

	wish.keyring = paths;
	log_catch();
	c = get(&wish);
	log = log_end();
	ceph_client_put(c);
	return strstr(log, "the key of the Ceph user is not secret") && strstr(log, key_path);
}

static void test_an_open_keyring(void **state)
{
	char paths[200], first_path[] = "/tmp/test_rbd_client.XXXXXX";
	int fd = mkstemp(first_path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_false(is_warned("/nowhere/f"));
	assert_false(is_warned(key_path));
	set_key_mode(0640);
	assert_false(is_warned(key_path));
	set_key_mode(0644);
	assert_true(is_warned(key_path));
	snprintf(paths, sizeof(paths), "/nowhere/f,%s", key_path);
	assert_true(is_warned(paths));
	snprintf(paths, sizeof(paths), "%s, %s", first_path, key_path);
	assert_false(is_warned(paths));
	set_key_mode(0600);
	unlink(first_path);
}

/* ---- several at once ---- */

struct getter {
	pthread_t thread;
	atomic_int tid; /* set when it is about to ask */
	struct ceph_wish wish;
	struct ceph_client *client;
	int ret;
	char error[256];
};

static void *getter_run(void *arg)
{
	struct getter *g = arg;
	const struct ceph_api *api;
	bool is_older;

	g->ret = ceph_api_get(&api, g->error, sizeof(g->error));
	atomic_store(&g->tid, gettid());
	if (g->ret == 0)
		g->ret = ceph_client_get(&g->client, &is_older, api, &g->wish, g->error,
					 sizeof(g->error));
	return NULL;
}

/* One connects, and does not come to an end before the others wait for it. */
static void get_at_once(struct getter *g, unsigned nr)
{
	fake_block_call("rados_connect");
	for (unsigned i = 0; i < nr; i++) {
		memset(&g[i], 0, sizeof(g[i]));
		g[i].wish = wish_of(NULL);
		g[i].wish.image_nr_max = 8;
		assert_int_equal(pthread_create(&g[i].thread, NULL, getter_run, &g[i]), 0);
	}
	for (unsigned i = 0; i < nr; i++)
		vol_wait_asleep(&g[i].tid);
	assert_int_equal(fake_blocked_nr("rados_connect"), 1);
	fake_unblock_call("rados_connect");
	for (unsigned i = 0; i < nr; i++)
		pthread_join(g[i].thread, NULL);
}

static void test_one_connects_for_all(void **state)
{
	struct getter g[3];

	(void)state;
	get_at_once(g, ARRAY_SIZE(g));
	assert_int_equal(fake_call_nr("rados_connect"), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(g); i++) {
		assert_int_equal(g[i].ret, 0);
		assert_ptr_equal(g[i].client, g[0].client);
		assert_string_equal(ceph_client_addrs(g[i].client), "10.0.0.1:0/1");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(g); i++)
		ceph_client_put(g[i].client);
}

static void test_one_fails_for_all(void **state)
{
	struct getter g[3];

	(void)state;
	/* One that comes by itself after that would not fail. */
	fake_fail_call("rados_connect", -EIO, 1);
	get_at_once(g, ARRAY_SIZE(g));
	assert_int_equal(fake_call_nr("rados_connect"), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(g); i++) {
		assert_int_equal(g[i].ret, -EIO);
		assert_string_equal(g[i].error, "the cluster cannot be reached: EIO");
	}
	assert_int_equal(fake_client_nr(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: the threads of others may still be there for a moment after them. */
		RBD_TEST(test_look),
		RBD_TEST(test_equal_wishes_share),
		RBD_TEST(test_other_wishes_do_not),
		RBD_TEST(test_other_options_do_not),
		RBD_TEST(test_a_long_wish),
		RBD_TEST(test_a_lost_one_is_not_shared),
		RBD_TEST(test_threads),
		RBD_TEST(test_configuration),
		RBD_TEST(test_cache),
		RBD_TEST(test_no_file),
		RBD_TEST(test_refused_options),
		RBD_TEST(test_not_connected),
		RBD_TEST(test_no_addrs),
		RBD_TEST(test_an_open_key_file),
		RBD_TEST(test_an_open_keyring),
		RBD_TEST(test_one_connects_for_all),
		RBD_TEST(test_one_fails_for_all),
	};

	return cmocka_run_group_tests(tests, key_file_make, key_file_remove);
}
