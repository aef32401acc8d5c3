/* Metrics: a strict reader of OpenMetrics over what is written, the server, Grafana's dashboard. */
#include <arpa/inet.h>
#include <jansson.h>
#include <math.h>
#include <netinet/in.h>

#include "base/log.h"
#include "daemon/settings/listen_address.h"
#include "daemon/metrics/http.h"
#include "test/rig/fake_backends.h"
#include "test/rig/fake_device.h"
#include "test/rig/socket_check.h"

static struct device_set device_set;
static struct reactors reactors;
static struct reactor control;
static struct watchdog watchdog;
static const struct metrics_source source = { &device_set, &reactors, &control, &watchdog };

/* ---- the reader ---- */

#define FAMILIES_MAX 96
#define SERIES_MAX 4096

static struct family {
	char name[64], type[16];
	bool help;
} families[FAMILIES_MAX];
static unsigned family_nr;
static char series[SERIES_MAX][160];
static unsigned series_nr;

/* The histogram being read: its labels but le, and what was seen of it. */
static struct {
	char labels[128];
	double le;
	unsigned long long count;
	bool inf;
} histogram;

static bool is_name(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz_", s[i]))
			return false;
	return len > 0;
}

static struct family *last_family(void)
{
	assert_true(family_nr > 0);
	return &families[family_nr - 1];
}

static void read_comment(const char *line)
{
	char name[64], word[16];

	if (sscanf(line, "# TYPE %63s %15s", name, word) == 2) {
		for (unsigned i = 0; i < family_nr; i++)
			assert_string_not_equal(families[i].name, name);
		assert_true(family_nr < FAMILIES_MAX);
		snprintf(families[family_nr].name, sizeof(name), "%s", name);
		snprintf(families[family_nr].type, sizeof(word), "%s", word);
		families[family_nr++].help = false;
		assert_true(strcmp(word, "counter") == 0 || strcmp(word, "gauge") == 0 ||
			    strcmp(word, "histogram") == 0 || strcmp(word, "info") == 0);
	} else {
		assert_int_equal(sscanf(line, "# HELP %63s %15s", name, word), 2);
		assert_string_equal(name, last_family()->name);
		assert_false(last_family()->help);
		last_family()->help = true;
	}
}

/* The suffix that the type wants. */
static void check_suffix(const char *name, size_t len)
{
	const struct family *f = last_family();
	size_t base = strlen(f->name);
	char suffix[16];

	assert_true(is_name(name, len) && len >= base);
	assert_memory_equal(name, f->name, base);
	snprintf(suffix, sizeof(suffix), "%.*s", (int)(len - base), name + base);
	if (strcmp(f->type, "counter") == 0)
		assert_string_equal(suffix, "_total");
	else if (strcmp(f->type, "gauge") == 0)
		assert_string_equal(suffix, "");
	else if (strcmp(f->type, "info") == 0)
		assert_string_equal(suffix, "_info");
	else
		assert_true(strcmp(suffix, "_bucket") == 0 || strcmp(suffix, "_sum") == 0 ||
			    strcmp(suffix, "_count") == 0);
}

/* name="value",...: returns the end, after the brace. */
static const char *check_labels(const char *at)
{
	do {
		size_t len = strcspn(at, "=");

		assert_true(is_name(at, len));
		at += len + 1;
		assert_int_equal(*at++, '"');
		at += strcspn(at, "\"\\\n");
		assert_int_equal(*at++, '"');
	} while (*at++ == ',');
	assert_int_equal(at[-1], '}');
	return at;
}

static void check_bucket(const char *line, unsigned long long count)
{
	const char *le = strstr(line, ",le=\"");
	double value = strncmp(le + 5, "+Inf", 4) == 0 ? INFINITY : strtod(le + 5, NULL);
	char labels[128];

	snprintf(labels, sizeof(labels), "%.*s", (int)(le - line - 30), line + 30);
	if (strcmp(labels, histogram.labels) != 0) {
		memset(&histogram, 0, sizeof(histogram));
		snprintf(histogram.labels, sizeof(labels), "%s", labels);
	}
	assert_true(value > histogram.le);
	assert_true(count >= histogram.count);
	histogram.le = value;
	histogram.count = count;
	histogram.inf = isinf(value);
}

