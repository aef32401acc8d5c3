/* What the core sees of the node: options, limits, its queue and what requests wait for. */
#include "filters/integrity/integrity.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/counter.h"
#include "base/errname.h"
#include "base/util.h"
#include "storage/snapshot.h"
#include "storage/registry.h"
#include "storage/resize.h"

/* Of a request with metadata, where the core names no limit; each tag has a buffer for that. */
#define MAX_IO_BYTES_DEFAULT MIB(1)
#define METADATA_BYTES_MAX 255u /* the driver has a byte for it */

struct integrity_config {
	int checksum; /* enum backend_checksum */
	uint64_t metadata_bytes, tuple_at, tag_bytes, interval_bytes;
	bool has_reftag, is_capable;
};

/* ---- options ---- */

static const struct option integrity_options[] = {
	{ .name = "checksum",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct integrity_config, checksum),
	  .values = backend_checksum_names,
	  .def = "crc",
	  .help = "What the block layer makes of the bytes of each interval at a write, and "
		  "compares at a read. crc: CRC-16 of T10 DIF; nvme: CRC-64 of NVMe; ip: the "
		  "checksum of IP, weak and cheap; none: nothing, the metadata are the client's." },
	{ .name = "metadata_size",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct integrity_config, metadata_bytes),
	  .max = METADATA_BYTES_MAX,
	  .def = "0",
	  .help = "Bytes of metadata that each interval has. 0: what checksum needs: 8 bytes, or "
		  "16 "
		  "with nvme." },
	{ .name = "pi_offset",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct integrity_config, tuple_at),
	  .max = METADATA_BYTES_MAX,
	  .def = "0",
	  .help = "Where in the metadata checksum and tags begin, when metadata_size is larger." },
	{ .name = "interval",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct integrity_config, interval_bytes),
	  .max = BACKEND_BLOCK_BYTES_MAX,
	  .def = "0",
	  .help = "Bytes that have a checksum of their own: a power of two from 512 up to "
		  "block_size. 0: as block_size." },
	{ .name = "reftag",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct integrity_config, has_reftag),
	  .def = "true",
	  .help = "The block layer also notes the place of each interval, and finds data that were "
		  "written elsewhere (type 1 of T10 PI; false: type 3). Not with checksum: none." },
	{ .name = "tag_size",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct integrity_config, tag_bytes),
	  .max = METADATA_BYTES_MAX,
	  .def = "0",
	  .help = "Bytes of the tags that an application may use for itself: told to it, nothing "
		  "more." },
	{ .name = "capable",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct integrity_config, is_capable),
	  .def = "true",
	  .help = "What device_is_integrity_capable in sysfs says of the device." },
	OPTION_END,
};

static const struct backend_child_option integrity_children[] = {
	{ .name = "data",
	  .nr_min = 1,
	  .nr_max = 1,
	  .help = "Where the bytes are: a backend of any type. The device has its size." },
	{ .name = "metadata",
	  .nr_min = 1,
	  .nr_max = 1,
	  .in_memory = true,
	  .is_bytewise = true,
	  .help = "Where the metadata are: file or mem. A file with create: true and without size "
		  "becomes as long as needed, and sparse." },
	{ .name = NULL },
};

static uint64_t metadata_bytes_of(const struct integrity_config *config)
{
	return config->metadata_bytes
		       ? config->metadata_bytes
		       : backend_tuple_bytes((enum backend_checksum)config->checksum);
}

static void integrity_check(const void *arg, const struct yaml_node *map, struct config_errors *e)
{
	const struct integrity_config *config = arg;
	unsigned tuple_bytes = backend_tuple_bytes((enum backend_checksum)config->checksum);
	const char *name = backend_checksum_names[config->checksum];

	if (metadata_bytes_of(config) == 0)
		config_errors_add(e, yaml_pos(map, "checksum"),
				  "metadata_size: is missing: checksum: none says nothing of it");
	else if (config->tuple_at + tuple_bytes > metadata_bytes_of(config))
		config_errors_add(e, yaml_pos(map, "pi_offset"),
				  "pi_offset: %llu and the %u bytes of checksum: %s are more than "
				  "metadata_size: %llu",
				  (unsigned long long)config->tuple_at, tuple_bytes, name,
				  (unsigned long long)metadata_bytes_of(config));
	if (config->interval_bytes &&
	    (config->interval_bytes < 512 || !is_power_of_two(config->interval_bytes)))
		config_errors_add(e, yaml_pos(map, "interval"),
				  "interval: is not a power of two from 512 on");
	if (tuple_bytes == 0 && config->has_reftag && yaml_get(map, "reftag"))
		config_errors_add(e, yaml_pos(map, "reftag"),
				  "reftag: stands beside a checksum, and there is none: set "
				  "checksum, or leave reftag out");
}

