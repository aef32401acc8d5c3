/* What the core sees of the node: options, its table, its queue and what requests wait for. */
#include "filters/zoned/zoned.h"

#include <errno.h>
#include <stdio.h>

#include "base/counter.h"
#include "base/util.h"
#include "storage/snapshot.h"
#include "storage/registry.h"

/* ---- options ---- */

static const struct option zones_options[] = {
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct zoned_zones_config, zone_bytes),
	  .min = ZONED_ZONE_BYTES_MIN,
	  .max = ZONED_ZONE_BYTES_MAX,
	  .def = "256MiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "The size of each zone. The device has as many as fit into the backend behind a "
		  "table of 8 KiB for each 508 zones, in steps of 64 KiB." },
	{ .name = "capacity",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct zoned_zones_config, capacity_bytes),
	  .def = "0",
	  .help = "So much of a zone can be written, as on NVMe drives; what follows reads zeroes. "
		  "0: all of it. Of conventional zones always all." },
	{ .name = "max_open",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct zoned_zones_config, open_nr_max),
	  .max = UINT32_MAX,
	  .def = "0",
	  .help = "How many zones can be open at a time. A write that needs one more closes the "
		  "one that a write has opened first; when commands have opened all, it fails. 0, "
		  "or as many as there are: no limit." },
	{ .name = "max_active",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct zoned_zones_config, active_nr_max),
	  .max = UINT32_MAX,
	  .def = "0",
	  .help = "How many zones can be written in part at a time, open or closed. A write that "
		  "needs one more fails until a zone is full, finished or reset. 0, or as many as "
		  "there are: no limit." },
	{ .name = "conventional",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct zoned_zones_config, conventional_nr),
	  .max = UINT32_MAX,
	  .def = "0",
	  .help = "So many zones at the start have no write pointer: they are written in any "
		  "order. At least one zone remains that is not conventional." },
	OPTION_END,
};

const struct option zoned_options[] = {
	{ .name = "zones",
	  .type = OPTION_MAP,
	  .offset = offsetof(struct zoned_config, zones),
	  .table = zones_options,
	  .table_bytes = sizeof(struct zoned_zones_config),
	  .help = "What the zones are like. size, capacity and conventional are for the life of "
		  "what the backend holds. Without it, the backend is of type file on a zoned "
		  "block device, and the device has the zones and limits of that one." },
	OPTION_END,
};

void zoned_check(const void *arg, const struct yaml_node *map, struct config_errors *e)
{
	const struct zoned_zones_config *zones = ((const struct zoned_config *)arg)->zones;
	const struct yaml_node *zones_map = yaml_get(map, "zones");

	if (!zones)
		return;
	if (zones->capacity_bytes > zones->zone_bytes)
		config_errors_add(e, yaml_pos(zones_map, "capacity"),
				  "capacity: is larger than size");
	if (zones->capacity_bytes % 4096)
		config_errors_add(e, yaml_pos(zones_map, "capacity"),
				  "capacity: is not a multiple of 4096");
	if (zones->active_nr_max && zones->open_nr_max > zones->active_nr_max)
		config_errors_add(e, yaml_pos(zones_map, "max_open"),
				  "max_open: is more than max_active, and what is open is active");
}

/* ---- queues ---- */

static int zoned_queue_init(struct backend_queue *queue)
{
	struct zoned_device *d = queue->device->priv;

	if (d->queue)
		return -EBUSY;
	if (queue->depth > d->shape.depth)
		return -EINVAL;
	d->sync.own = backend_own_take(queue);
	d->queue = queue;
	return d->sync.own ? 0 : -ENOMEM;
}

static void zoned_queue_fini(struct backend_queue *queue)
{
	struct zoned_device *d = queue->device->priv;

	if (d->queue == queue)
		d->queue = NULL;
}

static int zoned_io_init(struct backend_io *io)
{
	struct zoned_io *z = io->priv;

	z->io = io;
	list_init(&z->waiting);
	return 0;
}

/* ---- what can be seen ---- */

static struct backend_wait zoned_wait(const struct backend_io *io)
{
	static const char *const words[ZONED_IO_STATE_NR] = {
		[ZONED_BELOW] = NULL,
		[ZONED_HELD] = "waiting for writes of the zone",
		[ZONED_WAITS_SYNC] = "waiting for others that make their zones durable",
		[ZONED_SYNCS] = "making zones and their write pointers durable",
		[ZONED_WAITS_TURN] = "waiting for the write before it in its zone",
	};
	const struct zoned_io *z = io->priv;
	unsigned state = __atomic_load_n(&z->state, __ATOMIC_RELAXED);

