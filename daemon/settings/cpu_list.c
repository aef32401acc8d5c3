/*
 * Reads the lists in /sys/devices/system/cpu. Happy path: one short line. Failure mode: no such
 * file, as in a container without /sys: nothing is held against a CPU.
 */
#include "daemon/settings/cpu_list.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

bool cpu_list_has(const char *text, unsigned cpu)
{
	char *end;

	while (isdigit((unsigned char)*text)) {
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (cpu >= first && cpu <= last)
			return true;
		text = *end == ',' ? end + 1 : end;
	}
	return false;
}

static bool is_listed(const char *name, unsigned cpu)
{
	char path[64], text[4096];
	FILE *file;
	bool read;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/%s", name);
	file = fopen(path, "re");
	if (!file)
		return true;
	read = fgets(text, sizeof(text), file) != NULL;
	fclose(file);
	return !read || cpu_list_has(text, cpu);
}

bool cpu_is_possible(unsigned cpu)
{
	return cpu < CPU_SETSIZE && is_listed("possible", cpu);
}

const char *cpu_why_not(unsigned cpu)
{
	cpu_set_t allowed;

	if (!is_listed("present", cpu))
		return "is not present";
	if (!is_listed("online", cpu))
		return "is offline";
	if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && !CPU_ISSET(cpu, &allowed))
		return "is not one this daemon may run on (its control group or affinity)";
	return NULL;
}
