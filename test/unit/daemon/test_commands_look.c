/* commands that only look: list, show, stats, reactors, inflight. */
#include "test/rig/commands_rig.h"

static void test_list(void **state)
{
	(void)state;
	expect("{\"command\":\"list\"}", "{\"ok\":true,\"data\":[]}");
	add("a");
	expect("{\"command\":\"list\"}",
	       "{\"ok\":true,\"data\":[{\"name\":\"a\",\"state\":\"live\",\"id\":7,"
	       "\"path\":\"/dev/ublkb7\",\"backend\":\"mem\",\"size_bytes\":1048576,\"queues\":1,"
	       "\"depth\":128,\"block_bytes\":512,\"error\":\"\"}]}");
}

static void test_show(void **state)
{
	json_t *data;

	(void)state;
	add("a");
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	assert_string_equal(json_string_value(json_object_get(data, "step")), "live");
	assert_int_equal(json_array_size(json_object_get(data, "caps")), 2);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(data, "ublk_flags"), 0)),
		"CMD_IOCTL_ENCODE");
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(data, "options"), "size")),
		1 << 20);
	/* Of a group of options. */
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(data, "options"), "wait")),
		5 * NS_PER_SEC);
	json_decref(data);
	expect("{\"command\":\"show\",\"name\":\"b\"}",
	       "{\"ok\":false,\"error\":\"there is no device \\\"b\\\"\"}");
	expect("{\"command\":\"show\"}",
	       "{\"ok\":false,\"error\":\"the name of a device is missing\"}");
}

static void test_show_connections(void **state)
{
	json_t *data, *all, *c;

	(void)state;
	add("net");
	data = ask("{\"command\":\"show\",\"name\":\"net\"}");
	all = json_object_get(data, "connections");
	assert_int_equal(json_array_size(all), 2);
	c = json_array_get(all, 0);
	assert_string_equal(json_string_value(json_object_get(c, "state")), "connected");
	assert_string_equal(json_string_value(json_object_get(c, "server")), "a.example:4420");
	assert_null(json_object_get(c, "next_try_in_ns"));
	assert_true(json_is_null(json_object_get(c, "last_end")));
	assert_int_equal(json_integer_value(json_object_get(c, "failed_tries")), 7);
	c = json_array_get(all, 1);
	assert_int_equal(json_integer_value(json_object_get(c, "queue")), 1);
	assert_true(json_integer_value(json_object_get(c, "next_try_in_ns")) > 0);
	assert_string_equal(json_string_value(json_object_get(c, "last_end")), "silent");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(c, "ends"), "silent")),
			 2);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(c, "answer"), "count")),
			 1);
	json_decref(data);
	add("a");
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	assert_null(json_object_get(data, "connections"));
	json_decref(data);
}

static json_int_t number_of(const json_t *object, const char *key)
{
	assert_true(json_is_integer(json_object_get(object, key)));
	return json_integer_value(json_object_get(object, key));
}

static void test_show_images(void **state)
{
	json_t *data, *all, *image, *tables;

	(void)state;
	add("image");
	data = ask("{\"command\":\"show\",\"name\":\"image\"}");
	all = json_object_get(data, "images");
	assert_int_equal(json_array_size(all), 2);
	image = json_array_get(all, 0);
	tables = json_object_get(image, "tables");
	assert_string_equal(json_string_value(json_object_get(image, "format")), "qcow2");
	assert_string_equal(json_string_value(json_object_get(image, "node")), "image");
	assert_string_equal(json_string_value(json_object_get(image, "file")), "/srv/a.qcow2");
	assert_int_equal(number_of(image, "depth"), 0);
	assert_int_equal(number_of(image, "size_bytes"), 1 << 30);
	assert_int_equal(number_of(image, "cluster_bytes"), 65536);
	assert_int_equal(number_of(image, "end_bytes"), 5 << 20);
	assert_int_equal(number_of(image, "stored_bytes"), 4 << 20);
	assert_int_equal(number_of(image, "allocated_clusters"), 12);
	assert_int_equal(number_of(image, "copies"), 13);
	assert_int_equal(number_of(image, "compressed_reads"), 14);
	assert_int_equal(number_of(tables, "slices"), 3);
	assert_int_equal(number_of(tables, "slices_max"), 64);
	assert_int_equal(number_of(tables, "slice_bytes"), 4096);
	assert_int_equal(number_of(tables, "misses"), 11);
	assert_true(json_is_true(json_object_get(tables, "dirty")));
	assert_true(json_is_false(json_object_get(image, "read_only")));
	image = json_array_get(all, 1);
	assert_int_equal(number_of(image, "depth"), 1);
	assert_true(json_is_null(json_object_get(image, "stored_bytes")));
	assert_true(json_is_null(json_object_get(image, "file")));
	assert_true(json_is_true(json_object_get(image, "read_only")));
	json_decref(data);
	add("a");
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	assert_null(json_object_get(data, "images"));
	json_decref(data);
}

