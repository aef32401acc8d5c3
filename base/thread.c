/*
 * Happy path: thread_start hands the new thread a small copy of what it is to do; the thread sets
 * its own name, since a detached one may have ended before its starter could. thread_state and
 * thread_function read one small file below /proc/self/task/TID, thread_foreign_nr one of each TID.
 * Failure modes: no memory or no thread: nothing was started; a file that is missing, forbidden or
 * empty: not known.
 */
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread_begin {
	char name[16];
	void *(*run)(void *arg);
	void *arg;
};

/* That thread_start has made, and that have not ended. */
static atomic_uint thread_own_nr;

static void *thread_run(void *arg)
{
	struct thread_begin begin = *(struct thread_begin *)arg;
	void *ret;

	free(arg);
	pthread_setname_np(pthread_self(), begin.name);
	ret = begin.run(begin.arg);
	atomic_fetch_sub(&thread_own_nr, 1);
	return ret;
}

static int thread_set_attr(pthread_attr_t *attr, const struct thread_params *params, bool detached)
{
	sigset_t all;
	int ret;

	sigfillset(&all);
	/* The kernel ends a process whose thread has blocked the signal of its own bad access. */
	sigdelset(&all, SIGBUS);
	ret = pthread_attr_setsigmask_np(attr, &all);
	if (ret == 0 && detached)
		ret = pthread_attr_setdetachstate(attr, PTHREAD_CREATE_DETACHED);
	if (ret == 0 && params->stack_bytes > 0)
		ret = pthread_attr_setstacksize(attr, params->stack_bytes);
	if (ret == 0 && params->cpus)
		ret = pthread_attr_setaffinity_np(attr, sizeof(*params->cpus), params->cpus);
	return ret;
}

int thread_start(pthread_t *ret_thread, const struct thread_params *params)
{
	struct thread_begin *begin = malloc(sizeof(*begin));
	pthread_attr_t attr;
	pthread_t thread;
	int ret;

	if (!begin)
		return -ENOMEM;
	*begin = (struct thread_begin){ .run = params->run, .arg = params->arg };
	snprintf(begin->name, sizeof(begin->name), "%s", params->name);
	pthread_attr_init(&attr);
	ret = thread_set_attr(&attr, params, !ret_thread);
	atomic_fetch_add(&thread_own_nr, 1);
	if (ret == 0)
		ret = pthread_create(&thread, &attr, thread_run, begin);
	pthread_attr_destroy(&attr);
	if (ret != 0) {
		atomic_fetch_sub(&thread_own_nr, 1);
		free(begin);
		return -ret;
	}
	if (ret_thread)
		*ret_thread = thread;
	return 0;
}

/* The first line of the file, without its end; false: none. */
static bool thread_read_line(pid_t tid, const char *name, char *line, size_t bytes)
{
	char path[64];
	FILE *file;
	bool read;

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", (int)tid, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	read = fgets(line, (int)bytes, file) != NULL;
	fclose(file);
	if (read)
		line[strcspn(line, "\n")] = '\0';
	return read;
}

char thread_state(pid_t tid)
{
	char line[256];
	const char *end;

	if (!thread_read_line(tid, "stat", line, sizeof(line)))
		return '?';
	/* "7 (name) S ...": the name can have anything in it. */
	end = strrchr(line, ')');
	return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

void thread_function(pid_t tid, char *function, size_t bytes)
{
	char line[256], name[128];

	function[0] = '\0';
	/* "[<0>] hrtimer_nanosleep+0xa2/0x1a0" */
	if (thread_read_line(tid, "stack", line, sizeof(line)) &&
	    sscanf(line, "[<%*x>] %127[^+ ]", name) == 1)
		snprintf(function, bytes, "%s", name);
	else if (thread_read_line(tid, "wchan", line, sizeof(line)) && strcmp(line, "0") != 0)
		snprintf(function, bytes, "%s", line);
}

/* The kernel names the threads of io_uring so: workers and the one of SQPOLL. */
static bool thread_is_kernels(pid_t tid)
{
	char name[32];

	return thread_read_line(tid, "comm", name, sizeof(name)) && strncmp(name, "iou-", 4) == 0;
}

unsigned thread_foreign_nr(void)
{
	unsigned own_nr = 1 + atomic_load(&thread_own_nr), nr = 0;
	const struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");

	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		nr += entry->d_name[0] != '.' && !thread_is_kernels(atoi(entry->d_name));
	closedir(dir);
	return nr > own_nr ? nr - own_nr : 0;
}
