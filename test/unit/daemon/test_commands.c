/* commands: what each request is answered with, over the real transport, on fake devices. */
#include "base/printable.h"
#include "daemon/socket/answer.h"
#include "filters/throttle/throttle.h"
#include "test/rig/commands_rig.h"

static void test_add_several(void **state)
{
	(void)state;
	expect("{\"command\":\"add\",\"yaml\":\"[{name: a, backend: {type: null}}, "
	       "{name: b, backend: {type: null}}]\"}",
	       OK_DEVICES "[\"a\",\"b\"]}}");
	expect("{\"command\":\"add\",\"yaml\":\"devices: []\"}", OK_DEVICES "[]}}");
}

/* What the user of a device has to know; it stays in the list. */
static void test_add_with_notes(void **state)
{
	struct backend_device odd = { .ops = backend_find("null"), .note = "is odd" };
	json_t *list;

	(void)state;
	fake_backend = &odd;
	expect("{\"command\":\"add\",\"yaml\":\"[{name: a, backend: {type: null}}, "
	       "{name: b, backend: {type: null}}]\"}",
	       OK_DEVICES "[\"a\",\"b\"],\"notes\":[\"a: is odd\",\"b: is odd\"]}}");
	list = ask("{\"command\":\"list\"}");
	assert_string_equal(json_string_value(json_array_get(
				    json_object_get(json_array_get(list, 1), "notes"), 0)),
			    "is odd");
	json_decref(list);
	fake_backend = NULL;
}

static void test_add_with_errors(void **state)
{
	(void)state;
	add("a");
	expect("{\"command\":\"add\",\"file\":\"x.yaml\",\"yaml\":\"name: a\\nbackend: {type: "
	       "mme}\\n\"}",
	       "{\"ok\":false,\"error\":\"the configuration has errors\",\"errors\":["
	       "\"x.yaml:1:7: name: \\\"a\\\" is taken already (live)\","
	       "\"x.yaml:2:17: type: \\\"mme\\\" is not one of null, mem, file (did you mean "
	       "\\\"mem\\\"?)\"]}");
	expect("{\"command\":\"add\",\"yaml\":\"a: [\"}",
	       "{\"ok\":false,\"error\":\"the configuration has errors\",\"errors\":["
	       "\"<control>:2:1: expected a value\"]}");
	expect("{\"command\":\"add\",\"yaml\":\"name: \\u0000\"}",
	       "{\"ok\":false,\"error\":\"the configuration has errors\",\"errors\":["
	       "\"<control>:1:7: a NUL byte: this is no text file\"]}");
	expect("{\"command\":\"add\"}", "{\"ok\":false,\"error\":\"the key yaml is missing\"}");
	assert_int_equal(device_set.member_nr, 1);
}

static void test_add_that_fails(void **state)
{
	(void)state;
	expect("{\"command\":\"add\",\"yaml\":\"" ADD("absent") "\"}",
	       "{\"ok\":false,\"error\":\"absent: there is no such file\",\"errors\":["
	       "\"absent: there is no such file\"]}");
	expect("{\"command\":\"add\",\"yaml\":\"[{name: sour1, backend: {type: null}}, "
	       "{name: ok, backend: {type: null}}, {name: sour2, backend: {type: null}}]\"}",
	       "{\"ok\":false,\"error\":\"2 of 3 devices failed\",\"errors\":["
	       "\"sour1: the driver says no\",\"sour2: the driver says no\"]}");
	/* The one that works stays. */
	assert_int_equal(device_set.member_nr, 1);
}

