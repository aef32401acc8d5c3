/*
 * What is the same in two configurations, and what a device can become while it is live. Any
 * thread; pure.
 */
#include "daemon/settings/settings.h"

static bool equal_but_backend(const struct device_settings *a, const struct device_settings *b)
{
	struct device_options oa = a->options, ob = b->options;

	oa.backend = ob.backend = NULL;
	return a->id == b->id && option_equal(settings_device_options, &oa, &ob);
}

bool device_settings_equal(const struct device_settings *a, const struct device_settings *b)
{
	/* The backend's map is compared as what its table made of it, not as it was written. */
	return equal_but_backend(a, b) && backend_spec_equal(a->backend, b->backend);
}

bool device_settings_resized(const struct device_settings *a, const struct device_settings *b,
			     uint64_t *ret_size_bytes)
{
	uint64_t old_bytes, new_bytes;

	/* 0 is the file's own size: nothing that can be compared. */
	if (!equal_but_backend(a, b) ||
	    !backend_spec_resized(a->backend, b->backend, &old_bytes, &new_bytes) || new_bytes == 0)
		return false;
	*ret_size_bytes = new_bytes;
	return true;
}

bool daemon_settings_equal(const struct daemon_settings *a, const struct daemon_settings *b)
{
	struct daemon_settings of_b = *a;

	of_b.log_level = b->log_level;
	of_b.devices_dir = b->devices_dir;
	return option_equal(settings_daemon_options, &of_b, b);
}

void daemon_settings_follow(struct daemon_settings *running, struct daemon_settings *wanted)
{
	char *old = running->devices_dir;

	/* Freed with the settings that nobody uses. */
	running->devices_dir = wanted->devices_dir;
	wanted->devices_dir = old;
}
