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
#include "storage/sharing.h"

static bool by_text;

void settings_resource_by_text(void)
{
	by_text = true;
}

bool settings_has_path_in(const struct device_settings *d, const char *folder)
{
	for (unsigned i = 0; i < d->resources.nr; i++)
		if (strncmp(d->resources.all[i].path, folder, strlen(folder)) == 0)
			return true;
	return false;
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

static int look_at(struct settings_resource *r)
{
	struct stat st;

	if (by_text || r->is_uri || stat(r->path, &st) < 0) {
		r->full = by_text || r->is_uri ? strdup(r->path) : absolute(r->path);
		return r->full ? 0 : -ENOMEM;
	}
	r->exists = true;
	r->is_block = S_ISBLK(st.st_mode);
	r->dev = r->is_block ? st.st_rdev : st.st_dev;
	r->ino = r->is_block ? 0 : st.st_ino;
	return 0;
}

/* False: it has no file, and no URI that could be that of another device. */
static bool resource_from_leaf(struct settings_resource *r, const struct backend_spec *leaf,
			       const struct backend_leaf_place *place)
{
	const struct backend_spec *shared = place->shared;

	*r = (struct settings_resource){
		.path = backend_spec_leaf_path(leaf),
		.pos = leaf->path_pos,
		.only_read = place->is_only_read,
		.shared = shared ? shared->ops->shared->name(shared->config) : NULL,
		.alone = place->alone,
	};
	if (r->path)
		return true;
	r->path = backend_spec_leaf_uri(leaf);
	r->is_uri = r->path;
	return r->path;
}

int settings_resource_read(struct device_settings *d)
{
	struct settings_resources *r = &d->resources;
	int ret = 0;

	settings_resource_fini(r);
	r->all = calloc(BACKEND_LEAVES_MAX, sizeof(r->all[0]));
	if (!r->all)
		return -ENOMEM;
	for (unsigned i = 0; ret == 0; i++) {
		struct backend_leaf_place place = { .is_only_read = d->options.read_only };
		const struct backend_spec *leaf = backend_spec_leaf_at(d->backend, i, &place);

		if (!leaf)
			break;
		if (resource_from_leaf(&r->all[r->nr], leaf, &place))
			ret = look_at(&r->all[r->nr++]);
	}
	return ret;
}

void settings_resource_fini(struct settings_resources *r)
{
	for (unsigned i = 0; i < r->nr; i++)
		free(r->all[i].full);
	free(r->all);
	*r = (struct settings_resources){ 0 };
}

static bool resources_clash(const struct settings_resource *a, const struct settings_resource *b)
{
	if (a->only_read && b->only_read)
		return false;
	if (a->is_uri != b->is_uri || (a->is_uri && !a->alone && !b->alone))
		return false;
	/* That it is the same tree is told apart: device_settings_conflict. */
	if (a->shared && b->shared && strcmp(a->shared, b->shared) == 0)
		return false;
	if (a->exists && b->exists)
		return a->is_block == b->is_block && a->dev == b->dev && a->ino == b->ino;
	return a->full && b->full && strcmp(a->full, b->full) == 0;
}

const struct settings_resource *settings_same_file(const struct device_settings *a,
						   const struct device_settings *b)
{
	for (unsigned i = 0; i < a->resources.nr; i++)
		for (unsigned j = 0; j < (a == b ? i : b->resources.nr); j++)
			if (resources_clash(&a->resources.all[i], &b->resources.all[j]))
				return &a->resources.all[i];
	return NULL;
}

void settings_check_files(const struct device_settings *d, struct config_errors *e)
{
	const struct settings_resource *twice = settings_same_file(d, d);
	char excerpt[CONFIG_EXCERPT_BYTES];

	if (twice)
		config_errors_add(e, twice->pos,
				  "%s: \"%s\" is the %s of two backends of this device; they "
				  "would destroy each other's data",
				  twice->is_uri ? "uri" : "path",
				  config_excerpt(twice->path, excerpt),
				  twice->is_uri ? "storage" : "file");
}
