/*
 * The map and its object; owns the array of names. Pure.
 *
 * The object, little endian: "ublkdmap", version, objects of the disk, entries, generation, CRC-32
 * of the entries (zlib's), 0; then the entries in ascending order: index, generation, seq.
 */
#include "backends/s3_disk/s3_disk_map.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/util.h"

#define MAP_MAGIC "ublkdmap"
#define MAP_VERSION 1u /* raised with the layout: test/kept.py */
#define KEY_BYTES (3 * 1200u)

struct map_header {
	char magic[8];
	uint32_t version, nr, entry_nr, generation, crc, reserved;
};

struct map_entry {
	uint32_t index, generation, seq;
};

int s3_disk_map_init(struct s3_disk_map *map, uint32_t nr)
{
	map->nr = nr;
	map->name = calloc(nr, sizeof(*map->name));
	return map->name ? 0 : -ENOMEM;
}

void s3_disk_map_fini(struct s3_disk_map *map)
{
	free(map->name);
	*map = (struct s3_disk_map){ 0 };
}

/* ---- names ---- */

void s3_disk_name_text(struct s3_disk_name name, uint32_t index, char text[S3_DISK_NAME_BYTES])
{
	snprintf(text, S3_DISK_NAME_BYTES, "o/%08x/%08x.%08x", name.generation, index,
		 name.seq & ~S3_DISK_HOLE);
}

bool s3_disk_name_parse(const char *text, struct s3_disk_name *ret_name, uint32_t *ret_index)
{
	char again[S3_DISK_NAME_BYTES];
	struct s3_disk_name name;
	uint32_t index;

	if (sscanf(text, "o/%8x/%8x.%8x", &name.generation, &index, &name.seq) != 3)
		return false;
	if (name.generation == 0 || name.generation > S3_DISK_GENERATION_MAX || name.seq == 0 ||
	    name.seq > S3_DISK_SEQ_MAX || index >= S3_DISK_OBJECTS_MAX)
		return false;
	s3_disk_name_text(name, index, again);
	if (strcmp(text, again) != 0)
		return false;
	*ret_name = name;
	*ret_index = index;
	return true;
}

static bool name_is_newer(struct s3_disk_name name, struct s3_disk_name than)
{
	if (name.generation != than.generation)
		return name.generation > than.generation;
	return (name.seq & ~S3_DISK_HOLE) > (than.seq & ~S3_DISK_HOLE);
}

void s3_disk_tally_add(struct s3_disk_tally *tally, uint32_t generation, struct s3_disk_name before,
		       struct s3_disk_name name)
{
	tally->objects += before.generation != generation;
	tally->seq = MAX(tally->seq, name.seq & ~S3_DISK_HOLE);
}

bool s3_disk_tally_has(const struct s3_disk_tally *tally, const struct s3_disk_tally *known)
{
	return tally->objects >= known->objects && tally->seq >= known->seq;
}

void s3_disk_map_take(struct s3_disk_map *map, const struct s3_disk_listed *listed)
{
	if (listed->index < map->nr && name_is_newer(listed->name, map->name[listed->index]))
		map->name[listed->index] = listed->name;
}

/* ---- the object ---- */

static uint32_t map_count(const struct s3_disk_map *map)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < map->nr; i++)
		nr += !s3_disk_name_is_hole(map->name[i]);
	return nr;
}

size_t s3_disk_map_bytes(const struct s3_disk_map *map)
{
	return sizeof(struct map_header) + map_count(map) * sizeof(struct map_entry);
}

size_t s3_disk_map_bytes_max(uint32_t nr)
{
	return sizeof(struct map_header) + nr * sizeof(struct map_entry);
}

void s3_disk_map_write(const struct s3_disk_map *map, uint32_t generation, uint8_t *to)
{
	struct map_header h = {
		.magic = MAP_MAGIC,
		.version = htole32(MAP_VERSION),
		.nr = htole32(map->nr),
		.entry_nr = htole32(map_count(map)),
		.generation = htole32(generation),
	};
	uint8_t *at = to + sizeof(h);

	for (uint32_t i = 0; i < map->nr; i++) {
		const struct map_entry e = { .index = htole32(i),
					     .generation = htole32(map->name[i].generation),
					     .seq = htole32(map->name[i].seq) };

		if (s3_disk_name_is_hole(map->name[i]))
			continue;
		memcpy(at, &e, sizeof(e));
		at += sizeof(e);
	}
	h.crc = htole32((uint32_t)crc32_z(0, to + sizeof(h), (size_t)(at - to) - sizeof(h)));
	memcpy(to, &h, sizeof(h));
}

static bool map_take_entry(struct s3_disk_map *map, uint32_t generation, const uint8_t *from,
			   uint32_t *next_index)
{
	struct map_entry e;
	uint32_t index;

	memcpy(&e, from, sizeof(e));
	index = le32toh(e.index);
	if (index < *next_index || index >= map->nr || le32toh(e.generation) == 0 ||
	    le32toh(e.generation) >= generation || le32toh(e.seq) == 0 ||
	    le32toh(e.seq) > S3_DISK_SEQ_MAX)
		return false;
	*next_index = index + 1;
	map->name[index] =
		(struct s3_disk_name){ .generation = le32toh(e.generation), .seq = le32toh(e.seq) };
	return true;
}

int s3_disk_map_read(struct s3_disk_map *map, uint32_t generation, const uint8_t *from,
		     size_t bytes, char *words, size_t words_bytes)
{
	uint32_t next_index = 0, entry_nr;
	struct map_header h;

	snprintf(words, words_bytes, "the map makes no sense");
	if (bytes < sizeof(h))
		return -EINVAL;
	memcpy(&h, from, sizeof(h));
	entry_nr = le32toh(h.entry_nr);
	if (memcmp(h.magic, MAP_MAGIC, sizeof(h.magic)) != 0 || le32toh(h.version) != MAP_VERSION ||
	    le32toh(h.nr) != map->nr || le32toh(h.generation) != generation || entry_nr > map->nr ||
	    bytes != sizeof(h) + entry_nr * sizeof(struct map_entry))
		return -EINVAL;
	if (crc32_z(0, from + sizeof(h), bytes - sizeof(h)) != le32toh(h.crc)) {
		snprintf(words, words_bytes, "the map has a wrong checksum");
		return -EINVAL;
	}
	for (uint32_t i = 0; i < entry_nr; i++)
		if (!map_take_entry(map, generation,
				    from + sizeof(h) + i * sizeof(struct map_entry), &next_index))
			return -EINVAL;
	return 0;
}
