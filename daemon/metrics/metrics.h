/* What the daemon counts, as text of Prometheus and OpenMetrics. Main thread. */
#ifndef DAEMON_METRICS_METRICS_H
#define DAEMON_METRICS_METRICS_H

#include <stddef.h>

#include "daemon/devices/device_set.h"
#include "daemon/runtime/reactors.h"
#include "daemon/devices/watchdog.h"

struct metrics_source {
	const struct device_set *device_set;
	struct reactors *reactors;
	struct reactor *control;
	const struct watchdog *watchdog;
};

/* OpenMetrics 1.0, or the text format 0.0.4 of Prometheus before it. */
enum metrics_format { METRICS_OPENMETRICS, METRICS_PROMETHEUS };

const char *metrics_content_type(enum metrics_format format);

/* The caller frees; NULL: out of memory. */
char *metrics_text(const struct metrics_source *source, enum metrics_format format,
		   size_t *ret_bytes);

#endif
