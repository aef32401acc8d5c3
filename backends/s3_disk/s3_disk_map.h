/*
 * Which object has the bytes of which part of the disk. No object is ever written twice: each PUT
 * makes one of a new name, so what a snapshot, an older map or a read under way refers to stays as
 * it is. Pure; any thread.
 *
 * The name: o/GENERATION/INDEX.SEQ, all hexadecimal. The generation counts openings for writing and
 * snapshots; within it, of several objects with the same index the one with the highest seq counts.
 * An object of no bytes says that there are zeroes: what an older one of that index said is over.
 * So that a list which says no size, or a wrong one, makes no zeroes of what is stored, such an
 * object has an even seq, and one with bytes an odd one: in generations whose manifest says so.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_MAP_H
#define BACKENDS_S3_DISK_S3_DISK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 128 MiB of memory; with objects of 4 MiB a disk of 64 TiB. */
#define S3_DISK_OBJECTS_MAX (1u << 24)
#define S3_DISK_NAME_BYTES 40
/* In seq: the object has no bytes. */
#define S3_DISK_HOLE 0x80000000u
#define S3_DISK_SEQ_MAX 0x7fffffffu
#define S3_DISK_GENERATION_MAX 0x7fffffffu

struct s3_disk_name {
	uint32_t generation; /* 0: there is no object, the bytes are zeroes */
	uint32_t seq;
};

struct s3_disk_map {
	uint32_t nr;
	struct s3_disk_name *name; /* by index */
};

/* Returns 0 or -ENOMEM. */
int s3_disk_map_init(struct s3_disk_map *map, uint32_t nr);
/* Accepts a zeroed one. */
void s3_disk_map_fini(struct s3_disk_map *map);

/* Whether the bytes are zeroes. */
static inline bool s3_disk_name_is_hole(struct s3_disk_name name)
{
	return name.generation == 0 || (name.seq & S3_DISK_HOLE);
}

/* The one after seq: of an object with or without bytes. */
static inline uint32_t s3_disk_seq_next(uint32_t seq, bool is_hole)
{
	return seq + ((seq & 1) == is_hole ? 1 : 2);
}

/* Whether it is one that s3_disk_seq_next gives. */
static inline bool s3_disk_seq_fits(struct s3_disk_name name)
{
	return (name.seq & 1) == !s3_disk_name_is_hole(name);
}

void s3_disk_name_text(struct s3_disk_name name, uint32_t index, char text[S3_DISK_NAME_BYTES]);
/* What stands behind the prefix and a slash; false: it is no name of an object. */
bool s3_disk_name_parse(const char *text, struct s3_disk_name *ret_name, uint32_t *ret_index);

/* As an object: what all generations below `generation` have left. Without holes. */
size_t s3_disk_map_bytes(const struct s3_disk_map *map);
size_t s3_disk_map_bytes_max(uint32_t nr);
void s3_disk_map_write(const struct s3_disk_map *map, uint32_t generation, uint8_t *to);
/* Into a map of zeroes. Returns 0, or -EINVAL with words. */
int s3_disk_map_read(struct s3_disk_map *map, uint32_t generation, const uint8_t *from,
		     size_t bytes, char *words, size_t words_bytes);

struct s3_disk_listed {
	struct s3_disk_name name;
	uint32_t index;
};

/* Takes a listed object into the map where it is newer than what is there. */
void s3_disk_map_take(struct s3_disk_map *map, const struct s3_disk_listed *listed);

/*
 * What a generation has stored: of how many parts of the disk, and the highest seq. Within a
 * generation neither ever shrinks, as an object is deleted after a newer one of its index is there:
 * a list that has less than somebody has seen stored is not whole.
 */
struct s3_disk_tally {
	uint32_t objects, seq;
};

/* An object of the generation in place of `before`, which may be of an earlier one. */
void s3_disk_tally_add(struct s3_disk_tally *tally, uint32_t generation, struct s3_disk_name before,
		       struct s3_disk_name name);
/* Whether all that is known is in it. */
bool s3_disk_tally_has(const struct s3_disk_tally *tally, const struct s3_disk_tally *known);

#endif
