/*
 * The list: a line per device, the layers of the selected one, the reactors; and the help. Nothing
 * is owned. On a screen the reactors and then the layers give way to the devices, which scroll.
 */
#include "ublkctl/top/top_page.h"

#include <string.h>

#include "base/util.h"
#include "ublkctl/top/top_text.h"
#include "base/format.h"

#define DEVICES_MIN 4 /* lines of devices before anything gives way */
#define SPARK_MIN 8
#define SPARK_MAX 60
#define SPARK_MAX_UNLIMITED 24
#define REACTORS_MAX 8 /* lines on a screen */

/* ---- cells ---- */

enum top_color top_page_state_color(const char *state)
{
	if (strcmp(state, "live") == 0)
		return TOP_GREEN;
	return strcmp(state, "failed") == 0 ? TOP_RED : TOP_YELLOW;
}

void top_page_latency(struct top_frame *f, int width, uint64_t ns)
{
	char buf[FORMAT_BYTES];

	top_frame_cell(f, ns ? TOP_PLAIN : TOP_DIM, width, "%s", ns ? format_ns(ns, buf) : "-");
}

static void top_count_cell(struct top_frame *f, int width, bool measured, double count)
{
	char buf[FORMAT_BYTES];

	top_frame_cell(f, measured && count > 0 ? TOP_PLAIN : TOP_DIM, width, "%s",
		       measured ? format_count(count, buf) : "-");
}

/* What should be zero. */
static void trouble_cell(struct top_frame *f, int width, bool measured, uint64_t count,
			 enum top_color color)
{
	char buf[FORMAT_BYTES];

	top_frame_cell(f, measured && count ? color : TOP_DIM, width, "%s",
		       measured ? format_count((double)count, buf) : "-");
}

/* ---- the head ---- */

static void page_head(struct top_frame *f, const struct top_model *m, const char *clock)
{
	top_frame_text(f, TOP_BOLD, "ublkctl top%s%s", clock[0] ? " " : "", clock);
	if (m->connected)
		top_frame_text(f, TOP_PLAIN, "  %zu device%s", m->row_nr,
			       m->row_nr == 1 ? "" : "s");
	top_frame_text(f, TOP_PLAIN, "  every %gs", m->interval);
	if (m->seconds > 0)
		top_frame_text(f, TOP_PLAIN, ", last %.2fs", m->seconds);
	top_frame_text(f, TOP_PLAIN, "  by %s%s", top_sort_name(m->sort),
		       m->reverse ? ", reversed" : "");
	if (m->paused)
		top_frame_text(f, TOP_YELLOW, "  paused");
	top_frame_line(f);
}

/* ---- devices ---- */

/* As wide as what is in them, between limits. */
struct widths {
	int name, backend, spark;
};

static struct widths measure_widths(const struct top_frame *f, const struct top_model *m)
{
	struct widths w = { .name = 6, .backend = 7 };
	unsigned room;

	for (size_t i = 0; i < m->row_nr; i++) {
		w.name = MAX(w.name, (int)strlen(m->rows[i].device->name));
		w.backend = MAX(w.backend, (int)strlen(m->rows[i].device->backend));
	}
	if (f->columns) {
		w.name = MIN(w.name, 24);
		w.backend = MIN(w.backend, 20);
	}
	room = (unsigned)(w.name + w.backend + 68);
	w.spark = SPARK_MAX_UNLIMITED;
	if (f->columns)
		w.spark = MIN((int)f->columns - (int)room, SPARK_MAX);
	return w;
}

