/* Anchors of one document by name, in a balanced tree: a hostile file may have many. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "config/yaml_internal.h"

struct anchor {
	struct yaml_built *node;
	char name[];
};

static int anchor_compare(const void *a, const void *b)
{
	return strcmp(((const struct anchor *)a)->name, ((const struct anchor *)b)->name);
}

static struct anchor *anchor_create(const char *name, struct yaml_built *node)
{
	size_t bytes = strlen(name) + 1;
	struct anchor *a = malloc(sizeof(*a) + bytes);

	if (!a)
		return NULL;
	a->node = node;
	memcpy(a->name, name, bytes);
	return a;
}

int yaml_anchors_set(struct yaml_anchors *a, const char *name, struct yaml_built *node)
{
	struct anchor *fresh = anchor_create(name, node);
	struct anchor **found;

	if (!fresh)
		return -ENOMEM;
	found = tsearch(fresh, &a->tree, anchor_compare);
	if (!found) {
		free(fresh);
		return -ENOMEM;
	}
	if (*found != fresh) {
		(*found)->node = node;
		free(fresh);
	}
	return 0;
}

static int name_compare(const void *name, const void *anchor)
{
	return strcmp(name, ((const struct anchor *)anchor)->name);
}

struct yaml_built *yaml_anchors_get(const struct yaml_anchors *a, const char *name)
{
	struct anchor **found = tfind(name, &a->tree, name_compare);

	return found ? (*found)->node : NULL;
}

void yaml_anchors_fini(struct yaml_anchors *a)
{
	tdestroy(a->tree, free);
	a->tree = NULL;
}
