/*
 * Prepares the process. Runs once, on the main thread, before any other exists.
 *
 * Happy path: each step succeeds silently. Failure modes: most steps fail only without some of
 * root's capabilities; then the daemon serves with less safety and says so. A privileged daemon in
 * the host's mount namespace is the one that is an error.
 */
#include "daemon/runtime/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "daemon/runtime/mount_namespace.h"
#include "daemon/runtime/path.h"
#include "host/caps.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif
#define LOCK_FLAGS (MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)
#define KERNEL_MIN_MAJOR 6
#define KERNEL_MIN_MINOR 8

int process_check_kernel(void)
{
	unsigned major = 0, minor = 0;
	struct utsname name;

	/* A release that cannot be read is a kernel we know nothing about: let it try. */
	if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2)
		return 0;
	if (major > KERNEL_MIN_MAJOR || (major == KERNEL_MIN_MAJOR && minor >= KERNEL_MIN_MINOR))
		return 0;
	log_error("the kernel is too old", "release=%s needed=%s", name.release,
		  PROCESS_KERNEL_MIN);
	return -ENOSYS;
}

/*
 * The kernel may need our device to free memory (writeback, swap). A daemon that then waits for
 * memory itself would deadlock with it: as IO_FLUSHER its allocations never wait for I/O.
 */
static void become_io_flusher(void)
{
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0)
		log_warn("cannot become an I/O flusher; low memory may hang this daemon's devices",
			 "error=%s cure=\"CAP_SYS_RESOURCE\"", errname(errno));
}

static void raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
			return;
	}
	log_warn("cannot raise the limit of open files", "error=%s", errname(errno));
}

/* True when no limit can make locking memory fail. */
static bool may_lock_all(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	if (host_has_cap(CAP_IPC_LOCK) || setrlimit(RLIMIT_MEMLOCK, &limit) == 0)
		return true;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_max != RLIM_INFINITY)
		return false;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

/*
 * A page of ours in swap, on a device of ours, could never come back. Not below a limit: under
 * MCL_FUTURE it would be each later mmap that fails.
 */
static void lock_memory(void)
{
	bool may = may_lock_all();

	if (may && mlockall(LOCK_FLAGS) == 0)
		return;
	log_warn("memory is not locked; swapping may hang this daemon's devices",
		 "error=%s cure=\"CAP_IPC_LOCK, LimitMEMLOCK=infinity\"",
		 may ? errname(errno) : "EPERM");
}

/*
 * A user has no devices that the kernel needs to free memory: only root can swap to one, or mount
 * a file system for all. Nor can the death of this process take a mount namespace along, as it
 * has none of its own: it stays in that of its session. What its limits let be locked is locked.
 */
static int prepare_as_user(void)
{
	bool locked = may_lock_all() && mlockall(LOCK_FLAGS) == 0;

	log_info("no CAP_SYS_ADMIN: the devices are unprivileged and end with this daemon",
		 "uid=%u memory_locked=%s", (unsigned)geteuid(), locked ? "yes" : "no");
	return 0;
}

int process_prepare(bool privileged)
{
	/* Executed as /proc/self/exe (successor.c) we would be called "exe". */
	prctl(PR_SET_NAME, "ublkd");
	raise_files();
	if (!privileged)
		return prepare_as_user();
	become_io_flusher();
	lock_memory();
	return mount_namespace_make();
}

static void log_holder(int fd, const char *path)
{
	char pid[16] = "";
	ssize_t len = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[len > 0 ? strspn(pid, "0123456789") : 0] = '\0';
	log_error("another ublkd runs with this control socket", "pid=%s lock=\"%s\"", pid, path);
}

/* At the beginning: the descriptor may have come from another process, with its offset. */
static ssize_t pwrite_pid(int fd)
{
	char pid[16];
	int len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	return pwrite(fd, pid, (size_t)len, 0);
}

void process_lock_pid(int fd)
{
	if (ftruncate(fd, 0) < 0 || pwrite_pid(fd) < 0)
		log_warn("cannot write our pid", "error=%s", errname(errno));
}

void process_program(const char *argv0, char path[static PATH_MAX])
{
	ssize_t len;

	if (strchr(argv0, '/') && realpath(argv0, path))
		return;
	len = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[len > 0 ? len : 0] = '\0';
}

/*
 * What another user has put there is neither followed, nor written to, nor waited for: all who can
 * open the file can hold its lock.
 */
static int open_lock(const char *path)
{
	int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, fd;
	const char *wrong;
	struct stat st;

	/* Another daemon may make it at this moment. */
	do {
		fd = open(path, flags);
		if (fd < 0 && errno == ENOENT)
			fd = open(path, flags | O_CREAT | O_EXCL, 0600);
	} while (fd < 0 && errno == EEXIST);
	if (fd < 0) {
		int ret = -errno;

		log_error("cannot open the lock", "path=\"%s\" error=%s%s", path, errname(ret),
			  ret == -ELOOP ? " reason=\"it is a symlink: remove it\"" : "");
		return ret;
	}
	wrong = fstat(fd, &st) < 0 ? errname(errno) : path_file_not_own(&st);
	if (!wrong)
		return fd;
	log_error("the lock is not ublkd's own: see who made it, and remove it",
		  "path=\"%s\" reason=\"%s\" uid=%u", path, wrong, (unsigned)st.st_uid);
	close(fd);
	return -EPERM;
}

static int lock_own_file(const char *path)
{
	int fd = open_lock(path);
	int ret;

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		ret = -errno;
		log_holder(fd, path);
		close(fd);
		return ret;
	}
	process_lock_pid(fd);
	return fd;
}

int process_lock(const char *control_path)
{
	char path[128], words[PATH_WORDS_BYTES];
	int ret = path_make_parent(control_path, 0755, words);

	if (ret < 0) {
		log_error("cannot use the folder of the control socket",
			  "path=\"%s\" reason=\"%s\"", control_path, words);
		return ret;
	}
	/* The file stays when we end: removing it could remove that of a daemon starting now. */
	snprintf(path, sizeof(path), "%s.lock", control_path);
	return lock_own_file(path);
}
