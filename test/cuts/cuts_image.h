/*
 * The images that runs begin with: empty ones of any shape by the product's qcow2_create, and those
 * with content, snapshots or compressed clusters by qemu-img. One thread.
 */
#ifndef TEST_CUTS_CUTS_IMAGE_H
#define TEST_CUTS_CUTS_IMAGE_H

#include "test/cuts/cuts_disk.h"
#include "test/cuts/cuts_model.h"

enum image_kind {
	IMAGE_EMPTY,
	IMAGE_NONE, /* the product makes it, as with `create: true` */
	IMAGE_FULL, /* by qemu-img, with content in one half of its clusters */
	IMAGE_SNAPSHOTS,
	IMAGE_PACKED,
};

/* What it is like. */
struct image_shape {
	enum image_kind kind;
	unsigned cluster_bits, refcount_order, version;
	bool with_subclusters, is_zstd;
	bool is_encrypted;
	bool is_dirty;	  /* its reference counts are old: the product makes them anew */
	uint64_t bytes;	  /* of the disk */
	uint64_t backing; /* bytes of what it stands over; 0: nothing */
};

/* Whether there is a qemu-img. */
bool image_can_convert(void);
/*
 * Puts it on the disk, and what a guest reads into the model. The content of an image with content
 * is VALUE_IMAGE in every other run of 4 KiB. False: qemu-img failed.
 */
bool image_put(const struct image_shape *shape, struct disk *d, struct model *m);
/* What the guest reads at first. */
uint32_t image_value(const struct image_shape *shape, uint64_t sector);
/* qemu-img check on what is on the disk: no corruption. */
bool image_check(const struct disk *d);

#endif
