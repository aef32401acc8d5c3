/*
 * Children that a node finds by itself, before there are devices: the specs of the configuration
 * are copied, and what the nodes find is put in (struct backend's resolve). A helper; it may block.
 *
 * Happy path: copy -> from the top down, each node that has the operation finds children -> these
 * are asked in turn. What devices share (sharing.h) is left as it is: it is opened by itself.
 *
 * Failure modes: a node cannot find what it needs: its words; a chain that comes back to a file, or
 * is too long, or a tree too large: words that name the chain; one that would take too much memory.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/life_internal.h"
#include "storage/spec.h"
#include "base/util.h"

/* What the recursion shares. */
struct resolving {
	const struct backend_spec *above[BACKEND_DEPTH_MAX]; /* from the root down */
	unsigned node_nr, leaf_nr;
	char *error;
	size_t error_bytes;
};

/* ---- bounds ---- */

/* What a user knows a node by: its file, or that of the first leaf below it; NULL: none. */
static const char *spec_first_path(const struct backend_spec *spec)
{
	const struct backend_spec *leaf = backend_spec_leaf(spec, 0);

	return leaf ? backend_spec_leaf_path(leaf) : NULL;
}

/* The last name of a path. */
static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "a.qcow2 -> b.qcow2", of the nodes above this level and of last; cut to what fits. */
static void chain_words(const struct resolving *r, unsigned level, const char *last, char *buf,
			size_t bytes)
{
	const char *before = "";
	size_t len = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < level && len < bytes; i++) {
		const char *path = spec_first_path(r->above[i]);

		/* A filter and what is below it have one. */
		if (!path || strcmp(path, before) == 0)
			continue;
		before = path;
		len += (size_t)snprintf(buf + len, bytes - len, "%s -> ", last_name(path));
	}
	if (len < bytes)
		snprintf(buf + len, bytes - len, "%s", last_name(last));
}

#define CHAIN_BYTES 120

static int fail_loop(struct resolving *r, unsigned level, const char *path)
{
	char chain[CHAIN_BYTES];

	chain_words(r, level, path, chain, sizeof(chain));
	snprintf(r->error, r->error_bytes, "%s stands over itself: %s", path, chain);
	return -ELOOP;
}

static int fail_depth(struct resolving *r, unsigned level, const char *path)
{
	char chain[CHAIN_BYTES];

	chain_words(r, MIN(level, 4u), path, chain, sizeof(chain));
	snprintf(r->error, r->error_bytes,
		 "more than %d above each other, from %s%s: merge some of them", BACKEND_DEPTH_MAX,
		 chain, level > 4 ? " (others between)" : "");
	return -E2BIG;
}

/* Whether a node above stands on the same file. */
static bool is_above(const struct resolving *r, unsigned level, const char *path)
{
	for (unsigned i = 0; i < level; i++) {
		const char *above = spec_first_path(r->above[i]);

		if (above && strcmp(above, path) == 0)
			return true;
	}
	return false;
}

/* What the node at this level (from 0 on) has found. */
static int check_found(struct resolving *r, unsigned level, const struct backend_spec *found)
{
	const char *path = spec_first_path(found);

	if (path && is_above(r, level + 1, path))
		return fail_loop(r, level + 1, path);
	return 0;
}

static int count_node(struct resolving *r, unsigned level, const struct backend_spec *spec)
{
	const char *path = spec_first_path(spec);

	if (level >= BACKEND_DEPTH_MAX)
		return fail_depth(r, level, path ? path : spec->ops->name);
	r->leaf_nr += spec->child == NULL && !spec->ops->children;
	if (++r->node_nr <= BACKEND_NODES_MAX && r->leaf_nr <= BACKEND_LEAVES_MAX)
		return 0;
	snprintf(r->error, r->error_bytes,
		 "more than %d backends in one device, or more than %d of them with nothing below, "
		 "with all that %s stands over",
		 BACKEND_NODES_MAX, BACKEND_LEAVES_MAX, path ? path : spec->ops->name);
	return -E2BIG;
}

/* ---- children that are found ---- */

/* Where the table has them: behind those of the rows before. */
static void insert_child(struct backend_spec *spec, struct backend_spec *child)
{
	const struct backend_spec **at = &spec->child;

	while (*at && (*at)->as <= child->as)
		at = &((struct backend_spec *)(uintptr_t)*at)->sibling;
	child->sibling = *at;
	*at = child;
}

static int chain_find(struct resolving *r, struct backend_spec *spec, unsigned level)
{
	struct backend_spec *found = NULL;
	int ret = spec->ops->resolve(spec, &found, r->error, r->error_bytes);

	if (ret == 0 && found)
		ret = check_found(r, level, found);
	if (ret < 0)
		backend_spec_free(found);
	else if (found)
		insert_child(spec, found);
	return ret;
}

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static int resolve_node(struct resolving *r, struct backend_spec *spec, unsigned level)
{
	int ret = count_node(r, level, spec);

	if (ret < 0)
		return ret;
	r->above[level] = spec;
	if (spec->ops->resolve)
		ret = chain_find(r, spec, level);
	if (spec->ops->shared)
		return ret;
	for (const struct backend_spec *child = spec->child; child && ret == 0;
	     child = child->sibling)
		ret = resolve_node(r, (struct backend_spec *)(uintptr_t)child, level + 1);
	return ret;
}

bool backend_spec_resolves(const struct backend_spec *spec)
{
	if (spec->ops->resolve)
		return true;
	if (spec->ops->shared)
		return false;
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		if (backend_spec_resolves(child))
			return true;
	return false;
}

/* The device was made for the ways of the bytes that the configuration can. */
static int check_data(struct resolving *r, const struct backend_spec *spec,
		      const struct backend_spec *resolved)
{
	if ((backend_spec_data(resolved) & backend_spec_data(spec)) == backend_spec_data(spec))
		return 0;
	snprintf(r->error, r->error_bytes,
		 "what it stands over takes its bytes in another way than the rest: write it into "
		 "the configuration");
	return -EOPNOTSUPP;
}

/*
 * Who wrote the configuration chose its queues and their depth, but not how many nodes an image
 * puts below each of them.
 */
static int check_memory(struct resolving *r, const struct backend_spec *spec,
			const struct backend_spec *resolved,
			const struct backend_open_params *params)
{
	uint64_t bytes = params->queue_nr * (backend_spec_queue_bytes(resolved, params->depth) -
					     backend_spec_queue_bytes(spec, params->depth));

	if (bytes <= BACKEND_FOUND_BYTES_MAX)
		return 0;
	snprintf(r->error, r->error_bytes,
		 "what it stands over needs %llu MiB of memory for requests, and may have %llu: "
		 "merge some of it, or set fewer queues or a smaller depth",
		 (unsigned long long)(bytes >> 20), BACKEND_FOUND_BYTES_MAX >> 20);
	return -E2BIG;
}

int backend_resolve(const struct backend_spec *spec, const struct backend_open_params *params,
		    struct backend_spec **ret_spec, char *error, size_t error_bytes)
{
	struct resolving r = { .error = error, .error_bytes = error_bytes };
	struct backend_spec *copy = backend_spec_copy(spec);
	int ret;

	error[0] = '\0';
	if (!copy) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	ret = resolve_node(&r, copy, 0);
	if (ret == 0)
		ret = check_data(&r, spec, copy);
	if (ret == 0)
		ret = check_memory(&r, spec, copy, params);
	if (ret < 0) {
		backend_spec_free(copy);
		return ret;
	}
	*ret_spec = copy;
	return 0;
}
