/*
 * The daemon's part of a stuck_view, read from what the control command `inflight` answers: ublkctl
 * and the page at the metrics port judge by the same words.
 */
#ifndef DAEMON_VERDICT_STUCK_VIEW_H
#define DAEMON_VERDICT_STUCK_VIEW_H

#include <jansson.h>

#include "daemon/verdict/stuck.h"

/*
 * device: one of the array "devices"; answer: the object with "pid" and "reactors". The view points
 * into both. What the kernel says is left as not known.
 */
void stuck_view_fill(struct stuck_view *ret_view, const json_t *device, const json_t *answer);

/* The I/Os in the daemon of one of a device's "queues". */
unsigned stuck_queue_inflight(const json_t *queue);

#endif
