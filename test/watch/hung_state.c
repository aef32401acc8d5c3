#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hung_state.h"
#include "tree.h"

#define REPORTED_MAX 24 /* processes */
#define GDB_LINES_MAX 150

/* System calls that block, and whether the first argument is a file. */
#define CALL(name, has_file) [SYS_##name] = { #name, has_file }
static const struct call {
	const char *name;
	bool has_file;
} calls[] = {
	CALL(read, true),
	CALL(write, true),
	CALL(pread64, true),
	CALL(pwrite64, true),
	CALL(recvfrom, true),
	CALL(recvmsg, true),
	CALL(sendto, true),
	CALL(sendmsg, true),
	CALL(accept4, true),
	CALL(connect, true),
	CALL(close, true),
	CALL(ioctl, true),
	CALL(fsync, true),
	CALL(fdatasync, true),
	CALL(flock, true),
	CALL(fcntl, true),
	CALL(io_uring_enter, true),
	CALL(epoll_wait, true),
	CALL(poll, false),
	CALL(epoll_pwait, true),
	CALL(ppoll, false),
	CALL(select, false),
	CALL(pselect6, false),
	CALL(futex, false),
	CALL(wait4, false),
	CALL(waitid, false),
	CALL(pause, false),
	CALL(nanosleep, false),
	CALL(clock_nanosleep, false),
	CALL(rt_sigsuspend, false),
	CALL(openat, false),
	CALL(rt_sigtimedwait, false),
	CALL(mount, false),
};
#define CALLS_NR (long)(sizeof(calls) / sizeof(calls[0]))

/* The name of a system call, and its file, before what the kernel says of it: numbers. */
static void print_call(const char *thread)
{
	char path[64], numbers[256], file[128] = "";
	unsigned long fd = 0;
	long nr = -1;

	snprintf(path, sizeof(path), "%.40s/syscall", thread);
	sscanf(read_proc(numbers, sizeof(numbers), path), "%ld %lx", &nr, &fd);
	if (nr >= 0 && nr < CALLS_NR && calls[nr].name) {
		printf(", %s", calls[nr].name);
		snprintf(path, sizeof(path), "%.40s/fd/%lu", thread, fd);
		if (calls[nr].has_file && readlink(path, file, sizeof(file) - 1) > 0)
			printf(" of %s", file);
	}
	printf(", system call %s", numbers);
}

static bool print_thread(const char *folder, const char *name)
{
	char thread[48], path[64], buf[4096], *line, *save = NULL;
	struct process p = { 0 };

	if (!read_stat(folder, name, &p))
		return true;
	snprintf(thread, sizeof(thread), "%.30s/%.12s", folder, name);
	printf("#   thread %s %s: %c", name, p.comm, p.state);
	print_call(thread);
	snprintf(path, sizeof(path), "%s/wchan", thread);
	printf(", wchan %s\n", read_proc(buf, sizeof(buf), path));
	snprintf(path, sizeof(path), "%s/stack", thread);
	read_proc(buf, sizeof(buf), path);
	for (line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		printf("#     %s\n", line);
	return true;
}

/* An interpreter's own stack says little of its script. */
static bool is_compiled(const struct process *p)
{
	static const char *const others[] = { "bash",	 "sh",	   "sleep",
					      "timeout", "python", "qemu-system" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strncmp(p->comm, others[i], strlen(others[i])))
			return false;
	/* gdb would wait for one that sleeps in the kernel */
	return p->state != 'D' && p->state != 'Z';
}

static void print_gdb(pid_t pid)
{
	char line[512];
	FILE *gdb;
	int lines = 0;

	snprintf(line, sizeof(line),
		 "timeout -s KILL 20 ${TAP_WATCH_GDB:-gdb} -nx -q -batch -iex 'set debuginfod "
		 "enabled off' -p %d "
		 "-ex 'thread apply all bt 12' </dev/null 2>/dev/null",
		 pid);
	gdb = popen(line, "re");
	while (gdb && fgets(line, sizeof(line), gdb))
		if ((*line == '#' || !strncmp(line, "Thread ", 7)) && lines++ < GDB_LINES_MAX)
			printf("#     %.*s\n", (int)strcspn(line, "\n"), line);
	if (gdb)
		pclose(gdb);
}

void hung_state_print(void)
{
	struct process p;
	char path[48], line[256];
	ssize_t len;
	int fd;

	find_tree();
	for (int i = 0; i < processes_nr && i < REPORTED_MAX; i++) {
		p = processes[i];
		snprintf(path, sizeof(path), "/proc/%d/cmdline", p.pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		len = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
		for (ssize_t at = 0; at < len; at++)
			if (!isprint((unsigned char)line[at]))
				line[at] = ' ';
		printf("# process %d %s, parent %d, %.2f s of CPU time: %.*s\n", p.pid, p.comm,
		       p.parent, p.cpu, (int)(len > 0 ? len : 0), line);
		if (fd >= 0)
			close(fd);
		snprintf(path, sizeof(path), "/proc/%d/task", p.pid);
		each_number(path, print_thread);
		if (is_compiled(&p))
			print_gdb(p.pid);
		fflush(stdout);
	}
}
