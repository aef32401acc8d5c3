/*
 * Images as metrics. Main thread.
 *
 * Happy path: all images of a device are looked at once, then written family by family; the image
 * that the device is has no label node, as with connections. Failure mode: no memory: no text.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "daemon/metrics/metrics_internal.h"
#include "ublk/device/inflight.h"

int metrics_images_take(struct snapshot *s)
{
	struct backend_image_look look;
	unsigned nr = 0;

	while (s->device && device_image(s->device, nr, &look))
		nr++;
	if (nr == 0)
		return 0;
	s->images = calloc(nr, sizeof(*s->images));
	if (!s->images)
		return -1;
	/* What devices share, one of them counts. */
	for (unsigned i = 0; i < nr && device_image(s->device, i, &look); i++)
		if (!look.is_repeated)
			s->images[s->image_nr++] = look;
	return 0;
}

static const struct image_metric {
	const char *name, *type, *suffix, *help;
	size_t offset;
} image_metrics[] = {
	{ "ublkd_image_size_bytes", "gauge", "", "Size of the disk in the image.",
	  offsetof(struct backend_image_look, size_bytes) },
	{ "ublkd_image_end_bytes", "gauge", "", "How much of its file the image needs.",
	  offsetof(struct backend_image_look, end_bytes) },
	{ "ublkd_image_table_slices", "gauge", "", "Slices of tables in the cache.",
	  offsetof(struct backend_image_look, slice_nr) },
	{ "ublkd_image_table_slices_max", "gauge", "", "Slices that the cache has room for.",
	  offsetof(struct backend_image_look, slice_max) },
	{ "ublkd_image_table_misses", "counter", "_total",
	  "Lookups that had to read a slice of a table.",
	  offsetof(struct backend_image_look, misses) },
	{ "ublkd_image_allocated_clusters", "counter", "_total", "Clusters taken.",
	  offsetof(struct backend_image_look, allocations) },
	{ "ublkd_image_copies", "counter", "_total",
	  "Writes that copied what surrounds them into new clusters.",
	  offsetof(struct backend_image_look, copies) },
	{ "ublkd_image_compressed_reads", "counter", "_total", "Compressed clusters read.",
	  offsetof(struct backend_image_look, unpacked) },
};

static void write_image_metric(const struct writer *w, const struct image_metric *m)
{
	char labels[METRICS_LABELS_BYTES];

	metrics_family(w, m->name, m->type, m->help);
	for (size_t i = 0; i < w->nr; i++)
		for (unsigned j = 0; j < w->devices[i].image_nr; j++) {
			const struct backend_image_look *look = &w->devices[i].images[j];

			metrics_node_labels(&w->devices[i], look->node, labels);
			fprintf(w->out, "%s%s{%s} %" PRIu64 "\n", m->name, m->suffix, labels,
				*(const uint64_t *)((const char *)look + m->offset));
		}
}

/* Only of images whose file says it. */
static void write_stored(const struct writer *w)
{
	char labels[METRICS_LABELS_BYTES];

	metrics_family(w, "ublkd_image_stored_bytes", "gauge",
		       "Space that the image's file takes.");
	for (size_t i = 0; i < w->nr; i++)
		for (unsigned j = 0; j < w->devices[i].image_nr; j++) {
			const struct backend_image_look *look = &w->devices[i].images[j];

			metrics_node_labels(&w->devices[i], look->node, labels);
			if (look->has_stored)
				fprintf(w->out, "ublkd_image_stored_bytes{%s} %" PRIu64 "\n",
					labels, look->stored_bytes);
		}
}

static void write_tables_dirty(const struct writer *w)
{
	char labels[METRICS_LABELS_BYTES];

	metrics_family(w, "ublkd_image_tables_dirty", "gauge",
		       "Whether tables in memory differ from the disk's.");
	for (size_t i = 0; i < w->nr; i++)
		for (unsigned j = 0; j < w->devices[i].image_nr; j++) {
			const struct backend_image_look *look = &w->devices[i].images[j];

			metrics_node_labels(&w->devices[i], look->node, labels);
			fprintf(w->out, "ublkd_image_tables_dirty{%s} %d\n", labels,
				look->is_dirty);
		}
}

void metrics_write_images(const struct writer *w)
{
	for (size_t m = 0; m < ARRAY_SIZE(image_metrics); m++)
		write_image_metric(w, &image_metrics[m]);
	write_stored(w);
	write_tables_dirty(w);
}
