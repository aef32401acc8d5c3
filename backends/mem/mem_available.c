/*
 * Memory for the content of devices is asked for before it is touched: where none is left, the
 * kernel does not say no but kills a process, most likely the one with the memory disks.
 *
 * Happy path: a request takes from a grant, one atomic subtraction. A grant that is used up or old
 * is replaced: MemAvailable, and usage and limits of the control groups, are read by the request
 * that finds it so. Grants are a part of what is left, so that the last of it is looked at often.
 * Failure modes: nothing left: -ENOSPC, and for some milliseconds no request looks again. Files
 * that cannot be read are no limit. Others who take the memory between two looks: the margin is for
 * that.
 */
#include "backends/mem/mem_available.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/util.h"

#define MARGIN_BYTES_MIN MIB(8)
#define MARGIN_BYTES_MAX MIB(512)
#define GRANT_BYTES_MIN MIB(1)
#define GRANT_BYTES_MAX MIB(64)
/* Nothing that others do in this time should take more than the margin. */
#define GRANT_NS (100 * NS_PER_MS)
#define REFUSAL_NS (10 * NS_PER_MS)
/* /proc/meminfo has 1.6 KB, memory.stat 2 KB. */
#define FILE_BYTES 8192

/* One for the process: the memory is one, too. */
static struct {
	_Atomic int64_t left_bytes;
	_Atomic uint64_t until_ns;   /* the grant's end */
	_Atomic uint64_t refused_ns; /* until then who finds too little does not look again */
	atomic_flag looking;
	const char *root;
} grant = { .looking = ATOMIC_FLAG_INIT, .root = "" };

/* ---- files ---- */

/* A whole small file with a 0 behind it; false: not there. */
static bool mem_read_file(const char *path, char text[static FILE_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes, all = 0;

	if (fd < 0)
		return false;
	while (all < FILE_BYTES - 1) {
		bytes = read(fd, text + all, (size_t)(FILE_BYTES - 1 - all));
		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes <= 0)
			break;
		all += bytes;
	}
	close(fd);
	text[all] = '\0';
	return all > 0;
}