static void test_show_integrity(void **state)
{
	json_t *data, *integrity;

	(void)state;
	add("integrity");
	data = ask("{\"command\":\"show\",\"name\":\"integrity\"}");
	integrity = json_object_get(data, "integrity");
	assert_string_equal(json_string_value(json_object_get(integrity, "checksum")), "nvme");
	assert_int_equal(number_of(integrity, "metadata_bytes"), 64);
	assert_int_equal(number_of(integrity, "interval_bytes"), 4096);
	assert_int_equal(number_of(integrity, "pi_offset"), 48);
	assert_int_equal(number_of(integrity, "tag_bytes"), 3);
	assert_true(json_is_true(json_object_get(integrity, "reftag")));
	assert_true(json_is_false(json_object_get(integrity, "capable")));
	assert_int_equal(number_of(integrity, "reads"), 21);
	assert_int_equal(number_of(integrity, "writes"), 22);
	assert_int_equal(number_of(integrity, "forgotten"), 23);
	assert_int_equal(number_of(integrity, "held"), 24);
	json_decref(data);
	add("other");
	data = ask("{\"command\":\"show\",\"name\":\"other\"}");
	assert_null(json_object_get(data, "integrity"));
	json_decref(data);
}

static void test_show_zones(void **state)
{
	json_t *data, *zones;

	(void)state;
	add("zones");
	data = ask("{\"command\":\"show\",\"name\":\"zones\"}");
	zones = json_object_get(data, "zones");
	assert_int_equal(number_of(zones, "zone_bytes"), 1 << 20);
	assert_int_equal(number_of(zones, "capacity_bytes"), 1 << 19);
	assert_int_equal(number_of(zones, "zones"), 21);
	assert_int_equal(number_of(zones, "conventional"), 1);
	assert_int_equal(number_of(zones, "max_open"), 7);
	assert_int_equal(number_of(zones, "max_active"), 9);
	assert_int_equal(number_of(zones, "empty"), 6);
	assert_int_equal(number_of(zones, "implicit_open"), 2);
	assert_int_equal(number_of(zones, "explicit_open"), 3);
	assert_int_equal(number_of(zones, "closed"), 4);
	assert_int_equal(number_of(zones, "full"), 5);
	assert_int_equal(number_of(zones, "resets"), 11);
	assert_int_equal(number_of(zones, "finishes"), 12);
	assert_int_equal(number_of(zones, "refused_writes"), 13);
	assert_int_equal(number_of(zones, "redone_writes"), 14);
	assert_int_equal(number_of(zones, "commits"), 15);
	json_decref(data);
	add("a");
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	assert_null(json_object_get(data, "zones"));
	json_decref(data);
}

static void test_show_caches(void **state)
{
	json_t *data, *all, *cache;

	(void)state;
	add("cache");
	data = ask("{\"command\":\"show\",\"name\":\"cache\"}");
	all = json_object_get(data, "caches");
	assert_int_equal(json_array_size(all), 2);
	cache = json_array_get(all, 0);
	assert_string_equal(json_string_value(json_object_get(cache, "node")), "cache");
	assert_string_equal(json_string_value(json_object_get(cache, "mode")), "writeback");
	assert_true(json_is_false(json_object_get(cache, "off")));
	assert_int_equal(number_of(cache, "blocks"), 1000);
	assert_int_equal(number_of(cache, "used_blocks"), 100);
	assert_int_equal(number_of(cache, "dirty_bytes"), 8192);
	assert_int_equal(number_of(cache, "hits"), 30);
	assert_int_equal(number_of(cache, "misses"), 10);
	assert_int_equal(number_of(cache, "evicted_blocks"), 7);
	assert_true(json_real_value(json_object_get(cache, "hit_ratio")) == 0.75);
	cache = json_array_get(all, 1);
	assert_true(json_is_true(json_object_get(cache, "off")));
	assert_true(json_is_null(json_object_get(cache, "hit_ratio")));
	json_decref(data);
	add("a");
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	assert_null(json_object_get(data, "caches"));
	json_decref(data);
}

/* What is shared is shown, and said to be another device's to count. */
static void check_repeated(const char *name, const char *kind)
{
	char request[64];
	json_t *data, *all;

	add(name);
	snprintf(request, sizeof(request), "{\"command\":\"show\",\"name\":\"%s\"}", name);
	data = ask(request);
	all = json_object_get(data, kind);
	assert_int_equal(json_array_size(all), 2);
	assert_true(json_is_true(json_object_get(json_array_get(all, 0), "repeated")));
	assert_null(json_object_get(json_array_get(all, 1), "repeated"));
	json_decref(data);
}

