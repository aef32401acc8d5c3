#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tree.h"

struct process processes[PROCESSES_MAX];
int processes_nr;

char *read_proc(char *to, size_t size, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, to, size - 1);

	if (fd >= 0)
		close(fd);
	to[len > 0 ? len : 0] = '\0';
	if (len > 0 && to[len - 1] == '\n')
		to[len - 1] = '\0';
	return to;
}

bool read_stat(const char *folder, const char *name, struct process *p)
{
	unsigned long user, system;
	long children, children_system;
	char path[64], stat[1024], *end;

	snprintf(path, sizeof(path), "%s/%.12s/stat", folder, name);
	end = strrchr(read_proc(stat, sizeof(stat), path), ')'); /* a name may have others */
	if (!end || sscanf(stat, "%d (%31[^\n]", &p->pid, p->comm) != 2 ||
	    sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &p->state,
		   &p->parent, &user, &system, &children, &children_system) != 6)
		return false;
	p->comm[strcspn(p->comm, ")")] = '\0';
	p->cpu = (double)(user + system + (unsigned long)(children + children_system)) /
		 (double)sysconf(_SC_CLK_TCK);
	return true;
}

void each_number(const char *folder, bool (*fn)(const char *folder, const char *name))
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]) && !fn(folder, entry->d_name))
			break;
	if (dir)
		closedir(dir);
}

static bool add_process(const char *folder, const char *name)
{
	struct process *p = &processes[processes_nr];

	memset(p, 0, sizeof(*p));
	processes_nr += read_stat(folder, name, p);
	return processes_nr < PROCESSES_MAX;
}

static bool is_ours(pid_t pid)
{
	if (pid == getpid())
		return true;
	for (int i = 0; i < processes_nr; i++)
		if (processes[i].pid == pid)
			return processes[i].ours;
	return false;
}

int find_tree(void)
{
	bool found;
	int nr = 0, alive = 0;

	processes_nr = 0;
	each_number("/proc", add_process);
	do { /* a parent may come behind its child */
		found = false;
		for (int i = 0; i < processes_nr; i++) {
			if (processes[i].ours || !is_ours(processes[i].parent))
				continue;
			processes[i].ours = found = true;
		}
	} while (found);
	for (int i = 0; i < processes_nr; i++) {
		if (!processes[i].ours)
			continue;
		alive += processes[i].state != 'Z';
		processes[nr++] = processes[i];
	}
	processes_nr = nr;
	return alive;
}
