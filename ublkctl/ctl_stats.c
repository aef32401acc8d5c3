/*
 * Counters of devices as a table. Owns two samples: the last and the one before.
 *
 * Happy path: one sample and its totals; with --watch a sample per interval and the difference to
 * the one before, latencies too, since a sample carries the whole histogram. Failure mode: ublkd
 * goes away between two samples: told, exit code 1.
 */
#include "ublkctl/ctl_stats.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/histogram.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/table.h"
#include "base/format.h"

/* What `stats` calls them, and how the table does. */
static const struct {
	const char *key, *label;
	bool always;
} ops[] = {
	{ "read", "read", true },
	{ "write", "write", true },
	{ "flush", "flush", true },
	{ "discard", "discard", true },
	{ "write_zeroes", "zeroes", false },
};

struct op_sample {
	uint64_t done, failed, bytes;
	struct histogram latency;
};

struct device_sample {
	char name[64];
	uint64_t inflight;
	char errors[128]; /* "EIO 3, ENOSPC 1", since the start */
	struct op_sample op[ARRAY_SIZE(ops)];
};

struct sample {
	uint64_t time_ns;
	struct device_sample *devices;
	size_t nr;
};

static void free_sample(struct sample *s)
{
	free(s->devices);
	*s = (struct sample){ 0 };
}

/* ---- from JSON ---- */

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void read_op(struct op_sample *op, const json_t *json)
{
	json_t *bucket;
	size_t i;

	op->done = number(json, "done");
	op->failed = number(json, "failed");
	op->bytes = number(json, "bytes");
	op->latency.sum_ns = number(json, "sum_ns");
	json_array_foreach(json_object_get(json, "buckets"), i, bucket)
	{
		uint64_t start_ns = (uint64_t)json_integer_value(json_array_get(bucket, 0));
		json_t *count = json_array_get(bucket, 1);

		op->latency.bucket[histogram_index(start_ns)] +=
			(uint64_t)json_integer_value(count);
	}
}

static void read_errors(struct device_sample *d, json_t *errors)
{
	const char *name;
	size_t used = 0;
	json_t *count;

	json_object_foreach(errors, name, count)
	{
		used += (size_t)snprintf(d->errors + used, sizeof(d->errors) - used, "%s%s %lld",
					 used ? ", " : "", name,
					 (long long)json_integer_value(count));
		if (used >= sizeof(d->errors))
			return;
	}
}

static void read_device(struct device_sample *d, const json_t *json)
{
	const json_t *json_ops = json_object_get(json, "ops");
	const char *name = json_string_value(json_object_get(json, "name"));

	snprintf(d->name, sizeof(d->name), "%s", name ? name : "?");
	d->inflight = number(json, "inflight");
	read_errors(d, json_object_get(json, "errors"));
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		read_op(&d->op[i], json_object_get(json_ops, ops[i].key));
}

static void read_sample(struct sample *s, const json_t *data)
{
	const json_t *devices = json_object_get(data, "devices");

	s->time_ns = number(data, "time_ns");
	s->nr = json_array_size(devices);
	s->devices = calloc(s->nr + 1, sizeof(s->devices[0]));
	if (!s->devices)
		abort();
	for (size_t i = 0; i < s->nr; i++)
		read_device(&s->devices[i], json_array_get(devices, i));
}

static enum exit_code take_sample(const struct ctl_stats_params *params, struct sample *ret_sample)
{
	json_t *request = json_pack("{s:s, s:b}", "command", "stats", "buckets", 1), *data;

	if (params->name)
		json_object_set_new(request, "name", json_string(params->name));
	if (client_ask(params->socket_path, request, CLIENT_SECONDS, &data) != EXIT_DONE)
		return EXIT_REFUSED;
	read_sample(ret_sample, data);
	json_decref(data);
	return EXIT_DONE;
}

/* ---- differences ---- */

/* op -= before; a device made anew counts from zero. */
static void subtract_op(struct op_sample *op, const struct op_sample *before)
{
	if (op->done < before->done)
		return;
	op->done -= before->done;
	op->failed -= MIN(op->failed, before->failed);
	op->bytes -= MIN(op->bytes, before->bytes);
	op->latency.sum_ns -= MIN(op->latency.sum_ns, before->latency.sum_ns);
	for (size_t i = 0; i < HISTOGRAM_BUCKET_NR; i++)
		op->latency.bucket[i] -= MIN(op->latency.bucket[i], before->latency.bucket[i]);
}

