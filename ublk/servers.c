/*
 * Finds the servers of ublk devices, ours and those of others, by what they have open: the driver
 * itself forgets the process when it ends, and knows none before START_DEV. Nothing is opened but
 * /proc. Failure mode: a process of another pid namespace, or one that may not be looked into, is
 * not seen.
 */
#include "ublk/servers.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void look_at(const char *pid, const char *prefix, void (*fn)(int, unsigned, void *),
		    void *arg)
{
	char folder[64], path[64 + NAME_MAX + 2], target[256], rest;
	const struct dirent *entry;
	DIR *dir;

	snprintf(folder, sizeof(folder), "/proc/%.16s/fd", pid);
	dir = opendir(folder);
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		unsigned id;
		ssize_t len;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = '\0';
		if (strncmp(target, prefix, strlen(prefix)) == 0 &&
		    sscanf(target + strlen(prefix), "%u%c", &id, &rest) == 1)
			fn(atoi(pid), id, arg);
	}
	closedir(dir);
}

void servers_find(const char *folder, void (*fn)(int pid, unsigned id, void *arg), void *arg)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;
	char prefix[256];

	if (!dir)
		return;
	snprintf(prefix, sizeof(prefix), "%s/ublkc", folder);
	while ((entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]))
			look_at(entry->d_name, prefix, fn, arg);
	closedir(dir);
}
