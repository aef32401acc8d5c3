/* What the core sees of the node: its table, its children, its queue and what requests wait for. */
#include "filters/cache/cache.h"

#include <errno.h>
#include <stdio.h>

#include "base/util.h"
#include "storage/registry.h"
#include "storage/version.h"

static const struct backend_child_option cache_children[] = {
	{ .name = "backend",
	  .nr_min = 1,
	  .nr_max = 1,
	  .in_memory = true,
	  .help = "The origin, whose bytes these are: a backend of any type." },
	{ .name = "store",
	  .nr_min = 1,
	  .nr_max = 1,
	  .is_own = true,
	  .help = "Where blocks are kept: a backend of any type, as a rule a file on a fast disk: "
		  "{type: file, path: /var/cache/disk, size: 20GiB, create: true}. Nobody else may "
		  "use it. It is written also when the device is read_only." },
	{ .name = NULL },
};

static struct backend_wait cache_wait(const struct backend_io *io)
{
	static const char *const words[] = {
		[CACHE_HIT] = "reading from the store of the cache",
		[CACHE_PASSING] = "waiting for the origin",
		[CACHE_FILLING] = "filling a block from the origin",
		[CACHE_WAITS_FILL] = "waiting for others at the same block of the cache",
		[CACHE_WAITS_COMMIT] = "waiting for the index of the cache to be written",
		[CACHE_WAITS_BUFFER] = "waiting for a buffer for the origin",
		[CACHE_WAITS_DIRTY] = "waiting for dirty blocks to be written",
		[CACHE_STORING] = "writing to the store of the cache",
		[CACHE_FLUSHES] = "flushing the origin",
	};
	const struct cache_io *s = io->priv;
	unsigned state = __atomic_load_n(&s->state, __ATOMIC_RELAXED);

	return (struct backend_wait){ .kind = BACKEND_WAIT_ANSWER,
				      .words = state < ARRAY_SIZE(words) ? words[state] : NULL };
}

static int cache_queue_init(struct backend_queue *queue)
{
	struct cache_device *d = queue->device->priv;
	struct cache_queue *q = queue->priv;

	if (d->q)
		return -EBUSY;
	q->queue = queue;
	q->d = d;
	d->q = q;
	for (unsigned i = 0; i < CACHE_OWN_NR; i++)
		q->own[i].own = &queue->own[i];
	d->is_resting = d->is_aside = d->keeps_nothing = false;
	d->back_nr = 0;
	cache_commit_init(d);
	cache_clean_init(d);
	return 0;
}

static void cache_queue_fini(struct backend_queue *queue)
{
	struct cache_queue *q = queue->priv;

	if (!q->queue)
		return;
	cache_commit_fini(q->d);
	cache_clean_fini(q->d);
	task_cancel(&q->d->wake_task);
	q->d->q = NULL;
}

static int cache_io_init(struct backend_io *io)
{
	struct cache_io *s = io->priv;

	s->io = io;
	s->d = io->queue->device->priv;
	list_init(&s->waiting);
	list_init(&s->change);
	return 0;
}

/* What would wait for the origin: it is asked again when a request wants it. */
static void cache_cancel_own(struct cache_queue *q)
{
	for (unsigned i = 0; i < CACHE_OWN_NR; i++) {
		struct backend_own *own = q->own[i].own;

		if (own->under_way == &own->child[CACHE_ORIGIN])
			backend_own_cancel(own);
	}
}

static bool cache_rest(struct backend_queue *queue)
{
	struct cache_queue *q = queue->priv;
	struct cache_device *d = q->d;

	d->is_resting = true;
	cache_control_stop(d);
	reactor_timer_cancel(queue->reactor, &d->commit.timer);
	reactor_timer_cancel(queue->reactor, &d->clean_timer);
	cache_cancel_own(q);
	return q->nr[CACHE_OWN_FILL] == 0 && cache_clean_is_quiet(d) && cache_commit_is_quiet(d);
}

#define CACHE_LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

static void cache_look(const struct backend_queue *queue, struct backend_cache_look *look)
{
	static const char *const modes[] = { "", "readthrough", "writethrough", "writeback" };
	const struct cache_device *d = queue->device->priv;
	const struct cache_stats *stats = &d->stats;

	look->mode = modes[d->mode];
	look->is_off = CACHE_LOAD(d->is_off);
	look->block_bytes = d->block_bytes;
	look->block_nr = d->ix->header.slot_nr;
	look->used_nr = CACHE_LOAD(d->ix->used_nr);
	look->dirty_bytes = CACHE_LOAD(d->ix->dirty_units) * CACHE_UNIT_BYTES;
	look->hits = CACHE_LOAD(stats->hits);
	look->misses = CACHE_LOAD(stats->misses);
	look->hit_bytes = CACHE_LOAD(stats->hit_bytes);
	look->miss_bytes = CACHE_LOAD(stats->missed_bytes);
	look->filled_bytes = CACHE_LOAD(stats->filled_bytes);
	look->passed_by = CACHE_LOAD(stats->passed_by);
	look->prefetched = CACHE_LOAD(stats->prefetches);
	look->evicted = CACHE_LOAD(stats->evictions);
	look->cleaned_bytes = CACHE_LOAD(stats->cleaned_bytes);
	look->moved_bytes = CACHE_LOAD(stats->moved_bytes);
}

static void cache_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	(void)device;
	snprintf(text, BACKEND_IDENTITY_BYTES, "cache");
}

/* What is dirty is here alone: then it has none. */
static void cache_own_version(const struct backend_device *device, struct backend_version *ret)
{
	const struct cache_device *d = device->priv;

	if (d->mode != CACHE_WRITEBACK)
		backend_version(device->child, ret);
}

static int cache_own_version_now(const struct backend_device *device,
				 char words[BACKEND_VERSION_BYTES])
{
	return backend_version_now(device->child, words);
}

static const struct backend_version_ops cache_versions = { .found = cache_own_version,
							   .now = cache_own_version_now };

static int cache_stored_fd(const struct backend_device *device)
{
	const struct cache_device *d = device->priv;

	return d->ix ? d->ix->fd : -1;
}

static const char *cache_failure(const struct backend_device *device)
{
	const struct cache_device *d = device->priv;

	return atomic_load_explicit(&d->failure, memory_order_relaxed);
}

const struct backend backend_cache = {
	.name = "cache",
	.summary = "A filter that keeps blocks of a slow backend on a fast one: what was read or "
		   "written before is there at once, also after a restart.",
	.options = cache_options,
	.config_bytes = sizeof(struct cache_config),
	.device_bytes = sizeof(struct cache_device),
	.queue_bytes = sizeof(struct cache_queue),
	.io_bytes = sizeof(struct cache_io),
	.data = BACKEND_DATA_ANY,
	.test_options = "block: 16KiB",
	.sizes_itself = true,
	.alone_below = true,
	.children = cache_children,
	.own_nr = CACHE_OWN_NR,
	.own_bytes = CACHE_BLOCK_BYTES_MAX,
	.open = cache_open,
	.open_async = cache_open_async,
	.close_async = cache_close_async,
	.close = cache_close,
	.queue_init = cache_queue_init,
	.queue_fini = cache_queue_fini,
	.rest = cache_rest,
	.io_init = cache_io_init,
	.submit = cache_submit,
	.cancel = cache_cancel,
	.child_done = cache_child_done,
	.wait = cache_wait,
	.identity = cache_identity,
	.version = &cache_versions,
	.stored_fd = cache_stored_fd,
	.failure = cache_failure,
	.look_cache = cache_look,
	.cache_ops = &cache_control_ops,
	.above = &cache_above,
};
