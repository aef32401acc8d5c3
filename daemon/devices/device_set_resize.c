/*
 * Members that become larger or smaller while they live. Main thread.
 *
 * Happy path: device_resize, its event, whoever waits is told. What was configured stays in the
 * settings: the size of a device that serves is its own. A reload in which nothing but the size
 * grew makes the device grow, and only then the settings follow the file.
 *
 * Failure modes: it cannot be resized (a kernel without it): a reload starts the device anew, as
 * for any other change; growing fails (no room): logged, the device stays, and the next reload
 * tries again; the file wants less than the device has: refused, since a reload never throws data
 * away.
 */
#include <errno.h>
#include <stdio.h>

#include "storage/spec.h"
#include "base/log.h"
#include "daemon/devices/device_set.h"
#include "daemon/devices/device_set_notes.h"

int device_set_resize(struct member *m, uint64_t size_bytes, bool force, char *error,
		      size_t error_bytes)
{
	if (m->state == MEMBER_LIVE && m->device && !m->ended)
		return device_resize(m->device, size_bytes, force, error, error_bytes);
	snprintf(error, error_bytes, "the device is not live: %s", member_state_name(m));
	return -EBUSY;
}

void device_set_watch_resize(struct member *m, struct device_set_watch *watch)
{
	list_push_back(&m->resizes, &watch->node);
}

static void tell(struct member *m, const struct device_resized *r)
{
	struct list_node list = LIST_INIT(list);
	struct list_node *node;

	list_splice(&list, &m->resizes);
	while ((node = list_pop_front(&list))) {
		struct device_set_watch *watch = list_entry(node, struct device_set_watch, node);

		watch->fn(watch, r->err ? DEVICE_SET_REFUSED : DEVICE_SET_RESIZED, r->words);
	}
}

static void follow_file(struct member *m, const struct device_resized *r)
{
	if (!r->err && m->reload_size_bytes == r->to_bytes)
		backend_spec_set_size(m->settings->backend, r->to_bytes);
	m->reload_size_bytes = 0;
}

void device_set_resized(struct member *m)
{
	const char *name = m->settings->options.name;
	struct device_resized r;

	device_resized(m->device, &r);
	if (r.err)
		log_error("device was not resized", "device=%s error=\"%s\"", name, r.words);
	else
		log_info("device is resized", "device=%s from_bytes=%llu to_bytes=%llu%s%s%s", name,
			 (unsigned long long)r.from_bytes, (unsigned long long)r.to_bytes,
			 *r.words ? " note=\"" : "", r.words, *r.words ? "\"" : "");
	follow_file(m, &r);
	tell(m, &r);
}

static void refuse_shrink(const struct member *m, uint64_t wanted_bytes, uint64_t is_bytes)
{
	log_error("a reload does not make a device smaller: it stays as it is",
		  "device=%s size_bytes=%llu wanted_bytes=%llu cure=\"ublkctl resize %s SIZE "
		  "--force, or stop it with ublkctl del before the reload\"",
		  m->settings->options.name, (unsigned long long)is_bytes,
		  (unsigned long long)wanted_bytes, m->settings->options.name);
}

static bool grow(struct member *m, uint64_t wanted_bytes)
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

/* 0: neither live nor about to be what it was. */
static uint64_t size_of(const struct member *m)
{
	struct device_info info;

	if (m->past)
		return m->past->device.size_bytes;
	if (m->state != MEMBER_LIVE || !m->device || m->ended)
		return 0;
	device_info(m->device, &info);
	return info.size_bytes;
}

bool device_set_reload_size(struct member *m, const struct device_settings *wanted)
{
	uint64_t is_bytes = size_of(m), wanted_bytes;

	if (is_bytes == 0 || m->state == MEMBER_FAILED ||
	    !device_settings_resized(m->settings, wanted, &wanted_bytes))
		return false;
	if (wanted_bytes > is_bytes && m->past)
		m->reload_size_bytes = wanted_bytes; /* when it is live again */
	else if (wanted_bytes > is_bytes)
		return grow(m, wanted_bytes);
	else if (wanted_bytes == is_bytes && m->past)
		m->reload_size_bytes = wanted_bytes; /* its backend may be reading the settings */
	else if (wanted_bytes == is_bytes)
		backend_spec_set_size(m->settings->backend, wanted_bytes);
	else
		refuse_shrink(m, wanted_bytes, is_bytes);
	return true;
}

void device_set_size_when_live(struct member *m)
{
	if (m->reload_size_bytes && m->state == MEMBER_LIVE)
		grow(m, m->reload_size_bytes);
}
