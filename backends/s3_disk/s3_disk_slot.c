/*
 * Objects in memory. Owns the buffers. Reactor thread.
 *
 * Happy path: a WRITE -> the object is loaded, unless all of it is written -> changed -> stored by
 * a new name at the end of the turn, with all that has come meanwhile -> the WRITEs are complete ->
 * those that came while it was being stored change it next. It stays in memory until the slot is
 * needed. Failure modes: it cannot be loaded or stored: its WRITEs fail, and the slot is free.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/s3_disk/s3_disk.h"
#include "base/util.h"

static void slot_run(struct s3_disk_slot *slot);

struct s3_disk_slot *s3_disk_slot_find(struct s3_disk_queue *q, uint32_t index)
{
	list_for_each (node, &q->slots) {
		struct s3_disk_slot *slot = list_entry(node, struct s3_disk_slot, node);

		if (slot->state != S3_DISK_SLOT_FREE && slot->index == index)
			return slot;
	}
	return NULL;
}

static struct s3_disk_name map_name(const struct s3_disk_slot *slot)
{
	return slot->q->d->map.name[slot->index];
}

/* The one of those that may be taken that was used longest ago, or NULL. */
static struct s3_disk_slot *slot_idle(struct s3_disk_queue *q)
{
	list_for_each (node, &q->slots) {
		struct s3_disk_slot *slot = list_entry(node, struct s3_disk_slot, node);

		if (!slot->is_pinned &&
		    (slot->state == S3_DISK_SLOT_FREE || slot->state == S3_DISK_SLOT_READY))
			return slot;
	}
	return NULL;
}

/* Those that wait for a slot may have one; one that needs none any more leaves it to the next. */
static void slots_offer(struct s3_disk_queue *q)
{
	struct list_node *node;

	while (slot_idle(q) && (node = list_pop_front(&q->slots_waiting)))
		s3_disk_io_go(list_entry(node, struct s3_disk_io, node));
}

/* ---- loading ---- */

static void slot_drop(struct s3_disk_slot *slot)
{
	slot->state = S3_DISK_SLOT_FREE;
	s3_disk_ios_fail(&slot->waiting, -EIO);
	s3_disk_ios_fail(&slot->storing, -EIO);
}

static void slot_on_loaded(struct s3_disk_call *call, int result)
{
	struct s3_disk_slot *slot = container_of(call, struct s3_disk_slot, call);
	struct s3_disk_queue *q = slot->q;

	if (result == 0 && call->got == q->d->manifest.object_bytes) {
		slot->state = S3_DISK_SLOT_READY;
		slot_run(slot);
	} else {
		log_limited_by(&q->d->web.refused_limit, LOG_LEVEL_ERROR,
			       "an object cannot be read", "device=%s object=%s why=\"%s\"",
			       q->d->web.name, call->path,
			       result == 0	   ? "it is too short"
			       : result == -ENOENT ? "it is missing"
						   : call->words);
		slot_drop(slot);
	}
	slots_offer(q);
	s3_disk_queue_look(q);
}

/* Where zeroes are to be: of one that is overwritten, behind the end of the disk. */
static void slot_zero(struct s3_disk_slot *slot, bool is_overwritten)
{
	const struct s3_disk_manifest *m = &slot->q->d->manifest;
	uint64_t disk_bytes = MIN(m->object_bytes, m->size_bytes - slot->index * m->object_bytes);
	uint64_t from = is_overwritten ? disk_bytes : 0;

	memset(slot->buf + from, 0, m->object_bytes - from);
}

static void slot_load(struct s3_disk_slot *slot, bool is_overwritten)
{
	char path[S3_DISK_NAME_BYTES];

	if (is_overwritten || s3_disk_name_is_hole(map_name(slot))) {
		slot_zero(slot, is_overwritten);
		slot->is_hole = true;
		slot->state = S3_DISK_SLOT_READY;
		return;
	}
	slot->is_hole = false;
	slot->state = S3_DISK_SLOT_LOADS;
	s3_disk_name_text(map_name(slot), slot->index, path);
	s3_disk_call_get(&slot->call, path, slot->buf, slot->q->d->manifest.object_bytes,
			 slot_on_loaded);
}

