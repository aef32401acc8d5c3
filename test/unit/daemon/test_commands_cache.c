/* cache stats, warm and drop: what each request is answered with, on fake devices. */
#include "test/rig/commands_rig.h"

#define CACHE(name, more) "{\"command\":\"cache\",\"name\":\"" name "\"" more "}"

static void test_cache_stats(void **state)
{
	json_t *data, *caches;

	(void)state;
	add("cache");
	data = ask(CACHE("cache", ",\"action\":\"stats\""));
	assert_string_equal(json_string_value(json_object_get(data, "name")), "cache");
	assert_true(json_is_null(json_object_get(data, "command")));
	/* As show has them. */
	caches = json_object_get(data, "caches");
	assert_int_equal(json_array_size(caches), 2);
	assert_string_equal(json_string_value(json_object_get(json_array_get(caches, 1), "node")),
			    "cache/backend");
	assert_int_equal(
		json_integer_value(json_object_get(json_array_get(caches, 0), "dirty_bytes")),
		8192);
	json_decref(data);
}

static void test_cache_stats_without(void **state)
{
	struct backend_device top = { .ops = backend_find("mem"), .name = "a" };

	(void)state;
	add("a");
	expect(CACHE("a", ",\"action\":\"stats\""),
	       "{\"ok\":false,\"error\":\"the device does not run\"}");
	fake_backend = &top;
	expect(CACHE("a", ",\"action\":\"stats\""),
	       "{\"ok\":false,\"error\":\"the device has no cache: put the filter cache over its "
	       "backend, and start it again\"}");
	fake_backend = NULL;
	expect(CACHE("b", ",\"action\":\"stats\""),
	       "{\"ok\":false,\"error\":\"there is no device \\\"b\\\"\"}");
}

static void test_cache_commands(void **state)
{
	(void)state;
	add("a");
	expect(CACHE("a", ",\"action\":\"warm\",\"offset\":\"1M\",\"length\":\"4KiB\",\"node\":"
			  "\"a/data\""),
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"node\":\"cache\",\"total_bytes\":8192,"
	       "\"fetched_bytes\":4096,\"present_bytes\":3000,\"passed_bytes\":1096,\"full\":true}"
	       "}");
	assert_int_equal(fake_cache_wish.offset_bytes, 1 << 20);
	assert_int_equal(fake_cache_wish.length_bytes, 4096);
	expect(CACHE("a", ",\"action\":\"warm\""),
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"node\":\"cache\",\"total_bytes\":8192,"
	       "\"fetched_bytes\":4096,\"present_bytes\":3000,\"passed_bytes\":1096,\"full\":true}"
	       "}");
	assert_int_equal(fake_cache_wish.offset_bytes + fake_cache_wish.length_bytes, 0);
	expect(CACHE("a", ",\"action\":\"drop\""),
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"node\":\"cache\",\"dropped_bytes\":5,"
	       "\"dirty_bytes\":6}}");
}

static void test_cache_refusals(void **state)
{
	(void)state;
	add("a");
	add("rigid");
	add("tight");
	expect(CACHE("rigid", ",\"action\":\"drop\""),
	       "{\"ok\":false,\"error\":\"it has no cache\"}");
	expect(CACHE("tight", ",\"action\":\"drop\""),
	       "{\"ok\":false,\"error\":\"it is too tight\"}");
	expect(CACHE("a", ""), "{\"ok\":false,\"error\":\"action: expected stats, warm or drop\"}");
	expect(CACHE("a", ",\"action\":\"warm\",\"offset\":\"far\""),
	       "{\"ok\":false,\"error\":\"offset: expected a number of bytes, like 1048576 or "
	       "20GiB\"}");
	expect(CACHE("a", ",\"action\":\"warm\",\"length\":\"0\""),
	       "{\"ok\":false,\"error\":\"length: expected a number of bytes above 0, like 1048576 "
	       "or 20GiB\"}");
}

/* One that has gone ends it; one that sends no more waits for its answer. */
static void test_cache_client_leaves(void **state)
{
	struct peer other;
	json_t *data, *command;

	(void)state;
	add("lame");
	add("cache");
	other = peer_connect(path);
	assert_true(peer_send(&other, CACHE("lame", ",\"action\":\"warm\"") "\n"));
	shutdown(other.fd, SHUT_WR);
	peer_pump_for(0.6);
	assert_true(fake_cache_look.busy && !fake_cache_job.is_cancelled);
	data = ask(CACHE("cache", ",\"action\":\"stats\""));
	command = json_object_get(data, "command");
	assert_string_equal(json_string_value(json_object_get(command, "action")), "warm");
	assert_int_equal(json_integer_value(json_object_get(command, "total_bytes")), 8192);
	json_decref(data);
	peer_close(&other);
	peer_pump_for(0.6);
	assert_true(!fake_cache_look.busy && fake_cache_job.is_cancelled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_cache_stats),		TEST(test_cache_stats_without),
		TEST(test_cache_commands),	TEST(test_cache_refusals),
		TEST(test_cache_client_leaves),
	};

	return cmocka_run_group_tests_name("commands_cache", tests, group_setup, group_teardown);
}
