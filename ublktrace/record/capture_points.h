/* How the tracepoints of io_uring are attached: one of the two ways of ublktrace/bpf/points.h; and
 * which records their programs make. Main thread. */
#ifndef UBLKTRACE_RECORD_CAPTURE_POINTS_H
#define UBLKTRACE_RECORD_CAPTURE_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ublktrace/events/event.h"

#define CAPTURE_POINTS_MAX 16u

struct bpf_link;
struct bpf_object;
struct events_bpf;

/* Before loading: perf's way, or by BTF; complete_args: point_tracepoint_args of io_uring_complete.
 */
void capture_points_choose(struct events_bpf *s, bool perf, int complete_args);

/* After loading: what is attached perf's way. Fills links, the caller's to destroy. Returns 0 or
 * -errno. */
int capture_points_attach(struct events_bpf *s, struct bpf_link *links[CAPTURE_POINTS_MAX]);

/* What records the runs would have made that the kernel skipped until now, by the type of the
 * record; [0]: of programs that make none. */
void capture_points_skipped(const struct bpf_object *object, uint64_t ret_nr[EVENT_TYPE_NR]);

#endif
