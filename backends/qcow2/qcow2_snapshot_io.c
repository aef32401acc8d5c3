/*
 * Steps of a change of snapshots that read and write tables by requests of its own. The owner's
 * reactor.
 *
 * Happy path: an own request of queue 0 is taken, used chunk by chunk, and let go at the end of the
 * step. Failure modes: the storage has lost writes since the first of the tables that the header is
 * to name: it names none. The header cannot be written: the one before is, so that nothing has
 * changed; where that fails too, nothing that the new one may name is given back, and of an apply
 * the device fails all requests: which of two disks the next start finds, nobody knows. The next
 * change writes the header in use again, before its own. A process dies: qcow2_mark.c.
 */
#include "backends/qcow2/qcow2_snapshot_op.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* ---- requests of its own ---- */

static void op_io_ended(struct qcow2_own *own, int result)
{
	struct qcow2_snapshot_op *p = own->arg;

	p->io_result = result;
	p->io_ended = true;
	qcow2_snapshot_yield(p);
}

static int take_own(struct qcow2_snapshot_op *p)
{
	if (p->own)
		return 0;
	p->own = qcow2_own_take(p->o->q, true);
	if (!p->own)
		return qcow2_owner_starve(p->o, &p->s);
	p->own->arg = p;
	p->own->owner = p->o;
	return 0;
}

void qcow2_snapshot_drop_own(struct qcow2_snapshot_op *p)
{
	if (!p->own)
		return;
	qcow2_own_release(p->o->q, p->own);
	p->own = NULL;
	qcow2_owner_has_own(p->o);
}

/* By p->own and its buffer; to be called again until it does not return WAITS. */
static int op_io(struct qcow2_snapshot_op *p, unsigned child_idx, enum backend_op op, uint64_t at,
		 uint64_t bytes)
{
	if (!p->io_ended) {
		qcow2_own_submit(p->own, child_idx, op, at, NULL, bytes, op_io_ended);
		return QCOW2_WAITS;
	}
	p->io_ended = false;
	return p->io_result;
}

static uint64_t op_chunk(const struct qcow2_snapshot_op *p, uint64_t left)
{
	return MIN(left, (uint64_t)p->d->chunk_bytes);
}

/* Writes bytes from `at` on; fill fills the buffer. */
static int write_table_at(struct qcow2_snapshot_op *p, uint64_t host, uint64_t bytes,
			  void (*fill)(const struct qcow2_snapshot_op *p, void *buf, uint64_t at,
				       uint64_t bytes))
{
	while (p->at < bytes) {
		uint64_t chunk = op_chunk(p, bytes - p->at);
		int ret = take_own(p);

		if (ret != 0)
			return ret;
		if (!p->io_ended)
			fill(p, p->own->own->buf, p->at, chunk);
		ret = op_io(p, p->d->data_idx, BACKEND_WRITE, host + p->at, chunk);
		if (ret != 0)
			return ret;
		p->at += chunk;
	}
	qcow2_snapshot_drop_own(p);
	return 0;
}

/* ---- the L1 table of the snapshot ---- */

static int judge_entry(struct qcow2_snapshot_op *p, uint64_t entry)
{
	const struct qcow2_tables *t = p->o->t;
	uint64_t table = entry & QCOW2_OFFSET_MASK;

	if (table == 0)
		return 0;
	if (!(table & (qcow2_op_cluster(p) - 1)) && !(entry & QCOW2_L1_RESERVED) &&
	    table < atomic_load_explicit(&t->end_bytes, memory_order_relaxed) &&
	    !qcow2_range_is_table(t, table, qcow2_op_cluster(p)))
		return 0;
	snprintf(p->words, sizeof(p->words),
		 "the image is corrupt: an entry of the L1 table of the snapshot makes no sense: "
		 "repair it with qemu-img check -r all");
	return -EIO;
}

static int take_l1(struct qcow2_snapshot_op *p, uint64_t bytes)
{
	const uint64_t *from = p->own->own->buf;
	uint64_t first = p->at / 8;
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < bytes / 8; i++) {
		if (first + i >= p->snapshot.l1_entries)
			break;
		p->l1[first + i] = be64toh(from[i]);
		ret = judge_entry(p, p->l1[first + i]);
	}
	return ret;
}

int qcow2_step_read_l1(struct qcow2_snapshot_op *p)
{
	uint64_t block = p->d->device->open_params.logical_block_bytes;
	uint64_t bytes = round_up((uint64_t)p->snapshot.l1_entries * 8, block);

	while (p->at < bytes) {
		uint64_t chunk = op_chunk(p, bytes - p->at);
		int ret = take_own(p);

		if (ret == 0)
			ret = op_io(p, p->d->data_idx, BACKEND_READ, p->snapshot.l1_offset + p->at,
				    chunk);
		if (ret == 0)
			ret = take_l1(p, chunk);
		if (ret != 0)
			return ret;
		p->at += chunk;
	}
	qcow2_snapshot_drop_own(p);
	return 0;
}

/* ---- tables are written ---- */

static void fill_new_l1(const struct qcow2_snapshot_op *p, void *buf, uint64_t at, uint64_t bytes)
{
	const struct qcow2_tables *t = p->o->t;
	uint64_t *to = buf;

	for (uint64_t i = 0; i < bytes / 8; i++) {
		uint64_t idx = at / 8 + i, entry = 0;

		if (idx < t->l1_entries)
			entry = qcow2_op_is_apply(p)
					? p->l1[idx]
					: atomic_load_explicit(&t->l1[idx], memory_order_relaxed);
		to[i] = htobe64(entry & ~QCOW2_COPIED);
	}
}

