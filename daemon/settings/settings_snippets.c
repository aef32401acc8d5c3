/*
 * The folder of snippets, daemon.devices_dir: devices that `ublkctl attach --persist` keeps, or
 * that another program puts there, a file each. Main thread.
 *
 * Happy path: the names of the folder, sorted; each file is parsed like the argument of `ublkctl
 * add`, and its devices follow those that there are. Failure modes: a folder that cannot be read is
 * an error of the configuration, one that is missing is none; an error in a snippet has the
 * snippet's file and position, and the other snippets are looked at all the same.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errname.h"
#include "daemon/settings/settings_internal.h"

#define SUFFIX ".yaml"

bool settings_is_snippet(const char *file)
{
	size_t len = strlen(file), suffix_len = strlen(SUFFIX);

	/* An editor's backup, NAME.yaml~, does not end like this either. */
	return file[0] != '.' && len > suffix_len && strcmp(file + len - suffix_len, SUFFIX) == 0;
}

static int is_snippet(const struct dirent *entry)
{
	return settings_is_snippet(entry->d_name);
}

/* Not alphasort(3), which depends on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* One that is empty, or has nothing but comments, has no devices. */
static int read_snippet(struct settings *s, const char *path, struct config_errors *e)
{
	struct document *doc = document_new(path);
	int ret;

	if (!doc)
		return -ENOMEM;
	ret = yaml_parse_value_file(&doc->yaml, path, e);
	if (ret != -ENOMEM && doc->yaml.root && !yaml_is_null(doc->yaml.root))
		ret = settings_parse_document(s, doc, e);
	document_put(doc);
	return ret;
}

static int read_snippets(struct settings *s, struct dirent *const *entries, int nr,
			 struct config_errors *e)
{
	char path[PATH_MAX];
	int ret = 0;

	for (int i = 0; i < nr && ret != -ENOMEM; i++) {
		snprintf(path, sizeof(path), "%s/%s", s->daemon.devices_dir, entries[i]->d_name);
		config_errors_enter(e, path);
		ret = read_snippet(s, path, e);
	}
	config_errors_enter(e, NULL);
	return ret;
}

int settings_add_snippets(struct settings *s, struct config_pos pos, struct config_errors *e)
{
	const char *folder = s->daemon.devices_dir;
	struct dirent **entries = NULL;
	int nr, ret;

	/* A path that is not absolute has been told. */
	if (!folder || folder[0] != '/')
		return 0;
	nr = scandir(folder, &entries, is_snippet, by_name);
	if (nr < 0 && errno == ENOENT)
		return 0;
	if (nr < 0) {
		ret = -errno;
		config_errors_add(e, pos, "devices_dir: cannot read the folder %s: %s (%s)", folder,
				  strerror(-ret), errname(ret));
		return ret;
	}
	ret = read_snippets(s, entries, nr, e);
	for (int i = 0; i < nr; i++)
		free(entries[i]);
	free(entries);
	return ret;
}
