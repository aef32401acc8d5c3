/* See version.h. Owns nothing. */
#include "storage/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "storage/sharing.h"
#include "storage/snapshot.h"

/* The node that has the version, from this one down; NULL: none. */
static const struct backend_device *version_node(const struct backend_device *device)
{
	while (device && !device->ops->version) {
		bool passes = device->ops->shared || (device->ops->above == &backend_above_passes &&
						      device->child && !device->child->sibling);

		device = passes ? backend_below(device) : NULL;
	}
	return device;
}

void backend_version(const struct backend_device *device, struct backend_version *ret_version)
{
	const struct backend_device *node = version_node(device);

	*ret_version = (struct backend_version){ .kind = BACKEND_VERSION_NONE };
	if (node)
		node->ops->version->found(node, ret_version);
}

int backend_version_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	const struct backend_device *node = version_node(device);

	if (!node || !node->ops->version->now)
		return -EOPNOTSUPP;
	return node->ops->version->now(node, words);
}

void backend_version_of_size(uint64_t size_bytes, char words[BACKEND_VERSION_BYTES])
{
	snprintf(words, BACKEND_VERSION_BYTES, "size %llu", (unsigned long long)size_bytes);
}

void backend_version_join(const struct backend_device *device, struct backend_version *ret_version)
{
	uint64_t hash = hash_text(HASH_START, device->ops->name);
	struct backend_version of_child;
	bool has_one = false;

	*ret_version = (struct backend_version){ .kind = BACKEND_VERSION_NONE };
	for (const struct backend_device *c = device->child; c; c = c->sibling) {
		backend_version(c, &of_child);
		if (of_child.ours[0])
			return;
		if (of_child.kind != BACKEND_VERSION_LASTING)
			of_child.found[0] = '\0';
		has_one |= of_child.found[0] != '\0';
		/* With its end: two texts are not one that is longer. */
		hash = hash_text(hash_text(hash, of_child.found), "\n");
	}
	if (!has_one)
		return;
	ret_version->kind = BACKEND_VERSION_LASTING;
	snprintf(ret_version->found, sizeof(ret_version->found), "%s %016llx", device->ops->name,
		 (unsigned long long)hash);
}

bool backend_version_has_moved(const struct backend_version_note *note,
			       const struct backend_version *version)
{
	if (!note->found[0] || version->kind == BACKEND_VERSION_NONE ||
	    strcmp(note->found, version->found) == 0)
		return false;
	return !note->ours[0] || strncmp(note->ours, version->found, strlen(note->ours)) != 0;
}
