/*
 * A cache is opened: a helper makes the memory, the control reactor reads the store.
 *
 *   both headers -> (none: the store is made a cache) -> the memory of a process before, or pages
 *   -> (of another origin or shape: only to see that nothing dirty is there; then made anew)
 *   -> the origin is the version that was noted (cache_version.c), else the same
 *   -> (dirty blocks, and the mode is not writeback: they are written to the origin)
 *   -> FLUSH of the origin: what it has now is durable -> its version, or none, is noted -> done
 *
 * Failure modes: a store that holds something else is refused, as is one whose dirty blocks would
 * be lost; what is only clean is dropped with a line in the log. A store that cannot be read or
 * written is refused: what it says of blocks could not be taken back. An open that fails leaves the
 * version that was noted, or after a drain notes the one that there is. The FLUSH fails while a
 * process takes over from another one: a loss of the origin, and it goes on (cache_lost.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "filters/cache/cache_visit.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"

static void cache_open_end(struct cache_visit *v, int ret)
{
	struct backend_visit *visit = v->visit;

	cache_visit_free(v->d);
	backend_visit_done(visit, ret);
}

static void cache_open_fail(struct cache_visit *v, int err, const char *words)
{
	if (words)
		backend_fail(v->d->device, err, "cache: %s", words);
	cache_open_end(v, err);
}

/* ---- the end ---- */

static void cache_set_limits(struct cache_device *d)
{
	const struct backend_limits *origin = &d->device->child->limits;
	struct backend_limits *limits = &d->device->limits;
	uint32_t origin_caps = origin->caps & ~(uint32_t)BACKEND_CAP_GROWS;

	limits->size_bytes = origin->size_bytes;
	limits->caps = origin_caps;
	if (d->mode == CACHE_WRITEBACK)
		limits->caps |= BACKEND_CAP_FLUSH | BACKEND_CAP_FUA;
	limits->discard_granularity_bytes = origin->discard_granularity_bytes;
	limits->max_discard_bytes = origin->max_discard_bytes;
	limits->max_write_zeroes_bytes = origin->max_write_zeroes_bytes;
	limits->boundary_bytes = d->block_bytes;
	limits->queue_nr_max = 1;
	limits->queue_nr_cure = "a cache has one queue";
}

static void cache_open_done(struct cache_visit *v)
{
	struct cache_device *d = v->d;

	d->ix = v->ix;
	v->ix = NULL;
	for (uint32_t i = 0; i < d->ix->header.slot_nr; i++)
		if (d->ix->slot[i].flushes != CACHE_FLUSHES_NEVER)
			d->ix->slot[i].flushes = 0;
	cache_index_set_filled(d->ix);
	d->flush_begun = d->flushed_nr = 1;
	cache_losses_begin(d);
	d->dirty_max =
		(uint32_t)MAX(1.0, ((const struct cache_config *)d->device->config)->dirty_max *
					   (double)d->ix->header.slot_nr);
	cache_set_limits(d);
	log_info("cache opened", "node=%s blocks=%u used=%u dirty=%u memory_bytes=%zu",
		 d->device->name, d->ix->header.slot_nr, d->ix->used_nr, d->ix->dirty_nr,
		 d->ix->area_bytes);
	cache_open_end(v, 0);
}

static void cache_open_noted(struct cache_visit *v, int result)
{
	if (result < 0)
		cache_open_fail(v, result, NULL);
	else
		cache_open_done(v);
}

static void cache_open_unflushed(struct cache_visit *v, int result)
{
	cache_open_fail(v, result, NULL);
}

/* The origin may have lost what the cache has of it. */
static void cache_open_doubts(struct cache_visit *v)
{
	struct cache_device *d = v->d;

	d->is_doubtful = true;
	d->flushed_nr = 0;
	d->ix = v->ix;
	cache_forget_unflushed(d);
	d->ix = NULL;
}

/* Users of a device that a process before had wait for it, and for what it alone has. */
static void cache_open_flushed(struct cache_visit *v, int result)
{
	if (result < 0 && v->has_drained) {
		cache_version_close(v, result, cache_open_unflushed);
		return;
	}
	if (result < 0 && !v->is_adopted) {
		cache_open_fail(v, result, NULL);
		return;
	}
	if (result < 0) {
		log_warn("the origin of a cache that is taken over cannot be flushed: what the "
			 "cache had of unflushed writes is dropped, but for dirty blocks",
			 "node=%s error=%s", v->d->device->name, errname(result));
		cache_open_doubts(v);
	}
	cache_version_note(v, cache_open_noted);
}