struct s3_disk_slot *s3_disk_slot_take(struct s3_disk_queue *q, uint32_t index, bool is_overwritten)
{
	struct s3_disk_slot *slot = slot_idle(q);

	if (!slot)
		return NULL;
	slot->index = index;
	slot_load(slot, is_overwritten);
	return slot;
}

/* ---- changing ---- */

/* Changes the object by the part of a WRITE and its like. */
static void slot_change(struct s3_disk_slot *slot, struct s3_disk_io *w,
			const struct s3_disk_part *part)
{
	const struct backend_io *io = w->io;
	uint8_t *at = slot->buf + part->in_bytes;

	if (io->op == BACKEND_WRITE) {
		memcpy(at, (const uint8_t *)io->buf + w->at_bytes, part->bytes);
		slot->is_hole = false;
	} else {
		memset(at, 0, part->bytes);
		slot->is_hole = slot->is_hole || part->is_whole;
	}
	slot->state = S3_DISK_SLOT_CHANGED;
	s3_disk_io_set_state(w, S3_DISK_IO_STORES);
	list_push_back(&slot->storing, &w->node);
}

void s3_disk_slot_use(struct s3_disk_slot *slot, struct s3_disk_io *w)
{
	struct s3_disk_queue *q = slot->q;
	struct backend_io *io = w->io;
	struct s3_disk_part part;

	list_remove(&slot->node);
	list_push_back(&q->slots, &slot->node);
	s3_disk_io_part(w, &part);
	if (slot->state == S3_DISK_SLOT_LOADS ||
	    (slot->state == S3_DISK_SLOT_STORES && io->op != BACKEND_READ)) {
		s3_disk_io_set_state(w, slot->state == S3_DISK_SLOT_LOADS ? S3_DISK_IO_LOADS
									  : S3_DISK_IO_WAITS_STORE);
		list_push_back(&slot->waiting, &w->node);
	} else if (io->op == BACKEND_READ) {
		memcpy((uint8_t *)io->buf + w->at_bytes, slot->buf + part.in_bytes, part.bytes);
		s3_disk_io_next(w);
	} else {
		slot_change(slot, w, &part);
		s3_disk_run_later(q);
	}
}

/*
 * What it brings or has stored is there: what waits for that goes on. Requests go on to their next
 * object meanwhile, which must not take this slot.
 */
static void slot_run(struct s3_disk_slot *slot)
{
	struct list_node stored = LIST_INIT(stored), waiting = LIST_INIT(waiting), *node;

	slot->is_pinned = true;
	list_splice(&stored, &slot->storing);
	list_splice(&waiting, &slot->waiting);
	while ((node = list_pop_front(&stored)))
		s3_disk_io_next(list_entry(node, struct s3_disk_io, node));
	while ((node = list_pop_front(&waiting)))
		s3_disk_slot_use(slot, list_entry(node, struct s3_disk_io, node));
	slot->is_pinned = false;
}

/* ---- storing ---- */

/* Whoever lists this generation must find it, or a newer one of its index. */
static void slot_note_stored(const struct s3_disk_slot *slot)
{
	struct s3_disk *d = slot->q->d;
	struct s3_disk_kept kept = { .generation = d->manifest.generation };

	s3_disk_tally_add(&d->manifest.stored, d->manifest.generation, map_name(slot), slot->next);
	kept.stored = d->manifest.stored;
	/* Without it the next process knows less, not something else. */
	(void)!pwrite(d->kept_fd, &kept, sizeof(kept), sizeof(d->owner) - 1);
}

static void slot_on_stored(struct s3_disk_call *call, int result)
{
	struct s3_disk_slot *slot = container_of(call, struct s3_disk_slot, call);
	struct s3_disk_queue *q = slot->q;
	struct s3_disk_name old = map_name(slot);

	if (result < 0) {
		log_limited_by(&q->d->web.refused_limit, LOG_LEVEL_ERROR,
			       "an object cannot be stored", "device=%s object=%s why=\"%s\"",
			       q->d->web.name, call->path, call->words);
		/* It may have been. It is not deleted: who takes the disk meanwhile may name it. */
		slot_drop(slot);
		slots_offer(q);
		s3_disk_queue_look(q);
		return;
	}
	slot_note_stored(slot);
	q->d->map.name[slot->index] = slot->next;
	q->stores++;
	if (old.generation == q->d->manifest.generation)
		s3_disk_delete(q, slot->index, old);
	slot->state = S3_DISK_SLOT_READY;
	slot_run(slot);
	slots_offer(q);
	s3_disk_queue_look(q);
}

