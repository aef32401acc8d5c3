/*
 * Histograms as text, like bpftrace's hist(): powers of two of nanoseconds, or the bins that were
 * set. Nothing is owned. Failure mode: a boundary that is no duration: told, exit code 2.
 */
#include "ublkctl/ctl_histogram.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "base/format.h"

#define BAR_WIDTH 52
#define LABEL_BYTES 48

/* ---- printing ---- */

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static uint64_t item(const json_t *array, size_t idx)
{
	return (uint64_t)json_integer_value(json_array_get(array, idx));
}

static void print_row(const char *label, uint64_t count, uint64_t count_max)
{
	static const char bar[] = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
	int width = count_max ? (int)((double)count / (double)count_max * BAR_WIDTH) : 0;

	printf("%-18s %10llu |%-*.*s|\n", label, (unsigned long long)count, BAR_WIDTH, width, bar);
}

/* As bpftrace: 512, 4K, 1M; K is 1024. */
static const char *power_name(unsigned power, char buf[static FORMAT_BYTES])
{
	static const char unit[] = "\0KMGTPE";

	snprintf(buf, FORMAT_BYTES, "%u%.1s", 1u << power % 10, &unit[power / 10]);
	return buf;
}

static void print_powers(const json_t *buckets)
{
	char start[FORMAT_BYTES], end[FORMAT_BYTES], label[2 * FORMAT_BYTES + 8];
	uint64_t count[64] = { 0 }, count_max = 0;
	unsigned first = 64, last = 0;
	json_t *bucket;
	size_t i;

	json_array_foreach(buckets, i, bucket)
	{
		uint64_t ns = item(bucket, 0);
		unsigned power = ns ? log2_floor(ns) : 0; /* 0 and 1 share a row */

		count[power] += item(bucket, 1);
		count_max = MAX(count_max, count[power]);
		first = MIN(first, power);
		last = MAX(last, power);
	}
	for (unsigned power = first; power <= last && power < 63; power++) {
		snprintf(label, sizeof(label), "[%s, %s)", power ? power_name(power, start) : "0",
			 power_name(power + 1, end));
		print_row(label, count[power], count_max);
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
		print_row(label, item(bins, i), count_max);
	}
}

static void print_summary(const json_t *h)
{
	static const struct {
		const char *key, *label;
	} fields[] = { { "mean_ns", "mean" },
		       { "p50_ns", "p50" },
		       { "p99_ns", "p99" },
		       { "p999_ns", "p99.9" },
		       { "max_ns", "max" } };
	char buf[FORMAT_BYTES];

	printf("count %llu", (unsigned long long)number(h, "count"));
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		printf("  %s %s", fields[i].label, format_ns(number(h, fields[i].key), buf));
	putchar('\n');
}

static void print_histogram(const json_t *h)
{
	const json_t *boundaries = json_object_get(h, "boundaries");

	const char *op = json_string_value(json_object_get(h, "op"));
	const char *layer = json_string_value(json_object_get(h, "layer"));

	printf("%s, layer %s%s:\n", op ? op : "?", layer ? layer : "?", boundaries ? "" : " (ns)");
	if (boundaries)
		print_bins(boundaries, json_object_get(h, "bins"));
	else
		print_powers(json_object_get(h, "buckets"));
	print_summary(h);
}

/* Kinds of request that there were none of are left out, unless one was asked for. */
static void print_all(const json_t *data, bool asked)
{
	bool first = true;
	json_t *h;
	size_t i;

	json_array_foreach(json_object_get(data, "histograms"), i, h)
	{
		if (number(h, "count") == 0 && !asked)
			continue;
		if (!first)
			putchar('\n');
		first = false;
		print_histogram(h);
	}
	if (first)
		printf("no requests\n");
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
			fprintf(stderr,
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

static enum exit_code ask(const struct ctl_histogram_params *params, json_t *request,
			  json_t **ret_data)
{
	if (params->op)
		json_object_set_new(request, "op", json_string(params->op));
	if (params->layer)
		json_object_set_new(request, "layer", json_string(params->layer));
	return client_ask(params->socket_path, request, CLIENT_SECONDS, ret_data);
}

static enum exit_code get(const struct ctl_histogram_params *params)
{
	const char *command = params->qmp_json ? "blockstats" : "histogram_get";
	enum exit_code code;
	json_t *data;

	code = ask(params, json_pack("{s:s, s:s}", "command", command, "name", params->name),
		   &data);
	if (code != EXIT_DONE)
		return code;
	if (params->json || params->qmp_json)
		ctl_print_json(data);
	else
		print_all(data, params->op != NULL);
	json_decref(data);
	return EXIT_DONE;
}

static enum exit_code tell(const struct ctl_histogram_params *params, json_t *request)
{
	enum exit_code code;
	json_t *data;

	code = ask(params, request, &data);
	if (code != EXIT_DONE)
		return code;
	if (params->json)
		ctl_print_json(data);
	json_decref(data);
	return EXIT_DONE;
}

static enum exit_code set(const struct ctl_histogram_params *params)
{
	static const char *const key[CTL_BOUNDARIES_NR] = { "boundaries", "boundaries_read",
							    "boundaries_write",
							    "boundaries_flush" };
	json_t *request = json_pack("{s:s, s:s}", "command", "histogram_set", "name", params->name);

	for (unsigned i = 0; i < CTL_BOUNDARIES_NR; i++) {
		json_t *list;

		if (!params->boundaries[i])
			continue;
		list = parse_boundaries(params->boundaries[i]);
		if (!list) {
			json_decref(request);
			return EXIT_USAGE;
		}
		json_object_set_new(request, key[i], list);
	}
	return tell(params, request);
}

static enum exit_code reset(const struct ctl_histogram_params *params)
{
	return tell(params,
		    json_pack("{s:s, s:s}", "command", "histogram_reset", "name", params->name));
}

/* What only one of the actions takes. */
static const char *incompatible(const struct ctl_histogram_params *params)
{
	bool is_get = strcmp(params->action, "get") == 0;

	for (unsigned i = 0; i < CTL_BOUNDARIES_NR; i++)
		if (params->boundaries[i] && strcmp(params->action, "set") != 0)
			return "--boundaries applies to histogram set only";
	if (params->layer && !is_get)
		return "--layer applies to histogram get only; set and reset change all layers";
	if (params->qmp_json && !is_get)
		return "--qmp-json applies to histogram get only";
	if (params->qmp_json && params->op)
		return "--qmp-json has all operations and takes no --op";
	return NULL;
}

enum exit_code ctl_histogram(const struct ctl_histogram_params *params)
{
	static const struct {
		const char *name;
		enum exit_code (*fn)(const struct ctl_histogram_params *params);
	} actions[] = { { "get", get }, { "set", set }, { "reset", reset } };
	const char *error = incompatible(params);

	if (error) {
		fprintf(stderr, "ublkctl: %s\n", error);
		return EXIT_USAGE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(params->action, actions[i].name) == 0)
			return actions[i].fn(params);
	fprintf(stderr, "ublkctl: histogram needs get, set or reset, not \"%s\"\n", params->action);
	return EXIT_USAGE;
}
