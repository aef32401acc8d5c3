/* What the kernel says about the CPUs of this machine. Any thread. */
#ifndef HOST_CPUS_H
#define HOST_CPUS_H

#include <stdbool.h>

/* Whether text ("0-3,6") names the CPU. */
bool cpu_list_has(const char *text, unsigned cpu);

/* Whether this machine can ever have the CPU. Yes, if the kernel does not say. */
bool cpu_is_possible(unsigned cpu);

/* The kernel's nr_cpu_ids: the last CPU that this machine can ever have, plus one. */
unsigned cpu_possible_nr(void);

/*
 * Why a thread of this process cannot run on a possible CPU now, in words that follow its name ("is
 * offline"); NULL: it can.
 */
const char *cpu_why_not(unsigned cpu);

#endif
