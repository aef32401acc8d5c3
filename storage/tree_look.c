/*
 * What can be seen of a tree while it serves: walks over its queues, through what it shares with
 * other devices. Main thread. Owns nothing.
 *
 * Happy path: from the top down, in the order of the configuration, to the node with an index. What
 * is shared has one queue: the queue 0 of a device adds what that has counted, the others do not.
 * Failure mode: there are fewer.
 */
#include "storage/look.h"

#include "storage/backend.h"
#include "storage/resize.h"
#include "storage/sharing.h"
#include "storage/word.h"
#include "net/session_look.h"

/* Where a queue stands, from the top of the device on. */
struct queue_place {
	unsigned depth;	  /* images above it */
	bool is_again;	  /* the device's queue 0 leads to it too */
	bool is_repeated; /* another device counts it */
};

/* The first queue below this one; *place becomes that of those. */
static const struct backend_queue *queue_below(const struct backend_queue *q,
					       struct queue_place *place)
{
	const struct backend_shared_ops *shared = q->device->ops->shared;

	place->depth += q->device->ops->is_image_format;
	if (!shared)
		return q->child;
	place->is_again |= q->idx > 0;
	place->is_repeated |= !shared->counts(q->device);
	return shared->queue(q);
}

struct queue_search {
	bool (*is_sought)(const struct backend *ops);
	unsigned idx;		  /* counted down */
	struct queue_place found; /* out */
};

static const struct backend_queue *find_queue(struct queue_search *s, const struct backend_queue *q,
					      struct queue_place place)
{
	const struct backend_queue *found = NULL;

	if (s->is_sought(q->device->ops) && s->idx-- == 0) {
		s->found = place;
		return q;
	}
	for (const struct backend_queue *c = queue_below(q, &place); c && !found; c = c->sibling)
		found = find_queue(s, c, place);
	return found;
}

/* ---- libraries and connections ---- */

bool backend_library(const struct backend_device *top, struct backend_library_look *ret_look)
{
	if (top->ops->library) {
		top->ops->library(ret_look);
		return true;
	}
	for (const struct backend_device *c = backend_below(top); c; c = c->sibling)
		if (backend_library(c, ret_look))
			return true;
	return false;
}

/* Counts idx down by those that this part of the tree has. */
static bool find_connection(const struct backend_queue *q, unsigned *idx, struct queue_place place,
			    struct net_connection_look *ret_connection)
{
	const struct backend *ops = q->device->ops;
	unsigned own_nr = 0;

	if (place.is_again)
		return false;
	if (ops->connection && ops->connection(q, *idx, ret_connection)) {
		ret_connection->node = q->device->name;
		ret_connection->is_repeated = place.is_repeated;
		return true;
	}
	while (ops->connection && ops->connection(q, own_nr, ret_connection))
		own_nr++;
	*idx -= own_nr;
	for (const struct backend_queue *c = queue_below(q, &place); c; c = c->sibling)
		if (find_connection(c, idx, place, ret_connection))
			return true;
	return false;
}

bool backend_connection(const struct backend_queue *top, unsigned idx,
			struct net_connection_look *ret_connection)
{
	return find_connection(top, &idx, (struct queue_place){ 0 }, ret_connection);
}

/* ---- images ---- */

static bool has_image_look(const struct backend *ops)
{
	return ops->is_image_format && ops->look;
}

/* What a user knows a leaf by. */
static const char *leaf_place(const struct backend_device *leaf)
{
	const struct option *o = leaf->ops->path_option;

	if (!o && leaf->ops->uri)
		o = leaf->ops->uri->option;
	return o ? *(char *const *)((const char *)leaf->config + o->offset) : NULL;
}

/* By way of its first child, which the image lies in, and filters over that. */
static void look_below(const struct backend_queue *q, struct backend_image_look *look)
{
	struct queue_place place = { 0 };
	const struct backend_queue *below;

	while ((below = queue_below(q, &place))) {
		q = below;
		if (q->device->ops->is_image_format)
			return;
	}
	look->file = leaf_place(q->device);
	if (q->device->ops->look && !place.is_again)
		q->device->ops->look(q, look);
}

bool backend_image(const struct backend_queue *top, unsigned idx, struct backend_image_look *look)
{
	struct queue_search search = { .is_sought = has_image_look, .idx = idx };
	const struct backend_queue *q = find_queue(&search, top, (struct queue_place){ 0 });

	if (!q)
		return false;
	if (search.found.is_again)
		return true;
	q->device->ops->look(q, look);
	look->format = q->device->ops->name;
	look->node = q->device->name;
	look->depth = search.found.depth;
	look->is_repeated = search.found.is_repeated;
	look_below(q, look);
	return true;
}

/* ---- caches ---- */

static bool has_cache_look(const struct backend *ops)
{
	return ops->look_cache;
}

bool backend_cache_at(const struct backend_queue *top, unsigned idx,
		      struct backend_cache_look *look)
{
	struct queue_search search = { .is_sought = has_cache_look, .idx = idx };
	const struct backend_queue *q = find_queue(&search, top, (struct queue_place){ 0 });

	if (!q)
		return false;
	if (search.found.is_again)
		return true;
	q->device->ops->look_cache(q, look);
	look->node = q->device->name;
	look->is_repeated = search.found.is_repeated;
	return true;
}

/* ---- notes ---- */

/* Counts *idx down by the notes that this part of the tree has. */
static bool find_note(const struct backend_device *node, unsigned *idx,
		      char words[BACKEND_NOTE_BYTES])
{
	uint32_t left_out_bytes = backend_left_out(node);

	if (left_out_bytes && (*idx)-- == 0) {
		snprintf(words, BACKEND_NOTE_BYTES,
			 "the storage ends within a block of %u bytes: its last %u bytes are left "
			 "out",
			 node->open_params.logical_block_bytes, left_out_bytes);
		return true;
	}
	if (node->note && (*idx)-- == 0) {
		snprintf(words, BACKEND_NOTE_BYTES, "%s", node->note);
		return true;
	}
	for (const struct backend_device *c = backend_below(node); c; c = c->sibling)
		if (find_note(c, idx, words))
			return true;
	return false;
}

bool backend_note(const struct backend_device *top, unsigned idx, char words[BACKEND_NOTE_BYTES])
{
	return find_note(top, &idx, words);
}
