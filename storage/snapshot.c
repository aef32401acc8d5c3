/*
 * Which node of a tree has the snapshots. Main thread. Owns nothing.
 *
 * Happy path: from the top down, the first that has some; what is below it is its own affair.
 * Failure modes: none has; several do, side by side: words name them.
 */
#include "storage/snapshot.h"

#include <stdio.h>
#include <string.h>

struct snapshots_search {
	const char *path;
	struct backend_device *found;
	unsigned nr;
	char names[BACKEND_ERROR_BYTES / 2];
};

static void search_note(struct snapshots_search *s, struct backend_device *device)
{
	size_t at = strlen(s->names);

	snprintf(s->names + at, sizeof(s->names) - at, "%s%s", at ? ", " : "", device->name);
	if (s->nr++ == 0)
		s->found = device;
}

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static void search_node(struct snapshots_search *s, struct backend_device *device)
{
	bool fits = !s->path || strcmp(s->path, device->name) == 0;

	if (device->ops->snapshots && fits) {
		search_note(s, device);
		return;
	}
	for (struct backend_device *c = device->child; c; c = c->sibling)
		search_node(s, c);
}

struct backend_device *backend_snapshots_node(struct backend_device *top, const char *path,
					      char *words, size_t words_bytes)
{
	struct snapshots_search s = { .path = path };

	search_node(&s, top);
	if (s.nr == 1)
		return s.found;
	if (s.nr > 1)
		snprintf(words, words_bytes,
			 "several nodes of the device have snapshots: name one of %s", s.names);
	else if (path)
		snprintf(words, words_bytes, "the device has no node \"%s\" with snapshots", path);
	else
		snprintf(words, words_bytes,
			 "no backend of the device has internal snapshots: qcow2 has");
	return NULL;
}