static void cache_open_flush(struct cache_visit *v)
{
	if (cache_losses_begin(v->d))
		cache_open_doubts(v);
	cache_visit_io(v, CACHE_ORIGIN, BACKEND_FLUSH, 0, 0, "flushing the origin",
		       cache_open_flushed);
}

/* ---- a new one ---- */

static void cache_made(struct cache_visit *v, int result)
{
	if (result < 0) {
		cache_open_fail(v, result, NULL);
		return;
	}
	v->found = v->wanted;
	cache_open_flush(v);
}

static void cache_make(struct cache_visit *v)
{
	int ret;

	cache_index_free(v->ix);
	v->ix = NULL;
	v->is_adopted = false;
	v->wanted.generation = v->has_found ? v->found.generation + 1 : 1;
	while (v->wanted.instance == 0)
		if (getrandom(&v->wanted.instance, sizeof(v->wanted.instance), 0) < 0)
			break;
	ret = cache_index_new(&v->ix, &v->wanted);
	if (ret < 0) {
		cache_open_fail(v, ret, "no memory for the index");
		return;
	}
	cache_headers_write(v, cache_made);
}

/* ---- one that is there ---- */

static void cache_open_undrained(struct cache_visit *v, int result)
{
	cache_open_fail(v, result, "dirty blocks of the store cannot be written to the origin");
}

static void cache_open_drained(struct cache_visit *v, int result)
{
	struct cache_device *d = v->d;

	v->ix = d->ix;
	d->ix = NULL;
	if (cache_version_is_unknown(&v->wanted))
		v->wanted.found[0] = '\0';
	if (result < 0)
		cache_version_close(v, result, cache_open_undrained);
	else
		cache_open_flush(v);
}

static bool cache_open_drains(const struct cache_visit *v)
{
	return v->ix->dirty_nr > 0 && v->d->mode != CACHE_WRITEBACK;
}

/* The header is right, whatever happens now. */
static void cache_open_ready(struct cache_visit *v, int result)
{
	struct cache_device *d = v->d;

	if (result < 0) {
		cache_open_fail(v, result, NULL);
	} else if (!cache_open_drains(v)) {
		cache_open_flush(v);
	} else {
		v->has_drained = true;
		d->ix = v->ix;
		v->ix = NULL;
		cache_drain_begin(v, cache_open_drained);
	}
}

/* As after a kill or a power cut: somebody else may have been there. */
static void cache_open_warn(const struct cache_visit *v)
{
	if (v->ix->dirty_nr == 0 || v->is_adopted ||
	    (v->found.found[0] && v->version.kind != BACKEND_VERSION_NONE))
		return;
	log_warn("dirty blocks of a cache are written to its origin, and whether others have "
		 "written there since is not known",
		 "node=%s dirty_bytes=%llu", v->d->device->name,
		 (unsigned long long)v->ix->dirty_units * CACHE_UNIT_BYTES);
}

/* The store's index is that of the origin as it is. */
static void cache_open_goes_on(struct cache_visit *v)
{
	cache_open_warn(v);
	if (cache_open_drains(v) && v->version.kind == BACKEND_VERSION_NOW)
		cache_version_set_unknown(&v->wanted);
	/* That nothing is noted is true only when it is written to, and that is said last. */
	if (v->wanted.found[0])
		cache_version_note(v, cache_open_ready);
	else
		cache_open_ready(v, 0);
}

static uint64_t cache_valid_bytes(const struct cache_index *ix)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < ix->header.slot_nr; i++)
		if (ix->slot[i].is_used)
			units += (unsigned)__builtin_popcountll(ix->slot[i].valid);
	return units * CACHE_UNIT_BYTES;
}

