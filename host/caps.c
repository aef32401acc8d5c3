/* Reads /proc/self/status: no library, and no call of the kernel's with versions. Owns nothing. */
#include "host/caps.h"

#include <linux/capability.h>
#include <stdio.h>
#include <sys/stat.h>

/* PROC_USER_INIT_INO, since Linux 3.8 (include/linux/proc_ns.h). */
#define FIRST_USER_NAMESPACE_INO 0xEFFFFFFDu

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

static bool in_first_user_namespace(void)
{
	struct stat st;

	/* Without /proc, or in a kernel without user namespaces, there is no other one to be in. */
	return stat("/proc/self/ns/user", &st) < 0 || st.st_ino == FIRST_USER_NAMESPACE_INO;
}

bool host_is_privileged(void)
{
	return host_has_cap(CAP_SYS_ADMIN) && in_first_user_namespace();
}
