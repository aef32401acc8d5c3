/*
 * Deletes the garbage of a disk: objects and maps that nothing refers to any more. It is not the
 * disk's writer and asks nobody: s3_disk_gc.c says why that is safe while somebody writes the disk.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_GC_H
#define BACKENDS_S3_DISK_S3_DISK_GC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reactor/reactor.h"

#define S3_DISK_GC_WORDS_BYTES 600
#define S3_DISK_GC_WHERE_BYTES 1300

struct s3_disk_gc;

struct s3_disk_gc_count {
	uint64_t objects, maps;
	uint64_t bytes; /* of the objects */
};

/* What is known so far. */
struct s3_disk_gc_report {
	const char *doing; /* "listing the objects" */
	uint32_t generation;
	unsigned snapshots;
	struct s3_disk_gc_count kept, garbage, deleted; /* garbage: deleted is a part of it */
};

struct s3_disk_gc_params {
	const void *config; /* of the backend s3-disk, parsed and checked; outlives it */
	const char *name;   /* for the log; outlives it */
	bool is_dry;	    /* nothing is deleted */
	/* From a turn, whenever the report has changed. May be NULL. */
	void (*progress)(void *arg, const struct s3_disk_gc_report *report);
	/*
	 * From a turn, the last call; the report stays as it is. 0; or -errno with words for the
	 * user. Without deleted.objects and deleted.maps nothing was deleted.
	 */
	void (*done)(void *arg, int result, const char *words);
	void *arg;
};

/*
 * Thread of the reactor, which may wait for files meanwhile. Returns 0: done follows; or -errno
 * with words. *ret_gc is the caller's in every case; NULL: out of memory.
 */
int s3_disk_gc_begin(struct s3_disk_gc **ret_gc, struct reactor *reactor,
		     const struct s3_disk_gc_params *params, char words[S3_DISK_GC_WORDS_BYTES]);
const struct s3_disk_gc_report *s3_disk_gc_look(const struct s3_disk_gc *gc);
/* Not from inside of progress or done. What is under way is forgotten. Accepts NULL. */
void s3_disk_gc_free(struct s3_disk_gc *gc);

/* "s3://BUCKET/PREFIX". Returns where. */
const char *s3_disk_gc_where(const void *config, char where[S3_DISK_GC_WHERE_BYTES]);

#endif
