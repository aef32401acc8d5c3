/* What metrics.c and metrics_images.c share: the devices as they were read, and the text. */
#ifndef DAEMON_METRICS_METRICS_INTERNAL_H
#define DAEMON_METRICS_METRICS_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/metrics/metrics.h"
#include "storage/look.h"
#include "ublk/device/device.h"

#define METRICS_LABEL_BYTES 128
/* Of a device, a node and a few numbers. */
#define METRICS_LABELS_BYTES (METRICS_LABEL_BYTES + 2 * BACKEND_PATH_BYTES + 64)

struct snapshot {
	const char *name;
	char label[METRICS_LABEL_BYTES]; /* name, escaped */
	bool live, degraded;
	const struct device *device; /* NULL: there is none at the moment */
	struct device_stats stats;
	struct backend_image_look *images; /* image_nr of them */
	struct backend_cache_look *caches; /* cache_nr of them */
	unsigned cache_nr;
	unsigned image_nr;
};

struct writer {
	FILE *out;
	enum metrics_format format;
	const struct metrics_source *source;
	struct snapshot *devices;
	size_t nr;
};

/* The lines before the series of a family. type: "counter", "gauge", "info". */
void metrics_family(const struct writer *w, const char *name, const char *type, const char *help);

/*
 * metrics_labels.c. Escapes text, of any bytes, as both formats do it: \\ and \n, and \" with
 * quotes; what is no UTF-8 as printable.h does. What does not fit is left out. Returns buf.
 */
const char *metrics_escape(char *buf, size_t buf_bytes, const char *text, bool quotes);
/* device="..." and, of a node below the one that the device is, node="...". Returns labels. */
const char *metrics_node_labels(const struct snapshot *s, const char *node,
				char labels[static METRICS_LABELS_BYTES]);

/* metrics_images.c. take: 0, or -1 without memory; s->images is the caller's to free. */
int metrics_images_take(struct snapshot *s);
void metrics_write_images(const struct writer *w);
int metrics_caches_take(struct snapshot *s);
void metrics_write_caches(const struct writer *w);
void metrics_write_zones(const struct writer *w);
void metrics_write_integrity(const struct writer *w);

#endif
