/* `ublkctl histogram get|set|reset`. */
#ifndef UBLKCTL_CTL_HISTOGRAM_H
#define UBLKCTL_CTL_HISTOGRAM_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

enum ctl_boundaries {
	CTL_BOUNDARIES_ALL,
	CTL_BOUNDARIES_READ,
	CTL_BOUNDARIES_WRITE,
	CTL_BOUNDARIES_FLUSH,
	CTL_BOUNDARIES_NR,
};

struct ctl_histogram_params {
	const char *socket_path;
	const char *action, *name;
	const char *layer, *op;			   /* NULL: total, all */
	const char *boundaries[CTL_BOUNDARIES_NR]; /* as written, or NULL */
	bool json, qmp_json;
};

/* EXIT_USAGE: the action or a boundary makes no sense; told. */
enum exit_code ctl_histogram(const struct ctl_histogram_params *params);

#endif
