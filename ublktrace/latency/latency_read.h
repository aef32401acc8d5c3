/*
 * The kernel's side of `ublktrace latency`: loads ublktrace/bpf/latency.bpf.c, attaches what this
 * kernel has, reads what was counted. Main thread.
 */
#ifndef UBLKTRACE_LATENCY_LATENCY_READ_H
#define UBLKTRACE_LATENCY_LATENCY_READ_H

#include <sys/types.h>

#include "ublktrace/latency/latency_report.h"

struct latency;

/* From its return on everything is counted. pid: 0 for all; with_children: and what it
 * starts from now on. Returns 0, or -errno, said on stderr with
 * the cure. */
int latency_open(pid_t pid, bool with_children, bool by_ring, struct latency **ret_latency);

/* Attaches what devices that came meanwhile need. Call it often. */
void latency_follow(struct latency *l);

/* All since latency_open. The caller frees *ret_report with latency_report_free. Returns 0 or
 * -errno. */
int latency_report_read(const struct latency *l, struct latency_report **ret_report);
void latency_close(struct latency *l);

/* Whether there are ublk devices to look at; if not, *ret_why says why, in words. */
bool latency_has_ublk(const struct latency *l, const char **ret_why);

#endif
