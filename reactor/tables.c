/*
 * What an owner registers with the ring: files, buffers, groups of provided buffers. Each kind is a
 * table in the ring with a bit here for each slot that is in use. Reactor thread only.
 */
#include <errno.h>

#include "base/util.h"
#include "reactor/reactor.h"

static bool table_has(const uint64_t *used, unsigned slot)
{
	return used[slot / 64] >> (slot % 64) & 1;
}

static void table_mark(uint64_t *used, unsigned first, unsigned nr, bool in_use)
{
	for (unsigned slot = first; slot < first + nr; slot++) {
		uint64_t bit = 1ull << (slot % 64);

		used[slot / 64] &= ~bit;
		used[slot / 64] |= in_use ? bit : 0;
	}
}

/* The first of nr free slots in a row, or -ENOSPC. */
static int table_find(const uint64_t *used, unsigned table_nr, unsigned nr)
{
	unsigned run = 0;

	for (unsigned slot = 0; slot < table_nr; slot++) {
		run = table_has(used, slot) ? 0 : run + 1;
		if (run == nr)
			return (int)(slot + 1 - nr);
	}
	return -ENOSPC;
}

int reactor_file_add(struct reactor *r, int fd)
{
	int slot = table_find(r->file_used, REACTOR_FILE_NR, 1);
	int ret = slot < 0 ? slot : ring_file_set(&r->ring, (unsigned)slot, fd);

	if (ret < 0)
		return ret;
	table_mark(r->file_used, (unsigned)slot, 1, true);
	return slot;
}

void reactor_file_remove(struct reactor *r, int slot)
{
	if (slot < 0)
		return;
	ring_file_set(&r->ring, (unsigned)slot, -1);
	table_mark(r->file_used, (unsigned)slot, 1, false);
}

int reactor_group_add(struct reactor *r, void *mem, unsigned nr)
{
	int group = table_find(r->group_used, REACTOR_GROUP_NR, 1);
	int ret = group < 0 ? group : ring_group_set(&r->ring, (unsigned)group, mem, nr);

	if (ret < 0)
		return ret;
	table_mark(r->group_used, (unsigned)group, 1, true);
	return group;
}

void reactor_group_remove(struct reactor *r, int group)
{
	if (group < 0)
		return;
	ring_group_set(&r->ring, (unsigned)group, NULL, 0);
	table_mark(r->group_used, (unsigned)group, 1, false);
}

int reactor_buffers_add(struct reactor *r, unsigned nr)
{
	int first = table_find(r->buffer_used, REACTOR_BUFFER_NR, nr);
	int ret = first < 0 || r->has_buffers ? MIN(first, 0)
					      : ring_buffers_init(&r->ring, REACTOR_BUFFER_NR);

	if (ret < 0)
		return ret;
	r->has_buffers = true;
	table_mark(r->buffer_used, (unsigned)first, nr, true);
	return first;
}

void reactor_buffers_remove(struct reactor *r, int first, unsigned nr)
{
	if (first >= 0)
		table_mark(r->buffer_used, (unsigned)first, nr, false);
}
