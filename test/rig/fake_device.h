/*
 * All of ublk/device/device.h without a driver, for the tests of the device set and of the control
 * socket; the linker takes these before the library's. Like the real ones, devices answer from the
 * loop, never from inside a call. What a device does stands in its name:
 *
 *   absent...  device_start fails            sour...  starting fails later
 *   taken.. the same, since another device has its id
 *   slow...    nothing happens until fake_release   busy...  a polite stop is refused
 *   held...    device_recover says that the backend is busy, fake_held_nr times
 *   rigid...   cannot be resized                    tight... a resize fails in the end
 *   lame...    a change of its snapshots does not end
 *   lost...    recovery fails, and the driver has the device no more
 *   leaning... quiesced, it is not quiet before all devices called below... were open
 *   restless.. quiesced, it is not quiet until fake_rest
 *   stuck...   its I/O is as old as the clock, also when fake_io_young
 */
#ifndef TEST_RIG_FAKE_DEVICE_H
#define TEST_RIG_FAKE_DEVICE_H

#include <errno.h>
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/util.h"
#include "reactor/ring.h"
#include "ublk/device/device.h"
#include "ublk/device/inflight.h"
#include "net/session_look.h"

#define FAKE_DEVICES_MAX 2048

struct device {
	const struct device_host *host;
	struct device_spec spec;
	char name[64];
	char error[DEVICE_ERROR_BYTES];
	void *owner;
	enum device_state state;
	bool stop_wanted, force, asked, adopting, kept;
	enum device_event planned;
	struct ev_timer answer;
	const void *config_seen; /* as given; still there when the device ends */
	uint64_t size_bytes;
	struct backend_device *backend; /* as opened; what tests see is fake_backend */
	struct device_resized resized;
	struct ev_timer resize;
	struct ev_timer snapshot; /* a change of them; all fail of tight... */
	struct device_snapshot_look snapshot_look;
	bool quiesced, rested, abandoned;
	unsigned quiesced_nr; /* how often it was quiesced */
};

#include "test/unit/daemon/fake_look.h"
#include "test/unit/daemon/fake_cache.h"
#include "test/unit/daemon/fake_shmem.h"

static struct device *fake_devices[FAKE_DEVICES_MAX];
static unsigned fake_nr;	  /* devices that exist */
static unsigned fake_starts;	  /* successful device_start calls */
static uint64_t fake_deadline_ns; /* of the last device_stop */

/* Reads that a device did, by 1, 2, 4 ... us; more of them each time that somebody asks. */
static unsigned fake_requests = 1, fake_requests_more;
static uint64_t fake_slow_ns;	 /* of one more read; 0: there is none */
static int fake_server_pid = 42; /* what the driver says */
static bool fake_io_young;	 /* I/Os of all devices but stuck... were fetched just now */

static struct backend_device *fake_backend;	   /* of every device, but when */
static bool fake_has_opened;			   /* ... each has what was opened for it */
static const char *fake_no = "the driver says no"; /* of sour... */
static bool fake_resizing;			   /* what all devices say of themselves */
static uint64_t fake_flags = 1u << 6;		   /* the driver's, of every device */

static inline bool fake_is(const struct device *d, const char *kind)
{
	return strncmp(d->name, kind, strlen(kind)) == 0;
}

static inline struct device *fake_find(const char *name)
{
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++)
		if (fake_devices[i] && strcmp(fake_devices[i]->name, name) == 0)
			return fake_devices[i];
	return NULL;
}

static void fake_answer(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct device *d = container_of(w, struct device, answer);
	static const enum device_state after[] = {
		[DEVICE_EVENT_LIVE] = DEVICE_LIVE,
		[DEVICE_EVENT_FAILED] = DEVICE_FAILED,
		[DEVICE_EVENT_STOP_REFUSED] = DEVICE_LIVE,
		[DEVICE_EVENT_GONE] = DEVICE_GONE,
	};

	(void)ev, (void)events;
	if (d->planned != DEVICE_EVENT_LATE)
		d->state = after[d->planned];
	if (d->planned == DEVICE_EVENT_STOP_REFUSED)
		d->stop_wanted = false;
	d->kept = d->planned == DEVICE_EVENT_FAILED && d->adopting && !fake_is(d, "lost");
	if (d->planned == DEVICE_EVENT_LIVE)
		d->adopting = false;
	d->host->event(d, d->planned, d->host->arg);
}

static inline void fake_plan(struct device *d, enum device_event event, const char *error)
{
	/* A test that names a device that is not there. */
	if (!d)
		abort();
	snprintf(d->error, sizeof(d->error), "%s", error);
	d->planned = event;
	ev_timer_stop(ev_default_loop(0), &d->answer);
	ev_timer_init(&d->answer, fake_answer, 0.002, 0.);
	ev_timer_start(ev_default_loop(0), &d->answer);
}

