/*
 * What `ublkctl top` shows, without how: the devices over the last interval, their past, what is
 * selected, how it is sorted, what a key does. Pure: samples and keys in, numbers out.
 */
#ifndef UBLKCTL_TOP_TOP_MODEL_H
#define UBLKCTL_TOP_TOP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ublkctl/client.h"
#include "ublkctl/sample.h"

#define TOP_INTERVAL_MIN 0.05
#define TOP_INTERVAL_MAX 86400.0
#define TOP_HISTORY_NR 96

/* The last intervals of a device, the latest at (nr - 1) % TOP_HISTORY_NR. */
struct top_history {
	char name[SAMPLE_NAME_BYTES];
	size_t nr; /* also those that are overwritten */
	uint64_t p50_ns[TOP_HISTORY_NR], p99_ns[TOP_HISTORY_NR];
	uint64_t octaves[TOP_HISTORY_NR][HISTOGRAM_OCTAVE_NR];
};

/* A device, over the last interval. */
struct top_row {
	const struct sample_device *device;
	const struct top_history *history; /* NULL: none yet */
	double iops, bytes_per_s;
	uint64_t p50_ns, p99_ns, failed;
};

enum top_sort {
	TOP_SORT_NAME,
	TOP_SORT_IOPS,
	TOP_SORT_BYTES,
	TOP_SORT_INFLIGHT,
	TOP_SORT_P50,
	TOP_SORT_P99,
	TOP_SORT_ERRORS,
	TOP_SORT_NR,
};

enum top_key {
	TOP_KEY_NONE,
	TOP_KEY_UP,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_FIRST,
	TOP_KEY_LAST,
	TOP_KEY_ENTER,
	TOP_KEY_BACK,
	TOP_KEY_SORT,
	TOP_KEY_REVERSE,
	TOP_KEY_PAUSE,
	TOP_KEY_FASTER,
	TOP_KEY_SLOWER,
	TOP_KEY_HELP,
	TOP_KEY_QUIT,
};

struct top_model {
	double interval; /* seconds, as asked for */
	double seconds;	 /* of the last interval, as measured; 0: nothing is measured yet */
	struct sample last, diff;
	struct sample_layers *layers_last, *layers_diff;
	bool layers_known, layers_measured; /* what of those is valid */
	struct top_row *rows;
	size_t row_nr, selected_idx; /* where the selected device is, or was */
	struct top_history *histories;
	size_t history_nr;
	char selected[SAMPLE_NAME_BYTES]; /* a device; "": none yet */
	bool connected;
	char error[CLIENT_TEXT_BYTES]; /* why not */
	enum top_sort sort;
	bool reverse, paused, help, quit;
	bool drilled;	 /* the page of the selected device */
	unsigned scroll; /* lines that page is moved up */
};

/* name: open its page; NULL: the list. */
void top_model_init(struct top_model *m, double interval, const char *name);
void top_model_fini(struct top_model *m);

/* A new sample, whose arrays are taken. The first one after init or lost only begins an interval.
 */
void top_model_take(struct top_model *m, struct sample *sample);

/* The same for the layers of one device; of another than the selected one it is dropped. */
void top_model_take_layers(struct top_model *m, const struct sample_layers *layers);

/* Nobody answers, with the reason: nothing is known until the next sample. */
void top_model_lost(struct top_model *m, const char *why);

void top_model_key(struct top_model *m, enum top_key key);

/* NULL: the selected device is gone, or there is none. */
const struct top_row *top_model_selected(const struct top_model *m);

/* Of the selected device over the last interval; NULL: not known yet. */
const struct sample_layers *top_model_layers(const struct top_model *m);

const char *top_sort_name(enum top_sort sort);

/* The last nr values of a ring, oldest first; 0 before there were any. */
void top_history_tail(const struct top_history *h, const uint64_t ring[static TOP_HISTORY_NR],
		      size_t nr, uint64_t *ret_values);

#endif