static void read_sample(const char *line)
{
	size_t len = strcspn(line, "{ ");
	const char *end = line + len;
	unsigned long long count;
	char *rest;

	check_suffix(line, len);
	if (*end == '{')
		end = check_labels(end + 1);
	for (unsigned i = 0; i < series_nr; i++)
		assert_false(strlen(series[i]) == (size_t)(end - line) &&
			     memcmp(series[i], line, (size_t)(end - line)) == 0);
	assert_true(series_nr < SERIES_MAX);
	snprintf(series[series_nr++], sizeof(series[0]), "%.*s", (int)(end - line), line);
	assert_int_equal(*end, ' ');
	strtod(end + 1, &rest);
	assert_true(rest > end + 1 && *rest == '\0');
	count = strtoull(end + 1, NULL, 10);
	if (strstr(line, "_bucket{")) {
		check_bucket(line, count);
	} else if (strstr(line, "_seconds_count{")) {
		assert_true(histogram.inf);
		assert_int_equal(count, histogram.count);
	}
}

/* Reads all of text, which it writes to. */
static void read_text(char *text, size_t bytes)
{
	static const char end[] = "# EOF\n";
	char *rest = text, *line;

	family_nr = series_nr = 0;
	assert_int_equal(strlen(text), bytes);
	assert_true(bytes > sizeof(end));
	assert_string_equal(text + bytes - (sizeof(end) - 1), end);
	text[bytes - sizeof(end) + 1] = '\0';
	while ((line = strsep(&rest, "\n")) && rest) {
		assert_true(line[0] != '\0');
		if (line[0] == '#')
			read_comment(line);
		else
			read_sample(line);
	}
	for (unsigned i = 0; i < family_nr; i++)
		assert_true(families[i].help);
}

static bool has_series(const char *name)
{
	for (unsigned i = 0; i < series_nr; i++)
		if (strcmp(series[i], name) == 0)
			return true;
	return false;
}

/* ---- tests ---- */

static void add(const char *name)
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
}

/* What devices share stands there once, of the device that counts it; the rest of each as ever. */
static void test_shared_is_counted_once(void **state)
{
	size_t bytes;
	char *text;

	(void)state;
	add("net_again");
	add("image_again");
	add("cache_again");
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	assert_non_null(text);
	assert_null(strstr(text, "ublkd_connection_up{device=\"net_again\",queue=\"0\""));
	assert_non_null(strstr(text, "ublkd_connection_up{device=\"net_again\",queue=\"1\""));
	assert_non_null(strstr(text, "\nublkd_connection_latency_seconds_count{"
				     "device=\"net_again\",part=\"answer\"} 1\n"));
	assert_null(strstr(text, "ublkd_image_table_misses_total{device=\"image_again\"}"));
	assert_non_null(strstr(text, "\nublkd_image_table_misses_total{device=\"image_again\","
				     "node=\"image/backing\"} 12\n"));
	assert_null(strstr(text, "ublkd_cache_hits_total{device=\"cache_again\"}"));
	assert_non_null(strstr(text, "\nublkd_cache_hits_total{device=\"cache_again\","
				     "node=\"cache/backend\"} 30\n"));
	free(text);
}

/* Of devices that have some, and requests of zones where there were any. */
static void test_zones(void **state)
{
	size_t bytes;
	char *text;

	(void)state;
	add("zones");
	add("d");
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	assert_non_null(text);
	assert_non_null(strstr(text,
			       "\nublkd_zones{device=\"zones\",condition=\"conventional\"} 1\n"
			       "ublkd_zones{device=\"zones\",condition=\"empty\"} 6\n"
			       "ublkd_zones{device=\"zones\",condition=\"implicit_open\"} 2\n"
			       "ublkd_zones{device=\"zones\",condition=\"explicit_open\"} 3\n"
			       "ublkd_zones{device=\"zones\",condition=\"closed\"} 4\n"
			       "ublkd_zones{device=\"zones\",condition=\"full\"} 5\n"));
	assert_non_null(strstr(text, "\nublkd_zone_resets_total{device=\"zones\"} 11\n"));
	assert_non_null(strstr(text, "\nublkd_zone_finishes_total{device=\"zones\"} 12\n"));
	assert_non_null(strstr(text, "\nublkd_zone_refused_writes_total{device=\"zones\"} 13\n"));
	assert_non_null(strstr(text, "\nublkd_zone_redone_writes_total{device=\"zones\"} 14\n"));
	assert_non_null(strstr(text, "\nublkd_zone_commits_total{device=\"zones\"} 15\n"));
	assert_null(strstr(text, "ublkd_zones{device=\"d\""));
	assert_null(strstr(text, "ublkd_requests_total{device=\"d\",op=\"zone_"));
	free(text);
}

