/*
 * Open addressing with linear probing; a removal moves the followers back, so that there are no
 * tombstones however long a trace lasts. Owns the slots of each table. One thread.
 *
 * Happy path: a look-up is one multiplication and one or two slots. Failure mode: no memory, which
 * ends the process.
 */
#include "tracefile/map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP_SIZE_MIN 64u

void *memory_zalloc(size_t bytes)
{
	return memset(memory_resize(NULL, 1, bytes), 0, bytes);
}

void *memory_resize(void *old, size_t nr, size_t bytes)
{
	void *new = reallocarray(old, nr, bytes);

	if (new)
		return new;
	fprintf(stderr, "%s: out of memory for records that wait to be sorted or written\n",
		program_invocation_short_name);
	exit(1);
}

static size_t map_home(const struct map *m, uint64_t a, uint64_t b)
{
	uint64_t hash = (a ^ (b * 0xff51afd7ed558ccdull)) * 0x9e3779b97f4a7c15ull;

	return (size_t)(hash >> 20) & (m->size - 1);
}

/* The slot of (a, b), or the free one where it would be. */
static size_t map_find(const struct map *m, uint64_t a, uint64_t b)
{
	size_t i = map_home(m, a, b);

	while (m->slots[i].value && (m->slots[i].a != a || m->slots[i].b != b))
		i = (i + 1) & (m->size - 1);
	return i;
}

static void map_grow(struct map *m)
{
	struct map old = *m;

	m->size = old.size ? old.size * 2 : MAP_SIZE_MIN;
	m->slots = memory_zalloc(m->size * sizeof(*m->slots));
	for (size_t i = 0; i < old.size; i++)
		if (old.slots[i].value)
			m->slots[map_find(m, old.slots[i].a, old.slots[i].b)] = old.slots[i];
	free(old.slots);
}

void *map_get(const struct map *m, uint64_t a, uint64_t b)
{
	return m->size ? m->slots[map_find(m, a, b)].value : NULL;
}

void map_put(struct map *m, uint64_t a, uint64_t b, void *value)
{
	size_t i;

	if (m->nr * 2 >= m->size)
		map_grow(m);
	i = map_find(m, a, b);
	if (!m->slots[i].value)
		m->nr++;
	m->slots[i] = (struct map_slot){ .a = a, .b = b, .value = value };
}

void *map_remove(struct map *m, uint64_t a, uint64_t b)
{
	size_t hole, next, mask = m->size - 1;
	void *value;

	if (!m->size)
		return NULL;
	hole = map_find(m, a, b);
	value = m->slots[hole].value;
	if (!value)
		return NULL;
	m->nr--;
	for (next = (hole + 1) & mask; m->slots[next].value; next = (next + 1) & mask) {
		size_t at = map_home(m, m->slots[next].a, m->slots[next].b);

		/* it may move only if its home is not between the hole and itself */
		if (((next - at) & mask) < ((next - hole) & mask))
			continue;
		m->slots[hole] = m->slots[next];
		hole = next;
	}
	m->slots[hole].value = NULL;
	return value;
}

void map_each(const struct map *m, void (*fn)(void *value, void *arg), void *arg)
{
	for (size_t i = 0; i < m->size; i++)
		if (m->slots[i].value)
			fn(m->slots[i].value, arg);
}

void map_free(struct map *m)
{
	free(m->slots);
	*m = (struct map){ 0 };
}