/* An error with a byte of an image's header, and cut within a letter: an answer all the same. */
static void test_words_of_any_bytes(void **state)
{
	static const char letters[] = "\xe6\xbc\xa2\xf0\x9f\x98\x80\xc3\xa4";
	char words[32], request[128], answer[256];
	size_t whole;

	(void)state;
	fake_no = "/etc/\xffshadow\x1b[31m";
	expect("{\"command\":\"add\",\"yaml\":\"" ADD("sour") "\"}",
	       "{\"ok\":false,\"error\":\"sour: /etc/\\\\xffshadow\\u001B[31m\",\"errors\":["
	       "\"sour: /etc/\\\\xffshadow\\u001B[31m\"]}");
	for (size_t bytes = 1; bytes < sizeof(letters); bytes++) {
		whole = utf8_whole(letters, bytes);
		snprintf(words, sizeof(words), "%.*s", (int)bytes, letters);
		fake_no = words;
		snprintf(request, sizeof(request),
			 "{\"command\":\"add\",\"yaml\":\"" ADD("sour%zu") "\"}", bytes);
		snprintf(answer, sizeof(answer),
			 "{\"ok\":false,\"error\":\"sour%zu: %.*s%s\",\"errors\":[\"sour%zu: "
			 "%.*s%s\"]}",
			 bytes, (int)whole, letters, whole < bytes ? "..." : "", bytes, (int)whole,
			 letters, whole < bytes ? "..." : "");
		expect(request, answer);
	}
	fake_no = "the driver says no";
}

static void answer_nothing(struct socket_client *client, char *line, size_t bytes)
{
	(void)line, (void)bytes;
	socket_answer(client, NULL);
}

/* An answer that could not be made is one all the same. */
static void test_no_memory_for_an_answer(void **state)
{
	(void)state;
	server.request = answer_nothing;
	expect("{}", "{\"ok\":false,\"error\":\"ublkd is out of memory for the answer\"}");
	expect("{}", "{\"ok\":false,\"error\":\"ublkd is out of memory for the answer\"}");
}

/* Words about a request quote it: they are an answer too. */
static void test_request_of_any_bytes(void **state)
{
	char *line;

	(void)state;
	assert_true(peer_send(&peer, "{\"command\":\"\xe6\xbc\xff\"}\n"));
	line = peer_line(&peer);
	assert_non_null(line);
	assert_non_null(strstr(line, "{\"ok\":false,\"error\":\"a request must be a JSON object"));
	free(line);
	assert_true(peer_closed(&peer));
}

static void test_settings(void **state)
{
	const struct daemon_settings with = { .devices_dir = (char[]){ "/etc/x.d" } },
				     without = { 0 };

	(void)state;
	expect("{\"command\":\"settings\"}",
	       "{\"ok\":true,\"data\":{\"config\":null,\"devices_dir\":null}}");
	commands.config_path = "\xff.yaml";
	expect("{\"command\":\"settings\"}",
	       "{\"ok\":true,\"data\":{\"config\":\"\\\\xff.yaml\",\"devices_dir\":null}}");
	commands.config_path = "x.yaml";
	commands.settings = &without;
	expect("{\"command\":\"settings\"}",
	       "{\"ok\":true,\"data\":{\"config\":\"x.yaml\",\"devices_dir\":null}}");
	commands.settings = &with;
	expect("{\"command\":\"settings\"}",
	       "{\"ok\":true,\"data\":{\"config\":\"x.yaml\",\"devices_dir\":\"/etc/x.d\"}}");
}

static void test_del(void **state)
{
	(void)state;
	add("a");
	expect("{\"command\":\"del\",\"name\":\"a\"}", OK_DEVICES "[\"a\"]}}");
	expect("{\"command\":\"del\",\"name\":\"a\"}",
	       "{\"ok\":false,\"error\":\"there is no device \\\"a\\\"\"}");
	expect("{\"command\":\"del\"}",
	       "{\"ok\":false,\"error\":\"the name of a device is missing\"}");
	/* The same name in the very moment it is free. */
	assert_true(peer_send(&peer,
			      "{\"command\":\"add\",\"yaml\":\"" ADD(
				      "a") "\"}\n"
					   "{\"command\":\"del\",\"name\":\"a\"}\n"
					   "{\"command\":\"add\",\"yaml\":\"" ADD("a") "\"}\n"));
	peer_expect(&peer, OK_DEVICES "[\"a\"]}}");
	peer_expect(&peer, OK_DEVICES "[\"a\"]}}");
	peer_expect(&peer, OK_DEVICES "[\"a\"]}}");
}

