/* `ublkctl flight`: the last events of every I/O, of the living and the dead. */
#ifndef UBLKCTL_CTL_FLIGHT_H
#define UBLKCTL_CTL_FLIGHT_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

struct ctl_flight_params {
	const char *socket_path; /* the recorders lie beside it */
	const char *file;	 /* NULL: those of the socket */
	const char *perfetto;	 /* write a trace there instead of printing; NULL: print */
	unsigned long count;	 /* the last so many; 0: all */
	bool json;
};

enum exit_code ctl_flight(const struct ctl_flight_params *params);

#endif
