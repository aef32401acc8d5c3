/* What records the runs of programs would have made that the kernel skipped. Main thread. */
#ifndef UBLKTRACE_RECORD_CAPTURE_SKIPPED_H
#define UBLKTRACE_RECORD_CAPTURE_SKIPPED_H

#include <stdint.h>

#include "ublktrace/events/event.h"

struct bpf_object;

/* Until now, by the type of the record; [0]: of programs that make none. */
void capture_skipped_count(const struct bpf_object *object, uint64_t ret_nr[EVENT_TYPE_NR]);

#endif
