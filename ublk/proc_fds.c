/* /proc/PID/fd of all processes. Main thread. Failure mode: what cannot be read is passed over. */
#include "ublk/proc_fds.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define TARGET_BYTES 512

static void look_at(const char *pid, bool (*fn)(const char *, const char *, void *), void *arg)
{
	char folder[64], path[sizeof(folder) + NAME_MAX + 2], target[TARGET_BYTES];
	const struct dirent *entry;
	bool enough = false;
	DIR *dir;

	snprintf(folder, sizeof(folder), "/proc/%.16s/fd", pid);
	dir = opendir(folder);
	if (!dir)
		return;
	while (!enough && (entry = readdir(dir))) {
		ssize_t len;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = '\0';
		enough = fn(pid, target, arg);
	}
	closedir(dir);
}

void proc_fds(bool (*fn)(const char *pid, const char *target, void *arg), void *arg)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]))
			look_at(entry->d_name, fn, arg);
	closedir(dir);
}
