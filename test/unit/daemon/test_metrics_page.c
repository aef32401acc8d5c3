/* metrics_page: what the web page asks for is JSON, tells all of it, and costs no more than told.
 */
#include <jansson.h>

#include "base/log.h"
#include "daemon/metrics/metrics.h"
#include "test/rig/fake_device.h"
#include "test/rig/socket_check.h"

#define HOSTILE_NAME "\"><img src=x onerror=alert(1)>\\u0000'&amp;"

static struct device_set device_set;
static struct device_host host;
static struct reactors reactors;
static struct reactor control;
static struct watchdog watchdog;
static const struct metrics_source source = { &device_set, &reactors, &control, &watchdog };
static uint64_t asked_ns;

static struct member *add(const char *name)
{
	struct config_errors e;
	struct settings s;
	char yaml[128];

	config_errors_init(&e, "test");
	snprintf(yaml, sizeof(yaml), "{name: %s, backend: {type: mem, size: 1M}}", name);
	assert_int_equal(settings_parse_devices(&s, yaml, strlen(yaml), &e), 0);
	device_set_add(&device_set, settings_take(&s, 0), false);
	settings_free(&s);
	config_errors_fini(&e);
	peer_pump_for(0.02);
	return device_set_find(&device_set, name);
}

static json_t *ask_page(void)
{
	size_t bytes = 0;
	char *text = metrics_page(&source, &asked_ns, &bytes);
	json_t *all;

	assert_non_null(text);
	assert_int_equal(strlen(text), bytes);
	all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(all);
	free(text);
	return all;
}

static const json_t *device_at(const json_t *page, size_t idx)
{
	return json_array_get(json_object_get(page, "devices"), idx);
}

static const char *text_at(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	assert_non_null(text);
	return text;
}

