/*
 * The devices, from configuration or control socket to running and back. Main thread.
 *
 * Happy path: device_set_add starts a device; its LIVE event makes the member live; device_set_del
 * stops it; its GONE event marks it ended; the sweep frees it. The sweep is a libev timer of zero
 * seconds: device events come from inside a turn of the control reactor, where a device cannot be
 * freed.
 *
 * A member of which a reload wants something else is stopped and started again with `next`. What a
 * reload adds waits until what it stops is gone, since it may want the same file or id.
 *
 * device_set_adopt does the same with a device that the driver has since a crash (member->past). It
 * stays in the driver until it is adopted or given up; what a reload wants of it waits until it is
 * LIVE.
 *
 * How a member starts and what its backend needs for that: device_set_start.c. Reload and resize:
 * device_set_change.c.
 *
 * Failure modes: a device that does not start (the member stays, FAILED, when it is from the file),
 * that is in use, or whose storage does not take what it has acknowledged (stays live), that does
 * not answer (late: its watches are told, nobody waits for it any more).
 */
#include "daemon/devices/device_set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "daemon/devices/device_set_internal.h"
#include "daemon/devices/device_notes.h"
#include "daemon/devices/old_driver.h"
#include "storage/sharing.h"

/* Between two looks at what cannot be adopted or asked for yet. */
#define RETRY_SECONDS .01

const char *member_state_name(const struct member *m)
{
	static const char *const name[] = {
		[MEMBER_WAITING] = "waiting", [MEMBER_STARTING] = "starting",
		[MEMBER_LIVE] = "live",	      [MEMBER_STOPPING] = "stopping",
		[MEMBER_FAILED] = "failed",
	};

	if (m->state == MEMBER_STARTING && m->late && !m->device)
		return name[MEMBER_WAITING];
	return name[m->state];
}

struct member *device_set_find(const struct device_set *set, const char *name)
{
	list_for_each (node, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (strcmp(m->settings->options.name, name) == 0)
			return m;
	}
	return NULL;
}

void device_set_check(struct device_set *set)
{
	if (!ev_is_active(&set->sweep))
		ev_timer_start(set->ev, &set->sweep);
}

void device_set_tell(struct list_node *watches, enum device_set_outcome outcome, const char *error)
{
	struct list_node list = LIST_INIT(list);
	struct list_node *node;

	list_splice(&list, watches);
	while ((node = list_pop_front(&list))) {
		struct device_set_watch *watch = list_entry(node, struct device_set_watch, node);

		watch->fn(watch, outcome, error);
	}
}

static void forget_member(struct device_set *set, struct member *m)
{
	list_remove(&m->node);
	set->member_nr--;
}

static void free_member(struct member *m)
{
	ASSERT(!m->device);
	device_settings_free(m->settings);
	device_settings_free(m->next);
	device_set_forget_work(m);
	free(m->past);
	latency_fini(&m->latency);
	note_close_owed(m);
	free(m);
}

/* ---- starting ---- */

struct member *device_set_new_member(struct device_set *set, struct device_settings *settings,
				     bool from_file)
{
	struct member *m = calloc(1, sizeof(*m));

	if (!m) {
		log_error("out of memory for a device", "device=%s", settings->options.name);
		device_settings_free(settings);
		return NULL;
	}
	m->settings = settings;
	m->device_set = set;
	m->from_file = from_file;
	list_init(&m->watches);
	list_init(&m->resizes);
	list_init(&m->snapshots);
	list_init(&m->cache_commands);
	list_init(&m->shmem_changes);
	list_push_back(&set->members, &m->node);
	set->member_nr++;
	return m;
}

struct member *device_set_add(struct device_set *set, struct device_settings *settings,
			      bool from_file)
{
	struct member *m = device_set_new_member(set, settings, from_file);

	ASSERT(!set->closing);
	if (m)
		device_set_start(set, m);
	return m;
}

struct member *device_set_adopt(struct device_set *set, struct state_record *record,
				const struct ublksrv_ctrl_dev_info *info)
{
	struct member *m = device_set_new_member(set, state_take(record), record->from_file);
	struct member_past *past;

	if (!m)
		return NULL;
	past = calloc(1, sizeof(*past));
	if (!past) {
		forget_member(set, m);
		free_member(m);
		return NULL;
	}
	snprintf(past->identity, sizeof(past->identity), "%s", record->identity);
	past->device = (struct device_past){
		.info = *info,
		.size_bytes = record->size_bytes,
		.identity = past->identity,
	};
	past->until_ns = ring_clock_ns() + NOTE_OUTAGE_TIMEOUT_NS;
	past->begun = record->phase == STATE_RECOVERING;
	m->past = past;
	device_set_start(set, m);
	return m;
}