static void test_show_repeated(void **state)
{
	(void)state;
	check_repeated("net_again", "connections");
	check_repeated("image_again", "images");
	check_repeated("cache_again", "caches");
}

/* Of a tree, one of whose leaves has one. */
static void test_show_library(void **state)
{
	struct backend_device second = { .ops = &fake_null, .name = "a" };
	struct backend_device first = { .ops = &fake_mem, .name = "a", .sibling = &second };
	struct backend_device top = { .ops = &fake_mem, .name = "a", .child = &first };
	json_t *data, *library;

	(void)state;
	add("a");
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	assert_null(json_object_get(data, "library"));
	json_decref(data);
	fake_backend = &top;
	data = ask("{\"command\":\"show\",\"name\":\"a\"}");
	fake_backend = NULL;
	library = json_object_get(data, "library");
	assert_string_equal(json_string_value(json_object_get(library, "name")), "libfake");
	assert_int_equal(json_integer_value(json_object_get(library, "threads")), 29);
	assert_int_equal(json_integer_value(json_object_get(library, "clients")), 2);
	assert_int_equal(json_integer_value(json_object_get(library, "images")), 3);
	json_decref(data);
}

static json_t *total_of(const json_t *op)
{
	return json_object_get(json_object_get(op, "layers"), "total");
}

static void test_stats(void **state)
{
	json_t *data, *device, *op;

	(void)state;
	add("a");
	add("b");
	data = ask("{\"command\":\"stats\"}");
	assert_true(json_integer_value(json_object_get(data, "time_ns")) > 0);
	assert_int_equal(json_array_size(json_object_get(data, "devices")), 2);
	json_decref(data);
	data = ask("{\"command\":\"stats\",\"name\":\"b\",\"buckets\":true}");
	device = json_array_get(json_object_get(data, "devices"), 0);
	assert_string_equal(json_string_value(json_object_get(device, "name")), "b");
	assert_int_equal(json_integer_value(json_object_get(device, "inflight")), 2);
	op = json_object_get(json_object_get(device, "ops"), "read");
	assert_int_equal(json_integer_value(json_object_get(op, "done")), 1);
	assert_int_equal(json_integer_value(json_object_get(op, "mean_ns")), 1000);
	assert_int_equal(json_array_size(json_object_get(op, "buckets")), 1);
	assert_null(json_object_get(total_of(op), "buckets"));
	json_decref(data);
	data = ask("{\"command\":\"stats\",\"name\":\"b\",\"layer_buckets\":true}");
	device = json_array_get(json_object_get(data, "devices"), 0);
	op = json_object_get(json_object_get(device, "ops"), "read");
	assert_null(json_object_get(op, "buckets"));
	assert_int_equal(json_integer_value(json_object_get(total_of(op), "sum_ns")), 1000);
	assert_int_equal(json_array_size(json_object_get(total_of(op), "buckets")), 1);
	json_decref(data);
	expect("{\"command\":\"stats\",\"name\":\"x\"}",
	       "{\"ok\":false,\"error\":\"there is no device \\\"x\\\"\"}");
}

static void test_reactors_and_version(void **state)
{
	json_t *data;

	(void)state;
	data = ask("{\"command\":\"reactors\"}");
	assert_int_equal(json_array_size(data), 1);
	assert_string_equal(json_string_value(json_object_get(json_array_get(data, 0), "name")),
			    "control");
	json_decref(data);
	expect("{\"command\":\"version\"}",
	       "{\"ok\":true,\"data\":{\"version\":\"" UBLKD_VERSION "\"}}");
}

/* The first question asks the driver, the second one tells what it said. */
static void test_inflight_asks_the_driver(void **state)
{
	json_t *data, *driver;

	(void)state;
	add("a");
	data = ask("{\"command\":\"inflight\"}");
	assert_int_equal(json_integer_value(json_object_get(data, "pid")), getpid());
	driver = json_object_get(json_array_get(json_object_get(data, "devices"), 0), "driver");
	assert_int_equal(json_object_size(driver), 0);
	json_decref(data);
	data = ask("{\"command\":\"inflight\",\"name\":\"a\"}");
	driver = json_object_get(json_array_get(json_object_get(data, "devices"), 0), "driver");
	assert_string_equal(json_string_value(json_object_get(driver, "state")), "LIVE");
	assert_int_equal(json_integer_value(json_object_get(driver, "server_pid")), 42);
	json_decref(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_list),
		TEST(test_show),
		TEST(test_show_connections),
		TEST(test_show_images),
		TEST(test_show_zones),
		TEST(test_show_integrity),
		TEST(test_show_caches),
		TEST(test_show_repeated),
		TEST(test_show_library),
		TEST(test_stats),
		TEST(test_reactors_and_version),
		TEST(test_inflight_asks_the_driver),
	};

	return cmocka_run_group_tests_name("commands_look", tests, group_setup, group_teardown);
}
