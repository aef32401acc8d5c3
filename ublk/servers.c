/*
 * Finds the servers of ublk devices, ours and those of others, by what they have open: the driver
 * itself forgets the process when it ends, and knows none before START_DEV. Failure mode: a server
 * that proc_fds does not see.
 */
#include "ublk/servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/proc_fds.h"

struct search {
	char prefix[256]; /* "/dev/ublkc" */
	void (*fn)(int pid, unsigned id, void *arg);
	void *arg;
};

/* A server has several devices: there is never enough. */
static bool server_look_at(const char *pid, const char *path, void *arg)
{
	const struct search *s = arg;
	size_t len = strlen(s->prefix);
	char target[512], rest;
	unsigned id;
	ssize_t target_len = readlink(path, target, sizeof(target) - 1);

	if (target_len <= 0)
		return false;
	target[target_len] = '\0';
	if (strncmp(target, s->prefix, len) == 0 && sscanf(target + len, "%u%c", &id, &rest) == 1)
		s->fn(atoi(pid), id, s->arg);
	return false;
}

void servers_find(const char *folder, void (*fn)(int pid, unsigned id, void *arg), void *arg)
{
	struct search s = { .fn = fn, .arg = arg };

	snprintf(s.prefix, sizeof(s.prefix), "%s/ublkc", folder);
	proc_fds(server_look_at, &s);
}
