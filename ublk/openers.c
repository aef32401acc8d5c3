/*
 * Finds the users of a block device by name. The driver of Linux 7.0 and later refuses to stop a
 * device that is open (TRY_STOP_DEV) but not who has it; older ones do not even refuse. Nothing
 * here opens the device itself: the daemon must never wait for its own device.
 */
#include "ublk/openers.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ublk/proc_fds.h"

#define PATH_BYTES 512

struct scan {
	char node[32]; /* "/dev/ublkb3" */
	char *text;
	size_t text_bytes, used;
	enum openers found;
};

static void note(struct scan *s, enum openers kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void note(struct scan *s, enum openers kind, const char *fmt, ...)
{
	const char *separator = s->used ? ", " : "";
	va_list ap;

	if (kind > s->found)
		s->found = kind;
	if (s->used + 1 >= s->text_bytes)
		return;
	s->used += (size_t)snprintf(s->text + s->used, s->text_bytes - s->used, "%s", separator);
	if (s->used + 1 >= s->text_bytes)
		return;
	va_start(ap, fmt);
	s->used += (size_t)vsnprintf(s->text + s->used, s->text_bytes - s->used, fmt, ap);
	va_end(ap);
}

/* "/dev/ublkb3" or "/dev/ublkb3p1", but not "/dev/ublkb31". */
static bool names_device(const struct scan *s, const char *path)
{
	size_t len = strlen(s->node);

	if (strncmp(path, s->node, len) != 0)
		return false;
	return path[len] == '\0' || path[len] == 'p' || isspace((unsigned char)path[len]);
}

/* Fields of a line: "36 35 98:0 / /mnt rw - ext4 /dev/ublkb3 rw" (proc_pid_mountinfo(5)). */
static void scan_mounts(struct scan *s, const char *file)
{
	FILE *f = fopen(file, "re");
	char line[2048], where[1024];

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		const char *rest = strstr(line, " - ");
		const char *source = rest ? strchr(rest + 3, ' ') : NULL;

		if (source && names_device(s, source + 1) &&
		    sscanf(line, "%*s %*s %*s %*s %1023s", where) == 1 && !strstr(s->text, where))
			note(s, OPENERS_REAL, "mounted on %s", where);
	}
	fclose(f);
}

static void scan_swaps(struct scan *s)
{
	FILE *f = fopen("/proc/swaps", "re");
	char line[1024];

	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		if (names_device(s, line))
			note(s, OPENERS_REAL, "used as swap");
	fclose(f);
}

static void scan_holders(struct scan *s, const char *folder)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			note(s, OPENERS_REAL, "held by %s", entry->d_name);
	closedir(dir);
}

static void read_comm(const char *pid, char *comm, size_t comm_bytes)
{
	char path[PATH_BYTES];
	FILE *f;

	snprintf(comm, comm_bytes, "?");
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(comm, (int)comm_bytes, f))
		comm[strcspn(comm, "\n")] = '\0';
	fclose(f);
}

static bool is_probe(const char *comm)
{
	return strstr(comm, "udev") || strcmp(comm, "blkid") == 0;
}

static bool look_at(const char *pid, const char *target, void *arg)
{
	struct scan *s = arg;
	char comm[64];

	if (!names_device(s, target))
		return false;
	read_comm(pid, comm, sizeof(comm));
	note(s, is_probe(comm) ? OPENERS_TRANSIENT : OPENERS_REAL, "open by %s[%s]", comm, pid);
	return true;
}

enum openers openers_find(int dev_id, char *text, size_t text_bytes)
{
	struct scan s = { .text = text, .text_bytes = text_bytes };
	char folder[PATH_BYTES];

	text[0] = '\0';
	snprintf(s.node, sizeof(s.node), "/dev/ublkb%d", dev_id);
	scan_mounts(&s, "/proc/1/mountinfo");
	scan_mounts(&s, "/proc/self/mountinfo");
	scan_swaps(&s);
	snprintf(folder, sizeof(folder), "/sys/block/ublkb%d/holders", dev_id);
	scan_holders(&s, folder);
	proc_fds(look_at, &s);
	return s.found;
}
