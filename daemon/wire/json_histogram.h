/*
 * Histograms as JSON: ublkd writes them in the answers of the control socket and of the page at the
 * metrics port, ublkctl reads them. Pure.
 */
#ifndef DAEMON_WIRE_JSON_HISTOGRAM_H
#define DAEMON_WIRE_JSON_HISTOGRAM_H

#include <jansson.h>

#include "base/histogram.h"

/* Sets "sum_ns" and "buckets": [[start_ns, count], ...] of the buckets in use. */
void json_set_buckets(json_t *object, const struct histogram *h);

/* From these two keys; what is missing is zero. */
void json_read_buckets(const json_t *object, struct histogram *ret_h);

/* Sets count, mean, quantiles and maximum, in ns. */
void json_set_summary(json_t *object, const struct histogram *h);

/* Sets "boundaries" and "bins", the nr + 1 counts of histogram_bins. */
void json_set_bins(json_t *object, const struct histogram *h, const uint64_t *boundary_ns,
		   size_t nr);

/* The two arrays of json_set_bins, each a new reference, or NULL. */
json_t *json_numbers(const uint64_t *value, size_t nr);
json_t *json_bins(const struct histogram *h, const uint64_t *boundary_ns, size_t nr);

#endif