static void test_del_in_use(void **state)
{
	(void)state;
	add("busy");
	expect("{\"command\":\"del\",\"name\":\"busy\"}",
	       "{\"ok\":false,\"error\":\"busy: in use: by the test\",\"errors\":["
	       "\"busy: in use: by the test\"]}");
	expect("{\"command\":\"del\",\"name\":\"busy\",\"force\":true}", OK_DEVICES "[\"busy\"]}}");
}

static void test_late_devices(void **state)
{
	(void)state;
	peer_send(&peer, "{\"command\":\"add\",\"yaml\":\"" ADD("slow") "\"}\n");
	peer_pump_for(0.02);
	fake_late("slow");
	peer_expect(&peer, "{\"ok\":false,\"error\":\"slow: no answer for 30 s\",\"errors\":["
			   "\"slow: no answer for 30 s\"]}");
	/* Nobody tells anything: the answer comes all the same. */
	commands.answer_seconds = 0.05;
	expect("{\"command\":\"del\",\"name\":\"slow\"}",
	       "{\"ok\":false,\"error\":\"slow: is not done yet; it goes on\",\"errors\":["
	       "\"slow: is not done yet; it goes on\"]}");
	commands.answer_seconds = 60;
	expect("{\"command\":\"list\"}", "{\"ok\":true,\"data\":[{\"name\":\"slow\",\"state\":"
					 "\"stopping\",\"id\":7,\"path\":\"/dev/ublkb7\","
					 "\"backend\":\"mem\",\"size_bytes\":1048576,\"queues\":1,"
					 "\"depth\":128,\"block_bytes\":512,\"error\":"
					 "\"no answer for 30 s\"}]}");
	fake_release("slow");
}

/* Two ask for the same end, one of them does not wait for it. */
/* ---- throttle ---- */

static int low_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 20;
	return 0;
}

static void open_throttle(struct throttle_config *config)
{
	static const struct backend low = { .name = "low", .open = low_open };
	static const struct backend_spec low_spec = { .ops = &low };
	static struct backend_spec spec;
	struct backend_open_params open_params = { .logical_block_bytes = 512 };
	char error[BACKEND_ERROR_BYTES] = "";

	for (int i = 0; i < THROTTLE_BUCKET_NR; i++)
		config->limits.rate[i].max_length_s = 1;
	spec = (struct backend_spec){ .ops = &backend_throttle,
				      .config = config,
				      .child = &low_spec };
	backend_open(&fake_backend, &spec, "t", &open_params, error, sizeof(error));
	assert_string_equal(error, "");
}

static void close_throttle(void)
{
	backend_close(fake_backend);
	fake_backend = NULL;
}

static long long limit(const char *request, const char *key)
{
	json_t *data = ask(request);
	long long value = json_integer_value(json_object_get(data, key));

	json_decref(data);
	return value;
}

#define THROTTLE "{\"command\":\"throttle\",\"name\":\"a\""
#define REFUSED "{\"ok\":false,\"error\":"
#define UNKNOWN(what)                                                                              \
	REFUSED "\"ublkd " UBLKD_VERSION " does not know the " what                                \
		"\",\"version\":\"" UBLKD_VERSION "\"}"
#define UNKNOWN_KEY(key) UNKNOWN("key \\\"" key "\\\" of this command, or not its type")
#define NO_COMMAND REFUSED "\"the request names no command\"}"
#define UNCHANGED REFUSED "\"the limits stay as they are\",\"errors\":["