/* Not before all stops have ended; a new one also not before those that begin after an adoption. */
static void start_waiting(struct device_set *set)
{
	bool one_is_to_stop = false;

	list_for_each (node, &set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->state == MEMBER_STOPPING && !m->late)
			return;
		one_is_to_stop |= m->stop_when_live && !m->late;
	}
	/* A member that cannot start may leave the device set at once. */
	list_for_each_safe (node, next, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->state == MEMBER_WAITING && (m->past || !one_is_to_stop))
			device_set_start(set, m);
	}
}

/* ---- stopping ---- */

void device_set_stop_member(struct device_set *set, struct member *m, bool force)
{
	int ret;

	m->state = MEMBER_STOPPING;
	backend_claim_alone(member_backend(m), true);
	ret = device_stop(m->device, force, DEVICE_SET_STOP_DEADLINE_NS(set->stop_timeout_ns));
	ASSERT(ret == 0 || ret == -EALREADY);
	if (ret == 0)
		m->late = false;
}

void device_set_set_next(struct member *m, struct device_settings *next)
{
	device_settings_free(m->next);
	m->next = next;
}

/* It could not be adopted and is given up, but the driver still has it. */
static void discard(struct device_set *set, struct member *m, bool force)
{
	struct device_spec spec;

	device_set_forget_work(m);
	device_set_fill_spec(set, m, &spec);
	if (device_discard(&m->device, set->host, &spec, &m->past->device, m, m->error,
			   sizeof(m->error)) == 0)
		device_set_stop_member(set, m, force);
	else
		device_set_did_not_start(set, m);
}

void device_set_del(struct device_set *set, struct member *m, bool force)
{
	device_set_set_next(m, NULL);
	m->stop_when_live = m->past && !force && m->state == MEMBER_STARTING && !m->late;
	if (m->stop_when_live)
		return;
	if (m->device && !m->ended) {
		device_set_stop_member(set, m, force);
		return;
	}
	if (m->past && !set->closing) {
		/* A device that has just failed is freed by the sweep first. */
		m->given_up = m->ended;
		m->given_up_by_force = force;
		if (!m->given_up)
			discard(set, m, force);
		return;
	}
	/* Nothing runs; the sweep removes it, when its watches can have been added. */
	m->state = MEMBER_STOPPING;
	m->ended = true;
	device_set_check(set);
}

void device_set_stop_all(struct device_set *set)
{
	set->closing = true;
	/* The last added first: it may live on another one's file system. */
	for (struct list_node *node = set->members.prev; node != &set->members; node = node->prev)
		device_set_del(set, list_entry(node, struct member, node), true);
	device_set_check(set);
}

/* ---- what devices tell ---- */

static void forget_past(struct member *m)
{
	free(m->past);
	m->past = NULL;
}

static void on_live(struct member *m)
{
	struct device_info info;

	forget_past(m);
	/* The sweep stops it: not from inside an event. */
	if (m->stop_when_live) {
		m->state = MEMBER_STOPPING;
		return;
	}
	/* It became live while it was being stopped: the stop goes on. */
	if (m->state != MEMBER_STARTING)
		return;
	m->state = MEMBER_LIVE;
	m->late = false;
	device_info(m->device, &info);
	log_info("device is live", "device=%s path=/dev/ublkb%lld size_bytes=%llu backend=%s",
		 m->settings->options.name, (long long)info.id, (unsigned long long)info.size_bytes,
		 info.backend);
	device_set_tell(&m->watches, DEVICE_SET_LIVE, "");
}

static void on_refused(struct member *m)
{
	log_warn("device is not stopped and stays as it is", "device=%s reason=\"%s\"",
		 m->settings->options.name, device_error(m->device));
	device_set_set_next(m, NULL);
	m->state = MEMBER_LIVE;
	m->late = false;
	device_set_tell(&m->watches, DEVICE_SET_REFUSED, device_error(m->device));
}

void device_set_is_late(struct member *m, const char *state, const char *why)
{
	log_warn("device is late", "device=%s state=%s reason=\"%s\"", m->settings->options.name,
		 state, why);
	m->late = true;
	device_set_tell(&m->watches, DEVICE_SET_LATE, why);
	device_set_check(m->device_set);
}

