/*
 * What a configured tree says of its leaves: where bytes live, how they can be moved, how much
 * memory they take. Any thread. Owns nothing.
 */
#include "storage/spec.h"

#include "base/util.h"
#include "storage/word.h"

/* Whether a node is only read, by what is above it and by where it stands there. */
static bool spec_is_only_read(const struct backend_spec *spec, bool above)
{
	if (spec->as && spec->as->is_own)
		return false;
	return above || (spec->as && spec->as->read_only);
}

/* Whether its children are, but for what they are themselves. */
static bool spec_only_reads(const struct backend_spec *spec, bool is_only_read)
{
	return is_only_read ||
	       (spec->child && spec->ops->only_reads && spec->ops->only_reads(spec->config));
}

/* Counts idx down by the leaves that this part of the tree has; place is as of what is above. */
static const struct backend_spec *spec_find_leaf(const struct backend_spec *spec, unsigned *idx,
						 struct backend_leaf_place *place)
{
	const struct backend_spec *leaf = NULL;
	struct backend_leaf_place here = *place;

	here.is_only_read = spec_is_only_read(spec, place->is_only_read);
	if (!spec->child && (*idx)-- == 0)
		leaf = spec;
	here.is_only_read = spec_only_reads(spec, here.is_only_read);
	if (spec->child && spec->ops->shared)
		here.shared = spec;
	here.alone |= spec->child && spec->ops->alone_below;
	for (const struct backend_spec *child = spec->child; child && !leaf; child = child->sibling)
		leaf = spec_find_leaf(child, idx, &here);
	if (leaf)
		*place = here;
	return leaf;
}

const struct backend_spec *backend_spec_leaf_at(const struct backend_spec *spec, unsigned idx,
						struct backend_leaf_place *place)
{
	return spec ? spec_find_leaf(spec, &idx, place) : NULL;
}

const struct backend_spec *backend_spec_leaf(const struct backend_spec *spec, unsigned idx)
{
	struct backend_leaf_place place = { 0 };

	return backend_spec_leaf_at(spec, idx, &place);
}

static const char *leaf_text(const struct backend_spec *leaf, const struct option *o)
{
	return o && leaf->config ? *(char *const *)((uintptr_t)leaf->config + o->offset) : NULL;
}

const char *backend_spec_leaf_path(const struct backend_spec *leaf)
{
	return leaf_text(leaf, leaf->ops ? leaf->ops->path_option : NULL);
}

const char *backend_spec_leaf_uri(const struct backend_spec *leaf)
{
	bool has_uri = leaf->ops && leaf->ops->places && leaf->ops->uri;

	return leaf_text(leaf, has_uri ? leaf->ops->uri->option : NULL);
}

uint64_t backend_spec_memory_bytes(const struct backend_spec *spec)
{
	const struct backend_spec *leaf;
	uint64_t all = 0;

	for (unsigned i = 0; (leaf = backend_spec_leaf(spec, i)); i++)
		if (leaf->ops && leaf->config && leaf->ops->memory_bytes &&
		    __builtin_add_overflow(all, leaf->ops->memory_bytes(leaf->config), &all))
			return UINT64_MAX;
	return all;
}

static bool spec_has_own(const struct backend_spec *spec)
{
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		if (child->as && child->as->is_own)
			return true;
	return false;
}

/* What a node keeps of its own is there for most requests to end in it. */
bool backend_spec_batches(const struct backend_spec *spec)
{
	bool has_own = spec_has_own(spec);

	if (!spec->child)
		return spec->ops->batches;
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		if ((!has_own || (child->as && child->as->is_own)) && backend_spec_batches(child))
			return true;
	return false;
}

/* What it can do best does not count for the tree: it is given memory, or makes do beside others.
 */
static bool takes_any_data(const struct backend_spec *child)
{
	return child->as && (child->as->in_memory || (child->as->read_only && child->ops->shared));
}

uint8_t backend_spec_data(const struct backend_spec *spec)
{
	uint8_t data = spec->ops->data;

	/* It takes bytes wherever they are, and all but memory costs it a copy. */
	if (spec->ops->shared)
		return 0;
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		if (!takes_any_data(child))
			data &= backend_spec_data(child);
	return data;
}
