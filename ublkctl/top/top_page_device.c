/*
 * The page of one device: what it did, each layer of each kind of request, and its latencies as a
 * histogram of the interval beside a heat map of the past. Nothing is owned. Failure mode: the
 * device is gone: the page says so, and goes on when a device of that name comes.
 */
#include "ublkctl/top/top_page.h"

#include <string.h>

#include "base/util.h"
#include "ublkctl/top/top_text.h"
#include "base/format.h"

#define BAR_WIDTH 20
#define HEAT_MIN 8
#define HEAT_MAX_UNLIMITED 24
#define SPARK_COLUMNS 60

static void device_summary(struct top_frame *f, const struct top_row *row)
{
	const struct sample_device *d = row->device;
	char iops[FORMAT_BYTES], bytes[FORMAT_BYTES];

	top_frame_text(f, TOP_BOLD, "%s", d->name);
	top_frame_text(f, top_page_state_color(d->state), "  %s", d->state);
	top_frame_text(f, TOP_PLAIN, "  %s", d->backend);
	if (d->measured)
		top_frame_text(f, TOP_PLAIN, "  %s IOPS  %s/s", format_count(row->iops, iops),
			       format_bytes((uint64_t)row->bytes_per_s, bytes));
	top_frame_text(f, TOP_PLAIN, "  %llu in flight", (unsigned long long)d->inflight);
	if (row->failed)
		top_frame_text(f, TOP_RED, "  %llu errors", (unsigned long long)row->failed);
	top_frame_line(f);
}

/* ---- past ---- */

static void past_line(struct top_frame *f, const char *label, const struct top_history *h,
		      const uint64_t ring[static TOP_HISTORY_NR])
{
	char text[SPARK_COLUMNS * TOP_CHAR_BYTES + 1];
	size_t nr = top_frame_room(f, SPARK_COLUMNS + 14);
	uint64_t values[SPARK_COLUMNS];

	nr = nr > 14 ? nr - 14 : 0;
	top_history_tail(h, ring, nr, values);
	top_spark(values, nr, f->utf8, text);
	top_frame_cell(f, TOP_BOLD, -4, "%s", label);
	top_page_latency(f, 6, h->nr ? ring[(h->nr - 1) % TOP_HISTORY_NR] : 0);
	top_frame_cell(f, TOP_GREEN, (int)nr, "%s", text);
	top_frame_line(f);
}

/* ---- layers ---- */

static void layer_line(struct top_frame *f, const char *op, enum queue_layer layer,
		       const struct histogram *h)
{
	static const double quantiles[] = { 0.5, 0.9, 0.99, 0.999 };
	char buf[FORMAT_BYTES];

	top_frame_cell(f, TOP_BOLD, -12, "%s", op);
	top_frame_cell(f, TOP_PLAIN, -8, "%s", queue_layer_name(layer));
	top_frame_cell(f, TOP_PLAIN, 6, "%s", format_count((double)histogram_count(h), buf));
	top_page_latency(f, 6, histogram_mean_ns(h));
	for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++)
		top_page_latency(f, 6, histogram_quantile_ns(h, quantiles[i]));
	top_page_latency(f, 6, histogram_max_ns(h));
	top_frame_line(f);
}

static void layers_head(struct top_frame *f)
{
	static const struct {
		const char *text;
		int width;
	} cells[] = { { "OP", -12 }, { "LAYER", -8 }, { "COUNT", 6 }, { "MEAN", 6 }, { "P50", 6 },
		      { "P90", 6 },  { "P99", 6 },    { "P99.9", 6 }, { "MAX", 6 } };

	top_frame_line(f);
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		top_frame_cell(f, TOP_BOLD, cells[i].width, "%s", cells[i].text);
	top_frame_line(f);
}

/* Layers in which no time was spent are left out, as most devices have no throttle. */
static void layer_table(struct top_frame *f, const struct sample_layers *l)
{
	unsigned nr = 0;

	layers_head(f);
	for (unsigned op = 0; l && op < SAMPLE_OP_NR; op++) {
		if (histogram_count(&l->op[op][QUEUE_LAYER_TOTAL]) == 0)
			continue;
		nr++;
		for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++)
			if (layer == QUEUE_LAYER_TOTAL || histogram_max_ns(&l->op[op][layer]))
				layer_line(f, layer == QUEUE_LAYER_TOTAL ? sample_op_name(op) : "",
					   layer, &l->op[op][layer]);
	}
	if (nr == 0) {
		top_frame_text(f, TOP_DIM, "%s", l ? "no requests" : "-");
		top_frame_line(f);
	}
}