int qcow2_step_write_l1(struct qcow2_snapshot_op *p)
{
	return write_table_at(p, p->l1_host, qcow2_op_l1_bytes(p), fill_new_l1);
}

static void fill_table(const struct qcow2_snapshot_op *p, void *buf, uint64_t at, uint64_t bytes)
{
	uint64_t left = p->next->raw_bytes > at ? p->next->raw_bytes - at : 0;

	memset(buf, 0, bytes);
	memcpy(buf, p->next->raw + at, MIN(bytes, left));
}

int qcow2_step_write_table(struct qcow2_snapshot_op *p)
{
	if (qcow2_op_is_create(p) && p->at == 0)
		qcow2_snapshots_place_last(p->next, p->l1_host);
	return write_table_at(p, p->table_host, p->table_clusters * qcow2_op_cluster(p),
			      fill_table);
}

/* ---- the header ---- */

enum {
	HEADER_READ,
	/* The one in use, where a change before has failed to restore it. */
	HEADER_AGAIN,
	HEADER_AGAIN_FLUSH,
	HEADER_WRITE,
	HEADER_FLUSH,
	HEADER_DONE,
	HEADER_RESTORE,
	HEADER_RESTORE_FLUSH
};

static void set_header(struct qcow2_snapshot_op *p)
{
	if (qcow2_op_is_apply(p)) {
		p->header.l1_offset = p->l1_host;
		return;
	}
	p->header.snapshot_nr = p->next->nr;
	p->header.snapshots_offset = p->next->nr ? p->table_host : 0;
}

static int header_io(struct qcow2_snapshot_op *p)
{
	uint64_t block = p->d->device->open_params.logical_block_bytes;
	void *buf = p->own->own->buf;

	switch (p->sub) {
	case HEADER_READ:
		return op_io(p, p->d->data_idx, BACKEND_READ, 0,
			     op_chunk(p, round_up(MAX(p->header.header_bytes, 512u), block)));
	case HEADER_AGAIN:
	case HEADER_WRITE:
	case HEADER_RESTORE:
		if (!p->io_ended)
			qcow2_header_update(buf,
					    p->sub == HEADER_WRITE ? &p->header : &p->d->header);
		/* Until it is durable, the next process may find either. */
		if (!p->io_ended && p->sub == HEADER_WRITE)
			qcow2_image_header_changes(p->o->t, buf);
		/* All that changes is in its first sector. */
		return op_io(p, p->d->data_idx, BACKEND_WRITE, 0, block);
	default:
		return op_io(p, p->d->data_idx, BACKEND_FLUSH, 0, 0);
	}
}

/* A FLUSH that has succeeded proves nothing about what was lost before. */
static bool has_lost(const struct qcow2_snapshot_op *p)
{
	return qcow2_losses(p->d) != p->losses;
}

/* All that the header is to name is durable, if no FLUSH failed since it was written. */
static int publish(struct qcow2_snapshot_op *p)
{
	if (p->is_published)
		return 0;
	if (has_lost(p)) {
		snprintf(p->words, sizeof(p->words),
			 "the storage has perhaps lost writes meanwhile: nothing is changed");
		return -EIO;
	}
	set_header(p);
	p->is_published = true;
	if (qcow2_op_is_apply(p))
		qcow2_tables_unfill(p->o->t);
	return 0;
}

/* Of a write that has failed nobody knows what is there: the header from before goes there. */
static int header_failed(struct qcow2_snapshot_op *p, int err)
{
	if (!p->is_published)
		return err;
	if (p->sub > HEADER_FLUSH) {
		if (qcow2_op_is_apply(p))
			atomic_store(&p->d->failure,
				     "a snapshot was applied, and the header of the image can be "
				     "neither written nor restored: what the disk has is known "
				     "when the device is opened again");
		return err;
	}
	snprintf(p->words, sizeof(p->words), "the header of the image cannot be written");
	p->losses = qcow2_losses(p->d);
	p->sub = HEADER_RESTORE;
	return 0;
}

static bool header_flushes(const struct qcow2_snapshot_op *p)
{
	return p->sub == HEADER_AGAIN_FLUSH || p->sub == HEADER_FLUSH ||
	       p->sub == HEADER_RESTORE_FLUSH;
}

/* It has succeeded: the next one. */
static int header_goes_on(struct qcow2_snapshot_op *p)
{
	struct qcow2_tables *t = p->o->t;

	if (header_flushes(p))
		qcow2_image_header_settled(t, p->sub == HEADER_FLUSH);
	if (p->sub == HEADER_READ && qcow2_image_header_is_known(t))
		p->sub = HEADER_AGAIN_FLUSH;
	if (p->sub == HEADER_RESTORE_FLUSH) {
		p->is_published = false;
		qcow2_tables_set_l1(t, p->d->header.l1_offset);
		return -EIO;
	}
	p->sub++;
	return 0;
}

int qcow2_step_header(struct qcow2_snapshot_op *p)
{
	int ret = take_own(p);

	while (ret == 0 && p->sub != HEADER_DONE) {
		ret = p->sub == HEADER_WRITE ? publish(p) : 0;
		if (ret == 0)
			ret = header_io(p);
		if (ret == QCOW2_WAITS)
			return ret;
		if (ret == 0 && header_flushes(p) && has_lost(p))
			ret = -EIO;
		ret = ret < 0 ? header_failed(p, ret) : header_goes_on(p);
	}
	if (ret <= 0)
		qcow2_snapshot_drop_own(p);
	return ret;
}
