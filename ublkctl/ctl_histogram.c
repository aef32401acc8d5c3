/*
 * `ublkctl histogram get|set|reset`. As text like bpftrace's hist(): powers of two of nanoseconds,
 * or the bins that were set. Owns nothing. Failure modes: an action or option that makes no sense,
 * a boundary that is no duration: an error on stderr, EXIT_USAGE.
 */
#include "ublkctl/ctl_commands.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/util.h"
#include "daemon/wire/json_histogram.h"
#include "ublkctl/client.h"
#include "ublkctl/print/say.h"
#include "base/format.h"

#define BAR_WIDTH 52
#define LABEL_BYTES 48

/* ---- printing ---- */

static uint64_t item(const json_t *array, size_t idx)
{
	return (uint64_t)json_integer_value(json_array_get(array, idx));
}

static void print_bar(const char *label, uint64_t count, uint64_t count_max)
{
	static const char bar[] = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
	int width = count_max ? (int)((double)count / (double)count_max * BAR_WIDTH) : 0;

	say_to(stdout, "%-18s %10llu |%-*.*s|\n", label, (unsigned long long)count, BAR_WIDTH,
	       width, bar);
}

/* As bpftrace: 512, 4K, 1M; K is 1024. */
static const char *power_name(unsigned power, char buf[static FORMAT_BYTES])
{
	static const char unit[] = "\0KMGTPE";

	snprintf(buf, FORMAT_BYTES, "%u%.1s", 1u << power % 10, &unit[power / 10]);
	return buf;
}

static void print_powers(const struct histogram *h)
{
	char start[FORMAT_BYTES], end[FORMAT_BYTES], label[2 * FORMAT_BYTES + 8];
	uint64_t count[HISTOGRAM_OCTAVE_NR], count_max = 0;
	unsigned first = HISTOGRAM_OCTAVE_NR, last = 0;

	histogram_octaves(h, count);
	for (unsigned i = 0; i < HISTOGRAM_OCTAVE_NR; i++) {
		if (count[i] == 0)
			continue;
		count_max = MAX(count_max, count[i]);
		first = MIN(first, i);
		last = i;
	}
	for (unsigned i = first; i <= last; i++) {
		snprintf(label, sizeof(label), "[%s, %s)", i ? power_name(i, start) : "0",
			 power_name(i + 1, end));
		print_bar(label, count[i], count_max);
	}
}

/* Boundaries as exact as they were given: 1500us, not 1.5ms or 2ms. */
static const char *boundary_name(uint64_t ns, char buf[static FORMAT_BYTES])
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	unsigned i = 0;

	while (ns && ns % 1000 == 0 && i + 1 < ARRAY_SIZE(unit)) {
		ns /= 1000;
		i++;
	}
	snprintf(buf, FORMAT_BYTES, "%llu%s", (unsigned long long)ns, unit[i]);
	return buf;
}

static void print_bins(const json_t *boundaries, const json_t *bins)
{
	char start[FORMAT_BYTES], end[FORMAT_BYTES], label[2 * FORMAT_BYTES + 8];
	size_t nr = json_array_size(boundaries);
	uint64_t count_max = 0;

	for (size_t i = 0; i <= nr; i++)
		count_max = MAX(count_max, item(bins, i));
	for (size_t i = 0; i <= nr; i++) {
		snprintf(label, sizeof(label), "[%s, %s)",
			 i ? boundary_name(item(boundaries, i - 1), start) : "0",
			 i < nr ? boundary_name(item(boundaries, i), end) : "...");
		print_bar(label, item(bins, i), count_max);
	}
}

static void print_histogram_summary(const json_t *h)
{
	static const struct {
		const char *key, *label;
	} fields[] = { { "mean_ns", "mean" },
		       { "p50_ns", "p50" },
		       { "p99_ns", "p99" },
		       { "p999_ns", "p99.9" },
		       { "max_ns", "max" } };
	char buf[FORMAT_BYTES];

	say_to(stdout, "count %llu", client_number(h, "count"));
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		say_to(stdout, "  %s %s", fields[i].label,
		       format_ns(client_number(h, fields[i].key), buf));
	putchar('\n');
}

static void print_histogram(const json_t *h)
{
	static struct histogram read;
	const json_t *boundaries = json_object_get(h, "boundaries");

	say_to(stdout, "%s, layer %s%s:\n", client_text(h, "op"), client_text(h, "layer"),
	       boundaries ? "" : " (ns)");
	json_read_buckets(h, &read);
	if (boundaries)
		print_bins(boundaries, json_object_get(h, "bins"));
	else
		print_powers(&read);
	print_histogram_summary(h);
}

