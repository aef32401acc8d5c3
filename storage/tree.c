/*
 * The devices of a tree: made, each opened and closed, asked who they are. A device is one
 * allocation with its private area behind it. life.c walks over them, on a helper, which may block,
 * and on the control thread; the questions are the control thread's (storage/backend.h).
 *
 * Happy path: backend_tree_new, backend_device_open and _opened from the bottom up, queues
 * (io_queue.c), backend_device_close from the top down, backend_tree_free.
 * Failure modes: a node that refuses says why in words; one that is half open is closed by the same
 * function as a whole one, one that was never touched not at all.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sharing.h"
#include "storage/life_internal.h"
#include "storage/node.h"
#include "storage/spec.h"
#include "storage/word.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/printable.h"
#include "base/util.h"

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

/*
 * Both, but a cache of one alone is a cache; and FUA of one without a cache is nothing special.
 * BACKEND_CAP_GROWS is lost: what is written beyond the end of several is at no place of one.
 */
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

const char *backend_block_cure(uint32_t block_bytes, char buf[static BACKEND_BLOCK_CURE_BYTES])
{
	if (block_bytes <= BACKEND_BLOCK_BYTES_MAX)
		snprintf(buf, BACKEND_BLOCK_CURE_BYTES, "set block_size: %u", block_bytes);
	else
		snprintf(buf, BACKEND_BLOCK_CURE_BYTES,
			 "its own have %u, and those of a device %u at most", block_bytes,
			 BACKEND_BLOCK_BYTES_MAX);
	return buf;
}

/* What open found must make sense together with what the configuration asks for. */
static int check_limits(struct backend_device *device)
{
	struct backend_limits *limits = &device->limits;
	uint32_t block_bytes = device->open_params.logical_block_bytes;
	char cure[BACKEND_BLOCK_CURE_BYTES];

	limits->physical_block_bytes = MAX(limits->physical_block_bytes, block_bytes);
	if (limits->logical_block_bytes > block_bytes && block_bytes == 1)
		return backend_fail(device, -EINVAL,
				    "has blocks of %u bytes, and metadata are smaller: keep them "
				    "in a regular file, without direct: on, or in mem",
				    limits->logical_block_bytes);
	if (limits->logical_block_bytes > block_bytes)
		return backend_fail(device, -EINVAL, "cannot serve blocks of %u bytes: %s",
				    block_bytes,
				    backend_block_cure(limits->logical_block_bytes, cure));
	if (limits->size_bytes < block_bytes)
		return backend_fail(
			device, -EINVAL, "has %llu bytes, less than one block of %u",
			(unsigned long long)MAX(limits->size_bytes, device->tail.found_bytes),
			block_bytes);
	if (limits->size_bytes % block_bytes != 0)
		return backend_fail(device, -EINVAL,
				    "size of %llu bytes is not a multiple of block_size: %u",
				    (unsigned long long)limits->size_bytes, block_bytes);
	return 0;
}

/* ---- devices ---- */

/* What the recursion shares. */
struct tree_making {
	const struct backend_open_params *params;
	unsigned stored_idx;	   /* of the next node that has one: backend_stored_fd */
	unsigned node_idx;	   /* of the next node */
	struct backend_owed *owed; /* what is kept, by node_idx; or NULL */
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

/* Whether it has an index in backend_stored_fd: leaves always had. */
static bool has_stored_idx(const struct backend *ops)
{
	return !ops->children || ops->stored_fd;
}

/* Of the node at spec; above: of its parent at parent, or what the opener says. */
static void fill_params(struct tree_making *t, const struct backend_spec *spec,
			const struct backend_open_params *above, const struct backend_spec *parent,
			struct backend_open_params *ret_params)
{
	const struct backend *ops = parent ? parent->ops : NULL;

