/*
 * From samples to rows, and from keys to what is shown. Owns the last sample, its difference to the
 * one before, the layers of the selected device and the past of each device.
 *
 * Happy path: take subtracts the last sample, adds to the past, sorts. What is selected is a name:
 * sorting moves the cursor with it. Failure modes: the selected device goes away: in the list the
 * cursor goes to what took its place, its own page says so and waits for it; the daemon goes away:
 * the interval ends, the past and the selection stay; out of memory ends the program.
 */
#include "ublkctl/top/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define PAGE_LINES 10

static const char *const sort_names[TOP_SORT_NR] = {
	[TOP_SORT_NAME] = "name",	   [TOP_SORT_IOPS] = "IOPS", [TOP_SORT_BYTES] = "bytes/s",
	[TOP_SORT_INFLIGHT] = "in flight", [TOP_SORT_P50] = "p50",   [TOP_SORT_P99] = "p99",
	[TOP_SORT_ERRORS] = "errors",
};

const char *top_sort_name(enum top_sort sort)
{
	return sort_names[sort];
}

void top_model_init(struct top_model *m, double interval, const char *name)
{
	*m = (struct top_model){ .interval = interval, .sort = TOP_SORT_IOPS };
	m->layers_last = sample_array(1, sizeof(*m->layers_last));
	m->layers_diff = sample_array(1, sizeof(*m->layers_diff));
	snprintf(m->selected, sizeof(m->selected), "%s", name ? name : "");
	m->drilled = name != NULL;
}

void top_model_fini(struct top_model *m)
{
	sample_fini(&m->last);
	sample_fini(&m->diff);
	free(m->layers_last);
	free(m->layers_diff);
	free(m->rows);
	free(m->histories);
	*m = (struct top_model){ 0 };
}

/* ---- the past ---- */

void top_history_tail(const struct top_history *h, const uint64_t ring[static TOP_HISTORY_NR],
		      size_t nr, uint64_t *ret_values)
{
	size_t have = MIN(h->nr, (size_t)TOP_HISTORY_NR);

	for (size_t i = 0; i < nr; i++) {
		size_t age = nr - i; /* 1: the latest */

		ret_values[i] = age <= have ? ring[(h->nr - age) % TOP_HISTORY_NR] : 0;
	}
}

static struct top_history *find_history(const struct top_model *m, const char *name)
{
	for (size_t i = 0; i < m->history_nr; i++)
		if (strcmp(m->histories[i].name, name) == 0)
			return &m->histories[i];
	return NULL;
}

static void remember_row(struct top_history *h, const struct top_row *row,
			 const struct histogram *all)
{
	size_t at = h->nr++ % TOP_HISTORY_NR;

	h->p50_ns[at] = row->p50_ns;
	h->p99_ns[at] = row->p99_ns;
	histogram_octaves(all, h->octaves[at]);
}

/* Pasts of the devices there are, in their order; a device that is gone is forgotten. */
static void renew_histories(struct top_model *m)
{
	struct top_history *anew = sample_array(m->diff.device_nr, sizeof(anew[0]));

	for (size_t i = 0; i < m->diff.device_nr; i++) {
		const char *name = m->diff.devices[i].name;
		const struct top_history *old = find_history(m, name);

		if (i < m->history_nr && strcmp(m->histories[i].name, name) == 0)
			old = &m->histories[i];
		if (old)
			anew[i] = *old;
		else
			snprintf(anew[i].name, sizeof(anew[i].name), "%s", name);
	}
	free(m->histories);
	m->histories = anew;
	m->history_nr = m->diff.device_nr;
}

/* ---- rows ---- */

static void measure_row(struct top_model *m, struct top_row *row, struct top_history *h)
{
	struct histogram all;

	row->history = h;
	if (!row->device->measured)
		return;
	sample_device_latency(row->device, &all);
	row->iops = (double)sample_device_done(row->device) / m->seconds;
	row->bytes_per_s = (double)sample_device_bytes(row->device) / m->seconds;
	row->failed = sample_device_failed(row->device);
	row->p50_ns = histogram_quantile_ns(&all, 0.5);
	row->p99_ns = histogram_quantile_ns(&all, 0.99);
	remember_row(h, row, &all);
}

static double sort_value(const struct top_row *row, enum top_sort sort)
{
	switch (sort) {
	case TOP_SORT_IOPS:
		return row->iops;
	case TOP_SORT_BYTES:
		return row->bytes_per_s;
	case TOP_SORT_INFLIGHT:
		return (double)row->device->inflight;
	case TOP_SORT_P50:
		return (double)row->p50_ns;
	case TOP_SORT_P99:
		return (double)row->p99_ns;
	case TOP_SORT_ERRORS:
		return (double)row->failed;
	default:
		return 0;
	}
}

/* The highest first, equal ones by name. */
static int compare_rows(const void *left, const void *right, void *arg)
{
	const struct top_model *m = arg;
	const struct top_row *a = left, *b = right;
	double x = sort_value(a, m->sort), y = sort_value(b, m->sort);
	int order = x > y ? -1 : x < y ? 1 : strcmp(a->device->name, b->device->name);

	return m->reverse ? -order : order;
}

static bool find_selected(const struct top_model *m, size_t *ret_idx)
{
	for (size_t i = 0; i < m->row_nr; i++)
		if (strcmp(m->rows[i].device->name, m->selected) == 0) {
			*ret_idx = i;
			return true;
		}
	return false;
}

static void select_row(struct top_model *m, size_t idx)
{
	if (m->row_nr == 0)
		return;
	m->selected_idx = MIN(idx, m->row_nr - 1);
	snprintf(m->selected, sizeof(m->selected), "%s", m->rows[m->selected_idx].device->name);
}

