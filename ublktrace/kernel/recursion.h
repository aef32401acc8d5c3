/*
 * What the kernel says of the runs of BPF programs that it skipped. Main thread.
 */
#ifndef UBLKTRACE_KERNEL_RECURSION_H
#define UBLKTRACE_KERNEL_RECURSION_H

#include <stdint.h>

struct bpf_object;
struct bpf_program;

/*
 * Runs skipped until now of all programs of a loaded object: one ran already on that CPU, or, on a
 * preemptible kernel, had been preempted there (kernel/bpf/trampoline.c,
 * bpf_prog_info.recursion_misses).
 */
uint64_t recursion_misses(const struct bpf_object *object);

/* Of one program. */
uint64_t recursion_misses_of(const struct bpf_program *program);

#endif
