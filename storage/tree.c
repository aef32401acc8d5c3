/*
 * The devices of a tree: opened from the bottom up, closed from the top down, asked who they are. A
 * device is one allocation with its private area behind it. open and close run on a helper, which
 * may block; what else is here on the main thread (storage/backend.h).
 *
 * Happy path: backend_open, queues (io_queue.c) open and close, backend_close.
 * Failure modes: a node that refuses says why in words; what was open below it is closed; a device
 * that is half open is closed by the same function as a whole one.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/node.h"
#include "storage/spec.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"
#include "net/session_look.h"

const struct backend_child_option backend_one_child[] = {
	{ .name = "backend", .nr_min = 1, .nr_max = 1, .help = "What is below." },
	{ .name = NULL },
};

int backend_fail(struct backend_device *device, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(device->error, sizeof(device->error), fmt, ap);
	va_end(ap);
	return err;
}

/* ---- limits ---- */

/* Of limits where 0 says that there is none. */
static uint64_t lower_limit(uint64_t a, uint64_t b)
{
	return a && b ? MIN(a, b) : MAX(a, b);
}

/* Both, but a cache of one alone is a cache; and FUA of one without a cache is nothing special. */
static uint32_t join_caps(uint32_t a, uint32_t b)
{
	const uint32_t any = BACKEND_CAP_FLUSH | BACKEND_CAP_READ_ONLY | BACKEND_CAP_ROTATIONAL;
	const uint32_t both = BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES;
	bool fua_a = (a & BACKEND_CAP_FUA) || !(a & BACKEND_CAP_FLUSH);
	bool fua_b = (b & BACKEND_CAP_FUA) || !(b & BACKEND_CAP_FLUSH);

	return ((a | b) & any) | (a & b & both) | (fua_a && fua_b ? BACKEND_CAP_FUA : 0);
}

void backend_limits_join(struct backend_limits *limits, const struct backend_limits *other)
{
	struct backend_limits *l = limits;

	if (other->queue_nr_max && (l->queue_nr_max == 0 || other->queue_nr_max < l->queue_nr_max))
		l->queue_nr_cure = other->queue_nr_cure;
	*l = (struct backend_limits){
		.size_bytes = MIN(l->size_bytes, other->size_bytes),
		.caps = join_caps(l->caps, other->caps),
		.logical_block_bytes = MAX(l->logical_block_bytes, other->logical_block_bytes),
		.physical_block_bytes = MAX(l->physical_block_bytes, other->physical_block_bytes),
		.io_opt_bytes = MAX(l->io_opt_bytes, other->io_opt_bytes),
		.max_io_bytes = (uint32_t)lower_limit(l->max_io_bytes, other->max_io_bytes),
		.discard_granularity_bytes =
			MAX(l->discard_granularity_bytes, other->discard_granularity_bytes),
		.max_discard_bytes = lower_limit(l->max_discard_bytes, other->max_discard_bytes),
		.max_write_zeroes_bytes =
			lower_limit(l->max_write_zeroes_bytes, other->max_write_zeroes_bytes),
		.boundary_bytes = (uint32_t)lower_limit(l->boundary_bytes, other->boundary_bytes),
		.queue_nr_max = (uint32_t)lower_limit(l->queue_nr_max, other->queue_nr_max),
		.queue_nr_cure = l->queue_nr_cure,
		.max_segments = (uint32_t)lower_limit(l->max_segments, other->max_segments),
		.max_segment_bytes =
			(uint32_t)lower_limit(l->max_segment_bytes, other->max_segment_bytes),
		.virt_boundary_mask = l->virt_boundary_mask | other->virt_boundary_mask,
		.dma_alignment_bytes = MAX(l->dma_alignment_bytes, other->dma_alignment_bytes),
	};
}

/* What open found must make sense together with what the configuration asks for. */
static int check_limits(struct backend_device *device)
{
	struct backend_limits *limits = &device->limits;
	uint32_t block_bytes = device->open_params.logical_block_bytes;

	limits->physical_block_bytes = MAX(limits->physical_block_bytes, block_bytes);
	if (limits->logical_block_bytes > block_bytes)
		return backend_fail(device, -EINVAL,
				    "cannot serve blocks of %u bytes: set block_size: %u",
				    block_bytes, limits->logical_block_bytes);
	if (limits->size_bytes < block_bytes)
		return backend_fail(device, -EINVAL,
				    "is %llu bytes small: it needs one block of %u at least",
				    (unsigned long long)limits->size_bytes, block_bytes);
	if (limits->size_bytes % block_bytes != 0)
		return backend_fail(device, -EINVAL,
				    "size of %llu bytes is not a multiple of block_size: %u",
				    (unsigned long long)limits->size_bytes, block_bytes);
	return 0;
}

/* ---- open and close ---- */

