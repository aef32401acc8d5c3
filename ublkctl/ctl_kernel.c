/*
 * Reads /sys/block, debugfs and the ring's fdinfo. Happy path: a few small files. Failure modes:
 * a file that is missing, forbidden or empty: its part of the view is "not known".
 */
#include "ublkctl/ctl_kernel.h"

#include <errno.h>
#include <glob.h>
#include <string.h>

#include "base/util.h"

static long sysfs_inflight(long long id)
{
	long reads, writes, nr = -1;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/ublkb%lld/inflight", id);
	file = fopen(path, "re");
	if (file && fscanf(file, "%ld %ld", &reads, &writes) == 2)
		nr = reads + writes;
	if (file)
		fclose(file);
	return nr;
}

/* One line per request. */
static long count_lines(const char *path)
{
	FILE *file = fopen(path, "re");
	long nr = 0;
	int c;

	if (!file)
		return 0;
	while ((c = fgetc(file)) != EOF)
		nr += c == '\n';
	fclose(file);
	return nr;
}

static long debugfs_busy(long long id)
{
	char pattern[96];
	glob_t found;
	long nr = 0;

	snprintf(pattern, sizeof(pattern), "/sys/kernel/debug/block/ublkb%lld/hctx*/busy", id);
	if (glob(pattern, 0, NULL, &found) != 0)
		return -1;
	for (size_t i = 0; i < found.gl_pathc; i++)
		nr += count_lines(found.gl_pathv[i]);
	globfree(&found);
	return nr;
}

static void debugfs_state(long long id, char *state, size_t bytes)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/debug/block/ublkb%lld/hctx0/state", id);
	file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(state, (int)bytes, file))
		state[0] = '\0';
	fclose(file);
	state[strcspn(state, "\n")] = '\0';
	if (state[0] == '\0')
		snprintf(state, bytes, "none");
}

void kernel_look(long long id, struct kernel_view *ret_view)
{
	*ret_view = (struct kernel_view){ .inflight = -1, .busy = -1 };
	if (id < 0)
		return;
	ret_view->inflight = sysfs_inflight(id);
	ret_view->busy = debugfs_busy(id);
	debugfs_state(id, ret_view->state, sizeof(ret_view->state));
}

long kernel_nr(const struct kernel_view *view)
{
	return MAX(view->inflight, view->busy);
}

/* ---- the ring ---- */

enum ring_field { SQ_HEAD, SQ_TAIL, CQ_HEAD, CQ_TAIL, RING_FIELD_NR };

static const char *const field_name[RING_FIELD_NR] = { "SqHead", "SqTail", "CqHead", "CqTail" };

/* What io_uring_show_fdinfo prints: "SqHead:\t7"; lists of SQEs and CQEs; at the end the overflow
 * list, a line each. */
int kernel_read_ring(FILE *file, struct kernel_ring *ret_ring)
{
	unsigned value[RING_FIELD_NR], seen = 0, overflow = 0, number;
	bool in_overflow = false;
	char line[512], name[32];

	while (fgets(line, sizeof(line), file)) {
		if (in_overflow)
			overflow += strncmp(line, "  user_data=", 12) == 0;
		in_overflow |= strncmp(line, "CqOverflowList:", 15) == 0;
		if (sscanf(line, "%31[A-Za-z]: %u", name, &number) != 2)
			continue;
		for (unsigned i = 0; i < RING_FIELD_NR; i++)
			if (strcmp(name, field_name[i]) == 0) {
				value[i] = number;
				seen |= 1u << i;
			}
	}
	if (seen != (1u << RING_FIELD_NR) - 1)
		return seen ? -EBADMSG : -EAGAIN;
	*ret_ring = (struct kernel_ring){
		.sq_head = value[SQ_HEAD],
		.sq_waiting = value[SQ_TAIL] - value[SQ_HEAD],
		.cq_head = value[CQ_HEAD],
		.cq_unseen = value[CQ_TAIL] - value[CQ_HEAD],
		.overflow = overflow,
	};
	return 0;
}

void kernel_look_ring(int pid, int fd, struct kernel_ring *ret_ring)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", pid, fd);
	*ret_ring = (struct kernel_ring){ 0 };
	file = fopen(path, "re");
	if (!file) {
		ret_ring->err = -errno;
		return;
	}
	ret_ring->err = kernel_read_ring(file, ret_ring);
	fclose(file);
}
