/* Reads /proc/self/status: no library, and no call of the kernel's with versions. Owns nothing. */
#include "host/caps.h"

#include <stdio.h>

bool host_has_cap(unsigned cap)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long caps = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	if (file)
		fclose(file);
	return caps >> cap & 1;
}
