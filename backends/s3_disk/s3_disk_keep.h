/* What of a disk is in use, by its manifest and maps; the rest is garbage. Pure; any thread. */
#ifndef BACKENDS_S3_DISK_S3_DISK_KEEP_H
#define BACKENDS_S3_DISK_S3_DISK_KEEP_H

#include "backends/s3_disk/s3_disk_manifest.h"
#include "backends/s3_disk/s3_disk_map.h"

/* Names of objects, each once, in ascending order: index, generation, seq. */
struct s3_disk_keep {
	struct s3_disk_listed *name;
	size_t nr;
	bool *is_shown; /* by name: the list has it */
	size_t shown_nr;
};

/* Accepts a zeroed one, and leaves it so. */
void s3_disk_keep_fini(struct s3_disk_keep *keep);
/* All names of a map, before the first that is shown. Returns 0 or -ENOMEM. The keep starts
 * zeroed. */
int s3_disk_keep_map(struct s3_disk_keep *keep, const struct s3_disk_map *map);

/* The list has this object: notes it, if it is one of them. None of them is without bytes. */
void s3_disk_keep_show(struct s3_disk_keep *keep, const struct s3_disk_listed *object);

/* Whether the disk can have an object of this name and size. */
bool s3_disk_object_is_possible(const struct s3_disk_manifest *manifest,
				const struct s3_disk_listed *object, uint64_t size_bytes);
/* keep: of all maps that the manifest names. */
bool s3_disk_object_is_garbage(const struct s3_disk_manifest *manifest,
			       const struct s3_disk_keep *keep,
			       const struct s3_disk_listed *object);
/* name: behind the prefix and a slash. */
bool s3_disk_map_name_is_good(const char *name);
/* What is no name of a map is none, and no garbage. */
bool s3_disk_map_is_garbage(const struct s3_disk_manifest *manifest, const char *name);

/* Whether they name the same generation and maps of the same disk. Who writes it may differ. */
bool s3_disk_manifest_keeps_same(const struct s3_disk_manifest *a,
				 const struct s3_disk_manifest *b);

#endif