/* Kinds of request without requests are left out; the only one, of --op, is not. */
static void print_histograms(const json_t *data)
{
	const json_t *all = json_object_get(data, "histograms");
	bool first = true;
	json_t *h;
	size_t i;

	json_array_foreach(all, i, h)
	{
		if (client_number(h, "count") == 0 && json_array_size(all) > 1)
			continue;
		if (!first)
			putchar('\n');
		first = false;
		print_histogram(h);
	}
	if (first)
		say_to(stdout, "no requests\n");
}

/* ---- asking ---- */

/* Nanoseconds without a unit, as in QEMU. Returns false when it is no duration. */
static bool parse_ns(const char *word, size_t len, uint64_t *ret_ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{ "", 1 }, { "ns", 1 }, { "us", 1000 }, { "ms", NS_PER_MS }, { "s", NS_PER_SEC }
	};
	char text[32], *end;
	unsigned long long value;

	if (len == 0 || len >= sizeof(text) || word[0] < '0' || word[0] > '9')
		return false;
	snprintf(text, sizeof(text), "%.*s", (int)len, word);
	value = strtoull(text, &end, 10);
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strcmp(end, units[i].name) == 0 && value <= INT64_MAX / units[i].ns) {
			*ret_ns = value * units[i].ns;
			return true;
		}
	return false;
}

/* NULL with the reason printed. */
static json_t *parse_boundaries(const char *list)
{
	json_t *all = json_array();
	uint64_t ns;

	while (*list) {
		size_t len = strcspn(list, ",");

		if (!parse_ns(list, len, &ns)) {
			say_to(stderr,
			       "ublkctl: \"%.*s\" is not a boundary: use a number of ns, or with "
			       "us, ms, "
			       "s\n",
			       (int)len, list);
			json_decref(all);
			return NULL;
		}
		json_array_append_new(all, json_integer((json_int_t)ns));
		list += len + (list[len] == ',');
	}
	return all;
}

static json_t *histogram_request(const char *command, const struct ublkctl_args *a)
{
	json_t *request = client_request(command, a->name);

	client_set_text(&request, "op", a->op);
	client_set_text(&request, "layer", a->layer);
	return request;
}

static enum exit_code histogram_get(const struct ublkctl_args *a)
{
	struct ublkctl_args as_json = *a;

	if (!a->qmp_json)
		return client_ask_and_print(a, histogram_request("histogram_get", a),
					    CLIENT_SECONDS, print_histograms);
	as_json.json = true;
	return client_ask_and_print(&as_json, histogram_request("blockstats", a), CLIENT_SECONDS,
				    NULL);
}

static enum exit_code histogram_set(const struct ublkctl_args *a)
{
	static const char *const key[BOUNDARIES_NR] = { "boundaries", "boundaries_read",
							"boundaries_write", "boundaries_flush" };
	json_t *request = histogram_request("histogram_set", a);

	for (unsigned i = 0; i < BOUNDARIES_NR; i++) {
		json_t *list;

		if (!a->boundaries[i])
			continue;
		list = parse_boundaries(a->boundaries[i]);
		if (!list) {
			json_decref(request);
			return EXIT_USAGE;
		}
		json_object_set_new(request, key[i], list);
	}
	return client_ask_and_print(a, request, CLIENT_SECONDS, NULL);
}

static enum exit_code histogram_reset(const struct ublkctl_args *a)
{
	return client_ask_and_print(a, histogram_request("histogram_reset", a), CLIENT_SECONDS,
				    NULL);
}

/* An option that the action does not take; NULL: none. */
static const char *incompatible_option(const struct ublkctl_args *a)
{
	bool is_get = strcmp(a->action, "get") == 0;

	for (unsigned i = 0; i < BOUNDARIES_NR; i++)
		if (a->boundaries[i] && strcmp(a->action, "set") != 0)
			return "--boundaries applies to histogram set only";
	if (a->layer && !is_get)
		return "--layer applies to histogram get only; set and reset change all layers";
	if (a->qmp_json && !is_get)
		return "--qmp-json applies to histogram get only";
	if (a->qmp_json && a->op)
		return "--qmp-json has all operations and takes no --op";
	return NULL;
}

enum exit_code ublkctl_histogram(const struct ublkctl_args *a)
{
	static const struct {
		const char *name;
		enum exit_code (*fn)(const struct ublkctl_args *a);
	} actions[] = { { "get", histogram_get },
			{ "set", histogram_set },
			{ "reset", histogram_reset } };
	const char *error = incompatible_option(a);

	if (error) {
		say_to(stderr, "ublkctl: %s\n", error);
		return EXIT_USAGE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(a->action, actions[i].name) == 0)
			return actions[i].fn(a);
	say_to(stderr, "ublkctl: histogram needs get, set or reset, not \"%s\"\n", a->action);
	return EXIT_USAGE;
}
