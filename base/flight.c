/*
 * Creation and reading of flight recorder files. Runs on the main thread and in ublkctl; recording
 * itself is inline. Failure modes: no folder or no memory (private memory serves instead), a file
 * that is none or of another version (refused).
 */
#include "base/flight.h"

#include <errno.h>
#include <fcntl.h>
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

static int create_file(const char *folder, unsigned reactor)
{
	char path[512], old[520];
	int fd;

	snprintf(path, sizeof(path), "%s/flight-%u", folder, reactor);
	snprintf(old, sizeof(old), "%s.old", path);
	/* The evidence of the last run, perhaps of its crash. */
	rename(path, old);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct flight_file)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
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

int flight_create(struct flight_file **ret_flight, const char *folder, unsigned reactor)
{
	int fd = folder ? create_file(folder, reactor) : -ENOENT;
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *mem = mmap(NULL, sizeof(struct flight_file), PROT_READ | PROT_WRITE,
			 flags | MAP_POPULATE, fd, 0);
	int err = mem == MAP_FAILED ? -errno : fd < 0 && folder ? fd : 0;

	if (fd >= 0)
		close(fd);
	*ret_flight = NULL;
	if (mem == MAP_FAILED)
		return err;
	fill_header(mem, reactor);
	*ret_flight = mem;
	return err;
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

static int map_file(int fd, const struct flight_file **ret_flight)
{
	const struct flight_file *f;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size != sizeof(*f))
		return -EBADMSG;
	f = mmap(NULL, sizeof(*f), PROT_READ, MAP_SHARED, fd, 0);
	if (f == MAP_FAILED)
		return -errno;
	if (memcmp(f->magic, FLIGHT_MAGIC, sizeof(f->magic)) != 0 || f->version != FLIGHT_VERSION ||
	    f->record_nr != FLIGHT_RECORD_NR) {
		munmap((void *)(uintptr_t)f, sizeof(*f));
		return -EBADMSG;
	}
	*ret_flight = f;
	return 0;
}

int flight_open(const struct flight_file **ret_flight, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = map_file(fd, ret_flight);
	close(fd);
	return ret;
}

const char *flight_event_name(unsigned event)
{
	static const char *const name[FLIGHT_EVENT_NR] = {
		[FLIGHT_NONE] = "none", [FLIGHT_FETCH] = "fetch",   [FLIGHT_BUSY] = "busy",
		[FLIGHT_DONE] = "done", [FLIGHT_COMMIT] = "commit", [FLIGHT_ABORT] = "abort",
	};

	return event < FLIGHT_EVENT_NR ? name[event] : "?";
}
