/*
 * Makes the device set what a configuration says, and live members larger or smaller. Main thread.
 *
 * Happy path of a reload: equal members are left alone; changed ones are stopped and started as
 * `next`; missing ones are removed; new ones wait until all that is stopped is gone. A device that
 * is being adopted is served first, as it was: the driver has it, and its users wait. One that
 * could not be adopted is tried again, also when no file names it (it was added or attached).
 *
 * Happy path of a resize: device_resize, its event, the watches are told. Settings stay as
 * configured: the size of a device that serves is its own. If nothing but the size grew in a
 * reload, the device grows, and only then the settings follow the file.
 *
 * Failure modes: the device cannot be resized (a kernel without it): a reload starts it anew, as
 * for any other change. Growing fails (no room): logged, the device stays, and the next reload
 * tries again. The file wants less than the device has: refused, since a reload never discards
 * data.
 */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "daemon/devices/device_notes.h"
#include "daemon/devices/device_set_internal.h"
#include "storage/sharing.h"
#include "storage/spec.h"

/* ---- resize ---- */

int device_set_resize(struct member *m, uint64_t size_bytes, bool force, char *error,
		      size_t error_bytes)
{
	if (m->state == MEMBER_LIVE && m->device && !m->ended)
		return device_resize(m->device, size_bytes, force, error, error_bytes);
	snprintf(error, error_bytes, "the device is not live: %s", member_state_name(m));
	return -EBUSY;
}

void device_set_resized(struct member *m)
{
	const char *name = m->settings->options.name;
	struct device_resized r;

	device_resized(m->device, &r);
	if (r.err)
		log_error("device was not resized", "device=%s error=\"%s\"", name, r.words);
	else if (r.from_bytes != r.to_bytes || *r.words)
		log_info("device is resized", "device=%s from_bytes=%llu to_bytes=%llu%s%s%s", name,
			 (unsigned long long)r.from_bytes, (unsigned long long)r.to_bytes,
			 *r.words ? " note=\"" : "", r.words, *r.words ? "\"" : "");
	/* The settings follow the file. */
	if (!r.err && m->reload_size_bytes == r.to_bytes)
		backend_spec_set_size(m->settings->backend, r.to_bytes);
	m->reload_size_bytes = 0;
	device_set_tell(&m->resizes, r.err ? DEVICE_SET_REFUSED : DEVICE_SET_RESIZED, r.words);
}

/* ---- snapshots ---- */

int device_set_snapshot(struct member *m, const struct device_snapshot_wish *wish, char *error,
			size_t error_bytes)
{
	if (m->state == MEMBER_LIVE && m->device && !m->ended)
		return device_snapshot(m->device, wish, error, error_bytes);
	snprintf(error, error_bytes, "the device is not live: %s", member_state_name(m));
	return -EBUSY;
}

void device_set_snapshot_ended(struct member *m)
{
	struct device_snapshot_look look;

	device_snapshot_look(m->device, &look);
	if (look.err < 0)
		log_error("the snapshots of the device were not changed", "device=%s error=\"%s\"",
			  m->settings->options.name, look.words);
	device_set_tell(&m->snapshots, look.err < 0 ? DEVICE_SET_REFUSED : DEVICE_SET_SNAPSHOT,
			look.words);
}

/* ---- caches ---- */

int device_set_cache_command(struct member *m, const struct device_cache_wish *wish, char *error,
			     size_t error_bytes)
{
	if (m->state == MEMBER_LIVE && m->device && !m->ended)
		return device_cache_command(m->device, wish, error, error_bytes);
	snprintf(error, error_bytes,
		 "the device is not live (%s): try again when ublkctl list says that it is",
		 member_state_name(m));
	return -EBUSY;
}

void device_set_cache_ended(struct member *m)
{
	const char *name = m->settings->options.name;
	struct device_cache_look look;
	const char *op;

	device_cache_look(m->device, &look);
	op = look.job->op == BACKEND_CACHE_WARM ? "warm" : "drop";
	if (look.err < 0 && look.err != -ECANCELED)
		log_warn("a command to a cache has failed", "device=%s node=%s op=%s error=\"%s\"",
			 name, look.node, op, look.job->words);
	else
		log_info(look.err < 0 ? "a command to a cache was ended early"
				      : "a command to a cache has ended",
			 "device=%s node=%s op=%s fetched_bytes=%llu dropped_bytes=%llu", name,
			 look.node, op, (unsigned long long)look.job->fetched_bytes,
			 (unsigned long long)look.job->dropped_bytes);
	device_set_tell(&m->cache_commands, look.err < 0 ? DEVICE_SET_REFUSED : DEVICE_SET_CACHE,
			look.job->words);
}

/* ---- a reload that changes nothing but the size ---- */

