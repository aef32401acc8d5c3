/* `ublkctl stats`: counters, or rates over an interval. */
#ifndef UBLKCTL_CTL_STATS_H
#define UBLKCTL_CTL_STATS_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

struct ctl_stats_params {
	const char *socket_path;
	const char *name; /* NULL: all devices */
	bool json;
	double watch_seconds; /* 0: once, since the start of each device */
	bool layers;	      /* mean and p99 per layer instead of counts */
	unsigned long count;  /* of tables with watch; 0: until interrupted */
};

enum exit_code ctl_stats(const struct ctl_stats_params *params);

#endif
