/* What of a disk is in use, by its manifest and maps; the rest is garbage. Pure; any thread. */
#ifndef BACKENDS_S3_DISK_S3_DISK_KEEP_H
#define BACKENDS_S3_DISK_S3_DISK_KEEP_H

#include "backends/s3_disk/s3_disk_manifest.h"
#include "backends/s3_disk/s3_disk_map.h"

/* Names of objects, each once, in ascending order: index, generation, seq. */
struct s3_disk_keep {
	struct s3_disk_listed *name;
	size_t nr;
};

/* Accepts a zeroed one, and leaves it so. */
void s3_disk_keep_fini(struct s3_disk_keep *keep);
/* All names of a map. Returns 0 or -ENOMEM. The keep starts zeroed. */
int s3_disk_keep_map(struct s3_disk_keep *keep, const struct s3_disk_map *map);

/* keep: of all maps that the manifest names. */
bool s3_disk_object_is_garbage(const struct s3_disk_manifest *manifest,
			       const struct s3_disk_keep *keep,
			       const struct s3_disk_listed *object);
/* name: behind the prefix and a slash. What is no name of a map is none, and no garbage. */
bool s3_disk_map_is_garbage(const struct s3_disk_manifest *manifest, const char *name);

/* Whether they name the same generation and maps of the same disk. Who writes it may differ. */
bool s3_disk_manifest_keeps_same(const struct s3_disk_manifest *a,
				 const struct s3_disk_manifest *b);

#endif