static void device_head(struct top_frame *f, const struct top_model *m, const struct widths *w)
{
	const struct {
		const char *text;
		int width;
		enum top_sort sort; /* TOP_SORT_NR: not a sort column */
	} cells[] = {
		{ "DEVICE", -w->name, TOP_SORT_NAME },
		{ "STATE", -8, TOP_SORT_NR },
		{ "BACKEND", -w->backend, TOP_SORT_NR },
		{ "IOPS", 6, TOP_SORT_IOPS },
		{ "BYTES/S", 9, TOP_SORT_BYTES },
		{ "IN FLIGHT", 9, TOP_SORT_INFLIGHT },
		{ "P50", 6, TOP_SORT_P50 },
		{ "P99", 6, TOP_SORT_P99 },
		{ "ERRORS", 6, TOP_SORT_ERRORS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		top_frame_cell(f, cells[i].sort == m->sort ? TOP_GREEN : TOP_BOLD, cells[i].width,
			       "%s", cells[i].text);
	if (w->spark >= SPARK_MIN)
		top_frame_cell(f, TOP_BOLD, w->spark, "P99 SO FAR");
	top_frame_line(f);
}

static void spark_cell(struct top_frame *f, const struct top_row *row, int width)
{
	char text[SPARK_MAX * TOP_CHAR_BYTES + 1];
	uint64_t values[SPARK_MAX];

	if (width < SPARK_MIN)
		return;
	top_history_tail(row->history, row->history->p99_ns, (size_t)width, values);
	top_spark(values, (size_t)width, f->utf8, text);
	top_frame_cell(f, TOP_GREEN, width, "%s", text);
}

static void device_line(struct top_frame *f, const struct top_row *row, const struct widths *w)
{
	const struct sample_device *d = row->device;
	char buf[FORMAT_BYTES];

	top_frame_cell(f, TOP_BOLD, -w->name, "%s", d->name);
	top_frame_cell(f, top_page_state_color(d->state), -8, "%s", d->state);
	top_frame_cell(f, TOP_PLAIN, -w->backend, "%s", d->backend);
	top_count_cell(f, 6, d->measured, row->iops);
	top_frame_cell(f, row->bytes_per_s > 0 ? TOP_PLAIN : TOP_DIM, 9, "%s",
		       d->measured ? format_bytes((uint64_t)row->bytes_per_s, buf) : "-");
	top_count_cell(f, 9, true, (double)d->inflight);
	top_page_latency(f, 6, row->p50_ns);
	top_page_latency(f, 6, row->p99_ns);
	trouble_cell(f, 6, d->measured, row->failed, TOP_RED);
	spark_cell(f, row, w->spark);
	top_frame_line(f);
}

/* At most lines of them, the selected one among them. */
static void device_lines(struct top_frame *f, const struct top_model *m, size_t lines)
{
	struct widths w = measure_widths(f, m);
	size_t first = 0;

	if (m->row_nr == 0) {
		top_frame_text(f, TOP_PLAIN, "no devices");
		top_frame_line(f);
		return;
	}
	device_head(f, m, &w);
	if (m->selected_idx >= lines)
		first = m->selected_idx - lines + 1;
	for (size_t i = first; i < MIN(m->row_nr, first + lines); i++) {
		if (i == m->selected_idx && f->rows)
			f->selected_line = f->line;
		device_line(f, &m->rows[i], &w);
	}
}

/* ---- layers of the selected device ---- */

static void layer_cell(struct top_frame *f, const struct histogram *h)
{
	char p50[FORMAT_BYTES], p99[FORMAT_BYTES];

	if (histogram_count(h))
		top_frame_cell(f, TOP_PLAIN, 13, "%s %6s",
			       format_ns(histogram_quantile_ns(h, 0.5), p50),
			       format_ns(histogram_quantile_ns(h, 0.99), p99));
	else
		top_frame_cell(f, TOP_DIM, 13, "-");
}

static unsigned busy_op_nr(const struct sample_layers *l)
{
	unsigned nr = 0;

	for (unsigned op = 0; l && op < SAMPLE_OP_NR; op++)
		nr += histogram_count(&l->op[op][QUEUE_LAYER_TOTAL]) > 0;
	return nr;
}

static void layer_lines(struct top_frame *f, const struct top_model *m,
			const struct sample_layers *l)
{
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++) {
		uint64_t count = histogram_count(&l->op[op][QUEUE_LAYER_TOTAL]);

		if (count == 0)
			continue;
		top_frame_cell(f, TOP_PLAIN, -12, "%s", sample_op_name(op));
		top_count_cell(f, 6, m->seconds > 0, (double)count / MAX(m->seconds, 1e-9));
		for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++)
			layer_cell(f, &l->op[op][layer]);
		top_frame_line(f);
	}
}