/* What is added over the same storage waits for a cache that still writes there. */
static void on_late(struct member *m)
{
	if (device_drains(m->device)) {
		device_set_tell(&m->watches, DEVICE_SET_LATE, device_error(m->device));
		return;
	}
	device_set_is_late(m, device_state_name(device_state(m->device)), device_error(m->device));
}

static void on_failed(struct member *m)
{
	if (device_id_taken(m->device))
		device_set_explain_id(m->device_set, m, "/dev", m->error, sizeof(m->error));
	else
		snprintf(m->error, sizeof(m->error), "%s", device_error(m->device));
	log_error(m->state == MEMBER_LIVE ? "device failed" : "device did not start",
		  "device=%s error=\"%s\"", m->settings->options.name, m->error);
	if (m->state != MEMBER_STOPPING || device_kept(m->device))
		m->state = MEMBER_FAILED;
	/* The driver has it no more: the next try is a start. */
	if (!device_kept(m->device))
		forget_past(m);
	m->stop_when_live = false;
	m->ended = true;
}

static void on_gone(struct member *m)
{
	log_info("device is gone", "device=%s", m->settings->options.name);
	m->ended = true;
}

/* A reader of the flight recorders knows the device by this name. */
static void name_in_flight(const struct device_set *set, const struct device *device)
{
	struct device_info info;

	device_info(device, &info);
	for (unsigned i = 0; i < set->host->reactor_nr; i++)
		flight_name(set->host->reactors[i]->flight, (unsigned)info.id, device_name(device));
}

/* From inside a turn of the control reactor: nothing is freed here. */
static void on_device_event(struct device *device, enum device_event event, void *arg)
{
	static void (*const handler[])(struct member *) = {
		[DEVICE_EVENT_LIVE] = on_live,
		[DEVICE_EVENT_FAILED] = on_failed,
		[DEVICE_EVENT_GONE] = on_gone,
		[DEVICE_EVENT_STOP_REFUSED] = on_refused,
		[DEVICE_EVENT_LATE] = on_late,
		[DEVICE_EVENT_RESIZED] = device_set_resized,
		[DEVICE_EVENT_SNAPSHOT] = device_set_snapshot_ended,
		[DEVICE_EVENT_CACHE] = device_set_cache_ended,
		[DEVICE_EVENT_SHMEM] = device_set_shmem_ended,
	};

	if (event == DEVICE_EVENT_LIVE) {
		name_in_flight(arg, device);
		old_driver_shorten_timeout(((struct device_set *)arg)->host, device);
		note_serving(arg, device_owner(device));
	}
	if (event == DEVICE_EVENT_RESIZED)
		note_serving(arg, device_owner(device));
	if (event == DEVICE_EVENT_GONE || (event == DEVICE_EVENT_FAILED && !device_kept(device)))
		note_forget(arg, device_name(device));
	handler[event](device_owner(device));
	if (event == DEVICE_EVENT_LIVE)
		device_set_size_when_live(device_owner(device));
	device_set_check(arg);
}

/* ---- the sweep ---- */

/* Off the list first: a watch may at once ask for a device of the same name. */
static void retire(struct device_set *set, struct member *m, enum device_set_outcome outcome)
{
	forget_member(set, m);
	device_set_tell(&m->watches, outcome, m->error);
	free_member(m);
}

void device_set_start_as_next(struct member *m)
{
	device_settings_free(m->settings);
	m->settings = m->next;
	m->next = NULL;
	m->stop_when_live = false;
	m->state = MEMBER_WAITING;
}

/* What it would be next may be another way to the same bytes, of which some are missing now. */
static void stays_for_its_loss(struct member *m)
{
	log_error("device is not started as configured",
		  "device=%s error=\"%s\" "
		  "cure=\"look after its storage, then reload again: that starts it\"",
		  m->settings->options.name, m->error);
	device_set_set_next(m, NULL);
	m->state = MEMBER_FAILED;
	device_set_tell(&m->watches, DEVICE_SET_FAILED, m->error);
}

/* lost: as backend_work_loss says. */
static void sweep_gone(struct device_set *set, struct member *m, const char *lost)
{
	forget_past(m);
	m->error[0] = '\0';
	if (*lost)
		snprintf(m->error, sizeof(m->error),
			 "the device is gone, but its storage has not all that was written: %s",
			 lost);
	if (m->next && *lost)
		stays_for_its_loss(m);
	else if (m->next)
		device_set_start_as_next(m);
	else
		retire(set, m, DEVICE_SET_GONE);
}

