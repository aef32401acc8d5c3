/*
 * A zoned device over zones below is opened: nothing is written, and nothing is read but what who
 * is below says of the zones (zone_below.h).
 *
 *   limits of the child -> reports, as many as it takes -> (the memory of a process before: which
 *   writes it had under way) -> done
 *
 * After a death, how far the zones are written is asked below as ever, when nothing of the dead
 * process is on its way any more: its I/O keeps the device below open, and that can be open once.
 *
 * Failure modes: no zones there, or such as the driver cannot have: refused in words.
 */
#include <errno.h>
#include <linux/blkzoned.h>
#include <stdlib.h>

#include "base/util.h"
#include "filters/zoned/zone_below.h"
#include "filters/zoned/zoned_visit.h"

/* Of what is kept for the next process, in the place of a table's own number. */
#define ZONED_BELOW_INSTANCE UINT64_MAX
#define ZONED_BELOW_REPORT_BYTES (2 * ZONE_PAGE_BYTES)

int zoned_below_open(struct zoned_device *d)
{
	struct backend_device *device = d->device;
	const struct backend_zone_limits *zones = &device->child->limits.zones;
	uint64_t zone_nr = zones->bytes ? backend_size(device->child) / zones->bytes : 0;

	if (zones->bytes == 0)
		return backend_fail(device, -EINVAL,
				    "zoned: the backend has no zones of its own: say what they are "
				    "to be like, as in zones: {size: 256MiB}");
	if (!is_power_of_two(zones->bytes) || zones->bytes < ZONED_ZONE_BYTES_MIN ||
	    zones->bytes > ZONED_ZONE_BYTES_MAX)
		return backend_fail(device, -EINVAL,
				    "zoned: the zones below have %llu bytes, and those of a device "
				    "a power of two from 64 KiB to 2 GiB",
				    (unsigned long long)zones->bytes);
	if (zone_nr == 0 || zone_nr > ZONE_NR_MAX)
		return backend_fail(device, -EINVAL,
				    "zoned: %llu zones below: a device has 1 to %u",
				    (unsigned long long)zone_nr, ZONE_NR_MAX);
	d->shape = (struct zone_shape){
		.zone_bytes = zones->bytes,
		.zone_nr = (uint32_t)zone_nr,
		.open_nr_max = zones->open_nr_max,
		.active_nr_max = zones->active_nr_max,
		.is_below = true,
	};
	d->below.lane = calloc(zone_nr, sizeof(*d->below.lane));
	if (!d->below.lane)
		return backend_fail(device, -ENOMEM, "zoned: no memory for the zones");
	for (uint64_t i = 0; i < zone_nr; i++) {
		list_init(&d->below.lane[i].waiting);
		list_init(&d->below.lane[i].asking);
	}
	list_init(&d->below.asking);
	return 0;
}

void zoned_below_changed(struct zone_table *t, uint32_t idx)
{
	(void)t;
	(void)idx;
}

/* All zones are known. */
static void below_reported(struct zoned_visit *v)
{
	struct zoned_device *d = v->d;
	uint32_t written_nr = d->shape.zone_nr - v->found.conventional_nr;

	if (written_nr == 0) {
		zoned_visit_end(v, -EINVAL,
				"all zones of the backend are conventional, and Linux takes no "
				"zoned device without one that is written in order");
		return;
	}
	if (d->shape.capacity_bytes == 0)
		d->shape.capacity_bytes = d->shape.zone_bytes;
	/* Of those that stand before the first that says it. */
	for (uint32_t i = 0; i < d->shape.zone_nr; i++)
		if (d->memory.zone[i].condition == ZONE_FULL)
			d->memory.zone[i].written_bytes = d->shape.capacity_bytes;
	d->shape.open_nr_max = zone_limit_of(d->shape.open_nr_max, written_nr);
	d->shape.active_nr_max = zone_limit_of(d->shape.active_nr_max, written_nr);
	d->header = (struct zone_header){
		.instance = ZONED_BELOW_INSTANCE,
		.zone_bytes = d->shape.zone_bytes,
		.capacity_bytes = d->shape.capacity_bytes,
		.zone_nr = d->shape.zone_nr,
		.conventional_nr = v->found.conventional_nr,
	};
	zoned_open_loaded(v);
}

static void below_ask(struct zoned_visit *v);

static void below_report(struct zoned_visit *v, int result)
{
	const struct blk_zone *zone = (const struct blk_zone *)v->buf;
	struct zoned_device *d = v->d;
	uint32_t end = MIN(d->shape.zone_nr,
			   v->next + ZONED_BELOW_REPORT_BYTES / BACKEND_ZONE_REPORT_BYTES);

	if (result < 0) {
		zoned_visit_end(v, result, "the backend does not say how its zones are");
		return;
	}
	for (; v->next < end; v->next++, zone++) {
		result = zone_below_first_look(&v->found, &d->shape, v->next, zone,
					       &d->memory.zone[v->next]);
		if (result < 0) {
			zoned_visit_end(v, result, v->found.words);
			return;
		}
	}
	if (v->next == d->shape.zone_nr)
		below_reported(v);
	else
		below_ask(v);
}

static void below_ask(struct zoned_visit *v)
{
	zoned_visit_io(v, BACKEND_ZONE_MANAGE, v->next * v->d->shape.zone_bytes,
		       ZONED_BELOW_REPORT_BYTES, "asking for the zones", below_report);
}

void zoned_below_open_async(struct zoned_visit *v)
{
	struct zoned_device *d = v->d;
	const struct zone_header shape = { .zone_nr = d->shape.zone_nr };

	if (zone_memory_new(&d->memory, &shape, d->device->open_params.depth) < 0)
		zoned_visit_end(v, -ENOMEM, "no memory for the zones");
	else
		below_ask(v);
}
