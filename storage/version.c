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
	if (ret_version->kind == BACKEND_VERSION_LASTING && !ret_version->ours[0])
		memcpy(ret_version->lasting, ret_version->found, sizeof(ret_version->lasting));
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

/* ---- of several ---- */

struct joined {
	uint64_t hash;
	bool has_one;
};

static void join_begin(struct joined *j, const struct backend_device *device)
{
	*j = (struct joined){ .hash = hash_text(HASH_START, device->ops->name) };
}

/* "": it is left out. With its end: two texts are not one that is longer. */
static void join_add(struct joined *j, const char *words)
{
	j->hash = hash_text(hash_text(j->hash, words), "\n");
	j->has_one |= words[0] != '\0';
}

/* "" when there is none. */
static void join_end(const struct joined *j, const struct backend_device *device,
		     char words[BACKEND_VERSION_BYTES])
{
	words[0] = '\0';
	if (j->has_one)
		snprintf(words, BACKEND_VERSION_BYTES, "%s %016llx", device->ops->name,
			 (unsigned long long)j->hash);
}

/* What the next opening finds is not what this one has found. */
static bool version_changes(const struct backend_version *version)
{
	return version->kind == BACKEND_VERSION_NOW || version->ours[0];
}

static bool join_takes(const struct backend_version *version)
{
	return version->kind == BACKEND_VERSION_NOW ||
	       (version->kind == BACKEND_VERSION_LASTING &&
		(!version->ours[0] || version->is_known_now));
}

void backend_version_join(const struct backend_device *device, struct backend_version *ret_version)
{
	struct joined all, lasting;
	bool changes = false;

	join_begin(&all, device);
	join_begin(&lasting, device);
	for (const struct backend_device *c = device->child; c; c = c->sibling) {
		struct backend_version of_child;
		bool is_taken;

		backend_version(c, &of_child);
		is_taken = join_takes(&of_child);
		changes |= is_taken && version_changes(&of_child);
		join_add(&all, is_taken ? of_child.found : "");
		join_add(&lasting, of_child.lasting);
	}
	join_end(&all, device, ret_version->found);
	join_end(&lasting, device, ret_version->lasting);
	ret_version->ours[0] = '\0';
	ret_version->kind = !all.has_one ? BACKEND_VERSION_NONE
			    : changes	 ? BACKEND_VERSION_NOW
					 : BACKEND_VERSION_LASTING;
}

int backend_version_join_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	struct joined all;

	join_begin(&all, device);
	for (const struct backend_device *c = device->child; c; c = c->sibling) {
		struct backend_version of_child;
		int ret = 0;

		backend_version(c, &of_child);
		if (!join_takes(&of_child))
			of_child.found[0] = '\0';
		else if (version_changes(&of_child))
			ret = backend_version_now(c, of_child.found);
		if (ret < 0)
			return ret;
		join_add(&all, of_child.found);
	}
	join_end(&all, device, words);
	return all.has_one ? 0 : -EOPNOTSUPP;
}

void backend_version_only_lasting(struct backend_version *version)
{
	version->kind = version->lasting[0] ? BACKEND_VERSION_LASTING : BACKEND_VERSION_NONE;
	memcpy(version->found, version->lasting, sizeof(version->found));
	version->ours[0] = '\0';
}

bool backend_version_has_moved(const struct backend_version_note *note,
			       const struct backend_version *version)
{
	if (!note->found[0] || version->kind == BACKEND_VERSION_NONE ||
	    strcmp(note->found, version->found) == 0)
		return false;
	return !note->ours[0] || strncmp(note->ours, version->found, strlen(note->ours)) != 0;
}