/* False: its backend is being closed; the end of that comes back here. */
static bool sweep_member(struct device_set *set, struct member *m)
{
	char lost[DEVICE_ERROR_BYTES] = "";
	bool given_up;

	if (device_set_close_backend(set, m))
		return false;
	if (m->work && backend_work_closes(m->work))
		snprintf(lost, sizeof(lost), "%s", backend_work_loss(m->work));
	if (!*lost && m->device)
		snprintf(lost, sizeof(lost), "%s", device_loss(m->device));
	given_up = m->given_up;
	device_set_forget_work(m);
	device_free(m->device);
	m->device = NULL;
	m->ended = m->late = m->given_up = false;
	if (m->state == MEMBER_FAILED && m->past && m->next)
		device_set_start_as_next(m);
	else if (m->state == MEMBER_FAILED && m->past && given_up)
		discard(set, m, m->given_up_by_force);
	else if (m->state == MEMBER_FAILED && (m->from_file || m->past))
		device_set_tell(&m->watches, DEVICE_SET_FAILED, m->error);
	else if (m->state == MEMBER_FAILED)
		retire(set, m, DEVICE_SET_FAILED);
	else
		sweep_gone(set, m, lost);
	return true;
}

/* True when there was one. */
static bool sweep_ended(struct device_set *set)
{
	bool any = false;

	list_for_each_safe (node, next, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->ended && sweep_member(set, m))
			any = true;
	}
	return any;
}

/* Members that were to be stopped as soon as they are adopted, and now are. */
static void stop_adopted(struct device_set *set)
{
	list_for_each (node, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (!m->stop_when_live || m->state != MEMBER_STOPPING)
			continue;
		m->stop_when_live = false;
		device_set_stop_member(set, m, false);
	}
}

static void on_sweep(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct device_set *set = container_of(w, struct device_set, sweep);

	(void)ev, (void)events;
	stop_adopted(set);
	start_waiting(set);
	device_set_start_opened(set);
	/* What ended may be what others wait for: look again. */
	if (sweep_ended(set))
		device_set_check(set);
	else if (set->changed)
		set->changed(set);
}

static void on_retry(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)events;
	ev_timer_stop(ev, w);
	device_set_check(container_of(w, struct device_set, retry));
}

/* ---- the rest ---- */

void device_set_watch(struct member *m, struct device_set_watch *watch)
{
	ASSERT(device_set_busy(m));
	list_push_back(&m->watches, &watch->node);
}

bool device_set_settled(const struct device_set *set)
{
	list_for_each (node, &set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (device_set_busy(m) && !m->late)
			return false;
	}
	return true;
}

/* From a turn of the control reactor. */
static void on_work_ended(void *device_set)
{
	device_set_check(device_set);
}

void device_set_init(struct device_set *set, struct ev_loop *ev, struct device_host *host,
		     uint64_t stop_timeout_ns)
{
	*set = (struct device_set){
		.ev = ev,
		.host = host,
		.stop_timeout_ns = stop_timeout_ns,
		.open_timeout_seconds = DEVICE_SET_OPEN_TIMEOUT_SECONDS,
	};
	list_init(&set->members);
	ev_timer_init(&set->sweep, on_sweep, 0., 0.);
	ev_timer_init(&set->retry, on_retry, 0., RETRY_SECONDS);
	set->work = (struct backend_work_host){
		.home = { .reactor = host->ctl ? host->ctl->reactor : NULL,
			  .helpers = host->helpers,
			  .data = host->reactors,
			  .data_nr = host->reactor_nr },
		.ended = on_work_ended,
		.arg = set,
	};
	note_init(set);
	host->event = on_device_event;
	host->added = note_added;
	host->stored = note_stored;
	host->arg = set;
}

void device_set_fini(struct device_set *set)
{
	ev_timer_stop(set->ev, &set->sweep);
	ev_timer_stop(set->ev, &set->retry);
	note_fini(set);
	list_for_each_safe (node, next, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		/* Still in the kernel's hands: the process is about to end. */
		if (m->device && !m->ended)
			continue;
		device_free(m->device);
		m->device = NULL;
		forget_member(set, m);
		free_member(m);
	}
}
