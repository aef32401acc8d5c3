/*
 * Reference counts are made anew when an image is opened to be written: they are old (dirty, by a
 * program that has kept them back, lazy_refcounts, and has died), or their table is too small for
 * what the disk may come to need. The control reactor.
 *
 *   for the active L1 table and that of each snapshot: READ_L1 -> READ_L2, table by table
 *   -> WRITE_BLOCKS -> WRITE_TABLE -> FLUSH -> HEADER -> FLUSH
 *
 * Happy path: what the tables name is counted in memory; new blocks and a new table are written
 * behind the end of the image, and the header names them when they are durable. The old ones are
 * free then. Nothing else changes: whatever of this gets lost, the image is as it was.
 *
 * Failure modes: an entry outside of the image, a count that does not fit, bitmaps (whose clusters
 * are not counted here), more clusters than COUNTS_BYTES_MAX holds: words, and nothing is written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/qcow2/format/qcow2_snapshot.h"
#include "backends/qcow2/qcow2_opening.h"
#include "base/log.h"
#include "base/util.h"

/* 16 TiB of clusters of 64 KiB. */
#define COUNTS_BYTES_MAX MIB(512)

enum rebuild_step {
	REBUILD_FIND_L1,
	REBUILD_READ_L1,
	REBUILD_READ_L2,
	REBUILD_WRITE_BLOCKS,
	REBUILD_WRITE_TABLE,
	REBUILD_FLUSH,
	REBUILD_READ_HEADER,
	REBUILD_WRITE_HEADER,
	REBUILD_FLUSH_HEADER,
};

struct qcow2_rebuild {
	struct qcow2_open *p;
	const struct qcow2_header *h;
	enum rebuild_step step;
	uint16_t *counts;
	uint64_t cluster_nr;	 /* of the image, */
	uint64_t all_nr;	 /* and with what is written behind it */
	uint64_t table_clusters; /* of the new table */
	uint64_t *block;	 /* where each new block lies; 0: it counts nothing */
	uint64_t block_nr;

	unsigned l1_idx; /* 0: the active one; then the snapshots */
	uint64_t snapshot_at;
	uint64_t l1_offset, l1_entries, l1_at;
	uint64_t *l1;
	uint64_t entry_idx; /* of L1 */
	uint64_t at;	    /* of the table, or of the blocks, in bytes */
	bool is_reading, is_flushed;
};

static void rebuild_go_on(struct qcow2_rebuild *r);

static uint64_t rebuild_cluster(const struct qcow2_rebuild *r)
{
	return qcow2_cluster_bytes(&r->h->g);
}

static void rebuild_free(struct qcow2_rebuild *r)
{
	free(r->counts);
	free(r->block);
	free(r->l1);
	free(r);
}

static void rebuild_fail(struct qcow2_rebuild *r, int err, const char *why)
{
	struct qcow2_open *p = r->p;
	char words[QCOW2_WORDS_BYTES];

	snprintf(words, sizeof(words),
		 "qcow2: the reference counts must be made anew, and cannot be: %s. Use "
		 "qemu-img check -r all",
		 why);
	rebuild_free(r);
	p->rebuild = NULL;
	qcow2_open_fail(p, err, words);
}

static void rebuild_ended(struct backend_visit *visit, int result)
{
	struct qcow2_rebuild *r = qcow2_opening_of(visit)->rebuild;

	if (result < 0)
		rebuild_fail(r, result, "the image cannot be read or written");
	else
		rebuild_go_on(r);
}

static void rebuild_io(struct qcow2_rebuild *r, enum backend_op op, uint64_t at, uint64_t bytes)
{
	struct qcow2_open *p = r->p;

	r->is_reading = op == BACKEND_READ;
	/* It fails the open by itself; what is here is freed with the opening. */
	qcow2_open_io(p, op, at, bytes, "making reference counts anew", rebuild_ended);
}

/* ---- counted ---- */

