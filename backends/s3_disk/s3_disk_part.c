/*
 * A request goes through the objects that it touches, one after the other. Owns the GETs of ranges.
 * Reactor thread.
 *
 * Happy path: a part in an object in memory is copied; of one that is not, a READ is a GET straight
 * into the request, a WRITE takes a slot. Failure modes: the object is gone as a newer one has
 * taken its place: asked for anew; no newer one has: the disk is damaged, the READ fails.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk.h"
#include "base/util.h"

bool s3_disk_io_part(const struct s3_disk_io *w, struct s3_disk_part *ret_part)
{
	const struct backend_io *io = w->io;
	const struct s3_disk *d = io->queue->device->priv;
	uint64_t object_bytes = d->manifest.object_bytes, at = io->offset_bytes + w->at_bytes;

	if (w->at_bytes == io->length_bytes)
		return false;
	*ret_part = (struct s3_disk_part){
		.index = (uint32_t)(at / object_bytes),
		.in_bytes = (uint32_t)(at % object_bytes),
	};
	ret_part->bytes =
		(uint32_t)MIN(object_bytes - ret_part->in_bytes, io->length_bytes - w->at_bytes);
	ret_part->is_whole =
		ret_part->in_bytes == 0 &&
		(ret_part->bytes == object_bytes || at + ret_part->bytes == d->manifest.size_bytes);
	return true;
}

void s3_disk_io_end(struct s3_disk_io *w, int result)
{
	struct s3_disk_queue *q = w->io->queue->priv;

	w->read = NULL;
	if (w->has_begun)
		q->begun_nr--;
	w->has_begun = false;
	s3_disk_io_set_state(w, S3_DISK_IO_IDLE);
	s3_disk_queue_look(q);
	backend_io_complete(w->io, result);
}

void s3_disk_ios_fail(struct list_node *list, int result)
{
	struct list_node all = LIST_INIT(all), *node;

	list_splice(&all, list);
	while ((node = list_pop_front(&all)))
		s3_disk_io_end(list_entry(node, struct s3_disk_io, node), result);
}

/* ---- GETs ---- */

static bool name_is(struct s3_disk_name a, struct s3_disk_name b)
{
	return a.generation == b.generation && a.seq == b.seq;
}

static void read_give_back(struct s3_disk_read *r)
{
	struct s3_disk_queue *q = r->q;
	struct list_node *node;

	r->w = NULL;
	list_push_back(&q->free_reads, &r->node);
	/* One that needs none any more leaves it to the next. */
	while (!list_empty(&q->free_reads) && (node = list_pop_front(&q->reads_waiting)))
		s3_disk_io_go(list_entry(node, struct s3_disk_io, node));
}

static void read_on_end(struct s3_disk_call *call, int result)
{
	struct s3_disk_read *r = container_of(call, struct s3_disk_read, call);
	struct s3_disk_queue *q = r->q;
	struct s3_disk_io *w = r->w;
	struct s3_disk_part part;

	if (w && s3_disk_io_part(w, &part)) {
		w->read = NULL;
		if (result == 0)
			s3_disk_io_next(w);
		else if (result == -ENOENT && !name_is(w->name, q->d->map.name[part.index]))
			s3_disk_io_go(w);
		else
			s3_disk_io_end(w, -EIO);
	}
	if (w && result < 0 && result != -ENOENT)
		log_limited_by(&q->d->web.refused_limit, LOG_LEVEL_ERROR, "a read fails",
			       "device=%s object=%s why=\"%s\"", q->d->web.name, call->path,
			       call->words);
	read_give_back(r);
}

static void read_begin(struct s3_disk_queue *q, struct s3_disk_io *w,
		       const struct s3_disk_part *part)
{
	struct list_node *node = list_pop_front(&q->free_reads);
	struct s3_disk_read *r;
	struct s3_disk_call *call;

	if (!node) {
		s3_disk_io_set_state(w, S3_DISK_IO_WAITS_CALL);
		list_push_back(&q->reads_waiting, &w->node);
		return;
	}
	r = list_entry(node, struct s3_disk_read, node);
	call = &r->call;
	s3_disk_call_reset(call);
	r->w = w;
	w->read = r;
	w->name = q->d->map.name[part->index];
	s3_disk_name_text(w->name, part->index, call->path);
	call->first_bytes = part->in_bytes;
	call->length_bytes = call->to_bytes = part->bytes;
	call->to = (uint8_t *)w->io->buf + w->at_bytes;
	s3_disk_io_set_state(w, S3_DISK_IO_READS);
	s3_disk_call_begin(call, read_on_end);
}