/* The number behind a word that begins a line; false: no such line. */
static bool find_number(const char *text, const char *word, uint64_t *ret_number)
{
	size_t len = strlen(word);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, word, len) == 0 && (line[len] == ' ' || line[len] == ':')) {
			*ret_number = strtoull(line + len + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* ---- looking ---- */

uint64_t memory_margin(uint64_t limit_bytes)
{
	uint64_t bytes = MAX(limit_bytes / 16, MARGIN_BYTES_MIN);

	return MIN(bytes, MARGIN_BYTES_MAX);
}

static void add_limit(struct memory_look *look, uint64_t limit_bytes, uint64_t free_bytes,
		      const char *whose)
{
	look->left_bytes = MIN(look->left_bytes, less(free_bytes, memory_margin(limit_bytes)));
	if (limit_bytes >= look->limit_bytes)
		return;
	look->limit_bytes = limit_bytes;
	snprintf(look->whose, sizeof(look->whose), "%s", whose);
}

/* Pages that wait to be written count as available, but they may have to be written to us. */
static void look_at_machine(struct memory_look *look, const char *root)
{
	uint64_t total_kib = 0, available_kib = 0, dirty_kib = 0, writeback_kib = 0;
	char path[PATH_MAX], text[FILE_BYTES];

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (!mem_read_file(path, text) || !find_number(text, "MemTotal", &total_kib) ||
	    !find_number(text, "MemAvailable", &available_kib))
		return;
	find_number(text, "Dirty", &dirty_kib);
	find_number(text, "Writeback", &writeback_kib);
	add_limit(look, KIB(total_kib), KIB(less(available_kib, dirty_kib + writeback_kib)),
		  "this machine");
}

/* "max", and a file that is not there, are no limit. */
static uint64_t group_number(const char *group, const char *name)
{
	char path[PATH_MAX + 32], text[FILE_BYTES];

	snprintf(path, sizeof(path), "%s/%s", group, name);
	if (!mem_read_file(path, text) || strncmp(text, "max", 3) == 0)
		return UINT64_MAX;
	return strtoull(text, NULL, 10);
}

/* File pages of the group that are not dirty: the kernel takes them before it kills. */
static uint64_t group_cache(const char *group)
{
	uint64_t inactive = 0, active = 0, dirty = 0, writeback = 0;
	char path[PATH_MAX + 32], text[FILE_BYTES];

	snprintf(path, sizeof(path), "%s/memory.stat", group);
	if (!mem_read_file(path, text))
		return 0;
	find_number(text, "inactive_file", &inactive);
	find_number(text, "active_file", &active);
	find_number(text, "file_dirty", &dirty);
	find_number(text, "file_writeback", &writeback);
	return less(inactive + active, dirty + writeback);
}

/* memory.high is a limit as well: above it each of our threads is put to sleep for long. */
static void look_at_group(struct memory_look *look, const char *group, const char *name,
			  uint64_t wanted_bytes)
{
	uint64_t limit_bytes =
		MIN(group_number(group, "memory.max"), group_number(group, "memory.high"));
	uint64_t used_bytes, free_bytes;
	char whose[MEMORY_WHOSE_BYTES];

	if (limit_bytes == UINT64_MAX)
		return;
	used_bytes = group_number(group, "memory.current");
	free_bytes = used_bytes == UINT64_MAX ? limit_bytes : less(limit_bytes, used_bytes);
	if (less(free_bytes, memory_margin(limit_bytes)) < wanted_bytes)
		free_bytes += group_cache(group);
	snprintf(whose, sizeof(whose), "the control group %s", *name ? name : "/");
	add_limit(look, limit_bytes, free_bytes, whose);
}

/* Our own group and all above it. Only the unified hierarchy (v2) is known. */
static void look_at_groups(struct memory_look *look, const char *root, uint64_t wanted_bytes)
{
	char path[PATH_MAX], text[FILE_BYTES], *name, *end;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (!mem_read_file(path, text))
		return;
	name = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
	if (!name)
		return;
	name = strchr(name, '/');
	name[strcspn(name, "\n")] = '\0';
	/* "/a/b", "/a", "": the last one is the mount's own, which in a container has a limit. */
	if (name[1] == '\0')
		name[0] = '\0';
	for (;;) {
		snprintf(path, sizeof(path), "%s/sys/fs/cgroup%.*s", root, utf8_fit(name, 2000),
			 name);
		look_at_group(look, path, name, wanted_bytes);
		end = strrchr(name, '/');
		if (!end)
			return;
		*end = '\0';
	}
}

void memory_look(struct memory_look *look, const char *root, uint64_t wanted_bytes)
{
	*look = (struct memory_look){ .limit_bytes = UINT64_MAX, .left_bytes = UINT64_MAX };
	look_at_machine(look, root);
	look_at_groups(look, root, wanted_bytes);
}

/* ---- taking ---- */

static uint64_t coarse_now_ns(void)
{
	struct timespec ts = { 0 };

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static bool take_granted(uint64_t bytes, uint64_t now_ns)
{
	return now_ns < atomic_load_explicit(&grant.until_ns, memory_order_relaxed) &&
	       atomic_fetch_sub_explicit(&grant.left_bytes, (int64_t)bytes, memory_order_relaxed) >=
		       (int64_t)bytes;
}

static int take_new(uint64_t bytes, uint64_t now_ns)
{
	struct memory_look look;
	uint64_t granted;

	memory_look(&look, grant.root, GRANT_BYTES_MAX * 4 + bytes);
	granted = MAX(look.left_bytes / 4, GRANT_BYTES_MIN);
	granted = MIN(granted, GRANT_BYTES_MAX);
	granted = MIN(granted, look.left_bytes);
	if (look.left_bytes < bytes) {
		atomic_store_explicit(&grant.refused_ns, now_ns + REFUSAL_NS, memory_order_relaxed);
		return -ENOSPC;
	}
	atomic_store_explicit(&grant.left_bytes, (int64_t)less(granted, bytes),
			      memory_order_relaxed);
	atomic_store_explicit(&grant.until_ns, now_ns + GRANT_NS, memory_order_relaxed);
	return 0;
}

int memory_take(uint64_t bytes)
{
	uint64_t now_ns = coarse_now_ns();
	int ret = 0;

	if (take_granted(bytes, now_ns))
		return 0;
	if (now_ns < atomic_load_explicit(&grant.refused_ns, memory_order_relaxed))
		return -ENOSPC;
	/* Somebody looks: we go ahead with what is one request's, which the margin has room for. */
	if (atomic_flag_test_and_set_explicit(&grant.looking, memory_order_acquire))
		return 0;
	ret = take_new(bytes, now_ns);
	atomic_flag_clear_explicit(&grant.looking, memory_order_release);
	return ret;
}

void memory_set_root(const char *root)
{
	grant.root = root;
	grant.until_ns = grant.refused_ns = 0;
}
