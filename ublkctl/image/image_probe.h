/* What a file is, by its first bytes: an image or not. Reads, and changes nothing. */
#ifndef UBLKCTL_IMAGE_IMAGE_PROBE_H
#define UBLKCTL_IMAGE_IMAGE_PROBE_H

#include <sys/stat.h>

#include "backends/qcow2/format/qcow2_header.h"

#define IMAGE_ERROR_BYTES 512

enum image_kind {
	IMAGE_PLAIN,  /* does not begin with the magic number of qcow2 */
	IMAGE_QCOW2,  /* header is filled */
	IMAGE_BROKEN, /* begins with it, and the header cannot be used: words */
};

struct image_probe {
	enum image_kind kind;
	uint64_t bytes; /* of the file or the block device */
	struct stat stat;
	struct qcow2_header header;
	char words[QCOW2_WORDS_BYTES];
};

/* A regular file or a block device. Returns 0, or -errno (-EINVAL: it is something else). */
int image_probe(const char *path, struct image_probe *ret_probe);

/* The path of a file that an image names: as QEMU does, from the image's folder. 0 or -errno. */
int image_path_from(const char *image_path, const char *name, char *ret_path, size_t bytes);

#endif
