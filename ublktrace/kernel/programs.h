/*
 * What all commands do with their BPF programs, beside loading them. Main thread.
 */
#ifndef UBLKTRACE_KERNEL_PROGRAMS_H
#define UBLKTRACE_KERNEL_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

struct bpf_object;
struct bpf_program;

/* Has a program loaded when its function is here; else it stays off. Returns whether it is. */
bool programs_want(struct bpf_program *program, const char *module, const char *function);

/* libbpf says nothing any more: the callers say what failed, with the cure. */
void programs_silence_libbpf(void);

/*
 * Runs that the kernel skipped until now, of all programs of a loaded object: one ran already on
 * that CPU, or, on a preemptible kernel, had been preempted there (kernel/bpf/trampoline.c,
 * bpf_prog_info.recursion_misses).
 */
uint64_t programs_skipped(const struct bpf_object *object);

/* Of one program; 0 when it was not loaded. */
uint64_t programs_skipped_of(const struct bpf_program *program);

#endif