/* Of the selected device, where the screen is too narrow for a column of them. */
static void spark_beside(struct top_frame *f, const struct top_model *m)
{
	const struct top_row *row = top_model_selected(m);

	if (row && measure_widths(f, m).spark < SPARK_MIN &&
	    top_frame_room(f, SPARK_MAX) > SPARK_MIN + 7) {
		top_frame_text(f, TOP_BOLD, "  p99");
		spark_cell(f, row, (int)top_frame_room(f, SPARK_MAX) - 2);
	}
}

static void selected_layers(struct top_frame *f, const struct top_model *m)
{
	static const char *const layer_head[QUEUE_LAYER_NR] = { "TOTAL", "THROTTLE", "DAEMON",
								"BACKEND" };
	const struct sample_layers *l = top_model_layers(m);

	top_frame_line(f);
	top_frame_text(f, TOP_BOLD, "%s", m->selected);
	top_frame_text(f, TOP_PLAIN, ": p50 and p99 of each layer");
	spark_beside(f, m);
	if (!l || busy_op_nr(l) == 0) {
		top_frame_text(f, TOP_DIM, "  %s", l ? "no requests" : "-");
		top_frame_line(f);
		return;
	}
	top_frame_line(f);
	top_frame_cell(f, TOP_BOLD, -12, "OP");
	top_frame_cell(f, TOP_BOLD, 6, "IOPS");
	for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++)
		top_frame_cell(f, TOP_BOLD, 13, "%s", layer_head[layer]);
	top_frame_line(f);
	layer_lines(f, m, l);
}

static unsigned layers_height(const struct top_model *m)
{
	unsigned nr = busy_op_nr(top_model_layers(m));

	return m->row_nr == 0 ? 0 : nr ? 3 + nr : 2;
}

/* ---- reactors ---- */

static void time_cell(struct top_frame *f, const struct sample_reactor *r, uint64_t ns)
{
	uint64_t all_ns = r->callback_ns + r->kernel_ns + r->poll_ns + r->idle_ns;

	top_frame_cell(f, TOP_PLAIN, 6, "%.1f%%",
		       all_ns && r->measured ? 100.0 * (double)ns / (double)all_ns : 0.0);
}

static void reactor_line(struct top_frame *f, const struct sample_reactor *r, double seconds)
{
	char cpu[16] = "-";

	if (r->cpu >= 0)
		snprintf(cpu, sizeof(cpu), "%d", r->cpu);
	top_frame_cell(f, TOP_PLAIN, -8, "%s", r->name);
	top_frame_cell(f, TOP_PLAIN, 4, "%s", cpu);
	top_count_cell(f, 8, r->measured, (double)r->turns / seconds);
	top_frame_cell(f, TOP_PLAIN, 10, "%.1f",
		       r->turns && r->measured ? (double)r->cqes / (double)r->turns : 0.0);
	time_cell(f, r, r->callback_ns);
	time_cell(f, r, r->kernel_ns);
	time_cell(f, r, r->poll_ns);
	time_cell(f, r, r->idle_ns);
	trouble_cell(f, 6, r->measured, r->stalls, TOP_YELLOW);
	trouble_cell(f, 7, r->measured, r->sq_full, TOP_YELLOW);
	trouble_cell(f, 11, r->measured, r->timers_late, TOP_YELLOW);
	top_frame_line(f);
}

static void reactor_lines(struct top_frame *f, const struct top_model *m, size_t lines)
{
	static const struct {
		const char *text;
		int width;
	} cells[] = { { "REACTOR", -8 },   { "CPU", 4 },	 { "TURNS/S", 8 },
		      { "CQES/TURN", 10 }, { "CODE", 6 },	 { "KERNEL", 6 },
		      { "POLL", 6 },	   { "IDLE", 6 },	 { "STALLS", 6 },
		      { "SQ FULL", 7 },	   { "LATE TIMERS", 11 } };
	double seconds = (double)MAX(m->diff.reactors_time_ns, (uint64_t)1) / NS_PER_SEC;

	top_frame_line(f);
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		top_frame_cell(f, TOP_BOLD, cells[i].width, "%s", cells[i].text);
	top_frame_line(f);
	for (size_t i = 0; i < MIN(m->diff.reactor_nr, lines); i++)
		reactor_line(f, &m->diff.reactors[i], seconds);
	if (m->diff.reactor_nr > lines) {
		top_frame_text(f, TOP_DIM, "and %zu more: ublkctl reactors",
			       m->diff.reactor_nr - lines);
		top_frame_line(f);
	}
}