/* What the recursion shares. */
struct opening {
	const char *name; /* of the device */
	const struct backend_open_params *params;
	unsigned leaf_idx; /* of the next leaf */
	char *error;
	size_t error_bytes;
};

static struct backend_device *device_alloc(const struct backend *ops)
{
	size_t head_bytes = round_up(sizeof(struct backend_device), BACKEND_AREA_ALIGN);
	struct backend_device *device = backend_area_alloc(head_bytes + ops->device_bytes);

	if (!device)
		return NULL;
	device->ops = ops;
	device->priv = (uint8_t *)device + head_bytes;
	return device;
}

static int open_fail(const struct opening *o, int err, const char *node, const char *words)
{
	/* The device is the caller's to name. */
	const char *path = node[strlen(o->name)] == '/' ? node + strlen(o->name) + 1 : "";

	snprintf(o->error, o->error_bytes, "%s%s%s", path, *path ? ": " : "", words);
	return err;
}

/* Of the node at spec, whose parent has these. */
static void fill_params(struct opening *o, const struct backend_spec *spec,
			const struct backend_open_params *above, const struct backend_spec *parent,
			struct backend_open_params *ret_params)
{
	const struct backend *ops = parent ? parent->ops : NULL;
	bool leaf = !spec->child;

	*ret_params = *above;
	if (ops) {
		ret_params->depth += ops->own_nr;
		if (above->size_bytes && ops->size_below)
			ret_params->size_bytes = ops->size_below(
				parent->config, backend_spec_child_nr(parent), above->size_bytes);
	}
	if (leaf && o->params->stored_fds)
		ret_params->stored_fd = o->params->stored_fds[o->leaf_idx];
	if (leaf && o->params->founds)
		ret_params->found = o->params->founds[o->leaf_idx];
	ret_params->stored_fds = NULL;
	ret_params->founds = NULL;
	o->leaf_idx += leaf;
}

/* "disk/backends/1"; without a step for a child that is "backend". */
static void name_device(struct backend_device *device, const struct backend_spec *spec,
			const char *above)
{
	device->name = above;
	if (!spec->as || spec->as == backend_one_child)
		return;
	if (spec->as->nr_max > 1)
		snprintf(device->path, sizeof(device->path), "%s/%s/%u", above, spec->as->name,
			 spec->as_idx);
	else
		snprintf(device->path, sizeof(device->path), "%s/%s", above, spec->as->name);
	device->name = device->path;
}

static int open_node(struct opening *o, struct backend_device **ret_device,
		     const struct backend_spec *spec, const struct backend_spec *parent,
		     const char *above, const struct backend_open_params *above_params);

static int device_open_children(struct opening *o, struct backend_device *device,
				const struct backend_spec *spec)
{
	struct backend_device **end = &device->child;

	for (const struct backend_spec *child = spec->child; child; child = child->sibling) {
		int ret = open_node(o, end, child, spec, device->name, &device->open_params);

		if (ret < 0)
			return ret;
		if (device->child_nr++ == 0)
			device->limits = (*end)->limits;
		else
			backend_limits_join(&device->limits, &(*end)->limits);
		end = &(*end)->sibling;
	}
	return 0;
}

static int open_self(struct opening *o, struct backend_device *device)
{
	int ret = device->ops->open ? device->ops->open(device) : 0;

	device->open_params.stored_fd = 0; /* the caller may close it now */
	device->open_params.found = NULL;
	if (ret < 0 && device->error[0] == '\0')
		backend_fail(device, ret, "%s: cannot open: %s", device->ops->name, errname(ret));
	if (ret == 0)
		ret = check_limits(device);
	return ret < 0 ? open_fail(o, ret, device->name, device->error) : 0;
}

static void device_close_children(struct backend_device *device)
{
	struct backend_device *child = device->child;

	while (child) {
		struct backend_device *sibling = child->sibling;

		backend_close(child);
		child = sibling;
	}
}

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static int open_node(struct opening *o, struct backend_device **ret_device,
		     const struct backend_spec *spec, const struct backend_spec *parent,
		     const char *above, const struct backend_open_params *above_params)
{
	struct backend_device *device = device_alloc(spec->ops);
	int ret;

	ASSERT((spec->ops->children != NULL) == (spec->child != NULL));
	if (!device)
		return open_fail(o, -ENOMEM, above, "out of memory");
	device->config = spec->config;
	name_device(device, spec, above);
	fill_params(o, spec, above_params, parent, &device->open_params);
	ret = device_open_children(o, device, spec);
	if (ret < 0) {
		device_close_children(device);
		free(device);
		return ret;
	}
	ret = open_self(o, device);
	if (ret < 0) {
		backend_close(device);
		return ret;
	}
	*ret_device = device;
	return 0;
}