static uint64_t interval_bytes_of(const struct integrity_config *config, uint32_t block_bytes)
{
	return config->interval_bytes ? config->interval_bytes : block_bytes;
}

static uint32_t integrity_metadata_bytes(const void *config, uint32_t bytes, uint32_t block_bytes)
{
	return (uint32_t)(bytes / interval_bytes_of(config, block_bytes) *
			  metadata_bytes_of(config));
}

/* ---- open ---- */

static void integrity_shape(const struct backend_device *device,
			    struct backend_integrity_limits *shape)
{
	const struct integrity_config *config = device->config;
	uint64_t interval_bytes =
		interval_bytes_of(config, device->open_params.logical_block_bytes);

	*shape = (struct backend_integrity_limits){
		.metadata_bytes = (uint8_t)metadata_bytes_of(config),
		.interval_shift = (uint8_t)log2_floor(interval_bytes),
		.checksum = (uint8_t)config->checksum,
		.tuple_at = (uint8_t)config->tuple_at,
		.tag_bytes = (uint8_t)config->tag_bytes,
		.has_reftag = config->has_reftag && config->checksum != BACKEND_CHECKSUM_NONE,
		.is_capable = config->is_capable,
	};
}

/* Of a device that is taken over, no more than it had: its data may have grown by themselves. */
static uint64_t integrity_size(const struct backend_device *device)
{
	uint64_t data_bytes = backend_size(device->child);
	uint64_t had_bytes = device->open_params.size_bytes;

	return had_bytes ? MIN(had_bytes, data_bytes) : data_bytes;
}

/* A helper: a file without a size of its own becomes as long as needed. */
static int metadata_room(struct backend_device *device, struct backend_device *metadata,
			 uint64_t need_bytes)
{
	char have[32], need[32];
	int ret;

	if (backend_size(metadata) >= need_bytes)
		return 0;
	if (!(metadata->limits.caps & BACKEND_CAP_GROWS))
		return backend_fail(
			device, -ENOSPC,
			"metadata: has %s, and %s are needed: set its size to that%s",
			option_format_size(backend_size(metadata), have, sizeof(have)),
			option_format_size(need_bytes, need, sizeof(need)),
			device->open_params.read_only ? "" : ", or leave the size of a file out");
	metadata->error[0] = '\0';
	ret = metadata->ops->resize->grow(metadata, need_bytes);
	if (ret < 0)
		return backend_fail(device, ret, "metadata: %s",
				    metadata->error[0] ? metadata->error : errname(ret));
	backend_set_size(metadata, need_bytes);
	return 0;
}

/* The device is as its data, but for what both must be able to do. */
static void integrity_limits(struct backend_device *device, const struct backend_device *data,
			     const struct integrity_device *d)
{
	uint32_t caps = device->limits.caps; /* joined */

	device->limits = data->limits;
	device->limits.size_bytes = integrity_size(device);
	device->limits.caps = caps & ~(uint32_t)BACKEND_CAP_DISCARD;
	/* To discard, metadata are zeroed. */
	if (caps & BACKEND_CAP_WRITE_ZEROES)
		device->limits.caps |= data->limits.caps & BACKEND_CAP_DISCARD;
	device->limits.queue_nr_max = 1;
	device->limits.queue_nr_cure = "a device that keeps metadata has one queue";
	device->limits.integrity = d->shape;
}

static int integrity_open(struct backend_device *device)
{
	struct backend_device *data = device->child, *metadata = data->sibling;
	struct integrity_device *d = device->priv;
	uint32_t block_bytes = device->open_params.logical_block_bytes;
	int ret;

	integrity_shape(device, &d->shape);
	if (1u << d->shape.interval_shift > block_bytes)
		return backend_fail(device, -EINVAL,
				    "interval: %u is more than block_size: %u: set block_size: %u",
				    1u << d->shape.interval_shift, block_bytes,
				    1u << d->shape.interval_shift);
	d->max_io_bytes = device->open_params.max_io_bytes ? device->open_params.max_io_bytes
							   : (uint32_t)MAX_IO_BYTES_DEFAULT;
	d->buffer_bytes = backend_spec_metadata_bytes(device->spec, d->max_io_bytes, block_bytes);
	integrity_ranges_init(&d->ranges);
	ret = metadata_room(device, metadata,
			    (integrity_size(device) >> d->shape.interval_shift) *
				    d->shape.metadata_bytes);
	if (ret == 0)
		integrity_limits(device, data, d);
	return ret;
}

