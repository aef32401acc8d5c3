/*
 * Two paths are one file when they lead to the same inode, or to the same block device; where
 * nothing exists yet (create: true), when folder and last name are the same. This is for a clear
 * message before anything starts; what protects the data is the backend's lock on the open file.
 * Main thread; stat(2) may block on a dead network file system, so a daemon compares the text
 * alone.
 */
#include "daemon/settings/settings_resource.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/settings/settings.h"

static bool by_text;

void settings_resource_by_text(void)
{
	by_text = true;
}

const char *settings_path(const struct device_settings *d)
{
	return backend_spec_path(d->backend);
}

/* The folder made real, then the last name; path itself when there is no such folder. */
static char *absolute(const char *path)
{
	char *for_dir = strdup(path), *for_name = strdup(path), *folder = NULL, *full = NULL;

	if (for_dir && for_name)
		folder = realpath(dirname(for_dir), NULL);
	if (!folder)
		full = strdup(path);
	else if (asprintf(&full, "%s/%s", folder, basename(for_name)) < 0)
		full = NULL;
	free(folder);
	free(for_dir);
	free(for_name);
	return full;
}

int settings_resource_read(struct device_settings *d)
{
	struct settings_resource *r = &d->resource;
	const char *path = settings_path(d);
	struct stat st;

	settings_resource_fini(r);
	if (!path)
		return 0;
	if (by_text || stat(path, &st) < 0) {
		r->full = by_text ? strdup(path) : absolute(path);
		return r->full ? 0 : -ENOMEM;
	}
	r->exists = true;
	r->is_block = S_ISBLK(st.st_mode);
	r->dev = r->is_block ? st.st_rdev : st.st_dev;
	r->ino = r->is_block ? 0 : st.st_ino;
	return 0;
}

void settings_resource_fini(struct settings_resource *r)
{
	free(r->full);
	*r = (struct settings_resource){ 0 };
}

bool settings_same_file(const struct device_settings *a, const struct device_settings *b)
{
	const struct settings_resource *ra = &a->resource, *rb = &b->resource;

	if (ra->exists && rb->exists)
		return ra->is_block == rb->is_block && ra->dev == rb->dev && ra->ino == rb->ino;
	return ra->full && rb->full && strcmp(ra->full, rb->full) == 0;
}