int backend_open(struct backend_device **ret_device, const struct backend_spec *spec,
		 const char *name, const struct backend_open_params *open_params, char *error,
		 size_t error_bytes)
{
	struct opening o = {
		.name = name, .params = open_params, .error = error, .error_bytes = error_bytes
	};

	ASSERT(is_power_of_two(open_params->logical_block_bytes) &&
	       open_params->logical_block_bytes >= 512);
	return open_node(&o, ret_device, spec, NULL, name, open_params);
}

void backend_close(struct backend_device *device)
{
	if (!device)
		return;
	if (device->ops->close)
		device->ops->close(device);
	device_close_children(device);
	free(device);
}

/* ---- what the leaves say ---- */

/* The leaf with this index, counted down while looking; NULL: there are fewer. */
static const struct backend_device *device_find_leaf(const struct backend_device *device,
						     unsigned *idx)
{
	const struct backend_device *leaf = NULL;

	if (!device->child)
		return (*idx)-- == 0 ? device : NULL;
	for (const struct backend_device *c = device->child; c && !leaf; c = c->sibling)
		leaf = device_find_leaf(c, idx);
	return leaf;
}

int backend_stored_fd(const struct backend_device *top, unsigned leaf_idx)
{
	const struct backend_device *leaf = device_find_leaf(top, &leaf_idx);

	return leaf && leaf->ops->stored_fd ? leaf->ops->stored_fd(leaf) : -1;
}

const char *backend_failure(const struct backend_device *top,
			    const struct backend_device **ret_node)
{
	const char *words = top->ops->failure ? top->ops->failure(top) : NULL;

	if (words && ret_node)
		*ret_node = top;
	for (const struct backend_device *c = top->child; c && !words; c = c->sibling)
		words = backend_failure(c, ret_node);
	return words;
}

void backend_abandon(const struct backend_device *top)
{
	/* The tree is the opener's; const is who asks. */
	struct backend_device *device = (struct backend_device *)(uintptr_t)top;

	if (device->ops->abandon)
		device->ops->abandon(device);
	for (const struct backend_device *c = top->child; c; c = c->sibling)
		backend_abandon(c);
}

/* Counts idx down by those that this part of the tree has. */
static bool find_connection(const struct backend_queue *q, unsigned *idx,
			    struct net_connection_look *ret_connection)
{
	const struct backend *ops = q->device->ops;
	unsigned own_nr = 0;

	if (ops->connection && ops->connection(q, *idx, ret_connection)) {
		ret_connection->node = q->device->name;
		return true;
	}
	while (ops->connection && ops->connection(q, own_nr, ret_connection))
		own_nr++;
	*idx -= own_nr;
	for (const struct backend_queue *c = q->child; c; c = c->sibling)
		if (find_connection(c, idx, ret_connection))
			return true;
	return false;
}

bool backend_connection(const struct backend_queue *top, unsigned idx,
			struct net_connection_look *ret_connection)
{
	return find_connection(top, &idx, ret_connection);
}

/* ---- identity ---- */

/* Words of any length; what does not fit is told by its hashes: two of FNV-1a, from two bases. */
struct words {
	char text[BACKEND_IDENTITY_BYTES];
	size_t len;
	uint64_t hash[2];
};

static void identity_words_add(struct words *w, const char *text)
{
	for (; *text; text++) {
		if (w->len + 1 < sizeof(w->text))
			w->text[w->len] = *text;
		w->len++;
		for (size_t i = 0; i < ARRAY_SIZE(w->hash); i++)
			w->hash[i] = (w->hash[i] ^ (unsigned char)*text) * 1099511628211ull;
	}
}

static void add_identity(struct words *w, const struct backend_device *device)
{
	char text[BACKEND_IDENTITY_BYTES];

	snprintf(text, sizeof(text), "%s", device->ops->name);
	if (device->ops->identity)
		device->ops->identity(device, text);
	if (device->child_nr != 1 || device->ops->identity)
		identity_words_add(w, text);
	if (device->child_nr > 1)
		identity_words_add(w, "[");
	for (const struct backend_device *c = device->child; c; c = c->sibling) {
		add_identity(w, c);
		if (device->child_nr > 1)
			identity_words_add(w, c->sibling ? "," : "]");
	}
}

void backend_identity(const struct backend_device *top, char text[BACKEND_IDENTITY_BYTES])
{
	struct words w = { .hash = { 14695981039346656037ull, 1099511628211ull } };

	add_identity(&w, top);
	if (w.len < sizeof(w.text))
		snprintf(text, BACKEND_IDENTITY_BYTES, "%s", w.text);
	else
		snprintf(text, BACKEND_IDENTITY_BYTES,
			 "%s tree of %zu letters, hash %016llx%016llx", top->ops->name, w.len,
			 (unsigned long long)w.hash[0], (unsigned long long)w.hash[1]);
}
