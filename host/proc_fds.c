/* See proc_fds.h. Any thread. */
#include "host/proc_fds.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#define FOLDER_BYTES 64

/* How many there were, or -EACCES. */
static int look_at_folder(const char *folder, const char *pid,
			  bool (*fn)(const char *, const char *, void *), void *arg)
{
	char path[FOLDER_BYTES + NAME_MAX + 2];
	const struct dirent *entry;
	bool enough = false;
	DIR *dir = opendir(folder);
	int nr = 0;

	if (!dir)
		return errno == EACCES || errno == EPERM ? -EACCES : 0;
	while (!enough && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		nr++;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		enough = fn(pid, path, arg);
	}
	closedir(dir);
	return nr;
}

static int look_at_threads(const char *pid, bool (*fn)(const char *, const char *, void *),
			   void *arg)
{
	char tasks[FOLDER_BYTES / 2], folder[FOLDER_BYTES];
	const struct dirent *entry;
	int ret = 0;
	DIR *dir;

	snprintf(tasks, sizeof(tasks), "/proc/%.11s/task", pid);
	dir = opendir(tasks);
	while (dir && ret >= 0 && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(folder, sizeof(folder), "%s/%.11s/fd", tasks, entry->d_name);
		ret = look_at_folder(folder, pid, fn, arg);
	}
	if (dir)
		closedir(dir);
	return ret < 0 ? ret : 0;
}

int proc_fds_of(const char *pid, bool (*fn)(const char *pid, const char *path, void *arg),
		void *arg)
{
	char folder[FOLDER_BYTES];
	int ret;

	snprintf(folder, sizeof(folder), "/proc/%.11s/fd", pid);
	ret = look_at_folder(folder, pid, fn, arg);
	/* pthread_exit of the first thread closes nothing, but takes its view away. */
	if (ret == 0)
		ret = look_at_threads(pid, fn, arg);
	return ret < 0 ? ret : 0;
}

int proc_each(void (*fn)(const char *pid, void *arg), void *arg)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]))
			fn(entry->d_name, arg);
	closedir(dir);
	return 0;
}

struct all {
	bool (*fn)(const char *pid, const char *path, void *arg);
	void *arg;
};

static void fds_of_process(const char *pid, void *arg)
{
	const struct all *all = arg;

	proc_fds_of(pid, all->fn, all->arg);
}

void proc_fds(bool (*fn)(const char *pid, const char *path, void *arg), void *arg)
{
	struct all all = { fn, arg };

	proc_each(fds_of_process, &all);
}
