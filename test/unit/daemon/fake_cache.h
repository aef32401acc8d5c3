/*
 * The caches of the devices of test/rig/fake_device.h, which includes this, and commands to them:
 * one at a time of all. Those to lame... end when they are cancelled, those to tight... fail.
 */
#ifndef TEST_UNIT_DAEMON_FAKE_CACHE_H
#define TEST_UNIT_DAEMON_FAKE_CACHE_H

#include <ev.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "storage/metadata.h"
#include "storage/look.h"
#include "storage/zones.h"
#include "test/unit/daemon/fake_look.h"
#include "ublk/device/device.h"

/* Of a device whose name begins with "cache": two, one over the other. */
bool device_cache(const struct device *d, unsigned idx, struct backend_cache_look *ret_look)
{
	if (strncmp(d->spec.name, "cache", 5) != 0 || idx > 1)
		return false;
	*ret_look = (struct backend_cache_look){ .node = idx ? "cache/backend" : d->spec.name,
						 .mode = idx ? "readthrough" : "writeback",
						 .is_off = idx,
						 .is_repeated = idx == 0 && fake_repeats(d),
						 .block_bytes = 65536,
						 .block_nr = 1000,
						 .used_nr = 100,
						 .dirty_bytes = idx ? 0 : 8192,
						 .hits = 30,
						 .misses = 10,
						 .hit_bytes = idx ? 0 : 3000,
						 .miss_bytes = idx ? 0 : 1000,
						 .filled_bytes = 2000,
						 .evicted = 7 };
	return true;
}

/* Of a device whose name begins with "zones". */
bool device_zones(const struct device *d, struct backend_zones_look *ret_look)
{
	if (strncmp(d->spec.name, "zones", 5) != 0)
		return false;
	*ret_look = (struct backend_zones_look){ .zone_bytes = 1 << 20,
						 .capacity_bytes = 1 << 19,
						 .zone_nr = 21,
						 .conventional_nr = 1,
						 .open_nr_max = 7,
						 .active_nr_max = 9,
						 .implicit_nr = 2,
						 .explicit_nr = 3,
						 .closed_nr = 4,
						 .full_nr = 5,
						 .empty_nr = 6,
						 .resets = 11,
						 .finishes = 12,
						 .refused = 13,
						 .redone = 14,
						 .commits = 15 };
	return true;
}

/* Of a device whose name begins with "integrity". */
bool device_integrity(const struct device *d, struct backend_integrity_look *ret_look)
{
	if (strncmp(d->spec.name, "integrity", 9) != 0)
		return false;
	*ret_look = (struct backend_integrity_look){
		.limits = { .metadata_bytes = 64,
			    .interval_shift = 12,
			    .checksum = BACKEND_CHECKSUM_NVME,
			    .tuple_at = 48,
			    .tag_bytes = 3,
			    .has_reftag = true },
		.reads = 21,
		.writes = 22,
		.forgotten = 23,
		.held = 24,
	};
	return true;
}

static struct backend_cache_job fake_cache_job;
static struct device_cache_wish fake_cache_wish; /* as it came */
static struct device_cache_look fake_cache_look = { .job = &fake_cache_job, .node = "cache" };
static struct device *fake_cache_device;
static struct ev_timer fake_cache_end;

static inline void fake_cache_ends(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	bool fails = strncmp(fake_cache_device->spec.name, "tight", 5) == 0;

	(void)ev, (void)timer, (void)events;
	fake_cache_look.busy = false;
	fake_cache_look.err = fails || fake_cache_job.is_cancelled ? -EIO : 0;
	if (fails)
		snprintf(fake_cache_job.words, sizeof(fake_cache_job.words), "it is too tight");
	fake_cache_device->host->event(fake_cache_device, DEVICE_EVENT_CACHE,
				       fake_cache_device->host->arg);
}

int device_cache_command(struct device *d, const struct device_cache_wish *wish, char *error,
			 size_t error_bytes)
{
	if (strncmp(d->spec.name, "rigid", 5) == 0) {
		snprintf(error, error_bytes, "it has no cache");
		return -EOPNOTSUPP;
	}
	fake_cache_device = d;
	fake_cache_wish = *wish;
	fake_cache_job = (struct backend_cache_job){ .op = wish->op,
						     .total_bytes = 8192,
						     .fetched_bytes = 4096,
						     .present_bytes = 3000,
						     .passed_bytes = 1096,
						     .is_full = true,
						     .dropped_bytes = 5,
						     .dirty_bytes = 6 };
	fake_cache_look.busy = true;
	ev_timer_init(&fake_cache_end, fake_cache_ends, 0.002, 0.);
	if (strncmp(d->spec.name, "lame", 4) != 0)
		ev_timer_start(ev_default_loop(0), &fake_cache_end);
	return 0;
}

void device_cache_cancel(struct device *d)
{
	if (!fake_cache_look.busy || fake_cache_device != d)
		return;
	fake_cache_job.is_cancelled = true;
	ev_timer_start(ev_default_loop(0), &fake_cache_end);
}

void device_cache_look(const struct device *d, struct device_cache_look *ret_look)
{
	(void)d;
	*ret_look = fake_cache_look;
}

#endif
