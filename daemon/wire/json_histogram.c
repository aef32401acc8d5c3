/*
 * Buckets, bins and quantiles of a histogram as JSON, and buckets from JSON. Runs in the main
 * thread of ublkd and in ublkctl. Failure mode: out of memory makes parts of the JSON null; jansson
 * takes NULL everywhere.
 */
#include "daemon/wire/json_histogram.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void json_set_buckets(json_t *object, const struct histogram *h)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < HISTOGRAM_BUCKET_NR; i++)
		if (h->bucket[i])
			json_array_append_new(
				all, json_pack("[I, I]", (json_int_t)histogram_bucket_start_ns(i),
					       (json_int_t)h->bucket[i]));
	json_object_set_new(object, "sum_ns", json_integer((json_int_t)h->sum_ns));
	json_object_set_new(object, "buckets", all);
}

void json_read_buckets(const json_t *object, struct histogram *h)
{
	json_t *bucket;
	size_t i;

	memset(h, 0, sizeof(*h));
	h->sum_ns = (uint64_t)json_integer_value(json_object_get(object, "sum_ns"));
	json_array_foreach(json_object_get(object, "buckets"), i, bucket)
	{
		json_int_t start_ns = json_integer_value(json_array_get(bucket, 0));
		json_int_t count = json_integer_value(json_array_get(bucket, 1));

		h->bucket[histogram_index((uint64_t)start_ns)] += (uint64_t)count;
	}
}

void json_set_summary(json_t *object, const struct histogram *h)
{
	const struct {
		const char *key;
		uint64_t value;
	} field[] = {
		{ "count", histogram_count(h) },
		{ "mean_ns", histogram_mean_ns(h) },
		{ "p50_ns", histogram_quantile_ns(h, 0.5) },
		{ "p99_ns", histogram_quantile_ns(h, 0.99) },
		{ "p999_ns", histogram_quantile_ns(h, 0.999) },
		{ "max_ns", histogram_max_ns(h) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(field); i++)
		json_object_set_new(object, field[i].key, json_integer((json_int_t)field[i].value));
}

json_t *json_numbers(const uint64_t *value, size_t nr)
{
	json_t *all = json_array();

	for (size_t i = 0; i < nr; i++)
		json_array_append_new(all, json_integer((json_int_t)value[i]));
	return all;
}

json_t *json_bins(const struct histogram *h, const uint64_t *boundary_ns, size_t nr)
{
	uint64_t *bins = calloc(nr + 1, sizeof(bins[0]));
	json_t *all = NULL;

	if (bins) {
		histogram_bins(h, boundary_ns, nr, bins);
		all = json_numbers(bins, nr + 1);
	}
	free(bins);
	return all;
}

void json_set_bins(json_t *object, const struct histogram *h, const uint64_t *boundary_ns,
		   size_t nr)
{
	json_object_set_new(object, "boundaries", json_numbers(boundary_ns, nr));
	json_object_set_new(object, "bins", json_bins(h, boundary_ns, nr));
}