/* ---- histogram and heat ---- */

struct heat {
	const struct top_history *history;
	unsigned first, last; /* octaves in use, in the whole past that is shown */
	size_t columns;
	uint64_t now_max, max; /* highest count of the interval, and of all */
};

static const uint64_t *octaves_of(const struct heat *heat, size_t age)
{
	return heat->history->octaves[(heat->history->nr - age) % TOP_HISTORY_NR];
}

static void look_at_heat(struct heat *heat)
{
	size_t have = MIN(heat->history->nr, MAX(heat->columns, (size_t)1));

	heat->first = HISTOGRAM_OCTAVE_NR;
	for (size_t age = 1; age <= have; age++)
		for (unsigned i = 0; i < HISTOGRAM_OCTAVE_NR; i++) {
			uint64_t count = octaves_of(heat, age)[i];

			if (count == 0)
				continue;
			heat->first = MIN(heat->first, i);
			heat->last = MAX(heat->last, i);
			heat->max = MAX(heat->max, count);
			if (age == 1)
				heat->now_max = MAX(heat->now_max, count);
		}
}

static void heat_strip(struct top_frame *f, const struct heat *heat, unsigned octave)
{
	top_frame_text(f, TOP_PLAIN, "  ");
	for (size_t age = heat->columns; age >= 1; age--) {
		uint64_t count = age <= heat->history->nr ? octaves_of(heat, age)[octave] : 0;
		unsigned shade = top_shade(count, heat->max);

		top_frame_text(f, TOP_YELLOW, "%s", top_shade_char(shade, f->utf8));
	}
}

static void octave_line(struct top_frame *f, const struct heat *heat, unsigned octave)
{
	char bar[BAR_WIDTH * TOP_CHAR_BYTES + 1], start[FORMAT_BYTES], buf[FORMAT_BYTES];
	uint64_t count = octaves_of(heat, 1)[octave];

	top_bar(count, heat->now_max, BAR_WIDTH, f->utf8, bar);
	top_frame_cell(f, TOP_PLAIN, 7, "%s", octave ? format_ns(1ull << octave, start) : "0ns");
	top_frame_cell(f, count ? TOP_PLAIN : TOP_DIM, 6, "%s", format_count((double)count, buf));
	top_frame_cell(f, TOP_GREEN, -BAR_WIDTH, "%s", bar);
	heat_strip(f, heat, octave);
	top_frame_line(f);
}

/* The slowest at the top, as in a heat map. */
static void octave_table(struct top_frame *f, const struct top_history *h)
{
	struct heat heat = { .history = h };
	unsigned left = 7 + 2 + 6 + 2 + BAR_WIDTH + 2;

	heat.columns = f->columns ? MIN(f->columns > left + HEAT_MIN ? f->columns - left : 0,
					(unsigned)TOP_HISTORY_NR)
				  : HEAT_MAX_UNLIMITED;
	if (h->nr == 0)
		return;
	look_at_heat(&heat);
	if (heat.first == HISTOGRAM_OCTAVE_NR)
		return;
	top_frame_line(f);
	top_frame_cell(f, TOP_BOLD, 7, "FROM");
	top_frame_cell(f, TOP_BOLD, 6, "COUNT");
	top_frame_cell(f, TOP_BOLD, -BAR_WIDTH, "THIS INTERVAL");
	if (heat.columns)
		top_frame_cell(f, TOP_BOLD, (int)heat.columns, "SO FAR");
	top_frame_line(f);
	for (unsigned i = heat.last + 1; i-- > heat.first;)
		octave_line(f, &heat, i);
}

void top_page_device(struct top_frame *f, const struct top_model *m)
{
	const struct top_row *row = top_model_selected(m);

	if (!row) {
		top_frame_text(f, TOP_RED, "there is no device \"%s\"", m->selected);
		top_frame_line(f);
		return;
	}
	device_summary(f, row);
	past_line(f, "p50", row->history, row->history->p50_ns);
	past_line(f, "p99", row->history, row->history->p99_ns);
	layer_table(f, top_model_layers(m));
	octave_table(f, row->history);
}
