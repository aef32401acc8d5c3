/* What the kernel says about the CPUs of this machine. Main thread. */
#ifndef DAEMON_SETTINGS_CPU_LIST_H
#define DAEMON_SETTINGS_CPU_LIST_H

#include <stdbool.h>

/* Whether text ("0-3,6") names the CPU. */
bool cpu_list_has(const char *text, unsigned cpu);

/* Whether this machine can ever have the CPU. What cannot be read says yes. */
bool cpu_is_possible(unsigned cpu);

/*
 * Why a thread of this process cannot run on a possible CPU now, in words that follow its name ("is
 * offline"); NULL: it can.
 */
const char *cpu_why_not(unsigned cpu);

#endif