/* False: it makes no sense; told. */
static bool count_range(struct qcow2_rebuild *r, uint64_t at, uint64_t bytes)
{
	unsigned bits = r->h->g.cluster_bits;
	uint64_t first = at >> bits, last = (at + bytes - 1) >> bits;

	if (bytes == 0)
		return true;
	if (last < first || last >= r->cluster_nr) {
		rebuild_fail(r, -EINVAL, "a table names what lies outside of the image");
		return false;
	}
	for (uint64_t c = first; c <= last; c++) {
		if (r->counts[c] == UINT16_MAX || r->counts[c] >= qcow2_refcount_max(&r->h->g)) {
			rebuild_fail(r, -EINVAL,
				     "a cluster is in use more often than can be counted");
			return false;
		}
		r->counts[c]++;
	}
	return true;
}

static bool count_l2_entry(struct qcow2_rebuild *r, uint64_t entry)
{
	uint64_t at, bytes, end_bytes = r->cluster_nr << r->h->g.cluster_bits;

	if (entry & QCOW2_COMPRESSED) {
		qcow2_compressed_range(&r->h->g, entry, &at, &bytes);
		/* The sectors of the last one may end beyond the image. */
		if (at < end_bytes && bytes > end_bytes - at)
			bytes = end_bytes - at;
		return count_range(r, at, bytes);
	}
	at = entry & QCOW2_OFFSET_MASK;
	return at == 0 || (r->h->incompatible & QCOW2_INCOMPAT_DATA_FILE) ||
	       count_range(r, at, rebuild_cluster(r));
}

static bool count_fixed(struct qcow2_rebuild *r)
{
	const struct qcow2_header *h = r->h;

	return count_range(r, 0, rebuild_cluster(r)) &&
	       count_range(r, h->crypto_offset, h->crypto_bytes);
}

/* ---- the walk through the tables: each returns whether a request is under way, or it failed ----
 */

static bool walk_begin_l1(struct qcow2_rebuild *r, uint64_t offset, uint64_t entries)
{
	uint64_t bytes = round_up(entries * 8, QCOW2_OPEN_BUFFER_BYTES);

	if (!count_range(r, offset, entries * 8))
		return true;
	free(r->l1);
	r->l1 = calloc(1, MAX(bytes, 1ull));
	if (!r->l1) {
		rebuild_fail(r, -ENOMEM, "out of memory");
		return true;
	}
	r->l1_offset = offset;
	r->l1_entries = entries;
	r->l1_at = 0;
	r->step = REBUILD_READ_L1;
	return false;
}

static void write_begin(struct qcow2_rebuild *r);

/* The next entry of the table of snapshots is in the buffer, or is asked for. */
static bool walk_find_l1(struct qcow2_rebuild *r, bool is_read)
{
	uint32_t block = r->p->d->device->open_params.logical_block_bytes;
	uint64_t from = round_down(r->snapshot_at, block), within = r->snapshot_at - from;
	uint64_t bytes = qcow2_open_chunk(r->p, QCOW2_OPEN_BUFFER_BYTES);
	struct qcow2_snapshot s;
	char words[QCOW2_WORDS_BYTES];

	if (r->l1_idx == 0)
		return walk_begin_l1(r, r->h->l1_offset, r->h->l1_entries);
	if (r->l1_idx > r->h->snapshot_nr) {
		if (!count_range(r, r->h->snapshots_offset,
				 r->h->snapshot_nr ? r->snapshot_at - r->h->snapshots_offset : 0))
			return true;
		write_begin(r);
		return true;
	}
	if (!is_read) {
		rebuild_io(r, BACKEND_READ, from, bytes);
		return true;
	}
	if (qcow2_snapshot_parse(&s, r->h, r->p->buf + within, bytes - within, words) < 0) {
		rebuild_fail(r, -EINVAL, "the table of snapshots makes no sense");
		return true;
	}
	r->snapshot_at += s.entry_bytes;
	return walk_begin_l1(r, s.l1_offset, s.l1_entries);
}

