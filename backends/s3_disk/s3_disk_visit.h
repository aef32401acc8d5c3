/* What s3_disk_open.c and s3_disk_load.c share: the machine that opens or closes a disk. Control
 * reactor. */
#ifndef BACKENDS_S3_DISK_S3_DISK_VISIT_H
#define BACKENDS_S3_DISK_S3_DISK_VISIT_H

#include "backends/s3_disk/s3_disk.h"
#include "backends/s3_disk/s3_disk_list.h"
#include "storage/visit.h"

struct s3_disk_visit {
	struct backend_visit *visit;
	struct s3_disk *d;
	struct s3_disk_client client;
	struct s3_disk_lease lease;
	struct s3_disk_call call;
	struct timer wait;
	char etag[HTTP_ETAG_BYTES]; /* of another writer, before we waited */
	bool is_new, was_probed;
	uint8_t *buf;
	size_t buf_bytes;
	struct s3_disk_list list;
	struct s3_disk_tally shown; /* by it, of the manifest's generation */
	void (*loaded)(struct s3_disk_visit *v);
	void (*sealed)(struct s3_disk_visit *v);
	struct task task; /* ends it: not from inside of libcurl */
	int result;
};

/* Return 0 or -errno with the device's words. */
int s3_disk_visit_begin(struct backend_visit *visit);
/* Later in this turn: the visit ends with this. */
void s3_disk_visit_end(struct s3_disk_visit *v, int result);
/* The same, with words. */
void s3_disk_visit_fail(struct s3_disk_visit *v, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void s3_disk_visit_free(struct s3_disk_visit *v);

/* s3_disk_load.c: of the manifest in d; then done. */
void s3_disk_load(struct s3_disk_visit *v, void (*done)(struct s3_disk_visit *v));
/* Begins a new generation, whose map is what all before have left; then done. */
void s3_disk_seal(struct s3_disk_visit *v, void (*done)(struct s3_disk_visit *v));

#endif
