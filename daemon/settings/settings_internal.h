/* Between settings.c, settings_snippets.c and settings_user.c only. Main thread. */
#ifndef DAEMON_SETTINGS_SETTINGS_INTERNAL_H
#define DAEMON_SETTINGS_SETTINGS_INTERNAL_H

#include "config/yaml.h"
#include "daemon/settings/settings.h"

struct document {
	struct yaml_doc yaml;
	char *file; /* NULL: it came from no file */
	unsigned refs;
};

/* NULL: out of memory. file is copied and may be NULL. */
struct document *document_new(const char *file);
/* Any thread. Accepts NULL. */
void document_put(struct document *doc);

/*
 * Adds the devices of a document behind those that there are: one device, a list of them, or a map
 * with `devices:`; told apart by what stands at the top. Errors are added in the file that e is in.
 * Returns -ENOMEM, or another value that says nothing.
 */
int settings_parse_document(struct settings *s, struct document *doc, struct config_errors *e);

/*
 * Adds the devices of all snippets in daemon.devices_dir, which stands at pos; without one, or
 * without the folder, nothing. Returns as settings_parse_document.
 */
int settings_add_snippets(struct settings *s, struct config_pos pos, struct config_errors *e);

/* Whether a map has the key with a value other than null. */
static inline bool settings_is_given(const struct yaml_node *map, const char *key)
{
	const struct yaml_node *value = yaml_get(map, key);

	return value && !yaml_is_null(value);
}

/* settings_user.c: whether the file is missing and may be. */
bool settings_is_absent(const char *path);

/* settings_user.c: what a user's file does not say of the daemon. Returns 0 or -ENOMEM. */
int settings_user_defaults(struct daemon_settings *d, const struct yaml_node *map,
			   struct config_errors *e);

/* settings_user.c: chooses or refuses what the driver keeps from a daemon without CAP_SYS_ADMIN. */
void settings_check_unprivileged(struct device_settings *d, const struct yaml_node *map,
				 struct config_errors *e);

#endif
