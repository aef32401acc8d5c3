/* What the user can say about a disk of many objects. Main thread. */
#include <errno.h>
#include <string.h>

#include "backends/s3_disk/s3_disk.h"
#include "base/util.h"

const struct option s3_disk_options[] = {
	{ .name = "bucket",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct s3_disk_config, s3.bucket),
	  .min = 1,
	  .max = S3_BUCKET_BYTES - 1,
	  .flags = OPTION_REQUIRED,
	  .help = "The bucket of the objects." },
	{ .name = "prefix",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct s3_disk_config, s3.key),
	  .min = 1,
	  .max = S3_DISK_PREFIX_BYTES - 1,
	  .flags = OPTION_REQUIRED,
	  .help = "What the keys of the disk's objects begin with, before a slash; as it is: not "
		  "escaped. Nothing else may be there." },
	{ .name = "create",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct s3_disk_config, create),
	  .def = "false",
	  .help = "Make the disk, empty, if there is none: with size and object_size." },
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct s3_disk_config, size_bytes),
	  .min = 1u << 20,
	  .max = INT64_MAX,
	  .help = "The size of a new disk; one that is there must have this size. Default: that "
		  "of the disk." },
	{ .name = "object_size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct s3_disk_config, object_bytes),
	  .min = S3_DISK_OBJECT_BYTES_MIN,
	  .max = S3_DISK_OBJECT_BYTES_MAX,
	  .def = "4MiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "The size of the objects of a new disk. Each write of less stores a whole "
		  "object." },
	{ .name = "snapshot",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct s3_disk_config, snapshot),
	  .min = 1,
	  .max = S3_DISK_SNAPSHOT_BYTES - 1,
	  .help = "Read this snapshot of the disk; nothing can be written." },
	{ .name = "buffers",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct s3_disk_config, buffers),
	  .min = 1,
	  .max = 64,
	  .def = "8",
	  .help = "Objects that are kept in memory to be changed: so many are stored at a time." },
	{ .name = "lease",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct s3_disk_config, lease_ns),
	  .min = NS_PER_SEC,
	  .max = 3600 * NS_PER_SEC,
	  .def = "30s",
	  .help = "A writer says every third of this time that it is there. A device that finds "
		  "another writer waits for this time, and takes the disk from one that has not. "
		  "The same for all who write it." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct s3_disk_config, s3.server),
	  .table = s3_server_options },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct s3_disk_config, s3.web),
	  .table = web_options },
	OPTION_END,
};

static int judge_prefix(const struct s3_disk_config *c, struct config_refusal *r)
{
	const char *prefix = c->s3.key;
	struct s3_target target;

	if (prefix[0] == '/' || prefix[strlen(prefix) - 1] == '/')
		return config_refuse(r, "prefix", "no slash at its beginning or end");
	r->key = "bucket";
	return s3_config_target(&c->s3, &target, r->words, sizeof(r->words));
}

static int judge_size(const struct s3_disk_config *c, struct config_refusal *r)
{
	if (c->create && c->size_bytes == 0)
		return config_refuse(r, "create", "size is missing");
	if (c->size_bytes % 4096)
		return config_refuse(r, "size", "expected a multiple of 4096");
	if (c->size_bytes && (c->size_bytes - 1) / c->object_bytes >= S3_DISK_OBJECTS_MAX)
		return config_refuse(r, "size", "more than %u objects: set a larger object_size",
				     S3_DISK_OBJECTS_MAX);
	return 0;
}

void s3_disk_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct s3_disk_config *c = config;
	struct config_refusal r;
	int ret = judge_prefix(c, &r);

	if (ret == 0)
		ret = judge_size(c, &r);
	if (ret == 0)
		ret = s3_judge_server(&c->s3.server, &r);
	if (ret < 0)
		config_refusal_add(&r, map, e);
}