static inline void fake_plan_end(struct device *d)
{
	bool fails =
		fake_is(d, "sour") || fake_is(d, "taken") || (fake_is(d, "lost") && d->adopting);

	if (!d->stop_wanted)
		fake_plan(d, fails ? DEVICE_EVENT_FAILED : DEVICE_EVENT_LIVE, fails ? fake_no : "");
	else if (fake_is(d, "busy") && !d->force && d->adopting)
		fake_plan(d, DEVICE_EVENT_FAILED, "in use: by the test");
	else if (fake_is(d, "busy") && !d->force)
		fake_plan(d, DEVICE_EVENT_STOP_REFUSED, "in use: by the test");
	else
		fake_plan(d, DEVICE_EVENT_GONE, "");
}

static inline struct device *fake_get(const char *name)
{
	struct device *d = fake_find(name);

	ASSERT(d);
	return d;
}

/* Some device is about to answer or to end a resize. */
static inline bool fake_pending(void)
{
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++)
		if (fake_devices[i] && (ev_is_active(&fake_devices[i]->answer) ||
					ev_is_active(&fake_devices[i]->resize) ||
					ev_is_active(&fake_devices[i]->snapshot)))
			return true;
	return false;
}

/* A slow device does what it was asked. */
static inline void fake_release(const char *name)
{
	fake_plan_end(fake_get(name));
}

static inline void fake_late(const char *name)
{
	fake_plan(fake_get(name), DEVICE_EVENT_LATE, "no answer for 30 s");
}

const char *device_state_name(enum device_state state)
{
	return state == DEVICE_LIVE ? "live" : "other";
}

static inline void fake_make(struct device **ret_device, const struct device_host *host,
			     const struct device_spec *spec, void *owner)
{
	struct device *d = calloc(1, sizeof(*d));
	unsigned i = 0;

	d->host = host;
	d->spec = *spec;
	d->owner = owner;
	d->config_seen = spec->backend->config;
	d->backend = spec->opened;
	d->size_bytes = 1u << 20;
	snprintf(d->name, sizeof(d->name), "%s", spec->name);
	while (fake_devices[i])
		ASSERT(++i < FAKE_DEVICES_MAX);
	fake_devices[i] = d;
	fake_nr++;
	d->state = DEVICE_ADDING;
	*ret_device = d;
}

int device_start(struct device **ret_device, const struct device_host *host,
		 const struct device_spec *spec, void *owner, char *error, size_t error_bytes)
{
	if (strncmp(spec->name, "absent", 6) == 0) {
		snprintf(error, error_bytes, "there is no such file");
		return -1;
	}
	fake_make(ret_device, host, spec, owner);
	fake_starts++;
	if (!fake_is(*ret_device, "slow"))
		fake_plan_end(*ret_device);
	return 0;
}

/* How often held... is still held. */
static unsigned fake_held_nr;

int device_recover(struct device **ret_device, const struct device_host *host,
		   const struct device_spec *spec, const struct device_past *past, void *owner,
		   char *error, size_t error_bytes)
{
	struct device_spec same = *spec;
	int ret;

	if (strncmp(spec->name, "held", 4) == 0 && fake_held_nr > 0) {
		fake_held_nr--;
		snprintf(error, error_bytes, "the file is in use");
		return -EBUSY;
	}
	same.id = (int64_t)past->info.dev_id;
	ret = device_start(ret_device, host, &same, owner, error, error_bytes);
	if (ret < 0)
		return ret;
	(*ret_device)->adopting = true;
	if (!fake_is(*ret_device, "slow"))
		fake_plan_end(*ret_device);
	return 0;
}

int device_discard(struct device **ret_device, const struct device_host *host,
		   const struct device_spec *spec, const struct device_past *past, void *owner,
		   char *error, size_t error_bytes)
{
	(void)error, (void)error_bytes;
	fake_make(ret_device, host, spec, owner);
	(*ret_device)->spec.id = (int64_t)past->info.dev_id;
	(*ret_device)->adopting = true;
	return 0;
}

bool device_id_taken(const struct device *d)
{
	return fake_is(d, "taken");
}

bool device_kept(const struct device *d)
{
	return d->kept;
}

int device_stop(struct device *d, bool force, uint64_t deadline_ns)
{
	ASSERT(d->state != DEVICE_GONE && d->state != DEVICE_FAILED);
	fake_deadline_ns = deadline_ns;
	if (d->stop_wanted && (d->force || !force))
		return -EALREADY;
	d->stop_wanted = true;
	d->force = force;
	d->state = DEVICE_STOPPING;
	if (!fake_is(d, "slow"))
		fake_plan_end(d);
	return 0;
}

