/*
 * Which node of a tree is meant by a command, and whether those above it let it be. Main thread.
 * Owns nothing.
 *
 * Happy path: from the top down, the only one. Failure modes: none has it; several do: words name
 * them; one above has a state that the command does not fit: its words.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "storage/cache_control.h"
#include "base/printable.h"
#include "storage/sharing.h"
#include "storage/snapshot.h"
#include "base/assert.h"

struct node_sought {
	bool (*has)(const struct backend_device *device);
	/* What is below one that has it is that one's own affair: it is not looked at. */
	bool hides_below;
	/* Words, with the cure: "several %s: name one of ...", "the device has no node "x" %s". */
	const char *several, *none_of_name, *none;
};

struct node_search {
	const struct node_sought *sought;
	const char *path;
	struct backend_device *found;
	unsigned nr;
	char names[BACKEND_ERROR_BYTES / 2];
};

static void search_note(struct node_search *s, struct backend_device *device)
{
	size_t at = strlen(s->names);

	snprintf(s->names + at, sizeof(s->names) - at, "%s%s", at ? ", " : "", device->name);
	if (s->nr++ == 0)
		s->found = device;
}

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static void search_node(struct node_search *s, struct backend_device *device)
{
	bool fits = !s->path || strcmp(s->path, device->name) == 0;

	if (fits && s->sought->has(device)) {
		search_note(s, device);
		if (s->sought->hides_below)
			return;
	}
	for (struct backend_device *c = backend_below(device); c; c = c->sibling)
		search_node(s, c);
}

/* path NULL: whichever has it. */
static struct backend_device *find_node(struct backend_device *top, const char *path,
					const struct node_sought *sought, char *words,
					size_t words_bytes)
{
	struct node_search s = { .sought = sought, .path = path };

	search_node(&s, top);
	if (s.nr == 1)
		return s.found;
	if (s.nr > 1)
		snprintf(words, words_bytes, "several %s: name one with --node: %s",
			 sought->several, s.names);
	else if (path)
		snprintf(words, words_bytes, "the device has no node \"%s\" %s", path,
			 sought->none_of_name);
	else
		snprintf(words, words_bytes, "%s", sought->none);
	return NULL;
}

/* ---- snapshots ---- */

static bool has_snapshots(const struct backend_device *device)
{
	return device->ops->snapshots != NULL;
}

struct backend_device *backend_snapshots_node(struct backend_device *top, const char *path,
					      char *words, size_t words_bytes)
{
	static const struct node_sought sought = {
		.has = has_snapshots,
		.hides_below = true,
		.several = "nodes of the device have snapshots",
		.none_of_name = "with snapshots",
		.none = "no backend of the device has internal snapshots: qcow2 has",
	};

	return find_node(top, path, &sought, words, words_bytes);
}

/* ---- those above ---- */

const struct backend_above backend_above_passes = { .create = NULL, .apply = NULL };

/* From the top down to a node, which is the last; nr 0: it is not in the tree. */
struct node_way {
	struct backend_device *step[BACKEND_DEPTH_MAX];
	unsigned nr;
};

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static void find_way(struct node_way *way, unsigned depth, struct backend_device *device,
		     const struct backend_device *node)
{
	ASSERT(depth < BACKEND_DEPTH_MAX);
	way->step[depth] = device;
	if (device == node)
		way->nr = depth + 1;
	for (struct backend_device *c = backend_below(device); c && way->nr == 0; c = c->sibling)
		find_way(way, depth + 1, c, node);
}

/* NULL: it may be; else words. */
static const char *above_says(enum backend_snapshot_op op, const struct backend_device *device,
			      const struct backend_device *child)
{
	const struct backend_above *above = device->ops->above;
	backend_above_fn *fn;

	if (!above)
		return "does not say what it keeps of the bytes below: stop the device first";
	fn = op == BACKEND_SNAPSHOT_CREATE ? above->create : above->apply;
	return fn ? fn(device, child) : NULL;
}

int backend_above_ask(struct backend_device *top, const struct backend_device *node,
		      enum backend_snapshot_op op, char *words, size_t words_bytes)
{
	struct node_way way = { .nr = 0 };
	const char *said = NULL;

	if (op == BACKEND_SNAPSHOT_DELETE)
		return 0;
	find_way(&way, 0, top, node);
	for (unsigned i = way.nr; i-- > 1 && !said;) {
		const struct backend_device *above = way.step[i - 1];

		said = above_says(op, above, way.step[i]);
		if (said)
			snprintf(words, words_bytes, "the node above, %.*s (%s), %s",
				 utf8_fit(above->name, 100), above->name, above->ops->name, said);
	}
	return said ? -EOPNOTSUPP : 0;
}

unsigned backend_caches_above(struct backend_device *top, const struct backend_device *node,
			      struct backend_device *caches[static BACKEND_DEPTH_MAX])
{
	struct node_way way = { .nr = 0 };
	unsigned nr = 0;

	find_way(&way, 0, top, node);
	for (unsigned i = 0; i + 1 < way.nr; i++)
		if (way.step[i]->ops->cache_ops)
			caches[nr++] = way.step[i];
	return nr;
}

/* ---- caches ---- */

static bool is_cache(const struct backend_device *device)
{
	return device->ops->cache_ops != NULL;
}

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static void caches_add(struct backend_device *device, struct backend_device **caches, unsigned *nr)
{
	if (is_cache(device))
		caches[(*nr)++] = device;
	for (struct backend_device *c = device->child; c; c = c->sibling)
		caches_add(c, caches, nr);
}

unsigned backend_caches(struct backend_device *top,
			struct backend_device *caches[static BACKEND_NODES_MAX])
{
	unsigned nr = 0;

	caches_add(top, caches, &nr);
	return nr;
}

struct backend_device *backend_cache_node(struct backend_device *top, const char *path, char *words,
					  size_t words_bytes)
{
	static const struct node_sought sought = {
		.has = is_cache,
		.several = "nodes of the device are caches",
		.none_of_name = "that is a cache: ublkctl cache stats lists those that are",
		.none = "the device has no cache: put the filter cache over its backend, and start "
			"it again",
	};

	return find_node(top, path, &sought, words, words_bytes);
}