/* Somebody else has written to the origin: what is clean is wrong, what is dirty may be. */
static void cache_open_moved(struct cache_visit *v)
{
	struct cache_device *d = v->d;
	unsigned long long dirty_bytes = v->ix->dirty_units * CACHE_UNIT_BYTES;
	char words[BACKEND_ERROR_BYTES];

	d->stats.moved_bytes = cache_valid_bytes(v->ix);
	log_warn("the origin of a cache has been changed without it",
		 "node=%s was=\"%s\" is=\"%s\" bytes=%llu dirty_bytes=%llu", d->device->name,
		 v->found.found, v->version.found, (unsigned long long)d->stats.moved_bytes,
		 dirty_bytes);
	if (dirty_bytes == 0) {
		cache_make(v);
		return;
	}
	snprintf(words, sizeof(words),
		 "the store has %llu bytes that were never written to the origin, which %s: "
		 "`ublkctl cache store FILE` shows them, --discard forgets them, --force has them "
		 "written over it",
		 dirty_bytes,
		 cache_version_is_unknown(&v->found)
			 ? "did not take them then, and may have been changed since"
			 : "was changed without the cache since");
	cache_open_fail(v, -ESTALE, words);
}

static void cache_open_loaded(struct cache_visit *v)
{
	struct cache_device *d = v->d;

	if (v->ix->lie_nr > 0)
		log_warn("the index of a cache has entries that make no sense: they are dropped",
			 "node=%s entries=%llu", d->device->name,
			 (unsigned long long)v->ix->lie_nr);
	if (v->is_other && v->ix->dirty_nr > 0) {
		cache_open_fail(v, -EBUSY,
				"the store has blocks that were never written to their origin, "
				"and it is not this one, or its size or `block` have changed: "
				"open it as it was, or clear the store to lose them");
	} else if (v->is_other) {
		log_warn("what the store of a cache holds is of another origin, size or block: it "
			 "is dropped",
			 "node=%s origin=\"%s\"", d->device->name, v->found.origin);
		cache_make(v);
	} else if (cache_open_drains(v) &&
		   v->d->device->child->limits.caps & BACKEND_CAP_READ_ONLY) {
		cache_open_fail(v, -EROFS,
				"the store has blocks that were never written to the origin, which "
				"is read-only now");
	} else if (cache_version_has_moved(v)) {
		cache_open_moved(v);
	} else {
		cache_open_goes_on(v);
	}
}

static uint32_t cache_pages_at_once(const struct cache_visit *v)
{
	uint32_t most = MIN(CACHE_VISIT_BYTES, v->d->chunk_bytes) / (2 * CACHE_PAGE_BYTES);

	return MIN(most, cache_page_nr(v->ix->header.slot_nr) - v->next);
}

static void cache_pages_read(struct cache_visit *v, int result);

/* Both places of each; with requests of one page only, one after the other. */
static void cache_pages_next(struct cache_visit *v)
{
	ASSERT(v->ix);
	if (v->next == cache_page_nr(v->ix->header.slot_nr))
		cache_open_loaded(v);
	else
		cache_visit_io(v, CACHE_STORE, BACKEND_READ, cache_page_at(v->next, 0),
			       cache_pages_at_once(v) * 2 * CACHE_PAGE_BYTES, "reading the index",
			       cache_pages_read);
}

static void cache_pages_read(struct cache_visit *v, int result)
{
	uint32_t nr;

	if (result < 0) {
		cache_open_fail(v, result, NULL);
		return;
	}
	nr = cache_pages_at_once(v);
	for (uint32_t i = 0; i < nr; i++)
		cache_index_load(v->ix, v->next++, v->buf + (size_t)i * 2 * CACHE_PAGE_BYTES);
	cache_pages_next(v);
}

static void cache_load(struct cache_visit *v)
{
	int ret = cache_index_new(&v->ix, &v->found);

	if (ret < 0) {
		cache_open_fail(v, ret, "no memory for the index");
		return;
	}
	v->next = 0;
	cache_pages_next(v);
}

/* The memory of a process before, if it is of this cache. */
static void cache_open_found(struct cache_visit *v)
{
	struct cache_device *d = v->d;
	/* What the store has perhaps lost is not what the process before thinks. */
	bool is_owed = backend_was_owed(d->device->child->sibling);
	int ret = d->stored_fd > 0 ? cache_index_adopt(&v->ix, &v->found, d->stored_fd) : -ENODATA;

	/* ... but that it has given up the store is true. */
	if (is_owed && (ret == 0 || ret == -EBUSY)) {
		cache_index_free(v->ix);
		v->ix = NULL;
		ret = -ENODATA;
	}
	v->is_adopted = ret == 0;
	if (ret == 0)
		cache_open_loaded(v);
	else if (ret == -ENODATA)
		cache_load(v);
	else if (ret == -ESTALE || (ret == -EBUSY && d->mode != CACHE_WRITEBACK))
		cache_make(v);
	else
		cache_open_fail(v, ret,
				"the memory that the daemon before has left is not of this store");
}