	*ret_params = *above;
	ret_params->read_only |= spec->as && spec->as->read_only;
	if (spec->as && spec->as->is_own)
		ret_params->read_only = false;
	if (spec->as && spec->as->is_bytewise)
		ret_params->logical_block_bytes = 1;
	if (ops) {
		ret_params->read_only |= ops->only_reads && ops->only_reads(parent->config);
		ret_params->depth += ops->own_nr;
		if (ops->sizes_itself)
			ret_params->size_bytes = 0;
		else if (above->size_bytes && ops->size_below)
			ret_params->size_bytes = ops->size_below(
				parent->config, backend_spec_child_nr(parent), above->size_bytes);
	}
	ret_params->is_taken_over = t->params->size_bytes > 0;
	ret_params->stored_fd = 0;
	ret_params->stored_fds = NULL;
	if (!has_stored_idx(spec->ops))
		return;
	if (t->params->stored_fds)
		ret_params->stored_fd = t->params->stored_fds[t->stored_idx];
	t->stored_idx++;
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

/* Recurses at most BACKEND_DEPTH_MAX deep. */
static struct backend_device *node_new(struct tree_making *t, const struct backend_spec *spec,
				       const struct backend_spec *parent_spec,
				       struct backend_device *parent, const char *above)
{
	const struct backend_open_params *params = parent ? &parent->open_params : t->params;
	struct backend_device *device = device_alloc(spec->ops), **end;