static void test_integrity(void **state)
{
	size_t bytes;
	char *text;

	(void)state;
	add("integrity");
	add("d");
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	assert_non_null(text);
	assert_non_null(strstr(text, "\nublkd_integrity_reads_total{device=\"integrity\"} 21\n"));
	assert_non_null(strstr(text, "\nublkd_integrity_writes_total{device=\"integrity\"} 22\n"));
	assert_non_null(
		strstr(text, "\nublkd_integrity_forgotten_total{device=\"integrity\"} 23\n"));
	assert_non_null(strstr(text, "\nublkd_integrity_held_total{device=\"integrity\"} 24\n"));
	assert_null(strstr(text, "ublkd_integrity_reads_total{device=\"d\""));
	free(text);
}

static void test_text(void **state)
{
	size_t bytes;
	char *text, *whole;

	(void)state;
	add("a.b-c");
	add("d");
	add("net");
	add("image");
	add("cache");
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	assert_non_null(text);
	whole = strdup(text); /* reading cuts it into lines */
	read_text(text, bytes);
	assert_true(has_series("ublkd_requests_total{device=\"a.b-c\",op=\"read\"}"));
	assert_true(has_series("ublkd_device_live{device=\"d\"}"));
	assert_true(has_series("ublkd_device_degraded{device=\"d\"}"));
	assert_true(has_series("ublkd_build_info{version=\"" UBLKD_VERSION "\"}"));
	assert_true(has_series("ublkd_reactor_turns_total{reactor=\"control\"}"));
	assert_true(has_series("ublkd_latency_seconds_count{device=\"d\",op=\"read\",layer="
			       "\"total\"}"));
	assert_true(has_series("ublkd_connection_up{device=\"net\",queue=\"1\",connection=\"0\"}"));
	assert_true(has_series("ublkd_connection_ends_total{device=\"net\",queue=\"0\","
			       "connection=\"0\",reason=\"silent\"}"));
	assert_non_null(strstr(whole, "\nublkd_connection_received_bytes_total{device=\"net\","
				      "queue=\"1\",connection=\"0\"} 64000\n"));
	assert_non_null(strstr(whole, "\nublkd_connection_losses_total{device=\"net\","
				      "queue=\"1\",connection=\"0\"} 4\n"));
	/* What is what, in which unit: one READ of 4096 bytes in a microsecond, and none failed. */
	assert_non_null(strstr(whole, "\nublkd_requests_total{device=\"d\",op=\"read\"} 1\n"));
	assert_non_null(
		strstr(whole, "\nublkd_failed_requests_total{device=\"d\",op=\"read\"} 0\n"));
	assert_non_null(strstr(whole, "\nublkd_bytes_total{device=\"d\",op=\"read\"} 4096\n"));
	assert_non_null(strstr(whole, "\nublkd_latency_seconds_bucket{device=\"d\",op=\"read\","
				      "layer=\"total\",le=\"0.000001024\"} 1\n"));
	/* Of both queues. */
	assert_non_null(strstr(whole, "\nublkd_connection_latency_seconds_count{device=\"net\","
				      "part=\"answer\"} 2\n"));
	assert_null(strstr(whole, "ublkd_connection_up{device=\"d\""));
	assert_non_null(strstr(whole,
			       "\nublkd_image_table_misses_total{device=\"image\"} 11\n"
			       "ublkd_image_table_misses_total{device=\"image\",node=\"image/"
			       "backing\"} 12\n"));
	assert_non_null(
		strstr(whole, "\nublkd_image_allocated_clusters_total{device=\"image\"} 12"));
	assert_non_null(strstr(whole, "\nublkd_image_end_bytes{device=\"image\"} 5242880\n"));
	assert_non_null(strstr(whole, "\nublkd_image_tables_dirty{device=\"image\"} 1\n"));
	assert_non_null(strstr(whole, "\nublkd_image_stored_bytes{device=\"image\"} 4194304\n#"));
	assert_null(strstr(whole, "ublkd_image_size_bytes{device=\"d\""));
	assert_non_null(strstr(whole, "\nublkd_cache_hits_total{device=\"cache\"} 30\n"
				      "ublkd_cache_hits_total{device=\"cache\",node=\"cache/"
				      "backend\"} 30\n"));
	assert_non_null(strstr(whole, "\nublkd_cache_dirty_bytes{device=\"cache\"} 8192\n"));
	assert_non_null(strstr(whole, "\nublkd_cache_off{device=\"cache\"} 0\n"));
	assert_null(strstr(whole, "ublkd_cache_blocks{device=\"d\""));
	free(whole);
	free(text);
}

