/*
 * Makes the device set what a configuration says. Main thread.
 *
 * Happy path: what is equal goes on undisturbed; what has changed is stopped and started as `next`;
 * what is missing is removed; what is new waits until all that is stopped is gone. A device that is
 * being adopted is served first, as it was: the driver has it, and its users wait.
 */
#include "base/log.h"
#include "daemon/devices/device_set_internal.h"

/* The file has the member no more. */
static void reload_removed(struct device_set *f, struct member *m)
{
	log_info("device is no longer configured", "device=%s", m->settings->options.name);
	device_set_del(f, m, false);
}

/* Stops what there is; the sweep then starts `next`. */
static void restart_as(struct device_set *f, struct member *m, struct device_settings *settings)
{
	device_set_set_next(m, settings);
	if (m->past) {
		/* The driver has it, and its users wait: it is adopted, with `next` at the latest.
		 */
		m->stop_when_live = m->state == MEMBER_STARTING || m->state == MEMBER_WAITING;
		if (m->state == MEMBER_FAILED && !m->ended)
			device_set_start_as_next(m);
	} else if (m->ended || !m->device) {
		m->state = MEMBER_STOPPING;
		m->ended = true;
	} else if (m->state != MEMBER_STOPPING) {
		device_set_stop_member(f, m, false);
	}
}

static void reload_kept(struct device_set *f, struct member *m, struct settings *settings,
			size_t idx)
{
	struct device_settings *wanted = settings->devices[idx];
	const char *name = wanted->options.name;
	bool equal = device_settings_equal(m->settings, wanted);

	m->from_file = true;
	if (equal && m->state != MEMBER_FAILED && m->state != MEMBER_STOPPING) {
		/* What was wished for meanwhile, while it is being adopted, is over. */
		device_set_set_next(m, NULL);
		m->stop_when_live = false;
		return;
	}
	if (!equal && device_set_reload_size(m, wanted))
		return;
	log_info(equal ? "device is tried again" : "device has changed and is started anew",
		 "device=%s", name);
	restart_as(f, m, settings_take(settings, idx));
}

static void reload_members(struct device_set *f, struct settings *settings)
{
	size_t idx;

	list_for_each (node, &f->members) {
		struct member *m = list_entry(node, struct member, node);

		if (settings_find(settings, m->settings->options.name, &idx))
			reload_kept(f, m, settings, idx);
		else if (m->from_file)
			reload_removed(f, m);
	}
}

void device_set_reload(struct device_set *f, struct settings *settings)
{
	struct member *m;

	if (f->closing)
		return;
	reload_members(f, settings);
	for (size_t i = 0; i < settings->device_nr; i++)
		if (settings->devices[i] &&
		    !device_set_find(f, settings->devices[i]->options.name)) {
			m = device_set_new_member(f, settings_take(settings, i), true);
			if (m)
				m->state = MEMBER_WAITING;
		}
	device_set_check(f);
}
