/*
 * The report of `ublktrace latency` for programs: the same as the table, all times in nanoseconds.
 * One line for each report. Main thread. Failure modes: out of memory, before anything is printed.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "ublktrace/latency/latency_report.h"

#define INT(value) ((json_int_t)(value))

static json_t *latency_json_summary(const struct latency_hist *h)
{
	struct latency_summary s = latency_summarize(h);

	return json_pack("{sIsIsIsIsIsIsI}", "count", INT(s.count), "mean_ns", INT(s.mean_ns),
			 "p50_ns", INT(s.p50_ns), "p90_ns", INT(s.p90_ns), "p99_ns", INT(s.p99_ns),
			 "p99.9_ns", INT(s.p999_ns), "max_ns", INT(s.max_ns));
}

static json_t *latency_json_row(const struct latency_row *row)
{
	json_t *o = json_pack("{sssI}", "name", row->name, "failed", INT(row->sum.errors));

	for (unsigned i = 0; i < LATENCY_STAGE_NR; i++)
		json_object_set_new(o, i == LATENCY_UNSPLIT ? "not_split" : latency_stage_name(i),
				    latency_json_summary(&row->sum.stage[i]));
	return o;
}

static json_t *latency_json_uring(const struct latency_report *r)
{
	json_t *array = json_array();
	char name[64];

	for (unsigned i = 0; i < LATENCY_URING_ROWS; i++) {
		const struct latency_uring *u = &r->uring[i];
		json_t *o;

		if (!latency_hist_count(&u->hist))
			continue;
		o = latency_json_summary(&u->hist);
		json_object_set_new(o, "name",
				    json_string(latency_uring_name(r, i, name, sizeof(name))));
		json_object_set_new(o, "io_wq", json_integer(INT(u->async)));
		json_object_set_new(o, "polled", json_integer(INT(u->polled)));
		json_object_set_new(o, "moved", json_integer(INT(u->migrated)));
		json_object_set_new(o, "failed", json_integer(INT(u->errors)));
		json_array_append_new(array, o);
	}
	return array;
}

static json_t *latency_json_levels(const struct latency_report *r)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < LATENCY_LEVEL_NR; i++) {
		struct latency_numbers n = latency_numbers(r->level[i]);

		json_object_set_new(o, latency_level_name(i),
				    json_pack("{sIsfsisisi}", "count", INT(n.count), "mean", n.mean,
					      "p50", (int)n.p50, "p99", (int)n.p99, "max",
					      (int)n.max));
	}
	return o;
}

static json_t *latency_json_errors(const struct latency_report *r)
{
	json_t *array = json_array();
	char code[24];

	for (unsigned i = 0; i < r->error_nr; i++) {
		const struct latency_error_count *e = &r->error[i];
		json_t *o = json_pack(
			"{sssssI}", "error", latency_error_name(&e->error), "operation",
			latency_error_code(&e->error, code, sizeof(code)), "count", INT(e->count));

		if (e->error.block)
			json_object_set_new(o, "device", json_sprintf("ublkb%d", e->error.device));
		json_array_append_new(array, o);
	}
	return array;
}

static json_t *losses_json(const struct losses *l)
{
	return json_pack("{sIsIsIsI}", "ring_full", INT(l->ring_full), "map_full", INT(l->map_full),
			 "recursion", INT(l->recursion), "unmatched", INT(l->unmatched));
}

int latency_print_json(FILE *out, const struct latency_report *r, enum latency_by by)
{
	json_t *rows = json_array(), *all;
	struct latency_row *row;
	int err = 0, row_nr = latency_rows(r, by, &row);

	if (row_nr < 0) {
		json_decref(rows);
		return row_nr;
	}
	for (int i = 0; i < row_nr; i++)
		json_array_append_new(rows, latency_json_row(&row[i]));
	free(row);
	all = json_pack("{sfsososososIsIso}", "seconds", r->seconds, "ublk", rows, "io_uring",
			latency_json_uring(r), "rings", latency_json_levels(r), "errors",
			latency_json_errors(r), "fetches", INT(r->fetches), "cqes_without_request",
			INT(r->totals.aux), "lost", losses_json(&r->losses));
	if (!all || json_dumpf(all, out, JSON_COMPACT) || fputc('\n', out) == EOF)
		err = -ENOMEM;
	json_decref(all);
	return err;
}