static void test_show_names_the_stuck_command(void **state)
{
	struct settings s;
	struct config_errors e;
	json_t *data;

	(void)state;
	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(&s, "{name: slow, backend: {type: null}}", 35, &e),
			 0);
	config_errors_fini(&e);
	device_set_add(&device_set, settings_take(&s, 0), true);
	settings_free(&s);
	data = ask("{\"command\":\"show\",\"name\":\"slow\"}");
	assert_string_equal(json_string_value(json_object_get(data, "command")), "START_DEV");
	assert_int_equal(json_integer_value(json_object_get(data, "command_waited_ns")), 7);
	assert_string_equal(json_string_value(json_object_get(data, "command_waits_in")),
			    "a_function");
	json_decref(data);
}

static void test_resize(void **state)
{
	(void)state;
	add("a");
	expect("{\"command\":\"resize\",\"name\":\"a\",\"size\":\"3M\"}",
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"old_size_bytes\":1048576,"
	       "\"size_bytes\":3145728,\"note\":\"\"}}");
	expect("{\"command\":\"resize\",\"name\":\"a\",\"size\":\"+1M\"}",
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"old_size_bytes\":3145728,"
	       "\"size_bytes\":4194304,\"note\":\"\"}}");
	expect("{\"command\":\"resize\",\"name\":\"a\"}",
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"old_size_bytes\":4194304,"
	       "\"size_bytes\":8388608,\"note\":\"\"}}");
	expect("{\"command\":\"resize\",\"name\":\"a\",\"size\":\"8M\"}",
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"old_size_bytes\":8388608,"
	       "\"size_bytes\":8388608,\"note\":\"\"}}");
	expect("{\"command\":\"resize\",\"name\":\"a\",\"size\":\"1M\"}",
	       "{\"ok\":false,\"error\":\"there is data\"}");
	expect("{\"command\":\"resize\",\"name\":\"a\",\"size\":\"1M\",\"force\":true}",
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"old_size_bytes\":8388608,"
	       "\"size_bytes\":1048576,\"note\":\"\"}}");
}

/* A note that cannot be written is no success: before the resize it is refused, behind it told. */
static void test_resize_that_cannot_be_noted(void **state)
{
	struct backend_device memory = { .ops = backend_find("mem") };
	struct state none = { .fd = -1, .path = "/nowhere" };
	struct member *m;

	(void)state;
	fake_backend = &memory;
	add("a");
	m = device_set_find(&device_set, "a");
	device_set.state = &none;
	expect("{\"command\":\"resize\",\"name\":\"a\",\"size\":\"3M\"}",
	       "{\"ok\":false,\"error\":\"cannot note the device in /nowhere: EBADF\"}");
	assert_int_equal(m->device->size_bytes, MIB(1));
	device_set.state = NULL;
	assert_true(peer_send(&peer, "{\"command\":\"resize\",\"name\":\"a\",\"size\":\"3M\"}\n"));
	while (list_empty(&m->resizes))
		ev_run(peer_loop, EVRUN_ONCE);
	device_set.state = &none;
	peer_expect(&peer,
		    "{\"ok\":false,\"error\":\"has its new size, 3145728 bytes, but that cannot be "
		    "noted in /nowhere (see the log); it is tried again\"}");
	assert_int_equal(m->device->size_bytes, MIB(3));
	device_set.state = NULL;
	fake_backend = NULL;
}

static void test_resize_refuses(void **state)
{
	(void)state;
	add("rigid");
	add("tight");
	expect("{\"command\":\"resize\",\"name\":\"rigid\",\"size\":\"2M\"}",
	       "{\"ok\":false,\"error\":\"it cannot be resized\"}");
	expect("{\"command\":\"resize\",\"name\":\"tight\",\"size\":\"2M\"}",
	       "{\"ok\":false,\"error\":\"there is no room\"}");
	expect("{\"command\":\"resize\",\"name\":\"tight\",\"size\":\"2 potatoes\"}",
	       "{\"ok\":false,\"error\":\"size: expected a number of bytes, like 20GiB or "
	       "+512MiB\"}");
	expect("{\"command\":\"resize\",\"name\":\"tight\",\"size\":\"+16E\"}",
	       "{\"ok\":false,\"error\":\"size: expected a number of bytes, like 20GiB or "
	       "+512MiB\"}");
}

