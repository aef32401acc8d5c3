/* Devices of a configuration, read, and the errors as the user reads them. */
#ifndef TEST_UNIT_DAEMON_SETTINGS_CHECK_H
#define TEST_UNIT_DAEMON_SETTINGS_CHECK_H

#include "daemon/settings/settings.h"
#include "test/rig/config_check.h"

/* Reads devices as ublkctl add sends them. "": no errors. */
static inline void settings_check_parse(struct settings *s, const char *text, const char *errors)
{
	struct config_errors e;
	int ret;

	config_errors_init(&e, "f");
	ret = settings_parse_devices(s, text, strlen(text), &e);
	check_errors(&e, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	config_errors_fini(&e);
}

static inline void settings_check(const char *text, const char *errors)
{
	struct settings s;

	settings_check_parse(&s, text, errors);
	settings_free(&s);
}

#endif
