/* What can be seen of an image while it serves. Main thread; the reactors go on. */
#include "backends/qcow2/qcow2_owner.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* What is the device's. */
static void look_at_image(const struct qcow2_device *d, struct backend_image_look *look)
{
	const struct qcow2_tables *t = d->t;

	look->is_read_only = d->is_read_only;
	look->size_bytes = backend_size(d->device);
	look->cluster_bytes = qcow2_cluster_bytes(&t->g);
	look->end_bytes = atomic_load_explicit(&t->end_bytes, memory_order_relaxed);
	look->slice_bytes = t->slice_bytes;
	look->slice_nr = atomic_load_explicit(&t->used_nr, memory_order_relaxed);
	look->slice_max = qcow2_slot_nr(t);
	look->is_dirty = d->owner && qcow2_owner_is_dirty(d->owner);
	look->allocations = d->owner ? LOAD(d->owner->allocations) : 0;
}

void qcow2_look(const struct backend_queue *queue, struct backend_image_look *look)
{
	const struct qcow2_queue *q = queue->priv;

	look_at_image(queue->device->priv, look);
	look->misses += LOAD(q->misses);
	look->copies += LOAD(q->copies);
	look->unpacked += LOAD(q->unpacks);
}
