/*
 * What the daemon counts: as text of Prometheus and OpenMetrics, and as the JSON that the web page
 * draws (/page.json, /heatmap.json). Main thread.
 */
#ifndef DAEMON_METRICS_METRICS_H
#define DAEMON_METRICS_METRICS_H

#include <stddef.h>
#include <stdint.h>

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

/* ---- the page at / ---- */

/* At most so many devices in an answer, and connections of each; the rest is counted. */
#define METRICS_PAGE_DEVICES_MAX 256
#define METRICS_PAGE_CONNECTIONS_MAX 64

/*
 * State, counters, latency bins, connections and the verdict of why-stuck of each device. What it
 * takes to judge a device is asked of reactors and driver for the next answer, never waited for;
 * *asked_ns is when that was done last, zero at first. The caller frees; NULL: out of memory.
 */
char *metrics_page(const struct metrics_source *source, uint64_t *asked_ns, size_t *ret_bytes);

/* The latency bins of all devices alone. The caller frees; NULL: out of memory. */
char *metrics_heatmap(const struct metrics_source *source, size_t *ret_bytes);

/* page.html and page.js, made into arrays by the build. */
extern const unsigned char page_html[];
extern const size_t page_html_bytes;
extern const unsigned char page_js[];
extern const size_t page_js_bytes;

#endif
