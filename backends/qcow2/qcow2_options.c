/* Options of qcow2 in the configuration. */
#include "backends/qcow2/qcow2.h"

#include "base/util.h"

/* As QEMU's default: L2 tables of 256 GiB with clusters of 64 KiB. */
#define CACHE_DEFAULT "32MiB"

const struct option qcow2_options[] = {
	{ .name = "cache",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct qcow2_config, cache_bytes),
	  .min = KIB(64),
	  .max = GIB(64),
	  .def = CACHE_DEFAULT,
	  .help = "The most memory for tables of the image: 8 bytes for each cluster that is in "
		  "use, and it is taken when it is used. What the whole disk needs is enough." },
	{ .name = "create",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct qcow2_config, is_created),
	  .help = "Make a new image, of `size`, where `data` begins with zeroes or is empty. One "
		  "that is there already is used as it is." },
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct qcow2_config, size_bytes),
	  .help = "Size of the disk of a new image. Default: that of the backing image." },
	{ .name = "cluster_size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct qcow2_config, cluster_bytes),
	  .min = 1u << QCOW2_CLUSTER_BITS_MIN,
	  .max = 1u << QCOW2_CLUSTER_BITS_MAX,
	  .def = "64KiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "Of a new image: the unit in which space is allocated." },
	{ .name = "extended_l2",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct qcow2_config, with_subclusters),
	  .help = "Of a new image: clusters have 32 parts that are allocated one by one, so that a "
		  "small write over a backing image copies little." },
	{ .name = "key_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct qcow2_config, key_file),
	  .help = "File with the passphrase of an encrypted image (LUKS)." },
	{ .name = "backing_folder",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct qcow2_config, backing_folder),
	  .min = 1,
	  .help = "With backing: auto, the folder where the files must be that the image stands "
		  "over: in it or below, when all links are followed. Default: the folder of the "
		  "image. An image can name any file, so allow no more than those who read the "
		  "device may read." },
	{ .name = "snapshot",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct qcow2_config, snapshot),
	  .help = "Read this internal snapshot, by its ID or its name, instead of the disk; "
		  "read-only." },
	{ .name = "accept_base",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct qcow2_config, accepted_base),
	  .min = 1,
	  .help = "Use an overlay over a backing object (http, s3, s3-disk) that has changed since "
		  "the overlay was made: the number in the message that refuses it, which stands "
		  "for this version of the object alone. What the overlay has not written then "
		  "reads as the object is now." },
	OPTION_END,
};