static void slot_store(struct s3_disk_slot *slot)
{
	struct s3_disk_queue *q = slot->q;
	char path[S3_DISK_NAME_BYTES];

	if (q->d->seq >= S3_DISK_SEQ_MAX - 1) {
		log_error("no name is left for an object: add the device again", "device=%s",
			  q->d->web.name);
		slot_drop(slot);
		slots_offer(q);
		return;
	}
	slot->state = S3_DISK_SLOT_STORES;
	q->d->seq = s3_disk_seq_next(q->d->seq, slot->is_hole);
	slot->next =
		(struct s3_disk_name){ .generation = q->d->manifest.generation, .seq = q->d->seq };
	s3_disk_name_text(slot->next, slot->index, path);
	if (slot->is_hole)
		slot->next.seq |= S3_DISK_HOLE;
	s3_disk_call_put(&slot->call, path, NULL, slot->buf,
			 slot->is_hole ? 0 : q->d->manifest.object_bytes, slot_on_stored);
}

static void queued_begin(struct s3_disk_queue *q, struct s3_disk_io *w)
{
	w->has_begun = true;
	q->begun_nr++;
	if (w->io->op == BACKEND_FLUSH)
		s3_disk_flush(w);
	else
		s3_disk_io_go(w);
}

/* What has come begins; then the objects that have changed are stored. */
static void queue_run(struct task *task)
{
	struct s3_disk_queue *q = container_of(task, struct s3_disk_queue, task);
	struct list_node all = LIST_INIT(all), *node;

	if (!q->change)
		list_splice(&all, &q->incoming);
	while ((node = list_pop_front(&all)))
		queued_begin(q, list_entry(node, struct s3_disk_io, node));
	for (unsigned i = 0; i < q->d->config->buffers; i++)
		if (q->slot[i].state == S3_DISK_SLOT_CHANGED)
			slot_store(&q->slot[i]);
	if (s3_disk_queue_is_free(q)) {
		q->has_change_begun = true;
		s3_disk_change_go(q);
	}
}

void s3_disk_run_later(struct s3_disk_queue *q)
{
	reactor_defer(q->queue->reactor, &q->task, queue_run);
}

bool s3_disk_slots_rest(const struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < q->d->config->buffers; i++)
		if (q->slot[i].state != S3_DISK_SLOT_FREE && q->slot[i].state != S3_DISK_SLOT_READY)
			return false;
	return true;
}

void s3_disk_slots_forget(struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < q->d->config->buffers; i++)
		q->slot[i].state = S3_DISK_SLOT_FREE;
}

/* ---- life ---- */

int s3_disk_slots_init(struct s3_disk_queue *q)
{
	unsigned nr = (unsigned)q->d->config->buffers;
	uint64_t object_bytes = q->d->manifest.object_bytes;

	list_init(&q->slots);
	list_init(&q->slots_waiting);
	q->slot = calloc(nr, sizeof(*q->slot));
	q->buffers_bytes = nr * object_bytes;
	q->buffers = mmap(NULL, q->buffers_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (q->buffers == MAP_FAILED)
		q->buffers = NULL;
	if (!q->slot || !q->buffers)
		return -ENOMEM;
	for (unsigned i = 0; i < nr; i++) {
		struct s3_disk_slot *slot = &q->slot[i];
		int ret = s3_disk_call_init(&slot->call, &q->client);

		if (ret < 0)
			return ret;
		slot->q = q;
		slot->buf = q->buffers + i * object_bytes;
		list_init(&slot->waiting);
		list_init(&slot->storing);
		list_push_back(&q->slots, &slot->node);
	}
	return 0;
}

void s3_disk_slots_fini(struct s3_disk_queue *q)
{
	for (unsigned i = 0; q->slot && i < q->d->config->buffers; i++)
		s3_disk_call_fini(&q->slot[i].call);
	free(q->slot);
	if (q->buffers)
		munmap(q->buffers, q->buffers_bytes);
}
