/* Between settings.c and settings_snippets.c only. Main thread. */
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

#endif