static unsigned snapshots_of_two(const struct backend_device *device)
{
	(void)device;
	return 2;
}

static void get_one_of_two(const struct backend_device *device, unsigned idx,
			   struct backend_snapshot *ret_snapshot)
{
	(void)device;
	*ret_snapshot = (struct backend_snapshot){ .size_bytes = 4096 * (idx + 1), .sec = 7 };
	snprintf(ret_snapshot->id, sizeof(ret_snapshot->id), "%u", idx + 1);
	snprintf(ret_snapshot->name, sizeof(ret_snapshot->name), "%s", idx ? "b\xff" : "a");
}

#define SNAPSHOT(more) "{\"command\":\"snapshot\",\"name\":\"a\"" more "}"

static void test_snapshot_list(void **state)
{
	const struct backend_snapshots snapshots = { .nr = snapshots_of_two,
						     .get = get_one_of_two };
	const struct backend ops = { .name = "qcow2", .snapshots = &snapshots };
	struct backend_device image = { .ops = &ops, .name = "a/data" };
	struct backend_device top = { .ops = backend_find("mem"), .name = "a", .child = &image };

	(void)state;
	fake_backend = &top;
	add("a");
	expect(SNAPSHOT(",\"action\":\"list\""),
	       "{\"ok\":true,\"data\":{\"name\":\"a\",\"node\":\"a/data\",\"snapshots\":["
	       "{\"id\":\"1\",\"name\":\"a\",\"size_bytes\":4096,\"vm_state_bytes\":0,"
	       "\"time_s\":7,\"time_ns\":0},{\"id\":\"2\",\"name\":\"b\\\\xff\",\"size_bytes\":"
	       "8192,"
	       "\"vm_state_bytes\":0,\"time_s\":7,\"time_ns\":0}],\"change\":null}}");
	expect(SNAPSHOT(",\"action\":\"list\",\"node\":\"a\""),
	       "{\"ok\":false,\"error\":\"the device has no node \\\"a\\\" with snapshots\"}");
	image.ops = top.ops;
	expect(SNAPSHOT(",\"action\":\"list\""),
	       "{\"ok\":false,\"error\":\"no backend of the device has internal snapshots: "
	       "qcow2 has\"}");
	fake_backend = NULL;
}

static void test_snapshot_changes(void **state)
{
	(void)state;
	add("a");
	add("tight");
	expect(SNAPSHOT(",\"action\":\"create\",\"snapshot\":\"x\""),
	       "{\"ok\":true,\"data\":{\"name\":\"a\"}}");
	expect(SNAPSHOT(",\"action\":\"apply\",\"snapshot\":\"x\""),
	       "{\"ok\":false,\"error\":\"it has no snapshots\"}");
	expect(SNAPSHOT(",\"action\":\"apply\",\"snapshot\":\"x\",\"force\":true"),
	       "{\"ok\":true,\"data\":{\"name\":\"a\"}}");
	expect(SNAPSHOT(",\"action\":\"lose\",\"snapshot\":\"x\""),
	       "{\"ok\":false,\"error\":\"action: expected list, create, delete or apply\"}");
	expect(SNAPSHOT(",\"action\":\"delete\""),
	       "{\"ok\":false,\"error\":\"the name of a snapshot is missing\"}");
	expect("{\"command\":\"snapshot\",\"name\":\"tight\",\"action\":\"delete\","
	       "\"snapshot\":\"x\"}",
	       "{\"ok\":false,\"error\":\"there is no room\"}");
}

static void test_snapshot_is_late(void **state)
{
	(void)state;
	add("lame");
	commands.answer_seconds = 0.05;
	expect("{\"command\":\"snapshot\",\"name\":\"lame\",\"action\":\"create\","
	       "\"snapshot\":\"x\"}",
	       "{\"ok\":false,\"error\":\"is not done yet (43 %); it goes on, and ublkctl snapshot "
	       "list says how far it is\"}");
	commands.answer_seconds = 60;
}