static void fake_resize_ends(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct device *d = container_of(w, struct device, resize);

	(void)ev, (void)events;
	if (fake_is(d, "tight"))
		d->resized.words = "there is no room";
	else
		d->size_bytes = d->resized.to_bytes;
	d->resized.err = fake_is(d, "tight") ? -ENOSPC : 0;
	d->host->event(d, DEVICE_EVENT_RESIZED, d->host->arg);
}

/* Its own growth: twice the size. */
int device_resize(struct device *d, uint64_t size_bytes, bool force, char *error,
		  size_t error_bytes)
{
	if (size_bytes == 0)
		size_bytes = d->size_bytes * 2;
	if (fake_is(d, "rigid")) {
		snprintf(error, error_bytes, "it cannot be resized");
		return -EOPNOTSUPP;
	}
	if (size_bytes == d->size_bytes)
		return -EALREADY;
	if (size_bytes < d->size_bytes && !force) {
		snprintf(error, error_bytes, "there is data");
		return -ENOTEMPTY;
	}
	d->resized = (struct device_resized){ .from_bytes = d->size_bytes,
					      .to_bytes = size_bytes,
					      .words = "" };
	ASSERT(!ev_is_active(&d->resize));
	ev_timer_init(&d->resize, fake_resize_ends, 0.002, 0.);
	ev_timer_start(ev_default_loop(0), &d->resize);
	return 0;
}

void device_resized(const struct device *d, struct device_resized *ret_resized)
{
	*ret_resized = d->resized;
}

static void fake_snapshot_ends(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct device *d = container_of(w, struct device, snapshot);

	(void)ev, (void)events;
	d->snapshot_look.busy = false;
	d->snapshot_look.err = fake_is(d, "tight") ? -ENOSPC : 0;
	d->snapshot_look.words = fake_is(d, "tight") ? "there is no room" : "";
	d->host->event(d, DEVICE_EVENT_SNAPSHOT, d->host->arg);
}

/* slow...: its end never comes. */
int device_snapshot(struct device *d, const struct device_snapshot_wish *wish, char *error,
		    size_t error_bytes)
{
	if (fake_is(d, "rigid") || (wish->op == BACKEND_SNAPSHOT_APPLY && !wish->force)) {
		snprintf(error, error_bytes, "it has no snapshots");
		return -EOPNOTSUPP;
	}
	d->snapshot_look = (struct device_snapshot_look){
		.busy = true, .op = wish->op, .name = "x", .done_permille = 437, .words = ""
	};
	ev_timer_init(&d->snapshot, fake_snapshot_ends, 0.002, 0.);
	if (!fake_is(d, "lame"))
		ev_timer_start(ev_default_loop(0), &d->snapshot);
	return 0;
}

void device_snapshot_look(const struct device *d, struct device_snapshot_look *ret_look)
{
	*ret_look = d->snapshot_look;
}

struct backend_device *device_take_backend(struct device *d)
{
	struct backend_device *backend = d->backend;

	d->backend = NULL;
	return backend;
}

/* As device.c does; a fake device takes over nothing from the past. */
void device_open_params(const struct device_spec *spec, const struct device_past *past,
			struct backend_open_params *ret_open_params)
{
	*ret_open_params =
		(struct backend_open_params){ .logical_block_bytes = spec->logical_block_bytes,
					      .size_bytes = past ? past->size_bytes : 0 };
}

void device_free(struct device *d)
{
	if (!d)
		return;
	ev_timer_stop(ev_default_loop(0), &d->resize);
	ASSERT(d->state == DEVICE_GONE || d->state == DEVICE_FAILED);
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++)
		if (fake_devices[i] == d)
			fake_devices[i] = NULL;
	fake_nr--;
	backend_close(d->backend);
	free(d);
}

void *device_owner(const struct device *d)
{
	return d->owner;
}

const char *device_name(const struct device *d)
{
	return d->name;
}

enum device_state device_state(const struct device *d)
{
	return d->state;
}

bool device_drains(const struct device *d)
{
	(void)d;
	return false;
}

const char *device_loss(const struct device *d)
{
	(void)d;
	return "";
}

const char *device_error(const struct device *d)
{
	return d->error;
}

struct backend_device *device_backend(struct device *d)
{
	return fake_has_opened ? d->backend : fake_backend;
}