static bool reload_grow(struct member *m, uint64_t wanted_bytes)
{
	char error[DEVICE_ERROR_BYTES];
	int ret = device_set_resize(m, wanted_bytes, false, error, sizeof(error));

	if (ret == -EOPNOTSUPP)
		return false;
	m->reload_size_bytes = ret == 0 ? wanted_bytes : 0;
	if (ret == -EALREADY)
		backend_spec_set_size(m->settings->backend, wanted_bytes);
	else if (ret < 0)
		log_error("device was not resized", "device=%s error=\"%s\"",
			  m->settings->options.name, error);
	return true;
}

void device_set_size_when_live(struct member *m)
{
	if (m->reload_size_bytes && m->state == MEMBER_LIVE)
		reload_grow(m, m->reload_size_bytes);
}

/* Of a member that is live, or being adopted; 0: of any other. */
static uint64_t served_size(const struct member *m)
{
	struct device_info info;

	if (m->past)
		return m->past->device.size_bytes;
	if (m->state != MEMBER_LIVE || !m->device || m->ended)
		return 0;
	device_info(m->device, &info);
	return info.size_bytes;
}

/*
 * True: the member differs in its size alone, and needs no restart: it grows, has that size
 * already, or the file is refused since the device would shrink.
 */
static bool reload_size(struct member *m, const struct device_settings *wanted)
{
	uint64_t is_bytes = served_size(m), wanted_bytes;
	const char *name = m->settings->options.name;

	if (is_bytes == 0 || m->state == MEMBER_FAILED ||
	    !device_settings_resized(m->settings, wanted, &wanted_bytes))
		return false;
	if (wanted_bytes < is_bytes)
		log_error("a reload does not make a device smaller: it stays as it is",
			  "device=%s size_bytes=%llu wanted_bytes=%llu cure=\"ublkctl resize %s "
			  "SIZE --force, or stop it with ublkctl del before the reload\"",
			  name, (unsigned long long)is_bytes, (unsigned long long)wanted_bytes,
			  name);
	else if (m->past)
		m->reload_size_bytes = wanted_bytes; /* later: its backend may read the settings */
	else if (wanted_bytes > is_bytes)
		return reload_grow(m, wanted_bytes);
	else
		backend_spec_set_size(m->settings->backend, wanted_bytes);
	return true;
}

/* ---- reload ---- */

/* Stops the device; the sweep then starts `next`. */
static void restart_as(struct device_set *set, struct member *m, struct device_settings *settings)
{
	device_set_set_next(m, settings);
	if (m->past) {
		/* The driver has it, and its users wait: it is adopted, at the latest as `next`. */
		m->stop_when_live = m->state == MEMBER_STARTING || m->state == MEMBER_WAITING;
		if (m->state == MEMBER_FAILED && !m->ended)
			device_set_start_as_next(m);
	} else if (m->ended || !m->device) {
		m->state = MEMBER_STOPPING;
		m->ended = true;
	} else if (m->state != MEMBER_STOPPING) {
		device_set_stop_member(set, m, false);
	}
}

static void reload_member(struct device_set *set, struct member *m, struct settings *settings,
			  size_t idx)
{
	struct device_settings *wanted = settings->devices[idx];
	bool equal = device_settings_equal(m->settings, wanted);

	m->from_file = true;
	if (equal && m->state != MEMBER_FAILED && m->state != MEMBER_STOPPING) {
		/* Cancels what an earlier reload wanted while it is being adopted. */
		device_set_set_next(m, NULL);
		m->stop_when_live = false;
		backend_claim_alone(member_backend(m), false);
		return;
	}
	if (!equal && reload_size(m, wanted))
		return;
	log_info(equal ? "device is tried again" : "device has changed and is started anew",
		 "device=%s", wanted->options.name);
	restart_as(set, m, settings_take(settings, idx));
}

void device_set_reload(struct device_set *set, struct settings *settings)
{
	size_t idx;

	if (set->closing)
		return;
	list_for_each (node, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (settings_find(settings, m->settings->options.name, &idx)) {
			reload_member(set, m, settings, idx);
		} else if (m->from_file) {
			log_info("device is no longer configured", "device=%s",
				 m->settings->options.name);
			device_set_del(set, m, false);
		} else if (m->state == MEMBER_FAILED && m->past && !m->given_up) {
			log_info("device is tried again", "device=%s", m->settings->options.name);
			restart_as(set, m, device_settings_ref(m->settings));
		}
	}
	for (size_t i = 0; i < settings->device_nr; i++) {
		struct device_settings *d = settings->devices[i];

		if (d && !device_set_find(set, d->options.name))
			device_set_new_member(set, settings_take(settings, i), true);
	}
	device_set_check(set);
}