/* ---- pages ---- */

/* Head, heading and footer stay. Who does not fit beside DEVICES_MIN devices is left out. */
static void device_list(struct top_frame *f, const struct top_model *m)
{
	size_t reactor_nr =
		f->rows ? MIN(m->diff.reactor_nr, (size_t)REACTORS_MAX) : m->diff.reactor_nr;
	size_t layer_lines_nr = layers_height(m), lines = SIZE_MAX;
	size_t reactor_lines_nr = 2 + reactor_nr + (reactor_nr < m->diff.reactor_nr);

	if (f->rows) {
		size_t least = MIN(m->row_nr, (size_t)DEVICES_MIN);

		lines = f->rows > 3 ? f->rows - 3 : 1;
		if (least + layer_lines_nr > lines)
			layer_lines_nr = 0;
		if (least + layer_lines_nr + reactor_lines_nr > lines)
			reactor_lines_nr = 0;
		lines -= layer_lines_nr + reactor_lines_nr;
	}
	device_lines(f, m, lines);
	if (layer_lines_nr)
		selected_layers(f, m);
	if (reactor_lines_nr)
		reactor_lines(f, m, reactor_nr);
}

static void help_lines(struct top_frame *f)
{
	static const char *const lines[][2] = {
		{ "up, down, k, j", "select a device" },
		{ "Enter", "its page: layers of each kind of request, histogram, heat map" },
		{ "Esc, Backspace", "back to the list" },
		{ "PgUp, PgDn", "ten lines at once" },
		{ "Home, End", "the first, the last device" },
		{ "s", "sort by the next column" },
		{ "r", "reverse the order" },
		{ "space", "pause, go on" },
		{ "+, -", "a longer, a shorter interval" },
		{ "?", "this help" },
		{ "q", "quit" },
	};

	top_frame_line(f);
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		top_frame_cell(f, TOP_BOLD, -16, "%s", lines[i][0]);
		top_frame_cell(f, TOP_PLAIN, -64, "%s", lines[i][1]);
		top_frame_line(f);
	}
	top_frame_line(f);
	top_frame_text(f, TOP_PLAIN, "All numbers are of the last interval, latencies too.");
	top_frame_line(f);
}

static void footer_line(struct top_frame *f, const struct top_model *m)
{
	top_frame_end(f, f->rows > 1 ? f->rows - 1 : 1);
	top_frame_text(f, TOP_DIM, "%s",
		       m->help	    ? "Esc back  q quit"
		       : m->drilled ? "Esc back  j k other device  PgDn more  ? help  q quit"
				    : "j k select  Enter open  s sort  r reverse  space pause  "
				      "+ - interval  ? help  q quit");
	top_frame_line(f);
}

static void connection_line(struct top_frame *f, const struct top_model *m)
{
	top_frame_text(f, TOP_RED, m->error[0] ? "not connected: %s" : "connecting", m->error);
	top_frame_line(f);
}

void top_page(struct top_frame *f, struct top_model *m, const char *clock)
{
	unsigned below;

	top_frame_clear(f);
	page_head(f, m, clock);
	if (m->help)
		help_lines(f);
	else if (!m->connected)
		connection_line(f, m);
	else if (m->drilled)
		top_page_device(f, m);
	else
		device_list(f, m);
	if (!f->rows)
		return;
	below = f->line > f->rows - 1 ? f->line - (f->rows - 1) : 0;
	m->scroll = MIN(m->scroll, below);
	if (m->drilled && !m->help)
		top_frame_drop(f, 1, m->scroll);
	footer_line(f, m);
}
