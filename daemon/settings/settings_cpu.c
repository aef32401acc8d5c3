/* How many CPUs the kernel counts with. Main thread. */
#include "daemon/settings/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernel's nr_cpu_ids: the last number in "0-3" or "0,2-7", plus one. */
unsigned settings_cpu_nr(void)
{
	static unsigned cpu_nr;
	unsigned last = 0;
	char list[256] = "", *digits = list;
	FILE *file;

	if (cpu_nr)
		return cpu_nr;
	file = fopen("/sys/devices/system/cpu/possible", "re");
	if (file && fgets(list, sizeof(list), file))
		digits = list + strcspn(list, "\n");
	while (digits > list && isdigit((unsigned char)digits[-1]))
		digits--;
	last = (unsigned)strtoul(digits, NULL, 10);
	if (file)
		fclose(file);
	cpu_nr = last + 1;
	return cpu_nr;
}
