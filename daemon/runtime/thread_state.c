/*
 * Reads /proc/self/task/TID. Happy path: one small file. Failure mode: a file that is missing,
 * forbidden or empty: not known.
 */
#include "daemon/runtime/thread_state.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The first line of the file, without its end; false: none. */
static bool read_line(pid_t tid, const char *name, char *line, size_t bytes)
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

	if (!read_line(tid, "stat", line, sizeof(line)))
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
	if (read_line(tid, "stack", line, sizeof(line)) &&
	    sscanf(line, "[<%*x>] %127[^+ ]", name) == 1)
		snprintf(function, bytes, "%s", name);
	else if (read_line(tid, "wchan", line, sizeof(line)) && strcmp(line, "0") != 0)
		snprintf(function, bytes, "%s", line);
}
