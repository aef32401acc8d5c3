/*
 * A flight log as a Perfetto trace (protobuf), for ui.perfetto.dev: a track per device, below it
 * one per (queue, tag), a slice per I/O. No library: the few messages needed are written by hand.
 */
#ifndef UBLKCTL_FLIGHT_PERFETTO_H
#define UBLKCTL_FLIGHT_PERFETTO_H

#include <stdbool.h>
#include <stdio.h>

#include "ublkctl/flight_log.h"

/* log is finished; its order changes. Returns 0 or -errno of writing. */
int perfetto_write(FILE *file, struct flight_log *log);

#endif
