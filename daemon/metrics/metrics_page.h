/* What the web page at / asks for, as JSON: /page.json and /heatmap.json. Main thread. */
#ifndef DAEMON_METRICS_METRICS_PAGE_H
#define DAEMON_METRICS_METRICS_PAGE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/metrics/metrics.h"

/* The answer tells of so many devices, and of so many connections of each; it counts the rest. */
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

#endif