static bool walk_read_l1(struct qcow2_rebuild *r, bool is_read)
{
	uint32_t block = r->p->d->device->open_params.logical_block_bytes;
	uint64_t bytes = qcow2_open_chunk(r->p, round_up(r->l1_entries * 8, block) - r->l1_at);

	if (is_read) {
		memcpy((uint8_t *)r->l1 + r->l1_at, r->p->buf, bytes);
		r->l1_at += bytes;
		bytes = qcow2_open_chunk(r->p, round_up(r->l1_entries * 8, block) - r->l1_at);
	}
	if (bytes > 0) {
		rebuild_io(r, BACKEND_READ, r->l1_offset + r->l1_at, bytes);
		return true;
	}
	r->entry_idx = 0;
	r->at = 0;
	r->step = REBUILD_READ_L2;
	return false;
}

static bool count_l2_chunk(struct qcow2_rebuild *r, uint64_t bytes)
{
	const uint64_t *entries = (const uint64_t *)r->p->buf;
	unsigned words = r->h->g.l2_entry_bytes / 8u;

	for (uint64_t i = 0; i < bytes / 8; i += words)
		if (!count_l2_entry(r, be64toh(entries[i])))
			return false;
	return true;
}

static bool walk_read_l2(struct qcow2_rebuild *r, bool is_read)
{
	uint64_t bytes = qcow2_open_chunk(r->p, rebuild_cluster(r) - r->at);

	if (is_read) {
		if (!count_l2_chunk(r, bytes))
			return true;
		r->at += bytes;
	}
	if (r->at == rebuild_cluster(r)) {
		r->at = 0;
		r->entry_idx++;
	}
	for (; r->entry_idx < r->l1_entries; r->entry_idx++) {
		uint64_t table = be64toh(r->l1[r->entry_idx]) & QCOW2_OFFSET_MASK;

		if (table == 0)
			continue;
		if (table & (rebuild_cluster(r) - 1)) {
			rebuild_fail(r, -EINVAL, "an L2 table is at no cluster's start");
			return true;
		}
		if (r->at == 0 && !count_range(r, table, rebuild_cluster(r)))
			return true;
		rebuild_io(r, BACKEND_READ, table + r->at,
			   qcow2_open_chunk(r->p, rebuild_cluster(r) - r->at));
		return true;
	}
	r->l1_idx++;
	r->step = REBUILD_FIND_L1;
	return false;
}

/* ---- written ---- */

static uint64_t counts_of_block(const struct qcow2_rebuild *r)
{
	return 1ull << r->h->g.refblock_bits;
}

static bool block_counts(const struct qcow2_rebuild *r, uint64_t idx)
{
	uint64_t end = MIN((idx + 1) * counts_of_block(r), r->all_nr);

	for (uint64_t c = idx * counts_of_block(r); c < end; c++)
		if (r->counts[c])
			return true;
	return false;
}

/* Places for blocks and table behind the image, which count themselves. */
static void place_blocks(struct qcow2_rebuild *r)
{
	unsigned bits = r->h->g.cluster_bits;
	uint64_t next = r->cluster_nr, end = r->all_nr;

	/* First the table, and as many as there could be: then all blocks are known. */
	for (uint64_t c = r->cluster_nr; c < end; c++)
		r->counts[c] = 1;
	for (uint64_t i = 0; i < r->block_nr; i++)
		if (block_counts(r, i))
			r->block[i] = next++ << bits;
	/* Those that were too many. */
	next += r->table_clusters;
	for (uint64_t c = next; c < end; c++)
		r->counts[c] = 0;
	r->all_nr = next;
}

static void write_begin(struct qcow2_rebuild *r)
{
	place_blocks(r);
	r->step = REBUILD_WRITE_BLOCKS;
	r->entry_idx = 0;
	r->at = 0;
	rebuild_go_on(r);
}

static void fill_block(struct qcow2_rebuild *r, uint64_t bytes)
{
	unsigned order = r->h->g.refcount_order;
	uint64_t nr = bytes * 8 >> order;
	uint64_t first = r->entry_idx * counts_of_block(r) + (r->at * 8 >> order);

	memset(r->p->buf, 0, bytes);
	for (uint64_t i = 0; i < nr && first + i < r->all_nr; i++)
		if (r->counts[first + i])
			qcow2_refcount_set(r->p->buf, order, (unsigned)i, r->counts[first + i]);
}