static bool cache_shapes_are_equal(const struct cache_header *a, const struct cache_header *b)
{
	return a->block_bytes == b->block_bytes && a->slot_nr == b->slot_nr &&
	       a->origin_bytes == b->origin_bytes &&
	       memcmp(a->origin, b->origin, sizeof(a->origin)) == 0;
}

static bool cache_fits_store(const struct cache_header *h, uint64_t store_bytes)
{
	uint64_t at = cache_slots_at(h->slot_nr, h->block_bytes);

	return at <= store_bytes && store_bytes - at >= (uint64_t)h->slot_nr * h->block_bytes;
}

/* Its bytes are gone with the process that had them. Recurses at most BACKEND_DEPTH_MAX deep. */
static bool cache_is_in_memory(const struct backend_device *device)
{
	if (device->ops->memory_bytes)
		return true;
	for (const struct backend_device *c = device->child; c; c = c->sibling)
		if (cache_is_in_memory(c))
			return true;
	return false;
}

static bool cache_is_of_origin(const struct cache_visit *v)
{
	const struct cache_device *d = v->d;

	if (!cache_shapes_are_equal(&v->found, &v->wanted))
		return false;
	return d->stored_fd > 0 || !cache_is_in_memory(d->device->child);
}

/* Both headers have been looked at. */
static void cache_headers_found(struct cache_visit *v)
{
	uint64_t store_bytes = backend_size(v->d->device->child->sibling);

	/* The first header of a new cache may be torn by a cut; both never are. */
	if (!v->has_found && (v->has_foreign || v->damaged_nr == CACHE_HEADER_NR)) {
		cache_open_fail(
			v, -EEXIST,
			"the store holds something that is no cache, or one that is damaged: "
			"clear its first 8 KiB if nobody needs it");
		return;
	}
	if (!v->has_found || v->found.instance == 0) {
		cache_make(v);
		return;
	}
	if (cache_is_of_origin(v)) {
		cache_open_found(v);
		return;
	}
	v->is_other = true;
	if (cache_fits_store(&v->found, store_bytes))
		cache_load(v);
	else
		cache_open_fail(
			v, -EINVAL,
			"the store is smaller than when it was made a cache: give it back its "
			"size, or clear its first 8 KiB to lose what it holds");
}

