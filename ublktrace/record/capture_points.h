/* How the tracepoints of io_uring are attached: one of the two ways of ublktrace/bpf/points.h. Main
 * thread. */
#ifndef UBLKTRACE_RECORD_CAPTURE_POINTS_H
#define UBLKTRACE_RECORD_CAPTURE_POINTS_H

#include <stdbool.h>

#define CAPTURE_POINTS_MAX 16u

struct bpf_link;
struct events_bpf;

/* Before loading: perf's way, or by BTF; complete_args: point_tracepoint_args of io_uring_complete.
 */
void capture_points_choose(struct events_bpf *s, bool perf, int complete_args);

/* After loading: what is attached perf's way. Fills links, the caller's to destroy. Returns 0 or
 * -errno. */
int capture_points_attach(struct events_bpf *s, struct bpf_link *links[CAPTURE_POINTS_MAX]);

/* The tracepoint that a program of that name is for: "tp_defer" is for "defer", "defer" as well. */
const char *capture_points_name(const char *program);

#endif
