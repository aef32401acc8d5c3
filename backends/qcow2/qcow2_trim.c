/*
 * Space that the image does not need any more is given back to the storage below, so that a file
 * becomes smaller when the guest discards. The owner's reactor, within a commit (REAP).
 *
 * Happy path: of what was given up, whole clusters one after the other that nothing else uses (a
 * snapshot, other compressed clusters) are one DISCARD. Failure modes: the storage does not take
 * it: it is not asked again.
 */
#include "backends/qcow2/qcow2_owner.h"
#include "base/util.h"

/* Of one request: what a slow file system does in a moment. */
#define TRIM_BYTES_MAX GIB(1)

/* Whether nothing but what was given up counts a cluster; its slice may not be in the cache. */
static bool is_last_use(const struct qcow2_tables *t, uint64_t cluster)
{
	const struct qcow2_slot *slot;
	uint64_t at;
	unsigned idx;

	at = qcow2_refcount_slice(t, cluster, &idx);
	slot = at ? qcow2_slot_find(t, at) : NULL;
	return slot && !slot->is_l2 &&
	       qcow2_refcount_get(qcow2_slot_data(t, slot), t->g.refcount_order, idx) == 1;
}

static bool child_discards(const struct qcow2_device *d)
{
	const struct backend_device *child = qcow2_child(d->device, d->guest_idx);

	return child->limits.caps & BACKEND_CAP_DISCARD;
}

bool qcow2_trim_next(struct qcow2_commit *c, const struct qcow2_freed *f)
{
	const struct qcow2_tables *t = c->d->t;
	uint64_t cluster = qcow2_cluster_bytes(&t->g), end = f->at;

	if (f->at >= c->trim_at && f->at < c->trim_end)
		return false;
	if (c->no_trim || (f->at & (cluster - 1)) || !child_discards(c->d))
		return false;
	while (end < f->end && end - f->at < TRIM_BYTES_MAX &&
	       is_last_use(t, end >> t->g.cluster_bits))
		end += cluster;
	c->trim_at = f->at;
	c->trim_end = MIN(end, f->end);
	return c->trim_end > c->trim_at;
}