static bool cache_is_blank(const uint8_t *at, uint32_t bytes)
{
	return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static void cache_header_next_read(struct cache_visit *v);

static void cache_header_read(struct cache_visit *v, int result)
{
	char words[CACHE_WORDS_BYTES];
	struct cache_header h;
	int ret;

	if (result < 0) {
		cache_open_fail(v, result, NULL);
		return;
	}
	ret = cache_header_parse(&h, v->buf, words);
	if (ret == 0 && (!v->has_found || h.generation > v->found.generation)) {
		v->found = h;
		v->has_found = true;
	}
	v->has_foreign |= ret == -ENODATA && !cache_is_blank(v->buf, CACHE_PAGE_BYTES);
	v->damaged_nr += ret == -EINVAL;
	if (++v->next < CACHE_HEADER_NR)
		cache_header_next_read(v);
	else
		cache_headers_found(v);
}

static void cache_header_next_read(struct cache_visit *v)
{
	cache_visit_io(v, CACHE_STORE, BACKEND_READ, (uint64_t)v->next * CACHE_PAGE_BYTES,
		       CACHE_PAGE_BYTES, "reading the header of the cache", cache_header_read);
}

void cache_open_async(struct backend_visit *visit)
{
	struct cache_visit *v = cache_visit_of(visit);

	v->visit = visit;
	cache_version_ask(v);
	cache_header_next_read(v);
}

/* ---- the part that may block ---- */

static int cache_choose_mode(struct cache_device *d)
{
	const struct cache_config *config = d->device->config;

	d->is_read_only = d->device->open_params.read_only ||
			  (d->device->child->limits.caps & BACKEND_CAP_READ_ONLY);
	d->mode = (enum cache_mode)config->mode;
	if (d->is_read_only && d->mode == CACHE_WRITEBACK)
		return backend_fail(d->device, -EROFS,
				    "cache: mode: writeback needs an origin that can be written");
	if (d->is_read_only)
		d->mode = CACHE_READTHROUGH;
	else if (d->mode == CACHE_MODE_AUTO)
		d->mode = CACHE_WRITETHROUGH;
	return 0;
}

static int cache_check_store(struct cache_device *d, uint32_t *ret_slot_nr)
{
	const struct backend_device *store = d->device->child->sibling;
	uint32_t slot_nr = cache_slots_for(backend_size(store), d->block_bytes);

	if (store->limits.caps & BACKEND_CAP_READ_ONLY)
		return backend_fail(d->device, -EROFS, "cache: the store is read-only");
	if (slot_nr < CACHE_SLOTS_MIN)
		return backend_fail(d->device, -EINVAL,
				    "cache: the store is too small: %u blocks of %u bytes and the "
				    "index must fit",
				    CACHE_SLOTS_MIN, d->block_bytes);
	if (d->device->open_params.logical_block_bytes > CACHE_UNIT_BYTES)
		return backend_fail(d->device, -EINVAL, "cache: block_size: at most %u",
				    CACHE_UNIT_BYTES);
	*ret_slot_nr = slot_nr;
	return 0;
}

/* Whose bytes: as told, or as the origin says. */
static void cache_name_origin(struct cache_device *d, char text[CACHE_ORIGIN_BYTES])
{
	const struct cache_config *config = d->device->config;
	char identity[BACKEND_IDENTITY_BYTES];

	if (config->origin_id && strcmp(config->origin_id, "auto") != 0) {
		snprintf(text, CACHE_ORIGIN_BYTES, "id %s", config->origin_id);
		return;
	}
	backend_identity(d->device->child, identity);
	snprintf(text, CACHE_ORIGIN_BYTES, "auto %s", identity);
}

static void cache_init(struct cache_device *d)
{
	const struct backend_open_params *params = &d->device->open_params;
	const struct cache_config *config = d->device->config;

	d->block_bytes = (uint32_t)config->block_bytes;
	d->block_shift = log2_floor(config->block_bytes);
	d->origin_bytes = backend_size(d->device->child);
	d->origin_flushes = d->device->child->limits.caps & BACKEND_CAP_FLUSH;
	d->origin_data = backend_spec_data(d->device->child->spec);
	d->chunk_bytes = CACHE_BLOCK_BYTES_MAX;
	if (params->max_io_bytes)
		d->chunk_bytes = MIN(d->chunk_bytes,
				     (uint32_t)round_down(params->max_io_bytes, CACHE_UNIT_BYTES));
	list_init(&d->commit_waiters);
	list_init(&d->block_waiters);
	list_init(&d->dirty_waiters);
	list_init(&d->pass_waiters);
	list_init(&d->woken);
	list_init(&d->ranges);
	for (unsigned i = 0; i < CACHE_CHANGE_BUCKETS; i++)
		list_init(&d->change[i]);
}

int cache_open(struct backend_device *device)
{
	struct cache_device *d = device->priv;
	struct cache_visit *v;
	uint32_t slot_nr = 0;
	int ret;

	d->device = device;
	cache_init(d);
	ret = cache_choose_mode(d);
	if (ret == 0)
		ret = cache_check_store(d, &slot_nr);
	if (ret < 0)
		return ret;
	if (d->chunk_bytes < 2 * CACHE_PAGE_BYTES)
		return backend_fail(device, -EINVAL, "cache: requests of 8 KiB must be allowed");
	device->child->sibling->has_copies = d->mode != CACHE_WRITEBACK;
	v = cache_visit_new(d);
	if (!v)
		return -ENOMEM;
	v->wanted = (struct cache_header){ .origin_bytes = d->origin_bytes,
					   .block_bytes = d->block_bytes,
					   .slot_nr = slot_nr };
	cache_name_origin(d, v->wanted.origin);
	if (device->open_params.stored_fd > 0)
		d->stored_fd = fcntl(device->open_params.stored_fd, F_DUPFD_CLOEXEC, 3);
	return 0;
}