	return (struct backend_wait){ .kind = BACKEND_WAIT_ANSWER,
				      .words = state < ARRAY_SIZE(words) ? words[state] : NULL };
}

static uint32_t condition_nr(const struct zoned_device *d, enum zone_condition condition)
{
	return __atomic_load_n(&d->table.nr[condition], __ATOMIC_RELAXED);
}

static void zoned_look(const struct backend_queue *queue, struct backend_zones_look *look)
{
	const struct zoned_device *d = queue->device->priv;

	*look = (struct backend_zones_look){
		.zone_bytes = d->shape.zone_bytes,
		.capacity_bytes = d->shape.capacity_bytes,
		.zone_nr = d->shape.zone_nr,
		.conventional_nr = d->header.conventional_nr,
		.open_nr_max = d->shape.open_nr_max,
		.active_nr_max = d->shape.active_nr_max,
		.empty_nr = condition_nr(d, ZONE_EMPTY),
		.implicit_nr = condition_nr(d, ZONE_IMPLICIT),
		.explicit_nr = condition_nr(d, ZONE_EXPLICIT),
		.closed_nr = condition_nr(d, ZONE_CLOSED),
		.full_nr = condition_nr(d, ZONE_FULL),
		.resets = counter_read(&d->resets),
		.finishes = counter_read(&d->finishes),
		.refused = counter_read(&d->table.refused),
		.redone = counter_read(&d->table.redone),
		.commits = counter_read(&d->commits),
	};
}

static void zoned_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct zoned_device *d = device->priv;

	snprintf(text, BACKEND_IDENTITY_BYTES, "zoned %llu/%llu/%u/%u",
		 (unsigned long long)d->header.zone_bytes,
		 (unsigned long long)d->header.capacity_bytes, d->header.zone_nr,
		 d->header.conventional_nr);
}

static const char *zoned_failure(const struct backend_device *device)
{
	const struct zoned_device *d = device->priv;

	return atomic_load_explicit(&d->failure, memory_order_relaxed);
}

static int zoned_stored_fd(const struct backend_device *device)
{
	return ((const struct zoned_device *)device->priv)->memory.fd;
}

/* Of zones below, there are no snapshots there. Create: the table there says what was flushed. */
static const char *zoned_above_apply(const struct backend_device *device,
				     const struct backend_device *child)
{
	(void)device, (void)child;
	return "has the write pointers of the zones in memory, and they would stay: remove the "
	       "device, apply the snapshot with a device of what is below alone, and start this "
	       "one again";
}

static const struct backend_above zoned_above = { .apply = zoned_above_apply };

const struct backend backend_zoned = {
	.name = "zoned",
	.summary = "A device with zones that are written one byte after the other, as on "
		   "shingled disks and zoned NVMe drives, over a backend of any type; or with the "
		   "zones of such a drive.",
	.options = zoned_options,
	.config_bytes = sizeof(struct zoned_config),
	.device_bytes = sizeof(struct zoned_device),
	.io_bytes = sizeof(struct zoned_io),
	.data = BACKEND_DATA_MOVES,
	/* Over 4 MiB all zones but the last: their blocks are written in any order. */
	.test_options = "zones: {size: 64KiB, conventional: 62}",
	.sizes_itself = true,
	.is_zoned = true,
	.alone_below = true,
	.children = backend_one_child,
	.own_nr = ZONED_OWN_NR,
	.own_bytes = ZONE_PAGE_BYTES,
	.check = zoned_check,
	.open = zoned_open,
	.open_async = zoned_open_async,
	.close_async = zoned_close_async,
	.close = zoned_close,
	.queue_init = zoned_queue_init,
	.queue_fini = zoned_queue_fini,
	.rest = zoned_below_rest,
	.io_init = zoned_io_init,
	.submit = zoned_submit,
	.cancel = zoned_cancel,
	.child_done = zoned_child_done,
	.wait = zoned_wait,
	.identity = zoned_identity,
	.failure = zoned_failure,
	.stored_fd = zoned_stored_fd,
	.look_zones = zoned_look,
	.above = &zoned_above,
};