static void sort_rows(struct top_model *m)
{
	if (m->row_nr > 0)
		qsort_r(m->rows, m->row_nr, sizeof(m->rows[0]), compare_rows, m);
	if (!find_selected(m, &m->selected_idx) && !m->drilled)
		select_row(m, m->selected_idx);
}

static void make_rows(struct top_model *m)
{
	free(m->rows);
	m->row_nr = m->diff.device_nr;
	m->rows = sample_array(m->row_nr, sizeof(m->rows[0]));
	renew_histories(m);
	for (size_t i = 0; i < m->row_nr; i++) {
		m->rows[i].device = &m->diff.devices[i];
		measure_row(m, &m->rows[i], &m->histories[i]);
	}
	sort_rows(m);
}

/* ---- samples ---- */

void top_model_take(struct top_model *m, struct sample *sample)
{
	bool measured = m->connected && sample->time_ns > m->last.time_ns;

	if (measured)
		m->seconds = (double)(sample->time_ns - m->last.time_ns) / NS_PER_SEC;
	else
		m->seconds = 0;
	sample_fini(&m->diff);
	sample_copy(&m->diff, sample);
	if (measured)
		sample_subtract(&m->diff, &m->last);
	/* reactors have a clock of their own */
	if (measured)
		m->diff.reactors_time_ns -= MIN(m->last.reactors_time_ns, sample->reactors_time_ns);
	sample_fini(&m->last);
	m->last = *sample;
	*sample = (struct sample){ 0 };
	m->connected = true;
	make_rows(m);
}

void top_model_take_layers(struct top_model *m, const struct sample_layers *layers)
{
	if (strcmp(layers->name, m->selected) != 0)
		return;
	m->layers_measured = m->layers_known && strcmp(m->layers_last->name, layers->name) == 0;
	*m->layers_diff = *layers;
	if (m->layers_measured)
		sample_layers_subtract(m->layers_diff, m->layers_last);
	*m->layers_last = *layers;
	m->layers_known = true;
}

void top_model_lost(struct top_model *m, const char *why)
{
	m->connected = m->layers_known = m->layers_measured = false;
	m->seconds = 0;
	m->row_nr = 0;
	sample_fini(&m->last);
	sample_fini(&m->diff);
	snprintf(m->error, sizeof(m->error), "%s", why);
}

const struct top_row *top_model_selected(const struct top_model *m)
{
	size_t idx;

	return find_selected(m, &idx) ? &m->rows[idx] : NULL;
}

const struct sample_layers *top_model_layers(const struct top_model *m)
{
	bool known = m->layers_measured && strcmp(m->layers_diff->name, m->selected) == 0;

	return known && top_model_selected(m) ? m->layers_diff : NULL;
}

/* ---- keys ---- */

static const double intervals[] = { 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300 };

static void slower(struct top_model *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(intervals); i++)
		if (intervals[i] > m->interval) {
			m->interval = intervals[i];
			return;
		}
}

static void faster(struct top_model *m)
{
	for (size_t i = ARRAY_SIZE(intervals); i-- > 0;)
		if (intervals[i] < m->interval) {
			m->interval = intervals[i];
			return;
		}
}

/* Up and down by so many rows; of a device that is gone, from where it was. */
static void move_by(struct top_model *m, long rows)
{
	long idx = (long)m->selected_idx + rows;

	m->scroll = 0;
	select_row(m, idx > 0 ? (size_t)idx : 0);
}

static void page_by(struct top_model *m, int pages)
{
	if (!m->drilled)
		move_by(m, pages * PAGE_LINES);
	else if (pages > 0)
		m->scroll += PAGE_LINES;
	else
		m->scroll -= MIN(m->scroll, (unsigned)PAGE_LINES);
}

static void back(struct top_model *m)
{
	if (m->help) {
		m->help = false;
		return;
	}
	m->drilled = false;
	m->scroll = 0;
	sort_rows(m); /* the cursor needs a device that is there */
}

static void move_key(struct top_model *m, enum top_key key)
{
	if (key == TOP_KEY_UP)
		move_by(m, -1);
	else if (key == TOP_KEY_DOWN)
		move_by(m, 1);
	else if (key == TOP_KEY_PAGE_UP)
		page_by(m, -1);
	else if (key == TOP_KEY_PAGE_DOWN)
		page_by(m, 1);
	else if (key == TOP_KEY_FIRST)
		select_row(m, 0);
	else if (key == TOP_KEY_LAST)
		select_row(m, SIZE_MAX);
}

static void sort_key(struct top_model *m, enum top_key key)
{
	if (key == TOP_KEY_SORT)
		m->sort = (m->sort + 1) % TOP_SORT_NR;
	else
		m->reverse = !m->reverse;
	sort_rows(m);
}

void top_model_key(struct top_model *m, enum top_key key)
{
	switch (key) {
	case TOP_KEY_ENTER:
		m->drilled = m->selected[0] != '\0';
		m->help = false;
		break;
	case TOP_KEY_BACK:
		back(m);
		break;
	case TOP_KEY_SORT:
	case TOP_KEY_REVERSE:
		sort_key(m, key);
		break;
	case TOP_KEY_PAUSE:
		m->paused = !m->paused;
		break;
	case TOP_KEY_FASTER:
		faster(m);
		break;
	case TOP_KEY_SLOWER:
		slower(m);
		break;
	case TOP_KEY_HELP:
		m->help = !m->help;
		break;
	case TOP_KEY_QUIT:
		m->quit = true;
		break;
	default:
		move_key(m, key);
	}
}