/* The resize goes on without whoever asked for it. */
static void test_resize_client_leaves(void **state)
{
	struct device_info info;

	(void)state;
	add("a");
	assert_true(peer_send(&peer, "{\"command\":\"resize\",\"name\":\"a\",\"size\":\"2M\"}\n"));
	peer_pump();
	peer_close(&peer);
	peer_pump_for(0.02);
	peer = peer_connect(path);
	device_info(device_set_find(&device_set, "a")->device, &info);
	assert_int_equal(info.size_bytes, 2u << 20);
}

static void test_throttle(void **state)
{
	static struct throttle_config config;

	(void)state;
	open_throttle(&config);
	add("a");
	assert_int_equal(limit(THROTTLE "}", "total_iops_sec"), 0);
	assert_int_equal(limit(THROTTLE ",\"set\":{\"total_iops_sec\":8000,"
					"\"total_bytes_sec\":\"2M\"}}",
			       "total_bytes_sec"),
			 2 << 20);
	/* What is not named stays. */
	assert_int_equal(
		limit(THROTTLE ",\"set\":{\"total_iops_sec_max\":9000}}", "total_iops_sec"), 8000);
	assert_int_equal(limit(THROTTLE "}", "total_iops_sec_max"), 9000);
	close_throttle();
}

static void test_throttle_refuses(void **state)
{
	static struct throttle_config config;

	(void)state;
	add("a");
	expect(THROTTLE "}", REFUSED "\"the device has no throttle among its backends\"}");
	expect("{\"command\":\"throttle\"}", REFUSED "\"the name of a device is missing\"}");
	open_throttle(&config);
	expect(THROTTLE ",\"set\":{\"total_iops_sec\":8000,\"total_iops_sec_max\":7500}}",
	       UNCHANGED "\"throttle: total_iops_sec_max: 7500 cannot be lower than "
			 "total_iops_sec: 8000\"]}");
	expect(THROTTLE ",\"set\":{\"total_iop_sec\":1,\"read_bytes_sec\":\"x\"}}", UNCHANGED
	       "\"throttle: unknown key \\\"total_iop_sec\\\" (did you mean "
	       "\\\"total_iops_sec\\\"?)\",\"throttle: read_bytes_sec: \\\"x\\\" is not a "
	       "size (examples: 4096, 64k, 1MiB, 10G)\"]}");
	expect(THROTTLE ",\"set\":{\"group\":\"g\"}}",
	       UNCHANGED "\"throttle: group: cannot be changed while the device serves\"]}");
	expect(THROTTLE ",\"set\":{\"read_iops_sec\":-1}}",
	       UNCHANGED "\"throttle: read_iops_sec: -1 is below the minimum 0\"]}");
	expect(THROTTLE ",\"set\":{\"read_iops_sec\":true}}", UNKNOWN_KEY("set"));
	expect(THROTTLE ",\"set\":[]}", UNKNOWN_KEY("set"));
	assert_int_equal(limit(THROTTLE "}", "total_iops_sec"), 0);
	close_throttle();
}

static void test_two_wait_one_leaves(void **state)
{
	struct peer other;

	(void)state;
	peer_send(&peer, "{\"command\":\"add\",\"yaml\":\"" ADD("slow") "\"}\n");
	peer_pump_for(0.02);
	other = peer_connect(path);
	peer_send(&other, "{\"command\":\"del\",\"name\":\"slow\"}\n");
	peer_pump_for(0.02);
	peer_close(&peer);
	fake_release("slow");
	peer_expect(&other, OK_DEVICES "[\"slow\"]}}");
	peer_close(&other);
	peer = peer_connect(path);
	expect("{\"command\":\"list\"}", "{\"ok\":true,\"data\":[]}");
}