/* ---- queues ---- */

/* Buffers are address space until a request touches them. */
static int integrity_queue_init(struct backend_queue *queue)
{
	struct integrity_device *d = queue->device->priv;
	void *mem;

	if (d->queue)
		return -EBUSY;
	mem = mmap(NULL, d->buffer_bytes * queue->depth, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return -errno;
	d->buffers = mem;
	d->queue = queue;
	return 0;
}

static void integrity_queue_fini(struct backend_queue *queue)
{
	struct integrity_device *d = queue->device->priv;

	if (d->queue != queue)
		return;
	task_cancel(&d->held_task);
	munmap(d->buffers, d->buffer_bytes * queue->depth);
	d->buffers = NULL;
	d->queue = NULL;
}

static int integrity_io_init(struct backend_io *io)
{
	const struct integrity_device *d = io->queue->device->priv;
	struct integrity_io *s = io->priv;

	s->io = io;
	s->metadata = d->buffers + io->tag * d->buffer_bytes;
	return 0;
}

/* ---- what can be seen ---- */

static struct backend_wait integrity_wait(const struct backend_io *io)
{
	static const char *const words[] = {
		[INTEGRITY_HELD] = "waiting for another request on the same bytes",
		[INTEGRITY_FORGETS] = "waiting for its metadata to be forgotten",
		[INTEGRITY_MOVES] = "waiting for data and metadata",
		[INTEGRITY_ENDED] = NULL,
	};
	const struct integrity_io *s = io->priv;
	unsigned step = __atomic_load_n(&s->step, __ATOMIC_RELAXED);

	return (struct backend_wait){ .kind = BACKEND_WAIT_ANSWER,
				      .words = step < ARRAY_SIZE(words) ? words[step] : NULL };
}

static void integrity_look(const struct backend_queue *queue, struct backend_integrity_look *look)
{
	const struct integrity_device *d = queue->device->priv;

	*look = (struct backend_integrity_look){
		.limits = d->shape,
		.reads = counter_read(&d->reads),
		.writes = counter_read(&d->writes),
		.forgotten = counter_read(&d->forgotten),
		.held = counter_read(&d->held),
	};
}

static void integrity_identity(const struct backend_device *device,
			       char text[BACKEND_IDENTITY_BYTES])
{
	const struct integrity_device *d = device->priv;

	snprintf(text, BACKEND_IDENTITY_BYTES, "integrity %u/%u/%s/%u", d->shape.metadata_bytes,
		 1u << d->shape.interval_shift, backend_checksum_names[d->shape.checksum],
		 d->shape.tuple_at);
}

/* The metadata are elsewhere. Create: the snapshot has the bytes, to be read without this node. */
static const char *integrity_above_apply(const struct backend_device *device,
					 const struct backend_device *child)
{
	(void)device, (void)child;
	return "has the checksums of the bytes as they are, and every read would fail: remove the "
	       "device, apply the snapshot with a device of `data` alone, and remove the file of "
	       "`metadata`: what has none is read unchecked";
}

static const struct backend_above integrity_above = { .apply = integrity_above_apply };

const struct backend backend_integrity = {
	.name = "integrity",
	.summary = "A device that keeps checksums which the kernel makes (T10 PI), and other "
		   "metadata, beside the bytes of a backend of any type.",
	.options = integrity_options,
	.config_bytes = sizeof(struct integrity_config),
	.device_bytes = sizeof(struct integrity_device),
	.io_bytes = sizeof(struct integrity_io),
	.data = BACKEND_DATA_ANY,
	.test_options = "checksum: crc",
	.sizes_itself = true,
	.has_integrity = true,
	.alone_below = true,
	.metadata_bytes = integrity_metadata_bytes,
	.children = integrity_children,
	.check = integrity_check,
	.open = integrity_open,
	.queue_init = integrity_queue_init,
	.queue_fini = integrity_queue_fini,
	.io_init = integrity_io_init,
	.submit = integrity_submit,
	.cancel = integrity_cancel,
	.child_done = integrity_child_done,
	.wait = integrity_wait,
	.identity = integrity_identity,
	.look_integrity = integrity_look,
	.above = &integrity_above,
};
