/* `ublkctl resize`: another size for a device that serves. */
#ifndef UBLKCTL_CTL_RESIZE_H
#define UBLKCTL_CTL_RESIZE_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

struct ctl_resize_params {
	const char *socket_path, *name;
	const char *size; /* "20GiB", "+1GiB"; NULL: as much as there is below */
	bool force, json;
};

enum exit_code ctl_resize(const struct ctl_resize_params *params);

#endif