void device_info(const struct device *d, struct device_info *ret_info)
{
	*ret_info = (struct device_info){
		.id = d->spec.id >= 0 ? d->spec.id : 7,
		.queues = d->spec.queues,
		.depth = d->spec.depth,
		.logical_block_bytes = d->spec.logical_block_bytes,
		.physical_block_bytes = d->spec.logical_block_bytes,
		.max_io_bytes = d->spec.max_io_bytes,
		.size_bytes = d->size_bytes,
		.caps = BACKEND_CAP_FLUSH | BACKEND_CAP_DISCARD,
		.flags = fake_flags,
		.backend = d->spec.backend->ops->name,
		.data_path = "copy",
		.resizing = fake_resizing,
		.has_cache_command = fake_cache_look.busy,
		.queue_reactor_nr = 1,
	};
}

void device_stats(const struct device *d, struct device_stats *ret_stats)
{
	struct device_op_stats *reads = &ret_stats->op[BACKEND_READ];

	(void)d;
	*ret_stats = (struct device_stats){ .inflight = 2 };
	for (unsigned i = 0; i < fake_requests; i++) {
		reads->done++;
		reads->bytes += 4096;
		histogram_record(&reads->layer[QUEUE_LAYER_TOTAL], 1000ull << i % 12);
	}
	fake_requests += fake_requests_more;
	if (fake_slow_ns) {
		reads->done++;
		histogram_record(&reads->layer[QUEUE_LAYER_TOTAL], fake_slow_ns);
	}
}

const char *inflight_state_name(enum inflight_state state)
{
	return ((const char *const[]){ "down", "armed", "serving", "busy", "done" })[state];
}

/* One tag is armed, one has an I/O. */
bool device_inflight(const struct device *d, unsigned queue, struct inflight_queue *ret_queue,
		     void (*fn)(const struct inflight_io *io, void *arg), void *arg)
{
	static const struct backend fake_mem_ops = { .name = "mem" };
	static const struct backend_device fake_node = { .ops = &fake_mem_ops, .name = "a" };
	struct inflight_io io = {
		.tag = 1,
		.state = INFLIGHT_SERVING,
		.op = BACKEND_WRITE,
		.sector = 8,
		.bytes = 4096,
		.start_ns = fake_io_young && !fake_is(d, "stuck") ? ring_clock_ns() : 1,
		.node = &fake_node,
		.wait = { .words = "thinking" },
	};

	if (d->state != DEVICE_LIVE || queue > 0)
		return false;
	*ret_queue = (struct inflight_queue){ .depth = 2, .tags = { 0, 1, 1 } };
	fn(&io, arg);
	return true;
}

/* Told once for each change. */
void device_quiesce(struct device *d, bool on)
{
	ASSERT(d->state == DEVICE_LIVE && d->quiesced != on);
	d->quiesced = on;
	d->quiesced_nr += on;
	for (unsigned i = 0; i < FAKE_DEVICES_MAX && fake_is(d, "below") && !on; i++)
		if (fake_devices[i] && fake_is(fake_devices[i], "leaning"))
			fake_devices[i]->rested = fake_devices[i]->quiesced;
}

bool device_quiet(const struct device *d)
{
	return d->quiesced && (d->rested || !(fake_is(d, "restless") || fake_is(d, "leaning")));
}

bool device_settle(const struct device *d)
{
	ASSERT(device_quiet(d));
	return d->rested || !fake_is(d, "cached");
}

static inline void fake_rest(const char *name)
{
	fake_get(name)->rested = true;
}

void device_abandon(struct device *d)
{
	ASSERT(d->quiesced && !d->abandoned && device_settle(d));
	d->abandoned = true;
}

bool device_owns_op(const struct device *d, const struct reactor *reactor, uint64_t user_data)
{
	(void)d, (void)reactor, (void)user_data;
	return false;
}

void device_ask_driver(struct device *d)
{
	d->asked = true;
}

void device_driver(const struct device *d, struct device_driver *ret_said)
{
	*ret_said = (struct device_driver){ 0 };
	if (d->asked)
		*ret_said = (struct device_driver){
			.asked_ns = 1, .answered_ns = 2, .state = 1, .server_pid = fake_server_pid
		};
}

/* Those that are slow wait for the driver. */
void device_command(const struct device *d, uint64_t as_of_ns, struct device_command *ret_command)
{
	(void)as_of_ns;
	*ret_command = (struct device_command){ 0 };
	if (fake_is(d, "slow") && d->state == DEVICE_ADDING)
		*ret_command = (struct device_command){ .name = "START_DEV",
							.waited_ns = 7,
							.where = "a_function" };
}

const char *device_driver_state_name(unsigned state)
{
	return state == 1 ? "LIVE" : "?";
}

uint64_t device_memory_max(const struct device_spec *spec)
{
	return spec->depth;
}

#endif
