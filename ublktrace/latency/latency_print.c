/*
 * The table of `ublktrace latency`, for people. Main thread. Failure modes: out of memory, before
 * anything is printed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ublktrace/latency/latency_report.h"

struct printer {
	FILE *out;
	bool colour;
};

static void latency_print_head(struct printer *p, const char *text)
{
	fprintf(p->out, p->colour ? "\033[1m%s\033[0m\n" : "%s\n", text);
}

static void latency_print_times(struct printer *p, const struct latency_hist *h)
{
	struct latency_summary s = latency_summarize(h);
	const uint64_t value[] = { s.mean_ns, s.p50_ns, s.p90_ns, s.p99_ns, s.p999_ns, s.max_ns };
	char text[16];

	fprintf(p->out, " %10llu", (unsigned long long)s.count);
	for (size_t i = 0; i < ARRAY_SIZE(value); i++)
		fprintf(p->out, " %8s", latency_time(value[i], text));
}

/* ---- ublk devices */

static void latency_print_row(struct printer *p, const struct latency_row *row)
{
	for (unsigned i = 0; i < LATENCY_STAGE_NR; i++) {
		if (!latency_hist_count(&row->sum.stage[i]))
			continue;
		fprintf(p->out, "%-20s %-10s", row->name, latency_stage_name(i));
		latency_print_times(p, &row->sum.stage[i]);
		if (i == LATENCY_TOTAL && row->sum.errors)
			fprintf(p->out, "  %llu failed", row->sum.errors);
		fputc('\n', p->out);
	}
}

static void latency_print_devices(struct printer *p, const struct latency_row *row, int row_nr)
{
	if (!row_nr)
		return;
	latency_print_head(
		p,
		"ublk devices         stage           count  average      p50      p90      p99    "
		"p99.9      max");
	for (int i = 0; i < row_nr; i++)
		latency_print_row(p, &row[i]);
	fputs("  queued: issued to the driver -> CQE of the server; daemon: -> commit is "
	      "submitted; "
	      "commit: -> completed\n",
	      p->out);
	for (int i = 0; i < row_nr; i++)
		if (latency_hist_count(&row[i].sum.stage[LATENCY_UNSPLIT])) {
			fputs("  not split: the dispatch or the commit was not seen\n", p->out);
			break;
		}
}

/* ---- io_uring */

static unsigned percent(uint64_t part, uint64_t whole)
{
	return (unsigned)((part * 100 + whole / 2) / whole);
}

static void latency_print_uring_row(struct printer *p, const struct latency_report *r, unsigned idx)
{
	const struct latency_uring *u = &r->uring[idx];
	uint64_t count = latency_hist_count(&u->hist);
	char name[64];

	if (!count)
		return;
	fprintf(p->out, "%-31s", latency_uring_name(r, idx, name, sizeof(name)));
	latency_print_times(p, &u->hist);
	fprintf(p->out, " %6u%% %6u%% %6u%% %6llu\n", percent(u->async, count),
		percent(u->polled, count), percent(u->migrated, count), u->errors);
}

static bool uring_seen(const struct latency_report *r)
{
	for (unsigned i = 0; i < LATENCY_URING_ROWS; i++)
		if (latency_hist_count(&r->uring[i].hist))
			return true;
	return r->fetches || r->totals.aux;
}

static void latency_print_uring(struct printer *p, const struct latency_report *r)
{
	if (!uring_seen(r))
		return;
	latency_print_head(
		p,
		"io_uring                             count  average      p50      p90      p99    "
		"p99.9      max  io-wq  polled   moved failed");
	for (unsigned i = 0; i < LATENCY_URING_ROWS; i++)
		latency_print_uring_row(p, r, i);
	fputs("  io-wq: ran in a kernel thread, otherwise inline; moved: completed on another "
	      "CPU than it was submitted on\n",
	      p->out);
	if (r->fetches)
		fprintf(p->out,
			"  not counted: %llu ublk fetches, whose time is idle time, not latency\n",
			r->fetches);
	if (r->totals.aux)
		fprintf(p->out,
			"  additional: %llu CQEs without a request of their own (multishot, "
			"messages)\n",
			r->totals.aux);
}

static void latency_print_levels(struct printer *p, const struct latency_report *r)
{
	bool any = false;

	for (unsigned i = 0; i < LATENCY_LEVEL_NR; i++) {
		struct latency_numbers n = latency_numbers(r->level[i]);

		if (!n.count)
			continue;
		if (!any)
			latency_print_head(
				p,
				"rings                                count  average      p50      "
				"p99      "
				"max");
		any = true;
		fprintf(p->out, "%-31s %10llu %8.1f %8u %8u %7u%s\n", latency_level_name(i),
			(unsigned long long)n.count, n.mean, n.p50, n.p99, n.max,
			n.max == LATENCY_LEVEL_MAX ? "+" : "");
	}
}

/* ---- errors, losses */

static void latency_print_errors(struct printer *p, const struct latency_report *r)
{
	char code[24];

	if (!r->error_nr)
		return;
	latency_print_head(p, "errors");
	for (unsigned i = 0; i < r->error_nr; i++) {
		const struct latency_error_count *e = &r->error[i];

		fprintf(p->out, "%10llu  %-12s", (unsigned long long)e->count,
			latency_error_name(&e->error));
		if (e->error.block)
			fprintf(p->out, "ublkb%d ", e->error.device);
		fprintf(p->out, "%s\n", latency_error_code(&e->error, code, sizeof(code)));
	}
}

static bool is_quiet(const struct latency_report *r, int row_nr)
{
	return !row_nr && !uring_seen(r) && !r->error_nr;
}

int latency_print(FILE *out, const struct latency_report *r, enum latency_by by, bool colour)
{
	struct printer p = { .out = out, .colour = colour };
	struct latency_row *row;
	int row_nr = latency_rows(r, by, &row);

	if (row_nr < 0)
		return row_nr;
	fprintf(out, "%.1f seconds\n", r->seconds);
	if (is_quiet(r, row_nr))
		fputs("no request has completed\n", out);
	latency_print_devices(&p, row, row_nr);
	latency_print_uring(&p, r);
	latency_print_levels(&p, r);
	latency_print_errors(&p, r);
	losses_print(out, &r->losses);
	free(row);
	return 0;
}