static json_int_t number_at(const json_t *o, const char *key)
{
	assert_true(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static const char *verdict_at(const json_t *device, const char *key)
{
	return text_at(json_object_get(device, "verdict"), key);
}

static void test_device(void **state)
{
	const json_t *d, *total, *reads;
	json_t *page, *bins;
	size_t i, sum = 0;

	(void)state;
	add("a");
	page = ask_page();
	d = device_at(page, 0);
	assert_string_equal(text_at(page, "version"), UBLKD_VERSION);
	assert_string_equal(text_at(d, "name"), "a");
	assert_string_equal(text_at(d, "state"), "live");
	assert_string_equal(text_at(d, "backend"), "mem");
	assert_string_equal(text_at(d, "path"), "/dev/ublkb7");
	assert_int_equal(number_at(d, "size_bytes"), 1 << 20);
	assert_int_equal(number_at(d, "inflight"), 1);
	assert_int_equal(number_at(d, "connection_nr"), 0);
	reads = json_object_get(json_object_get(d, "ops"), "read");
	assert_int_equal(number_at(reads, "done"), 1);
	assert_int_equal(number_at(reads, "bytes"), 4096);
	/* One read of a microsecond: below the first boundary. */
	total = json_object_get(json_object_get(d, "layers"), "total");
	assert_int_equal(number_at(total, "count"), 1);
	assert_int_equal(number_at(total, "sum_ns"), 1000);
	bins = json_object_get(total, "bins");
	assert_int_equal(json_array_size(bins),
			 json_array_size(json_object_get(page, "boundaries")) + 1);
	assert_int_equal(json_integer_value(json_array_get(bins, 0)), 1);
	for (i = 0; i < json_array_size(bins); i++)
		sum += (size_t)json_integer_value(json_array_get(bins, i));
	assert_int_equal(sum, 1);
	assert_int_equal(json_object_size(json_object_get(d, "layers")), QUEUE_LAYER_NR);
	json_decref(page);
}

static void test_connections(void **state)
{
	const json_t *d, *second;
	json_t *page;

	(void)state;
	add("net");
	page = ask_page();
	d = device_at(page, 0);
	assert_int_equal(number_at(d, "connection_nr"), 2);
	assert_int_equal(number_at(d, "connection_up"), 1);
	second = json_array_get(json_object_get(d, "connections"), 1);
	assert_int_equal(number_at(second, "queue"), 1);
	assert_string_equal(text_at(second, "state"), "waiting");
	assert_int_equal(number_at(second, "lost"), 4);
	assert_string_equal(text_at(second, "last_end"), "silent");
	json_decref(page);
}

/* The words are those of ublkctl why-stuck. */
static void test_verdict(void **state)
{
	const json_t *d;
	json_t *page;

	(void)state;
	fake_io_young = true;
	add("a");
	add("stuck");
	add("slow");
	page = ask_page();
	assert_string_equal(verdict_at(device_at(page, 0), "verdict"), "nothing-stuck");
	assert_string_equal(verdict_at(device_at(page, 0), "cure"), "");
	d = device_at(page, 1);
	assert_string_equal(verdict_at(d, "verdict"), "backend-does-not-answer");
	assert_non_null(strstr(verdict_at(d, "where"), "the backend mem does not answer "
						       "(thinking)"));
	assert_non_null(strstr(verdict_at(d, "cure"), "ublkctl del NAME --force"));
	assert_int_equal(number_at(json_object_get(d, "oldest"), "sector"), 8);
	assert_string_equal(verdict_at(device_at(page, 2), "verdict"), "not-serving");
	json_decref(page);
	fake_io_young = false;
	device_set_stop_all(&device_set);
	fake_release("slow");
}

/* Asked by one answer, told by the next; and not more often than is useful. */
static void test_driver_is_asked(void **state)
{
	json_t *page;

	(void)state;
	asked_ns = 0;
	fake_io_young = true;
	add("a");
	json_decref(ask_page());
	assert_true(fake_get("a")->asked);
	fake_get("a")->asked = false;
	asked_ns = ring_clock_ns() + 3600 * NS_PER_SEC; /* as if just now, however slow this is */
	json_decref(ask_page());
	assert_false(fake_get("a")->asked);
	asked_ns = 0;
	json_decref(ask_page());
	page = ask_page();
	assert_string_equal(verdict_at(device_at(page, 0), "verdict"), "driver-disagrees");
	assert_non_null(strstr(verdict_at(device_at(page, 0), "where"), "pid 42"));
	json_decref(page);
	fake_io_young = false;
}

/* Settings allow no such name; were one there, it would be a string like any other. */
static void test_hostile_words(void **state)
{
	struct member *m;
	json_t *page;
	char *name;

	(void)state;
	m = add("a");
	name = m->settings->options.name;
	m->settings->options.name = (char *)(uintptr_t)HOSTILE_NAME;
	/* As a server says it, or cut within a character. */
	snprintf(fake_get("a")->error, DEVICE_ERROR_BYTES, "%s", "<b>\"\xff\xc3");
	page = ask_page();
	m->settings->options.name = name;
	assert_string_equal(text_at(device_at(page, 0), "name"), HOSTILE_NAME);
	assert_string_equal(text_at(device_at(page, 0), "error"), "<b>\"\\xff...");
	json_decref(page);
}

static void test_many_devices(void **state)
{
	char name[16];
	json_t *page;

	(void)state;
	fake_requests_more = 0;
	for (unsigned i = 0; i < METRICS_PAGE_DEVICES_MAX + 3; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		add(name);
	}
	page = ask_page();
	assert_int_equal(json_array_size(json_object_get(page, "devices")),
			 METRICS_PAGE_DEVICES_MAX);
	assert_int_equal(number_at(page, "left_out"), 3);
	json_decref(page);
}

static int setup(void **state)
{
	(void)state;
	device_set_init(&device_set, peer_loop, &host, 10 * NS_PER_SEC);
	return 0;
}

static int teardown(void **state)
{
	double until = ev_time() + PEER_OUTAGE_TIMEOUT_SECONDS;

	(void)state;
	device_set_stop_all(&device_set);
	while (fake_nr > 0 && ev_time() < until)
		peer_pump_for(0.01);
	device_set_fini(&device_set);
	return fake_nr == 0 ? 0 : -1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_device),	    TEST(test_connections),   TEST(test_verdict),
		TEST(test_driver_is_asked), TEST(test_hostile_words), TEST(test_many_devices),
	};

	log_init(LOG_LEVEL_ERROR);
	peer_loop = ev_default_loop(0);
	return cmocka_run_group_tests_name("metrics_page", tests, NULL, NULL);
}