static bool write_blocks(struct qcow2_rebuild *r)
{
	uint64_t bytes;

	if (r->at == rebuild_cluster(r)) {
		r->at = 0;
		r->entry_idx++;
	}
	while (r->entry_idx < r->block_nr && r->block[r->entry_idx] == 0)
		r->entry_idx++;
	if (r->entry_idx == r->block_nr) {
		r->step = REBUILD_WRITE_TABLE;
		r->at = 0;
		return false;
	}
	bytes = qcow2_open_chunk(r->p, rebuild_cluster(r) - r->at);
	fill_block(r, bytes);
	r->at += bytes;
	rebuild_io(r, BACKEND_WRITE, r->block[r->entry_idx] + r->at - bytes, bytes);
	return true;
}

static uint64_t new_table_at(const struct qcow2_rebuild *r)
{
	return (r->all_nr - r->table_clusters) << r->h->g.cluster_bits;
}

static bool write_table(struct qcow2_rebuild *r)
{
	uint64_t all = r->table_clusters << r->h->g.cluster_bits;
	uint64_t bytes = qcow2_open_chunk(r->p, all - r->at), first = r->at / 8;
	uint64_t *to = (uint64_t *)r->p->buf;

	if (bytes == 0) {
		r->step = REBUILD_FLUSH;
		return false;
	}
	for (uint64_t i = 0; i < bytes / 8; i++)
		to[i] = first + i < r->block_nr ? htobe64(r->block[first + i]) : 0;
	r->at += bytes;
	rebuild_io(r, BACKEND_WRITE, new_table_at(r) + r->at - bytes, bytes);
	return true;
}

static void write_header(struct qcow2_rebuild *r)
{
	struct qcow2_header h = *r->h;

	h.reftable_offset = new_table_at(r);
	h.reftable_clusters = (uint32_t)r->table_clusters;
	h.incompatible &= ~(uint64_t)QCOW2_INCOMPAT_DIRTY;
	qcow2_header_update(r->p->buf, &h);
	rebuild_io(r, BACKEND_WRITE, 0, r->p->header_bytes);
}

static void rebuild_done(struct qcow2_rebuild *r)
{
	struct qcow2_open *p = r->p;

	log_info("reference counts were made anew", "node=%s clusters=%llu", p->d->device->name,
		 (unsigned long long)r->all_nr);
	p->d->image_bytes = MAX(p->d->image_bytes, r->all_nr << r->h->g.cluster_bits);
	rebuild_free(r);
	p->rebuild = NULL;
	qcow2_open_again(p);
}

/* What the request under way was for has come; until the next one is. */
static void rebuild_go_on(struct qcow2_rebuild *r)
{
	struct qcow2_open *p = r->p;
	bool is_read = r->is_reading, under_way = false;

	r->is_reading = false;
	while (!under_way) {
		switch (r->step) {
		case REBUILD_FIND_L1:
			under_way = walk_find_l1(r, is_read);
			break;
		case REBUILD_READ_L1:
			under_way = walk_read_l1(r, is_read);
			break;
		case REBUILD_READ_L2:
			under_way = walk_read_l2(r, is_read);
			break;
		case REBUILD_WRITE_BLOCKS:
			under_way = write_blocks(r);
			break;
		case REBUILD_WRITE_TABLE:
			under_way = write_table(r);
			break;
		case REBUILD_FLUSH:
			r->step = REBUILD_READ_HEADER;
			rebuild_io(r, BACKEND_FLUSH, 0, 0);
			return;
		case REBUILD_READ_HEADER:
			r->step = REBUILD_WRITE_HEADER;
			rebuild_io(r, BACKEND_READ, 0, p->header_bytes);
			return;
		case REBUILD_WRITE_HEADER:
			r->step = REBUILD_FLUSH_HEADER;
			write_header(r);
			return;
		case REBUILD_FLUSH_HEADER:
			if (r->is_flushed) {
				rebuild_done(r);
				return;
			}
			r->is_flushed = true;
			rebuild_io(r, BACKEND_FLUSH, 0, 0);
			return;
		}
		is_read = false;
	}
}

