/*
 * What `record` adds when its target is a ublkd: the probe points of base/probes.h, its devices.
 * Main thread.
 */
#ifndef UBLKTRACE_RECORD_CAPTURE_DAEMON_H
#define UBLKTRACE_RECORD_CAPTURE_DAEMON_H

#include "ublktrace/target.h"

struct bpf_link;
struct events_bpf;

#define CAPTURE_PROBE_NR 6u

/*
 * Attaches to the probe points of the target, when its program has them. Links that are not used
 * stay NULL; the caller destroys all. Returns how many were attached, or -errno when there are
 * probe points and none could be attached.
 */
int capture_daemon_attach(struct events_bpf *s, const struct target *t,
			  struct bpf_link *links[CAPTURE_PROBE_NR]);

/* Tells the programs which ublk devices the target serves already. */
void capture_daemon_devices(struct events_bpf *s, const struct target *t);

#endif
