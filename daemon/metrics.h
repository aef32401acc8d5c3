/* What the daemon counts, as OpenMetrics text and as the heatmap's JSON. Main thread. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <stddef.h>

#include "daemon/fleet.h"
#include "daemon/reactors.h"

struct metrics_source {
	const struct fleet *fleet;
	const struct reactors *reactors;
	const struct reactor *control;
};

#define METRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* The caller frees; NULL: out of memory. */
char *metrics_text(const struct metrics_source *source, size_t *ret_bytes);
char *metrics_heatmap(const struct metrics_source *source, size_t *ret_bytes);

#endif
