/*
 * One write to sysfs, where it is needed: the value stays with the disk over recoveries. A helper
 * does it, for which nobody waits.
 *
 * The write freezes the disk's queue, that is, it waits, deaf to signals, for all requests in
 * flight (queue_attr_store, of Linux 6.12). A daemon that is killed there would neither end nor
 * answer those requests: nobody ever could. So it is another process that writes, one that has
 * nothing of ours open; when we die it waits until the next daemon has served them.
 *
 * Failure mode: no rights, or /sys is read-only: a crash then means a longer pause.
 */
#include "daemon/devices/io_timeout.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

/* The block layer rounds up to whole seconds anyway (blk_add_timer). */
#define TIMEOUT_MS 1000

static bool is_short(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool found;

	if (fd < 0)
		return false;
	found = read(fd, text, sizeof(text) - 1) > 0 && atoi(text) == TIMEOUT_MS;
	close(fd);
	return found;
}

static int write_timeout(const char *path)
{
	char command[128];
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, command, NULL };
	int status, ret;
	pid_t pid;

	snprintf(command, sizeof(command), "echo %d 2>/dev/null >%s", TIMEOUT_MS, path);
	ret = -posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);
	while (ret == 0 && waitpid(pid, &status, 0) < 0)
		ret = errno == EINTR ? 0 : -errno;
	if (ret == 0 && !is_short(path))
		ret = -EACCES;
	return ret;
}

struct shorten {
	struct helper_job job;
	char path[64];
};

/* By a helper. */
static void shorten(struct helper_job *job)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct shorten *s = container_of(job, struct shorten, job);
	int ret = is_short(s->path) ? 0 : write_timeout(s->path);

	if (ret < 0 && !atomic_flag_test_and_set(&told))
		log_warn("after a crash or in an upgrade requests may pause for 30 s",
			 "path=%s error=%s cure=\"Linux 6.16, or let the daemon write there\"",
			 s->path, errname(ret));
}

static void shorten_free(struct helper_job *job)
{
	free(container_of(job, struct shorten, job));
}

void io_timeout_shorten(const struct device_host *host, const struct device *device)
{
	struct device_info info;
	struct shorten *s;

	if (ctl_notices_end(host->ctl) || !host->helpers)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		return;
	device_info(device, &info);
	snprintf(s->path, sizeof(s->path), "/sys/block/ublkb%lld/queue/io_timeout",
		 (long long)info.id);
	s->job = (struct helper_job){ .work = shorten, .done = shorten_free, .drop = shorten_free };
	if (helper_start(host->helpers, &s->job) < 0)
		free(s);
}
