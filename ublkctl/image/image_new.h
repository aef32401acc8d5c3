/* Makes a new qcow2 image in a file, without a daemon. Any thread that may block. */
#ifndef UBLKCTL_IMAGE_IMAGE_NEW_H
#define UBLKCTL_IMAGE_IMAGE_NEW_H

#include "backends/qcow2/format/qcow2_create.h"
#include "ublkctl/image/image_probe.h"

struct image_new {
	const char *path;
	/* What is asked for: size_bytes 0: that of the backing file. Names as they shall stand. */
	struct qcow2_create create;
	/* The name of the backing file says that it is an image: ".qcow2". */
	bool backing_is_named;
	bool force; /* also in the place of what is there */
};

struct image_made {
	uint64_t size_bytes;	    /* of the disk */
	uint64_t image_bytes;	    /* of the file */
	const char *backing_format; /* "qcow2", "raw"; NULL: no backing file */
	bool is_detected;	    /* that was not asked for, but seen */
};

/*
 * Writes the image, durably, and an empty data file beside it if it shall have one. Returns 0, or
 * -errno with words for the user, the cure among them; then nothing new is left, but what force
 * has overwritten is lost. A backing file's format that was not given is told by its name and its
 * first bytes together: where the two disagree, it must be given (docs/security.md).
 */
int image_new_make(const struct image_new *n, struct image_made *ret_made,
		   char error[static IMAGE_ERROR_BYTES]);

#endif
