/* What the tests of a backend's options share: the backend of a device, and what is wrong with it.
 */
#ifndef TEST_RIG_BACKEND_OPTIONS_H
#define TEST_RIG_BACKEND_OPTIONS_H

#include <errno.h>

#include "daemon/settings/settings.h"
#include "test/rig/config_check.h"

/* A backend of this type with these lines of YAML; "": no errors. For settings_free. */
static inline void options_parse(struct settings *s, const char *type, const char *backend,
				 const char *errors)
{
	struct config_errors e;
	char text[2000];
	int ret;

	snprintf(text, sizeof(text), "name: a\nbackend:\n  type: %s\n%s", type, backend);
	config_errors_init(&e, "f");
	ret = settings_parse_devices(s, text, strlen(text), &e);
	check_errors(&e, errors);
	assert_int_equal(ret, *errors ? -EINVAL : 0);
	config_errors_fini(&e);
}

static inline void options_bad(const char *type, const char *backend, const char *errors)
{
	struct settings s;

	options_parse(&s, type, backend, errors);
	settings_free(&s);
}

#endif
