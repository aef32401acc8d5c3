/*
 * A hash table from a pair of numbers to a pointer, for what is known by kernel addresses and ids.
 * One thread. It owns its slots, not what they point to. Without memory the process ends: a trace
 * that lacks records would be wrong.
 */
#ifndef TRACEFILE_MAP_H
#define TRACEFILE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_slot {
	uint64_t a, b;
	void *value; /* NULL: free */
};

/* All zero is an empty table. */
struct map {
	struct map_slot *slots;
	size_t size; /* of slots, a power of two */
	size_t nr;
};

/* NULL: not there. */
void *map_get(const struct map *m, uint64_t a, uint64_t b);
/* Takes the place of what was there. value is not NULL. */
void map_put(struct map *m, uint64_t a, uint64_t b, void *value);
/* Returns what was there, or NULL. */
void *map_remove(struct map *m, uint64_t a, uint64_t b);
/* Calls fn for each value, in no order; fn does not change the table. */
void map_each(const struct map *m, void (*fn)(void *value, void *arg), void *arg);
/* Frees the slots only. */
void map_free(struct map *m);

/* calloc and reallocarray that end the process with a line on stderr when there is no memory. */
void *memory_zalloc(size_t bytes);
void *memory_resize(void *old, size_t nr, size_t bytes);

#endif