static void subtract(struct device_sample *d, const struct sample *before)
{
	for (size_t i = 0; i < before->nr; i++)
		if (strcmp(before->devices[i].name, d->name) == 0)
			for (size_t op = 0; op < ARRAY_SIZE(ops); op++)
				subtract_op(&d->op[op], &before->devices[i].op[op]);
}

/* ---- the table ---- */

static void latency_cell(struct table *t, const struct op_sample *op, uint64_t ns)
{
	char buf[FORMAT_BYTES];

	if (op->done)
		table_cell(t, TABLE_PLAIN, "%s", format_ns(ns, buf));
	else
		table_cell(t, TABLE_DIM, "-");
}

static void count_cell(struct table *t, double count)
{
	char buf[FORMAT_BYTES];

	table_cell(t, count > 0 ? TABLE_PLAIN : TABLE_DIM, "%s", format_count(count, buf));
}

/* seconds 0: totals. */
static void op_row(struct table *t, const struct op_sample *op, double seconds)
{
	char buf[FORMAT_BYTES];

	count_cell(t, (double)op->done / (seconds > 0 ? seconds : 1));
	if (seconds > 0)
		table_cell(t, op->bytes ? TABLE_PLAIN : TABLE_DIM, "%.1f",
			   (double)op->bytes / 1e6 / seconds);
	else
		table_cell(t, op->bytes ? TABLE_PLAIN : TABLE_DIM, "%s",
			   format_bytes(op->bytes, buf));
	latency_cell(t, op, histogram_mean_ns(&op->latency));
	latency_cell(t, op, histogram_quantile_ns(&op->latency, 0.99));
	table_cell(t, op->failed ? TABLE_RED : TABLE_DIM, "%llu", (unsigned long long)op->failed);
}

static void device_rows(struct table *t, const struct device_sample *d, double seconds)
{
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (!ops[i].always && d->op[i].done == 0)
			continue;
		table_cell(t, TABLE_BOLD, "%s", i == 0 ? d->name : "");
		table_cell(t, TABLE_PLAIN, "%s", ops[i].label);
		op_row(t, &d->op[i], seconds);
		if (i == 0)
			table_cell(t, TABLE_PLAIN, "%llu", (unsigned long long)d->inflight);
		else
			table_cell(t, TABLE_PLAIN, "%s", "");
	}
}

static void print_table(const struct sample *s, double seconds)
{
	static const char *const rate_head[] = { "DEVICE", "OP",  "IOPS",   "MB/s",
						 "MEAN",   "P99", "ERRORS", "IN FLIGHT" };
	static const char *const total_head[] = { "DEVICE", "OP",  "COUNT",  "BYTES",
						  "MEAN",   "P99", "ERRORS", "IN FLIGHT" };
	struct table t;

	table_init(&t, "llrrrrrr");
	for (size_t i = 0; i < ARRAY_SIZE(rate_head); i++)
		table_cell(&t, TABLE_BOLD, "%s", seconds > 0 ? rate_head[i] : total_head[i]);
	for (size_t i = 0; i < s->nr; i++)
		device_rows(&t, &s->devices[i], seconds);
	table_print(&t);
	table_fini(&t);
	for (size_t i = 0; i < s->nr; i++)
		if (s->devices[i].errors[0])
			printf("%s: errors since the start: %s\n", s->devices[i].name,
			       s->devices[i].errors);
	fflush(stdout);
}

