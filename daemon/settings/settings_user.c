/*
 * What differs in the configuration of a daemon without CAP_SYS_ADMIN, or of a user: the places of
 * files, what a device may ask for. Main thread.
 *
 * Happy path: nothing is said in the file, and what works is chosen. Failure modes: the file asks
 * for what the driver keeps from such a daemon, or no folder is known for the control socket: an
 * error with its position and the cure.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "config/yaml.h"
#include "daemon/settings/settings_internal.h"
#include "host/caps.h"
#include "host/user_paths.h"
#include "storage/metadata.h"
#include "storage/zones.h"
#include "ublk/data_path.h"
#include "ublk/recovery.h"
#include "ublk/unprivileged.h"

/* Set once, before anything is read. */
static struct settings_mode mode;

void settings_set_mode(const struct settings_mode *wanted)
{
	mode = *wanted;
	option_outage_timeout_limit(mode.unprivileged ? UNPRIVILEGED_HOLD_SECONDS * NS_PER_SEC : 0);
}

bool settings_mode_of_process(bool file_optional)
{
	bool privileged = host_is_privileged();
	struct settings_mode ours = {
		.unprivileged = !privileged,
		.user_paths = user_paths_apply(),
		.file_optional = file_optional,
	};

	settings_set_mode(&ours);
	return privileged;
}

int settings_load_or_print(struct settings *settings, const char *path)
{
	struct config_errors errors;
	char *text;
	int ret;

	config_errors_init(&errors, path);
	ret = settings_load(settings, path, &errors);
	if (ret < 0) {
		text = config_errors_text(&errors);
		fputs(text && text[0] ? text : "ublkd: out of memory\n", stderr);
		free(text);
		settings_free(settings);
	}
	config_errors_fini(&errors);
	return ret;
}

bool settings_is_absent(const char *path)
{
	return mode.file_optional && access(path, F_OK) < 0 && errno == ENOENT;
}

/* max: the longest that the option takes. NULL with an error added, or without a default. */
static char *default_path(enum user_path which, size_t max, const char *option,
			  struct config_pos pos, struct config_errors *e)
{
	char path[PATH_MAX];
	int ret = user_path(which, path);

	if (ret == -ENOENT) {
		config_errors_add(e, pos, "%s: %s; or write %s: PATH below daemon:", option,
				  user_path_cure(which), option);
		return NULL;
	}
	if (ret < 0 || strlen(path) > max) {
		config_errors_add(e, pos,
				  "%s: the default is longer than %zu characters: write %s: "
				  "PATH below daemon:",
				  option, max, option);
		return NULL;
	}
	return strdup(path);
}

int settings_user_defaults(struct daemon_settings *d, const struct yaml_node *map,
			   struct config_errors *e)
{
	const struct {
		char **value;
		enum user_path which;
		size_t max;
		const char *option;
	} row[] = {
		{ &d->control, USER_PATH_CONTROL, 107, "control" },
		{ &d->state_dir, USER_PATH_STATE, 200, "state_dir" },
		{ &d->devices_dir, USER_PATH_DEVICES, 200, "devices_dir" },
	};

	if (!mode.user_paths)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct config_pos pos = yaml_pos(map, row[i].option);

		if (settings_is_given(map, row[i].option))
			continue;
		free(*row[i].value);
		*row[i].value = default_path(row[i].which, row[i].max, row[i].option, pos, e);
		if (!*row[i].value && !config_errors_any(e))
			return -ENOMEM;
	}
	return 0;
}

/* What of it needs that, in words; NULL: nothing. */
static const char *needs_user_copy(const struct device_settings *d)
{
	if (d->options.shmem_bytes > 0)
		return "shared_memory";
	if (!d->backend)
		return NULL;
	if (backend_spec_is_zoned(d->backend))
		return "type: zoned";
	return backend_spec_has_integrity(d->backend) ? "type: integrity" : NULL;
}

void settings_check_unprivileged(struct device_settings *d, const struct yaml_node *map,
				 struct config_errors *e)
{
	struct unprivileged_wish wish;
	char error[UNPRIVILEGED_ERROR_BYTES];

	if (!mode.unprivileged)
		return;
	if (!settings_is_given(map, "recovery"))
		d->options.recovery = RECOVERY_NONE;
	wish = (struct unprivileged_wish){
		.data_path = (enum data_path)d->options.data_path,
		.by_user_copy = needs_user_copy(d),
		.recovery = (enum recovery)d->options.recovery,
	};
	if (unprivileged_check_data(&wish, error) < 0)
		config_errors_add(e, wish.by_user_copy ? d->pos : d->data_path_pos, "%s", error);
	if (unprivileged_check_recovery(&wish, error) < 0)
		config_errors_add(e, yaml_pos(map, "recovery"), "%s", error);
}
