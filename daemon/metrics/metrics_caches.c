/*
 * Caches as metrics. Main thread.
 *
 * Happy path: all caches of a device are looked at once, then written family by family; the cache
 * that the device is has no label node, as with images. Failure mode: no memory: no text.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "daemon/metrics/metrics_internal.h"
#include "ublk/device/inflight.h"

int metrics_caches_take(struct snapshot *s)
{
	struct backend_cache_look look;
	unsigned nr = 0;

	while (s->device && device_cache(s->device, nr, &look))
		nr++;
	if (nr == 0)
		return 0;
	s->caches = calloc(nr, sizeof(*s->caches));
	if (!s->caches)
		return -1;
	/* What devices share, one of them counts. */
	for (unsigned i = 0; i < nr && device_cache(s->device, i, &look); i++)
		if (!look.is_repeated)
			s->caches[s->cache_nr++] = look;
	return 0;
}

static const struct cache_metric {
	const char *name, *type, *suffix, *help;
	size_t offset;
} cache_metrics[] = {
	{ "ublkd_cache_blocks", "gauge", "", "Blocks that the store of the cache has room for.",
	  offsetof(struct backend_cache_look, block_nr) },
	{ "ublkd_cache_used_blocks", "gauge", "", "Blocks of the origin that are there.",
	  offsetof(struct backend_cache_look, used_nr) },
	{ "ublkd_cache_dirty_bytes", "gauge", "", "Bytes that the origin does not have yet.",
	  offsetof(struct backend_cache_look, dirty_bytes) },
	{ "ublkd_cache_hits", "counter", "_total", "Parts of reads that the store had.",
	  offsetof(struct backend_cache_look, hits) },
	{ "ublkd_cache_misses", "counter", "_total",
	  "Parts of reads that the origin was asked for.",
	  offsetof(struct backend_cache_look, misses) },
	{ "ublkd_cache_hit_bytes", "counter", "_total", "Bytes read that the store had.",
	  offsetof(struct backend_cache_look, hit_bytes) },
	{ "ublkd_cache_miss_bytes", "counter", "_total",
	  "Bytes read that the origin was asked for.",
	  offsetof(struct backend_cache_look, miss_bytes) },
	{ "ublkd_cache_filled_bytes", "counter", "_total",
	  "Bytes read from the origin and kept, those fetched ahead too.",
	  offsetof(struct backend_cache_look, filled_bytes) },
	{ "ublkd_cache_passed_by", "counter", "_total", "Misses of which nothing was kept.",
	  offsetof(struct backend_cache_look, passed_by) },
	{ "ublkd_cache_evicted_blocks", "counter", "_total", "Blocks given up for others.",
	  offsetof(struct backend_cache_look, evicted) },
	{ "ublkd_cache_cleaned_bytes", "counter", "_total",
	  "Bytes of dirty blocks written to the origin.",
	  offsetof(struct backend_cache_look, cleaned_bytes) },
	{ "ublkd_cache_moved_bytes", "counter", "_total",
	  "Bytes dropped at the start, as the origin was changed without the cache.",
	  offsetof(struct backend_cache_look, moved_bytes) },
};

static void write_cache_metric(const struct writer *w, const struct cache_metric *m)
{
	char labels[METRICS_LABELS_BYTES];

	metrics_family(w, m->name, m->type, m->help);
	for (size_t i = 0; i < w->nr; i++)
		for (unsigned j = 0; j < w->devices[i].cache_nr; j++) {
			const struct backend_cache_look *look = &w->devices[i].caches[j];

			metrics_node_labels(&w->devices[i], look->node, labels);
			fprintf(w->out, "%s%s{%s} %" PRIu64 "\n", m->name, m->suffix, labels,
				*(const uint64_t *)((const char *)look + m->offset));
		}
}

static void write_cache_off(const struct writer *w)
{
	char labels[METRICS_LABELS_BYTES];

	metrics_family(w, "ublkd_cache_off", "gauge",
		       "Whether the cache is off: its store failed.");
	for (size_t i = 0; i < w->nr; i++)
		for (unsigned j = 0; j < w->devices[i].cache_nr; j++) {
			const struct backend_cache_look *look = &w->devices[i].caches[j];

			metrics_node_labels(&w->devices[i], look->node, labels);
			fprintf(w->out, "ublkd_cache_off{%s} %d\n", labels, look->is_off);
		}
}

void metrics_write_caches(const struct writer *w)
{
	for (size_t m = 0; m < ARRAY_SIZE(cache_metrics); m++)
		write_cache_metric(w, &cache_metrics[m]);
	write_cache_off(w);
}