/* On a terminal each table takes the place of the one before. */
static void between_tables(unsigned long nr)
{
	if (isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
	else if (nr > 0)
		putchar('\n');
}

static void sleep_seconds(double seconds)
{
	struct timespec ts = { .tv_sec = (time_t)seconds };

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	while (nanosleep(&ts, &ts) < 0)
		;
}

static void print_rates(struct sample *now, const struct sample *before)
{
	uint64_t ns = now->time_ns > before->time_ns ? now->time_ns - before->time_ns : 1;
	struct sample rates = { .time_ns = now->time_ns, .nr = now->nr };

	/* A copy: now is the next table's `before`. */
	rates.devices = calloc(now->nr + 1, sizeof(rates.devices[0]));
	if (!rates.devices)
		abort();
	memcpy(rates.devices, now->devices, now->nr * sizeof(rates.devices[0]));
	for (size_t i = 0; i < rates.nr; i++)
		subtract(&rates.devices[i], before);
	print_table(&rates, (double)ns / NS_PER_SEC);
	free_sample(&rates);
}

static enum exit_code watch(const struct ctl_stats_params *params)
{
	struct sample before = { 0 }, now = { 0 };
	enum exit_code code = take_sample(params, &before);

	for (unsigned long nr = 0; code == EXIT_DONE && (!params->count || nr < params->count);
	     nr++) {
		sleep_seconds(params->watch_seconds);
		code = take_sample(params, &now);
		if (code != EXIT_DONE)
			break;
		between_tables(nr);
		print_rates(&now, &before);
		free_sample(&before);
		before = now;
	}
	free_sample(&before);
	return code;
}

static enum exit_code json_once(const struct ctl_stats_params *params)
{
	json_t *request = json_pack("{s:s}", "command", "stats"), *data;

	if (params->name)
		json_object_set_new(request, "name", json_string(params->name));
	if (client_ask(params->socket_path, request, CLIENT_SECONDS, &data) != EXIT_DONE)
		return EXIT_REFUSED;
	ctl_print_json(data);
	json_decref(data);
	return EXIT_DONE;
}

/* The counters again and again: who reads them takes the differences himself. */
static enum exit_code json_watch(const struct ctl_stats_params *params)
{
	enum exit_code code = json_once(params);

	for (unsigned long nr = 1; code == EXIT_DONE && (!params->count || nr < params->count);
	     nr++) {
		fflush(stdout);
		sleep_seconds(params->watch_seconds);
		code = json_once(params);
	}
	return code;
}

/* ---- where the time was spent ---- */

static void layer_row(struct table *t, const char *name, const char *op, const json_t *json)
{
	static const char *const layers[] = { "total", "throttle", "daemon", "backend" };
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_BOLD, "%s", name);
	table_cell(t, TABLE_PLAIN, "%s", op);
	table_cell(t, TABLE_PLAIN, "%s", format_count((double)number(json, "done"), buf));
	for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
		const json_t *layer = json_object_get(json_object_get(json, "layers"), layers[i]);

		table_cell(t, TABLE_PLAIN, "%s", format_ns(number(layer, "mean_ns"), buf));
		table_cell(t, TABLE_PLAIN, "%s", format_ns(number(layer, "p99_ns"), buf));
	}
}

static void layer_rows(struct table *t, const json_t *device)
{
	const char *name = json_string_value(json_object_get(device, "name"));

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		const json_t *op = json_object_get(json_object_get(device, "ops"), ops[i].key);

		if (number(op, "done"))
			layer_row(t, name ? name : "?", ops[i].label, op);
	}
}

static enum exit_code print_layers(const struct ctl_stats_params *params)
{
	static const char *const head[] = { "DEVICE", "OP",	  "COUNT", "TOTAL",
					    "P99",    "THROTTLE", "P99",   "DAEMON",
					    "P99",    "BACKEND",  "P99" };
	json_t *request = json_pack("{s:s}", "command", "stats"), *data, *device;
	struct table t;
	size_t i;

	if (params->name)
		json_object_set_new(request, "name", json_string(params->name));
	if (client_ask(params->socket_path, request, CLIENT_SECONDS, &data) != EXIT_DONE)
		return EXIT_REFUSED;
	table_init(&t, "llrrrrrrrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(json_object_get(data, "devices"), i, device) layer_rows(&t, device);
	table_print(&t);
	table_fini(&t);
	json_decref(data);
	return EXIT_DONE;
}

enum exit_code ctl_stats(const struct ctl_stats_params *params)
{
	struct sample sample;

	if (params->json)
		return params->watch_seconds > 0 ? json_watch(params) : json_once(params);
	if (params->layers)
		return print_layers(params);
	if (params->watch_seconds > 0)
		return watch(params);
	if (take_sample(params, &sample) != EXIT_DONE)
		return EXIT_REFUSED;
	print_table(&sample, 0);
	free_sample(&sample);
	return EXIT_DONE;
}
