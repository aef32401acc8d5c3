/* What metrics.c and metrics_images.c share: the devices as they were read, and the text. */
#ifndef DAEMON_METRICS_METRICS_INTERNAL_H
#define DAEMON_METRICS_METRICS_INTERNAL_H

#include <stdio.h>

#include "daemon/metrics/metrics.h"
#include "storage/look.h"
#include "ublk/device/device.h"

struct snapshot {
	const char *name; /* letters, digits and ._- only (settings.c): nothing to escape */
	bool live;
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

/* metrics_images.c. take: 0, or -1 without memory; s->images is the caller's to free. */
int metrics_images_take(struct snapshot *s);
void metrics_write_images(const struct writer *w);
int metrics_caches_take(struct snapshot *s);
void metrics_write_caches(const struct writer *w);
void metrics_write_zones(const struct writer *w);
void metrics_write_integrity(const struct writer *w);

#endif
