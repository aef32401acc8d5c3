/*
 * The descendants of a process, by what /proc says; for tap_watch.
 *
 * Owns one list, of the last look: find_tree fills it. Failure modes: what is not readable or has
 * just ended is not in it; of more than PROCESSES_MAX processes of the machine the last are not
 * seen.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROCESSES_MAX 16384

struct process {
	pid_t pid, parent;
	char comm[32], state;
	double cpu; /* seconds, also of its children that it has waited for */
	bool ours;
};

extern struct process processes[PROCESSES_MAX];
extern int processes_nr;

/* Fills processes with our descendants; returns how many of them have not ended. */
int find_tree(void);

/* A file of /proc, without its last newline; empty where it cannot be read. */
char *read_proc(char *to, size_t size, const char *path);

/* FOLDER/NAME/stat of a process or thread. */
bool read_stat(const char *folder, const char *name, struct process *p);

/* Calls fn for each number that is a name in a folder of /proc, until it returns false. */
void each_number(const char *folder, bool (*fn)(const char *folder, const char *name));