/* ---- its beginning ---- */

/* Blocks of counts for all that the disk may come to need, and as much again for snapshots. */
static uint64_t blocks_wanted(const struct qcow2_header *h, uint64_t cluster_nr)
{
	uint64_t disk = (h->size_bytes >> h->g.cluster_bits) + 1;
	uint64_t l2 = disk / (qcow2_cluster_bytes(&h->g) / h->g.l2_entry_bytes) + 1;

	return ((2 * (cluster_nr + disk + l2)) >> h->g.refblock_bits) + 2;
}

bool qcow2_rebuild_is_wanted(const struct qcow2_open *p)
{
	const struct qcow2_header *h = &p->d->header;
	uint64_t clusters =
		round_up(p->d->image_bytes, qcow2_cluster_bytes(&h->g)) >> h->g.cluster_bits;
	uint64_t disk = (h->size_bytes >> h->g.cluster_bits) + 1;
	uint64_t have = ((uint64_t)h->reftable_clusters << h->g.cluster_bits) / 8;
	uint64_t l2 = disk / (qcow2_cluster_bytes(&h->g) / h->g.l2_entry_bytes) + 1;
	uint64_t need = ((clusters + disk + l2) >> h->g.refblock_bits) + 1;

	if (h->incompatible & QCOW2_INCOMPAT_DIRTY)
		return true;
	/* Only a storage that can become longer can come to need more; the table has a limit. */
	return p->d->data_grows && have < MIN(need, (uint64_t)QCOW2_REFTABLE_BYTES_MAX / 8) &&
	       !(h->incompatible & QCOW2_INCOMPAT_DATA_FILE);
}

static int rebuild_alloc(struct qcow2_rebuild *r)
{
	uint64_t wanted, per_table = qcow2_cluster_bytes(&r->h->g) / 8;

	wanted = blocks_wanted(r->h, r->cluster_nr);
	wanted = MIN(wanted, (uint64_t)QCOW2_REFTABLE_BYTES_MAX / 8);
	r->table_clusters = (wanted + per_table - 1) / per_table;
	/* Blocks of the image, and of what is written behind it. */
	r->block_nr = (r->cluster_nr >> r->h->g.refblock_bits) + 1;
	r->all_nr = r->cluster_nr + r->table_clusters + r->block_nr;
	r->block_nr += ((r->all_nr - r->cluster_nr) >> r->h->g.refblock_bits) + 2;
	r->all_nr += r->block_nr;
	if (r->all_nr * sizeof(*r->counts) > COUNTS_BYTES_MAX ||
	    r->block_nr > r->table_clusters * per_table)
		return -EFBIG;
	r->counts = calloc(r->all_nr, sizeof(*r->counts));
	r->block = calloc(r->block_nr, sizeof(*r->block));
	return r->counts && r->block ? 0 : -ENOMEM;
}

void qcow2_rebuild_begin(struct qcow2_open *p)
{
	struct qcow2_rebuild *r = calloc(1, sizeof(*r));
	int ret;

	if (!r) {
		qcow2_open_fail(p, -ENOMEM, "qcow2: out of memory");
		return;
	}
	p->rebuild = r;
	r->p = p;
	r->h = &p->d->header;
	r->cluster_nr = round_up(p->d->image_bytes, rebuild_cluster(r)) >> r->h->g.cluster_bits;
	r->snapshot_at = r->h->snapshots_offset;
	if (r->h->bitmap_nr > 0) {
		rebuild_fail(r, -EOPNOTSUPP, "it has bitmaps");
		return;
	}
	ret = rebuild_alloc(r);
	if (ret < 0)
		rebuild_fail(r, ret, ret == -ENOMEM ? "out of memory" : "it is too large");
	else if (count_fixed(r))
		rebuild_go_on(r);
}

void qcow2_rebuild_free(struct qcow2_open *p)
{
	if (p->rebuild)
		rebuild_free(p->rebuild);
	p->rebuild = NULL;
}
