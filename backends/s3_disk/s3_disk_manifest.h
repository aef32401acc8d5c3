/* The one object that says what the disk is and who writes it: JSON. Pure; any thread. */
#ifndef BACKENDS_S3_DISK_S3_DISK_MANIFEST_H
#define BACKENDS_S3_DISK_S3_DISK_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/s3_disk/s3_disk_map.h"

#define S3_DISK_ID_BYTES 33 /* 128 bits, hexadecimal */
#define S3_DISK_CONTENT_BYTES (S3_DISK_ID_BYTES + 17)
#define S3_DISK_HOST_BYTES 65
#define S3_DISK_MAP_BYTES 64
#define S3_DISK_OBJECT_BYTES_MIN (64u << 10)
#define S3_DISK_OBJECT_BYTES_MAX (64u << 20)
#define S3_DISK_MANIFEST_BYTES 65536u

#define S3_DISK_SNAPSHOT_BYTES 64
#define S3_DISK_SNAPSHOTS_MAX 128u

/* The disk as it was: of its size, all generations before this one. */
struct s3_disk_snapshot {
	char name[S3_DISK_SNAPSHOT_BYTES]; /* letters, digits and . _ - */
	char map[S3_DISK_MAP_BYTES];
	uint32_t generation;
	uint64_t sec; /* since 1970 */
};

struct s3_disk_manifest {
	char id[S3_DISK_ID_BYTES]; /* of the disk */
	uint64_t size_bytes, object_bytes;
	uint32_t generation;
	struct s3_disk_tally stored; /* of it, at least; zeroes: not known */
	bool has_even_holes;	     /* all of its names are as s3_disk_seq_next makes them */
	/* What all generations before this one have left; "": nothing. */
	char map[S3_DISK_MAP_BYTES];
	/*
	 * Which bytes all generations before this one have left, so that who has kept some of them
	 * finds out whether others were written: struct s3_disk's token of the opening that wrote
	 * last, a dot, and which objects they were then. An opening that stores nothing passes it
	 * on. And the token of the opening that began this generation. "": not known, as versions
	 * before do not say it.
	 */
	char content[S3_DISK_CONTENT_BYTES], opening[S3_DISK_ID_BYTES];
	char owner[S3_DISK_ID_BYTES];  /* of the writer, new each time; "": nobody writes it */
	char host[S3_DISK_HOST_BYTES]; /* of the writer, for people */
	uint64_t beat;		       /* of the writer: counts */
	struct s3_disk_snapshot snapshot[S3_DISK_SNAPSHOTS_MAX];
	unsigned snapshot_nr;
};

/* Whether a snapshot may be called so. */
bool s3_disk_snapshot_name_is_good(const char *name);

/*
 * Which bytes the disk has: what `content` of the next generation is to be. map: all of them, those
 * of the manifest's generation too.
 */
void s3_disk_manifest_content(const struct s3_disk_manifest *m, const struct s3_disk_map *map,
			      char content[S3_DISK_CONTENT_BYTES]);
/* The same after this opening has changed it: the bytes are those of the map. */
void s3_disk_content(const char *opening, const struct s3_disk_map *map,
		     char content[S3_DISK_CONTENT_BYTES]);

/* Returns the bytes of the text, or -ENOMEM. */
int s3_disk_manifest_write(const struct s3_disk_manifest *manifest,
			   char text[S3_DISK_MANIFEST_BYTES]);
/* Returns 0, or -EINVAL with words. */
int s3_disk_manifest_read(struct s3_disk_manifest *ret_manifest, const char *text, size_t bytes,
			  char *words, size_t words_bytes);

#endif
