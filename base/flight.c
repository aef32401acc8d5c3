/*
 * Creation of flight recorder files, on the thread of the reactor; recording itself is inline.
 * Failure modes: no folder, or no room in it (memory of the process serves instead), a file that is
 * none or of another version (refused).
 */
#include "base/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t realtime_offset_ns(void)
{
	struct timespec real, mono;

	clock_gettime(CLOCK_REALTIME, &real);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	return (real.tv_sec - mono.tv_sec) * 1000000000ll + (real.tv_nsec - mono.tv_nsec);
}

/*
 * All pages of it, now: a write to a page that a full file system cannot provide later ends in
 * SIGBUS. Returns fd, or closes it and returns -errno.
 */
static int allocate_or_close(int fd)
{
	int err;

	do {
		err = posix_fallocate(fd, 0, sizeof(struct flight_file));
	} while (err == EINTR);
	if (err == 0)
		return fd;
	close(fd);
	return -err;
}

/* The evidence of the last run, perhaps of its crash; none where it was in memory only. */
static void keep_old(const char *path)
{
	char old[PATH_MAX];
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
		unlink(path);
		return;
	}
	snprintf(old, sizeof(old), "%s.old", path);
	rename(path, old);
}

static int flight_create_file(const char *path)
{
	int fd, ret;

	keep_old(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ret = allocate_or_close(fd);
	if (ret < 0)
		unlink(path);
	return ret;
}

/* What needs no room in the folder, and can be read by others while this process lives. */
static int create_memory(void)
{
	int fd = memfd_create("ublkd-flight", MFD_CLOEXEC);

	return fd < 0 ? -errno : allocate_or_close(fd);
}

static void *map_or_close(int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *mem = mmap(NULL, sizeof(struct flight_file), PROT_READ | PROT_WRITE,
			 flags | MAP_POPULATE, fd, 0);

	if (fd >= 0)
		close(fd);
	return mem == MAP_FAILED ? NULL : mem;
}

/*
 * Where readers look for the file they find the memory of this process: a short symbolic link takes
 * no page of a tmpfs. It leads nowhere once the process has ended.
 */
static void link_memory(const char *path, const void *mem)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)mem;
	uintptr_t end = (start + sizeof(struct flight_file) + page - 1) / page * page;
	char target[96];

	snprintf(target, sizeof(target), "/proc/%d/map_files/%lx-%lx", (int)getpid(), start, end);
	/* Not logged: who looks for the name is told that there is none. */
	if (symlink(target, path) < 0)
		return;
}

static void fill_header(struct flight_file *f, unsigned reactor)
{
	f->version = FLIGHT_VERSION;
	f->record_nr = FLIGHT_RECORD_NR;
	f->reactor = reactor;
	f->pid = (uint32_t)getpid();
	f->realtime_offset_ns = realtime_offset_ns();
	memcpy(f->magic, FLIGHT_MAGIC, sizeof(f->magic));
}

static void *map_memory(const char *path)
{
	int fd = create_memory();
	void *mem = map_or_close(fd);

	if (fd >= 0 && mem)
		link_memory(path, mem);
	return mem;
}

int flight_create(struct flight_file **ret_flight, const char *folder, unsigned reactor)
{
	char path[PATH_MAX] = "";
	void *mem = NULL;
	int ret = 0;

	if (folder) {
		snprintf(path, sizeof(path), "%s/flight-%u", folder, reactor);
		ret = flight_create_file(path);
		mem = ret < 0 ? map_memory(path) : map_or_close(ret);
	} else {
		mem = map_or_close(-1);
	}
	*ret_flight = mem;
	if (!mem)
		return -ENOMEM;
	fill_header(mem, reactor);
	return ret < 0 ? ret : 0;
}

void flight_close(struct flight_file *flight)
{
	if (flight)
		munmap(flight, sizeof(*flight));
}

void flight_name(struct flight_file *flight, unsigned device, const char *name)
{
	snprintf(flight->name[device % FLIGHT_NAME_NR], FLIGHT_NAME_BYTES, "%s", name);
}

const char *flight_event_name(unsigned event)
{
	static const char *const name[FLIGHT_EVENT_NR] = {
		[FLIGHT_NONE] = "none", [FLIGHT_FETCH] = "fetch",   [FLIGHT_BUSY] = "busy",
		[FLIGHT_DONE] = "done", [FLIGHT_COMMIT] = "commit", [FLIGHT_ABORT] = "abort",
	};

	return event < FLIGHT_EVENT_NR ? name[event] : "?";
}