/* Of the process, not of a device; none is in use: none is there. */
static void test_library(void **state)
{
	size_t bytes;
	char *text;

	(void)state;
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	assert_non_null(strstr(text, "\nublkd_library_threads{library=\"libfake\"} 29\n"));
	assert_non_null(strstr(text, "\nublkd_library_clients{library=\"libfake\"} 2\n"));
	assert_non_null(strstr(text, "\nublkd_library_images{library=\"libfake\"} 3\n"));
	read_text(text, bytes);
	free(text);
	fake_client_nr = 0;
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	fake_client_nr = 2;
	assert_null(strstr(text, "\nublkd_library_threads{"));
	free(text);
}

#define TOTAL_OF_A(what) "\nublkd_latency_seconds_" what "{device=\"a\",op=\"read\",layer=\"total\""

/* Slower than the last boundary: in +Inf, the count and the sum, and in no other bucket. */
static void test_slowest_request(void **state)
{
	size_t bytes;
	char *text, *whole;

	(void)state;
	add("a");
	fake_slow_ns = 10 * NS_PER_SEC;
	text = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	fake_slow_ns = 0;
	assert_non_null(text);
	whole = strdup(text);
	read_text(text, bytes);
	assert_non_null(strstr(whole, TOTAL_OF_A("bucket") ",le=\"0.000001024\"} 1\n"));
	assert_non_null(strstr(whole, TOTAL_OF_A("bucket") ",le=\"8.589934592\"} 1\n"));
	assert_non_null(strstr(whole, TOTAL_OF_A("bucket") ",le=\"+Inf\"} 2\n"));
	assert_non_null(strstr(whole, TOTAL_OF_A("count") "} 2\n"));
	assert_non_null(strstr(whole, TOTAL_OF_A("sum") "} 10.000001000\n"));
	free(whole);
	free(text);
}

static void test_heatmap(void **state)
{
	json_t *all, *total;
	json_int_t sum = 0;
	size_t bytes, nr;
	char *text;

	(void)state;
	add("a");
	text = metrics_heatmap(&source, &bytes);
	all = json_loadb(text, bytes, 0, NULL);
	nr = json_array_size(json_object_get(all, "boundaries"));
	total = json_object_get(
		json_object_get(json_array_get(json_object_get(all, "devices"), 0), "layers"),
		"total");
	assert_int_equal(json_array_size(total), nr + 1);
	for (size_t i = 0; i <= nr; i++)
		sum += json_integer_value(json_array_get(total, i));
	assert_int_equal(sum, 1);
	json_decref(all);
	free(text);
}

/* What a client reads until the server closes. */
static char *get(unsigned port, const char *request)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((in_port_t)port) };
	static char answer[1 << 18];
	size_t used = 0;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), 0);
	assert_int_equal(write(fd, request, strlen(request)), strlen(request));
	for (int i = 0; i < 2000; i++) {
		ssize_t got;

		peer_pump_for(0.001);
		got = recv(fd, answer + used, sizeof(answer) - 1 - used, MSG_DONTWAIT);
		if (got == 0)
			break;
		used += got > 0 ? (size_t)got : 0;
	}
	close(fd);
	answer[used] = '\0';
	return answer;
}

#define END " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void test_server(void **state)
{
	struct http http, second;
	char address[32], *answer;

	(void)state;
	add("a");
	assert_int_equal(http_start(&http, peer_loop, "127.0.0.1:0", &source), 0);
	answer = get(http_port(&http), "GET /metrics" END);
	assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
	assert_non_null(strstr(answer, "Content-Type: application/openmetrics-text; version=1.0.0; "
				       "charset=utf-8\r\n"));
	answer = strstr(answer, "\r\n\r\n") + 4;
	read_text(answer, strlen(answer));
	answer = get(http_port(&http), "GET /" END);
	assert_non_null(strstr(answer, "<canvas"));
	assert_null(strstr(answer, "//")); /* nothing from elsewhere */
	assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none'; "));
	answer = get(http_port(&http), "GET /page.js" END);
	assert_non_null(strstr(answer, "Content-Type: text/javascript"));
	assert_null(strstr(answer, "//"));
	assert_non_null(strstr(get(http_port(&http), "GET /heatmap.json" END), "\"boundaries\""));
	answer = get(http_port(&http), "GET /page.json" END);
	assert_non_null(strstr(answer, "Content-Type: application/json\r\n"));
	assert_non_null(strstr(answer, "\"verdict\""));
	assert_memory_equal(get(http_port(&http), "GET /no" END), "HTTP/1.1 404 ", 13);
	assert_memory_equal(get(http_port(&http), "DELETE /" END), "HTTP/1.1 405 ", 13);
	snprintf(address, sizeof(address), "127.0.0.1:%u", http_port(&http));
	assert_int_equal(http_start(&second, peer_loop, address, &source), -EADDRINUSE);
	http_stop(&second);
	http_stop(&http);
}