int s3_disk_reads_init(struct s3_disk_queue *q)
{
	unsigned nr = (unsigned)q->d->config->s3.web.connections;

	list_init(&q->free_reads);
	list_init(&q->reads_waiting);
	q->read = calloc(nr, sizeof(*q->read));
	if (!q->read)
		return -ENOMEM;
	for (unsigned i = 0; i < nr; i++) {
		int ret = s3_disk_call_init(&q->read[i].call, &q->client);

		if (ret < 0)
			return ret;
		q->read[i].q = q;
		list_push_back(&q->free_reads, &q->read[i].node);
	}
	return 0;
}

void s3_disk_reads_fini(struct s3_disk_queue *q)
{
	for (unsigned i = 0; q->read && i < q->d->config->s3.web.connections; i++)
		s3_disk_call_fini(&q->read[i].call);
	free(q->read);
}

/* ---- parts ---- */

/* Whether the part needs nothing done, or only zeroes in memory. */
static bool part_is_nothing(struct s3_disk_queue *q, struct s3_disk_io *w,
			    const struct s3_disk_part *part)
{
	struct backend_io *io = w->io;

	if (io->op == BACKEND_DISCARD && !part->is_whole)
		return true;
	if (io->op == BACKEND_WRITE || s3_disk_slot_find(q, part->index) ||
	    !s3_disk_name_is_hole(q->d->map.name[part->index]))
		return false;
	if (io->op == BACKEND_READ)
		memset((uint8_t *)io->buf + w->at_bytes, 0, part->bytes);
	return true;
}

void s3_disk_io_next(struct s3_disk_io *w)
{
	struct s3_disk_part part;

	if (s3_disk_io_part(w, &part))
		w->at_bytes += part.bytes;
	s3_disk_io_go(w);
}

/* All of it is stored. */
static void io_done(struct s3_disk_queue *q, struct s3_disk_io *w)
{
	if (w->io->op != BACKEND_READ)
		q->written++;
	if (w->io->flags & BACKEND_FUA)
		s3_disk_flush(w);
	else
		s3_disk_io_end(w, 0);
}

static void part_begin(struct s3_disk_queue *q, struct s3_disk_io *w,
		       const struct s3_disk_part *part)
{
	struct s3_disk_slot *slot = s3_disk_slot_find(q, part->index);

	if (!slot && w->io->op == BACKEND_READ) {
		read_begin(q, w, part);
		return;
	}
	if (!slot)
		slot = s3_disk_slot_take(q, part->index, part->is_whole);
	if (slot) {
		s3_disk_slot_use(slot, w);
		return;
	}
	s3_disk_io_set_state(w, S3_DISK_IO_WAITS_SLOT);
	list_push_back(&q->slots_waiting, &w->node);
}

void s3_disk_io_go(struct s3_disk_io *w)
{
	struct s3_disk_queue *q = w->io->queue->priv;
	struct s3_disk_part part;

	if (net_has_changed(&q->d->changed)) {
		s3_disk_io_end(w, -EIO);
		return;
	}
	while (s3_disk_io_part(w, &part)) {
		if (!part_is_nothing(q, w, &part)) {
			part_begin(q, w, &part);
			return;
		}
		w->at_bytes += part.bytes;
	}
	io_done(q, w);
}

void s3_disk_io_cancel(struct s3_disk_io *w)
{
	/* The bytes that come are taken for nobody: libcurl may be in the middle of them. */
	if (w->read) {
		w->read->call.to = NULL;
		w->read->w = NULL;
	} else {
		list_remove(&w->node);
	}
	s3_disk_io_end(w, -ECANCELED);
}
