/* Owns the array of names. Pure. */
#include "backends/s3_disk/s3_disk_keep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void s3_disk_keep_fini(struct s3_disk_keep *keep)
{
	free(keep->name);
	free(keep->is_shown);
	*keep = (struct s3_disk_keep){ 0 };
}

static int listed_compare(const void *a, const void *b)
{
	const struct s3_disk_listed *x = a, *y = b;

	if (x->index != y->index)
		return x->index < y->index ? -1 : 1;
	if (x->name.generation != y->name.generation)
		return x->name.generation < y->name.generation ? -1 : 1;
	if (x->name.seq != y->name.seq)
		return x->name.seq < y->name.seq ? -1 : 1;
	return 0;
}

/* Both are in ascending order: the next name is the smaller one of theirs. */
static size_t keep_merge(const struct s3_disk_keep *keep, const struct s3_disk_map *map,
			 struct s3_disk_listed *to)
{
	size_t nr = 0, i = 0;

	for (uint32_t index = 0; index < map->nr; index++) {
		const struct s3_disk_listed next = { .name = map->name[index], .index = index };

		if (s3_disk_name_is_hole(next.name))
			continue;
		while (i < keep->nr && listed_compare(&keep->name[i], &next) < 0)
			to[nr++] = keep->name[i++];
		if (i == keep->nr || listed_compare(&keep->name[i], &next) > 0)
			to[nr++] = next;
	}
	while (i < keep->nr)
		to[nr++] = keep->name[i++];
	return nr;
}

int s3_disk_keep_map(struct s3_disk_keep *keep, const struct s3_disk_map *map)
{
	struct s3_disk_listed *to = calloc(keep->nr + map->nr, sizeof(*to)), *fitting;
	bool *is_shown = calloc(keep->nr + map->nr, sizeof(*is_shown));

	if (!to || !is_shown) {
		free(to);
		free(is_shown);
		return -ENOMEM;
	}
	free(keep->is_shown);
	keep->is_shown = is_shown;
	keep->nr = keep_merge(keep, map, to);
	free(keep->name);
	fitting = reallocarray(to, keep->nr + 1, sizeof(*to));
	keep->name = fitting ? fitting : to;
	return 0;
}

static const struct s3_disk_listed *keep_find(const struct s3_disk_keep *keep,
					      const struct s3_disk_listed *object)
{
	struct s3_disk_listed key = *object;

	key.name.seq &= ~S3_DISK_HOLE;
	return keep->nr == 0 ? NULL
			     : bsearch(&key, keep->name, keep->nr, sizeof(key), listed_compare);
}

void s3_disk_keep_show(struct s3_disk_keep *keep, const struct s3_disk_listed *object)
{
	bool is_hole = s3_disk_name_is_hole(object->name);
	const struct s3_disk_listed *there = is_hole ? NULL : keep_find(keep, object);
	bool *is_shown = there ? &keep->is_shown[there - keep->name] : NULL;

	if (!is_shown || *is_shown)
		return;
	*is_shown = true;
	keep->shown_nr++;
}

bool s3_disk_object_is_possible(const struct s3_disk_manifest *m,
				const struct s3_disk_listed *object, uint64_t size_bytes)
{
	if (m->has_even_holes && object->name.generation == m->generation &&
	    !s3_disk_seq_fits(object->name))
		return false;
	return object->index <= (m->size_bytes - 1) / m->object_bytes &&
	       (size_bytes == 0 || size_bytes == m->object_bytes);
}

bool s3_disk_object_is_garbage(const struct s3_disk_manifest *m, const struct s3_disk_keep *keep,
			       const struct s3_disk_listed *object)
{
	return object->name.generation < m->generation && !keep_find(keep, object);
}

/* map/GENERATION.OWNER, exactly as a writer makes it. */
static bool map_name_parse(const char *name, uint32_t *ret_generation)
{
	char owner[S3_DISK_ID_BYTES], again[S3_DISK_MAP_BYTES];
	uint32_t generation;

	if (sscanf(name, "map/%8x.%32[0-9a-f]", &generation, owner) != 2)
		return false;
	snprintf(again, sizeof(again), "map/%08x.%s", generation, owner);
	*ret_generation = generation;
	return strcmp(name, again) == 0 && generation > 0 && generation <= S3_DISK_GENERATION_MAX;
}

bool s3_disk_map_name_is_good(const char *name)
{
	uint32_t generation;

	return map_name_parse(name, &generation);
}

bool s3_disk_map_is_garbage(const struct s3_disk_manifest *m, const char *name)
{
	uint32_t generation;

	if (!map_name_parse(name, &generation) || generation >= m->generation ||
	    strcmp(name, m->map) == 0)
		return false;
	for (unsigned i = 0; i < m->snapshot_nr; i++)
		if (strcmp(name, m->snapshot[i].map) == 0)
			return false;
	return true;
}

bool s3_disk_manifest_keeps_same(const struct s3_disk_manifest *a, const struct s3_disk_manifest *b)
{
	if (strcmp(a->id, b->id) != 0 || a->generation != b->generation ||
	    strcmp(a->map, b->map) != 0 || a->size_bytes != b->size_bytes ||
	    a->object_bytes != b->object_bytes || a->snapshot_nr != b->snapshot_nr)
		return false;
	for (unsigned i = 0; i < a->snapshot_nr; i++)
		if (strcmp(a->snapshot[i].name, b->snapshot[i].name) != 0 ||
		    strcmp(a->snapshot[i].map, b->snapshot[i].map) != 0 ||
		    a->snapshot[i].generation != b->snapshot[i].generation)
			return false;
	return true;
}
