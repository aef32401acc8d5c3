/* `ublkctl top`: what all devices do, again and again, on a screen or as text. */
#ifndef UBLKCTL_TOP_TOP_H
#define UBLKCTL_TOP_TOP_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

struct ctl_top_params {
	const char *socket_path;
	const char *name;    /* the device whose page is opened; NULL: the list */
	double interval;     /* seconds; 0: one */
	bool batch;	     /* text, also on a terminal */
	unsigned long count; /* of pictures; 0: until interrupted */
};

enum exit_code ctl_top(const struct ctl_top_params *params);

#endif
