/*
 * A flight log as a Perfetto trace (protobuf), for ui.perfetto.dev.
 */
#ifndef UBLKCTL_FLIGHT_PERFETTO_H
#define UBLKCTL_FLIGHT_PERFETTO_H

#include <stdio.h>

#include "ublkctl/flight_log.h"

/* log is finished; its order changes. Closes file. Returns 0 or -errno of writing. */
int perfetto_write(FILE *file, struct flight_log *log);

#endif