static void test_wrong_requests(void **state)
{
	(void)state;
	expect("{\"command\":\"lost\"}", UNKNOWN("command \\\"lost\\\""));
	expect("{\"command\":\"list\\u0000\"}", NO_COMMAND);
	expect("{\"command\":[\"list\"]}", NO_COMMAND);
	expect("{}", NO_COMMAND);
	expect("{\"command\":7}", NO_COMMAND);
	expect("{\"command\":\"list\",\"name\":\"a\"}", UNKNOWN_KEY("name"));
	expect("{\"command\":\"del\",\"name\":\"a\",\"force\":1}", UNKNOWN_KEY("force"));
	expect("{\"command\":\"show\",\"name\":\"a\\u0000\"}", UNKNOWN_KEY("name"));
	expect("{\"command\":\"version\"}",
	       "{\"ok\":true,\"data\":{\"version\":\"" UBLKD_VERSION "\"}}");
}

static void garbage(const char *bytes, size_t nr)
{
	static const char start[] = "{\"ok\":false,\"error\":\"a request must be a JSON object";
	char *line;

	assert_true(peer_send_bytes(&peer, bytes, nr));
	line = peer_line(&peer);
	assert_non_null(line);
	assert_int_equal(strncmp(line, start, sizeof(start) - 1), 0);
	free(line);
	assert_true(peer_closed(&peer));
	peer_close(&peer);
	peer = peer_connect(path);
}

#define GARBAGE(text) garbage(text, sizeof(text) - 1)

static void test_garbage_is_answered_and_closed(void **state)
{
	static char deep[100001];

	(void)state;
	GARBAGE("\n");
	GARBAGE("hello\n");
	GARBAGE("[]\n");
	GARBAGE("7\n");
	GARBAGE("\0\0\0\n");
	GARBAGE("\xff\xfe\n");
	GARBAGE("{\"command\":\"list\"} {}\n");
	GARBAGE("{\"command\":\"list\",\"command\":\"list\"}\n");
	memset(deep, '[', sizeof(deep));
	deep[sizeof(deep) - 1] = '\n';
	garbage(deep, sizeof(deep));
}

static void test_no_add_while_stopping(void **state)
{
	(void)state;
	device_set_stop_all(&device_set);
	expect("{\"command\":\"add\",\"yaml\":\"" ADD("a") "\"}",
	       "{\"ok\":false,\"error\":\"the daemon is stopping\"}");
}

/* Clients that wait when the daemon ends. */
static void test_end_while_waiting(void **state)
{
	(void)state;
	peer_send(&peer, "{\"command\":\"add\",\"yaml\":\"" ADD("slow") "\"}\n");
	peer_pump_for(0.02);
	assert_non_null(fake_find("slow"));
	socket_fini(&server);
	fake_release("slow");
	peer_pump_for(0.02);
	assert_true(peer_closed(&peer));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_add_several),
		TEST(test_add_with_notes),
		TEST(test_add_with_errors),
		TEST(test_add_that_fails),
		TEST(test_words_of_any_bytes),
		TEST(test_no_memory_for_an_answer),
		TEST(test_request_of_any_bytes),
		TEST(test_settings),
		TEST(test_del),
		TEST(test_del_in_use),
		TEST(test_late_devices),
		TEST(test_show_names_the_stuck_command),
		TEST(test_resize),
		TEST(test_resize_that_cannot_be_noted),
		TEST(test_resize_refuses),
		TEST(test_resize_client_leaves),
		TEST(test_snapshot_list),
		TEST(test_snapshot_changes),
		TEST(test_snapshot_is_late),
		TEST(test_throttle),
		TEST(test_throttle_refuses),
		TEST(test_two_wait_one_leaves),
		TEST(test_wrong_requests),
		TEST(test_garbage_is_answered_and_closed),
		TEST(test_no_add_while_stopping),
		TEST(test_end_while_waiting),
	};

	return cmocka_run_group_tests_name("commands", tests, group_setup, group_teardown);
}
