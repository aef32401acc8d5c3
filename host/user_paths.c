/*
 * Happy path: a variable with an absolute path. Failure mode: no variable, and for the runtime
 * folder no default: /tmp would be everybody's.
 */
#include "host/user_paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host/caps.h"

static const struct user_place {
	const char *variable;
	const char *below_home; /* NULL: no default */
	const char *file;
	const char *cure;
} user_places[USER_PATH_NR] = {
	[USER_PATH_CONTROL] = { "XDG_RUNTIME_DIR", NULL, "ublkd/control.sock",
				"XDG_RUNTIME_DIR is not set: log in with a session (pam_systemd; "
				"for a service: loginctl enable-linger USER), or set it to a "
				"folder of your own with mode 0700" },
	[USER_PATH_CONFIG] = { "XDG_CONFIG_HOME", ".config", "ublkd/ublkd.yaml",
			       "set HOME or XDG_CONFIG_HOME" },
	[USER_PATH_DEVICES] = { "XDG_CONFIG_HOME", ".config", "ublkd/devices.d",
				"set HOME or XDG_CONFIG_HOME" },
	[USER_PATH_STATE] = { "XDG_STATE_HOME", ".local/state", "ublkd",
			      "set HOME or XDG_STATE_HOME" },
};

bool user_paths_apply(void)
{
	return geteuid() != 0 && !host_is_privileged();
}

/* The specification: a path that is not absolute is as none. */
static const char *absolute_variable(const char *variable)
{
	const char *value = getenv(variable);

	return value && value[0] == '/' ? value : NULL;
}

int user_path(enum user_path which, char path[static PATH_MAX])
{
	const struct user_place *p = &user_places[which];
	const char *folder = absolute_variable(p->variable), *home = absolute_variable("HOME");
	int len;

	if (folder)
		len = snprintf(path, PATH_MAX, "%s/%s", folder, p->file);
	else if (p->below_home && home)
		len = snprintf(path, PATH_MAX, "%s/%s/%s", home, p->below_home, p->file);
	else
		return -ENOENT;
	return len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

const char *user_path_cure(enum user_path which)
{
	return user_places[which].cure;
}