#define ACCEPT(types) " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: " types "\r\n\r\n"

static bool is_old_format(unsigned port, const char *request)
{
	const char *answer = get(port, request);
	bool is_old = strstr(answer, "Content-Type: text/plain; version=0.0.4");

	assert_int_equal(is_old, strstr(answer, "\n# EOF\n") == NULL);
	assert_int_equal(is_old, strstr(answer, "# TYPE ublkd_requests_total counter\n") != NULL);
	assert_int_equal(is_old, strstr(answer, "# TYPE ublkd_build_info gauge\n") != NULL);
	assert_non_null(strstr(answer, "\nublkd_requests_total{device=\"a\",op=\"read\"} "));
	return is_old;
}

static void test_formats(void **state)
{
	struct http http;
	unsigned port;

	(void)state;
	add("a");
	assert_int_equal(http_start(&http, peer_loop, "127.0.0.1:0", &source), 0);
	port = http_port(&http);
	assert_false(is_old_format(port, "GET /metrics" END));
	assert_false(is_old_format(port, "GET /metrics" ACCEPT("*/*")));
	assert_false(is_old_format(port, "GET /metrics" ACCEPT("application/openmetrics-text;"
							       "version=1.0.0,text/plain;q=0.5")));
	assert_true(is_old_format(port, "GET /metrics" ACCEPT("text/plain;version=0.0.4")));
	assert_true(is_old_format(port, "GET /metrics" ACCEPT("text/html,*/*;q=0.8")));
	http_stop(&http);
}

static void test_addresses(void **state)
{
	static const char *const wrong[] = { "",	  ":1",	     "1.2.3.4",	      "1.2.3.4:",
					     "1.2.3.4:x", "name:80", "1.2.3.4:65536", "::1:80x",
					     "[::1]",	  "[::1:80", "1.2.3.4: 80",   "1.2.3:80" };
	struct sockaddr_storage addr;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(address_parse(wrong[i], &addr), -EINVAL);
	assert_int_equal(address_parse("127.0.0.1:9740", &addr), 0);
	assert_true(address_is_loopback(&addr));
	assert_int_equal(address_parse("[::1]:9740", &addr), 0);
	assert_true(address_is_loopback(&addr));
	assert_int_equal(address_parse("0.0.0.0:1", &addr), 0);
	assert_false(address_is_loopback(&addr));
}

/* Every ublkd_... in the dashboard is a family, with the suffix of its type. */
static void test_dashboard(void **state)
{
	json_t *json = json_load_file(UBLKD_SOURCE "/contrib/grafana-dashboard.json", 0, NULL);
	char *text = json ? json_dumps(json, 0) : NULL, *metrics;
	unsigned found = 0;
	size_t bytes;

	(void)state;
	assert_non_null(text);
	add("a");
	metrics = metrics_text(&source, METRICS_OPENMETRICS, &bytes);
	for (const char *at = text; (at = strstr(at, "ublkd_")); found++) {
		size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
		char name[80];

		snprintf(name, sizeof(name), "\n%.*s{", (int)len, at);
		/* errors are there only once there was one */
		if (!strstr(metrics, name) && strncmp(at, "ublkd_errors_total", len) != 0)
			fail_msg("no metric is called %.*s", (int)len, at);
		at += len;
	}
	assert_true(found > 5);
	free(metrics);
	free(text);
	json_decref(json);
}

static int setup(void **state)
{
	static struct device_host host;

	(void)state;
	device_set_init(&device_set, peer_loop, &host, 10 * NS_PER_SEC);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	device_set_stop_all(&device_set);
	peer_pump_for(0.05);
	device_set_fini(&device_set);
	return fake_nr == 0 ? 0 : -1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_zones),	    TEST(test_text),	  TEST(test_shared_is_counted_once),
		TEST(test_integrity),	    TEST(test_text),	  TEST(test_shared_is_counted_once),
		TEST(test_slowest_request), TEST(test_heatmap),	  TEST(test_server),
		TEST(test_addresses),	    TEST(test_dashboard), TEST(test_formats),
		TEST(test_library),
	};

	log_init(LOG_LEVEL_ERROR);
	peer_loop = ev_default_loop(0);
	return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