	ASSERT((spec->ops->children != NULL) == (spec->child != NULL));
	if (!device)
		return NULL;
	device->parent = parent;
	device->config = spec->config;
	device->spec = spec;
	device->as = spec->as;
	device->node_idx = t->node_idx++;
	backend_owed_begin(device, t->owed ? &t->owed[device->node_idx] : NULL);
	name_device(device, spec, above);
	fill_params(t, spec, params, parent_spec, &device->open_params);
	end = &device->child;
	if (spec->ops->shared)
		return device;
	for (const struct backend_spec *child = spec->child; child; child = child->sibling) {
		*end = node_new(t, child, spec, device, device->name);
		if (!*end) {
			backend_tree_free(device);
			return NULL;
		}
		end = &(*end)->sibling;
		device->child_nr++;
	}
	return device;
}

struct backend_device *backend_tree_new(const struct backend_spec *spec, const char *name,
					const struct backend_open_params *open_params)
{
	struct tree_making t = { .params = open_params };
	struct backend_device *top;

	ASSERT(is_power_of_two(open_params->logical_block_bytes) &&
	       open_params->logical_block_bytes >= 512);
	if (open_params->owed_fd > 0) {
		t.owed = backend_owed_map(open_params->owed_fd);
		if (!t.owed)
			return NULL;
	}
	top = node_new(&t, spec, NULL, NULL, name);
	if (top)
		top->owed_kept = t.owed;
	else
		backend_owed_unmap(t.owed);
	return top;
}

void backend_tree_free(struct backend_device *device)
{
	struct backend_device *child = device->child;

	while (child) {
		struct backend_device *sibling = child->sibling;

		backend_tree_free(child);
		child = sibling;
	}
	backend_spec_free(device->resolved);
	backend_owed_unmap(device->owed_kept);
	free(device);
}

/* ---- one node is opened and closed ---- */

/* A child that is only read, beside others: what it cannot do, the node does not ask of it. */
static void join_reader(struct backend_device *device, const struct backend_device *child)
{
	uint32_t rotational = child->limits.caps & BACKEND_CAP_ROTATIONAL;
	uint32_t caps = device->limits.caps;

	backend_limits_join(&device->limits, &child->limits);
	device->limits.caps = caps | rotational;
}

static void join_children(struct backend_device *device)
{
	for (const struct backend_device *c = device->child; c; c = c->sibling) {
		if (c == device->child)
			device->limits = c->limits;
		else if (c->as && c->as->read_only)
			join_reader(device, c);
		else
			backend_limits_join(&device->limits, &c->limits);
	}
}

/* Words for a failure that left none. */
static int device_open_result(struct backend_device *device, int ret)
{
	if (ret < 0 && device->error[0] == '\0')
		backend_fail(device, ret, "%s: cannot open: %s", device->ops->name, errname(ret));
	return ret;
}

int backend_device_open(struct backend_device *device)
{
	int ret;

	join_children(device);
	backend_owed_open(device);
	device->touched = true;
	ret = device->ops->open ? device->ops->open(device) : 0;
	device->open_params.stored_fd = 0; /* the caller may close it now */
	return device_open_result(device, ret);
}

int backend_device_opened(struct backend_device *device)
{
	int ret;

	device->open = true;
	/* Again: its open may have found a loss, or named a child that has copies. */
	backend_owed_open(device);
	ret = backend_claim(device);
	return ret < 0 ? device_open_result(device, ret) : check_limits(device);
}

void backend_device_close(struct backend_device *device)
{
	if (device->touched && device->ops->close)
		device->ops->close(device);
	backend_unclaim(device);
	device->touched = device->open = false;
}

static void close_from_the_top(struct backend_device *device)
{
	backend_device_close(device);
	for (struct backend_device *c = device->child; c; c = c->sibling)
		close_from_the_top(c);
}

void backend_close(struct backend_device *device)
{
	if (!device)
		return;
	close_from_the_top(device);
	backend_tree_free(device);
}

void backend_device_words(const struct backend_device *device, char *buf, size_t bytes)
{
	const struct backend_device *top = device;
	const char *path;

	while (top->parent)
		top = top->parent;
	/* The root is the opener's to name. */
	path = device->name[strlen(top->name)] == '/' ? device->name + strlen(top->name) + 1 : "";
	snprintf(buf, bytes, "%s%s%s", path, *path ? ": " : "",
		 device->error[0] ? device->error : "no reason was given");
}

unsigned backend_node_nr(const struct backend_device *top)
{
	unsigned nr = 1;

	for (const struct backend_device *c = top->child; c; c = c->sibling)
		nr += backend_node_nr(c);
	return nr;
}

bool backend_is_in_image(const struct backend_device *device)
{
	for (const struct backend_device *d = device->parent; d; d = d->parent)
		if (d->ops->is_image_format)
			return true;
	return false;
}

bool backend_holds_image(const struct backend_device *device)
{
	for (const struct backend_device *d = device; d->parent; d = d->parent) {
		if (d->as && (d->as->is_own || d->as->is_bytewise))
			return false;
		if (d->parent->ops->is_image_format)
			return true;
	}
	return false;
}

/* ---- what the nodes say ---- */

/* The node with this index, counted down while looking; NULL: there are fewer. */
static const struct backend_device *device_find_stored(const struct backend_device *device,
						       unsigned *idx)
{
	const struct backend_device *found = NULL;

	if (has_stored_idx(device->ops) && (*idx)-- == 0)
		return device;
	for (const struct backend_device *c = device->child; c && !found; c = c->sibling)
		found = device_find_stored(c, idx);
	return found;
}

int backend_stored_fd(const struct backend_device *top, unsigned idx)
{
	const struct backend_device *node = device_find_stored(top, &idx);

	return node && node->ops->stored_fd ? node->ops->stored_fd(node) : -1;
}

unsigned backend_stored_nr(const struct backend_device *top)
{
	unsigned nr = has_stored_idx(top->ops);

	for (const struct backend_device *c = top->child; c; c = c->sibling)
		nr += backend_stored_nr(c);
	return nr;
}

void backend_tell(const struct backend_device *leaf, enum backend_news news)
{
	const struct backend_device *top = leaf;

	while (top->parent)
		top = top->parent;
	if (top->hears)
		top->hears(top->hears_arg, news);
}

void backend_on_news(struct backend_device *device, void (*fn)(void *arg, enum backend_news news),
		     void *arg)
{
	device->hears = fn;
	device->hears_arg = arg;
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

bool backend_settle(const struct backend_device *top)
{
	struct backend_device *device = (struct backend_device *)(uintptr_t)top;
	bool is_settled = !device->ops->settle || device->ops->settle(device);

	for (const struct backend_device *c = top->child; c; c = c->sibling)
		is_settled &= backend_settle(c);
	return is_settled;
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
	/* It is kept as JSON, and a name in it may be cut, or of any bytes. */
	utf8_repair(text);
}
