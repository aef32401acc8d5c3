/*
 * `ublkctl stats`: counters of devices as a table. Owns two samples: the last and the one before.
 *
 * Happy path: one sample and its totals; with --watch a sample per interval and the difference to
 * the one before, latencies too, since a sample carries the whole histogram. Failure mode: ublkd
 * exits between two samples: an error, exit code 1.
 */
#include "ublkctl/ctl_commands.h"

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
#include "ublkctl/sample.h"
#include "ublkctl/print/say.h"
#include "ublkctl/print/table.h"
#include "base/format.h"

/* The next sample, or EXIT_REFUSED with the reason printed. */
static enum exit_code take_stats(const struct ublkctl_args *a, struct sample *ret_sample)
{
	json_t *request = client_request("stats", a->name), *data;

	*ret_sample = (struct sample){ 0 };
	json_object_set_new(request, "buckets", json_true());
	if (client_ask(a->socket_path, request, CLIENT_SECONDS, &data) != EXIT_DONE)
		return EXIT_REFUSED;
	sample_read_stats(ret_sample, data);
	json_decref(data);
	return EXIT_DONE;
}

/* ---- the table ---- */

static const char *op_label(unsigned op)
{
	return op == SAMPLE_WRITE_ZEROES ? "zeroes" : sample_op_name(op);
}

static void latency_cell(struct table *t, const struct sample_op *op, uint64_t ns)
{
	char buf[FORMAT_BYTES];

	if (op->done)
		table_cell(t, TABLE_PLAIN, "%s", format_ns(ns, buf));
	else
		table_cell(t, TABLE_DIM, "-");
}

static void stats_count_cell(struct table *t, double count)
{
	char buf[FORMAT_BYTES];

	table_cell(t, count > 0 ? TABLE_PLAIN : TABLE_DIM, "%s", format_count(count, buf));
}

/* seconds 0: totals. */
static void op_row(struct table *t, const struct sample_op *op, double seconds)
{
	char buf[FORMAT_BYTES];

	stats_count_cell(t, (double)op->done / (seconds > 0 ? seconds : 1));
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

static void device_rows(struct table *t, const struct sample_device *d, double seconds)
{
	for (unsigned i = 0; i < SAMPLE_OP_NR; i++) {
		if (i == SAMPLE_WRITE_ZEROES && d->op[i].done == 0)
			continue;
		table_cell(t, TABLE_BOLD, "%s", i == 0 ? d->name : "");
		table_cell(t, TABLE_PLAIN, "%s", op_label(i));
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
	for (size_t i = 0; i < s->device_nr; i++)
		device_rows(&t, &s->devices[i], seconds);
	table_print(&t);
	table_fini(&t);
	for (size_t i = 0; i < s->device_nr; i++)
		if (s->devices[i].errors[0])
			say_to(stdout, "%s: errors since the start: %s\n", s->devices[i].name,
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

static enum exit_code watch_stats(const struct ublkctl_args *a)
{
	struct sample before, now, rates;
	enum exit_code code = take_stats(a, &before);
	uint64_t ns;

	for (unsigned long nr = 0; code == EXIT_DONE && (!a->count || nr < a->count); nr++) {
		sleep_seconds(a->watch_seconds);
		code = take_stats(a, &now);
		if (code != EXIT_DONE)
			break;
		between_tables(nr);
		sample_copy(&rates, &now);
		sample_subtract(&rates, &before);
		ns = now.time_ns - MIN(before.time_ns, now.time_ns);
		print_table(&rates, (double)MAX(ns, 1u) / NS_PER_SEC);
		sample_fini(&rates);
		sample_fini(&before);
		before = now;
	}
	sample_fini(&before);
	return code;
}

/* The counters again and again: the reader takes the differences. */
static enum exit_code stats_as_json(const struct ublkctl_args *a)
{
	enum exit_code code;

	for (unsigned long nr = 1;; nr++) {
		code = client_ask_and_print(a, client_request("stats", a->name), CLIENT_SECONDS,
					    NULL);
		if (code != EXIT_DONE || !(a->watch_seconds > 0) || nr == a->count)
			return code;
		fflush(stdout);
		sleep_seconds(a->watch_seconds);
	}
}

/* ---- where the time was spent ---- */

static void layer_row(struct table *t, const char *name, const char *op, const json_t *json)
{
	char buf[FORMAT_BYTES];

	table_cell(t, TABLE_BOLD, "%s", name);
	table_cell(t, TABLE_PLAIN, "%s", op);
	table_cell(t, TABLE_PLAIN, "%s", format_count((double)client_number(json, "done"), buf));
	for (unsigned i = 0; i < QUEUE_LAYER_NR; i++) {
		const json_t *layer =
			json_object_get(json_object_get(json, "layers"), queue_layer_name(i));

		table_cell(t, TABLE_PLAIN, "%s", format_ns(client_number(layer, "mean_ns"), buf));
		table_cell(t, TABLE_PLAIN, "%s", format_ns(client_number(layer, "p99_ns"), buf));
	}
}

static void layer_rows(struct table *t, const json_t *device)
{
	for (unsigned i = 0; i < SAMPLE_OP_NR; i++) {
		const json_t *op =
			json_object_get(json_object_get(device, "ops"), sample_op_name(i));

		if (client_number(op, "done"))
			layer_row(t, client_text(device, "name"), op_label(i), op);
	}
}

static void print_layers(const json_t *data)
{
	static const char *const head[] = { "DEVICE", "OP",	  "COUNT", "TOTAL",
					    "P99",    "THROTTLE", "P99",   "DAEMON",
					    "P99",    "BACKEND",  "P99" };
	struct table t;
	json_t *device;
	size_t i;

	table_init(&t, "llrrrrrrrrr");
	for (i = 0; i < ARRAY_SIZE(head); i++)
		table_cell(&t, TABLE_BOLD, "%s", head[i]);
	json_array_foreach(json_object_get(data, "devices"), i, device) layer_rows(&t, device);
	table_print(&t);
	table_fini(&t);
}

enum exit_code ublkctl_stats(const struct ublkctl_args *a)
{
	struct sample sample;

	if (a->layers && a->watch_seconds > 0)
		ublkctl_usage_error("--layers cannot be combined with --watch", "");
	if (a->count && !(a->watch_seconds > 0))
		ublkctl_usage_error("--count needs --watch", "");
	if (a->json)
		return stats_as_json(a);
	if (a->layers)
		return client_ask_and_print(a, client_request("stats", a->name), CLIENT_SECONDS,
					    print_layers);
	if (a->watch_seconds > 0)
		return watch_stats(a);
	if (take_stats(a, &sample) != EXIT_DONE)
		return EXIT_REFUSED;
	print_table(&sample, 0);
	sample_fini(&sample);
	return EXIT_DONE;
}
