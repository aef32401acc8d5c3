/*
 * The check: counts from the refcount blocks first, then all references, which are counted anew
 * from the header on, then both compared, and COPIED of the active tables last.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/rig/qcow2/qcow2_oracle_check.h"

static const char *const kind_names[] = {
	[KIND_HEADER] = "header",
	[KIND_REFTABLE] = "reference count table",
	[KIND_REFBLOCK] = "refcount block",
	[KIND_L1] = "L1 table",
	[KIND_L2] = "L2 table",
	[KIND_DATA] = "data",
	[KIND_COMPRESSED] = "compressed data",
	[KIND_SNAPSHOTS] = "snapshot table",
	[KIND_CRYPTO] = "encryption header",
	[KIND_BITMAP_DIRECTORY] = "bitmap directory",
	[KIND_BITMAP_TABLE] = "bitmap table",
	[KIND_BITMAP] = "bitmap",
};

/* ---- the report ---- */

void oracle_fault(struct oracle_check *c, enum qcow2_oracle_fault fault, const char *format, ...)
{
	struct qcow2_oracle_report *r = c->report;
	va_list args;

	r->nr[fault]++;
	if (r->words_nr == QCOW2_ORACLE_WORDS_NR || fault == QCOW2_ORACLE_PAST_END ||
	    fault == QCOW2_ORACLE_SHARED)
		return;
	va_start(args, format);
	vsnprintf(r->words[r->words_nr++], QCOW2_ORACLE_WORDS_BYTES, format, args);
	va_end(args);
}

static void totals(struct oracle_check *c)
{
	struct qcow2_oracle_report *r = c->report;
	uint64_t counts = r->nr[QCOW2_ORACLE_LOW] + r->nr[QCOW2_ORACLE_COPIED];

	r->corruptions = r->nr[QCOW2_ORACLE_ENTRY] + r->nr[QCOW2_ORACLE_OVERLAP] +
			 r->nr[QCOW2_ORACLE_TABLE] + r->nr[QCOW2_ORACLE_IO];
	*(c->o->info.dirty ? &r->repairable : &r->corruptions) += counts;
	r->leaks = r->nr[QCOW2_ORACLE_LEAK];
}

/* ---- references ---- */

/*
 * Several tables may refer to one cluster of data, and to one L2 table, if its reference count says
 * so: snapshots. A cluster holds the data of many compressed ones. All else has one owner.
 */
static void overlap_judge(struct oracle_check *c, uint64_t idx, enum oracle_kind kind)
{
	uint16_t before = c->o->clusters[idx].kinds;
	uint16_t many = 1u << KIND_L2 | 1u << KIND_DATA | 1u << KIND_COMPRESSED;
	uint16_t allowed = many & (uint16_t)(1u << kind);

	if (before & ~allowed)
		oracle_fault(c, QCOW2_ORACLE_OVERLAP, "cluster 0x%" PRIx64 ": %s, and %s too", idx,
			     kind_names[kind],
			     kind_names[__builtin_ctz(before & (unsigned)~allowed)]);
}

/* l1_id: of the table on whose behalf it is, 0: none. */
void oracle_refer(struct oracle_check *c, struct oracle_range range, enum oracle_kind kind,
		  unsigned l1_id)
{
	struct qcow2_oracle *o = c->o;
	uint64_t first = range.offset >> o->info.cluster_bits, last;

	if (!range.bytes)
		return;
	last = (range.offset + (range.bytes - 1)) >> o->info.cluster_bits;
	/* The last cluster of a file need not be there in full. */
	if (range.offset + range.bytes < range.offset || last >= o->cluster_nr) {
		oracle_fault(c, QCOW2_ORACLE_ENTRY,
			     "%s at 0x%" PRIx64 " (0x%" PRIx64
			     " bytes): behind the end of the file",
			     kind_names[kind], range.offset, range.bytes);
		/* what is far outside is no reference to anything */
		if (first >= o->cluster_nr || last != o->cluster_nr)
			return;
		last--;
	}
	for (uint64_t i = first; i <= last; i++) {
		struct oracle_cluster *cluster = &o->clusters[i];

		overlap_judge(c, i, kind);
		if (l1_id && kind != KIND_COMPRESSED && cluster->last_l1 == l1_id)
			oracle_fault(c, QCOW2_ORACLE_SHARED, "-");
		cluster->last_l1 = l1_id;
		cluster->kinds |= (uint16_t)(1u << kind);
		cluster->refs++;
	}
}

/* ---- counts as stored ---- */

/* Count idx of the block at offset: below 8 bits the first one has the lowest bits. */
static uint64_t count_get(struct qcow2_oracle *o, uint64_t block, uint64_t idx)
{
	uint32_t bits = o->info.refcount_bits;

	if (bits >= 8)
		return oracle_window_get(o, &o->block, block + idx * (bits / 8), bits / 8);
	return oracle_window_get(o, &o->block, block + idx * bits / 8, 1) >> idx * bits % 8 &
	       ((1u << bits) - 1);
}

static void count_set(struct oracle_check *c, uint64_t idx, uint64_t count)
{
	struct qcow2_oracle *o = c->o;

	if (idx < o->cluster_nr)
		o->clusters[idx].count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
	else if (count)
		oracle_fault(c, QCOW2_ORACLE_PAST_END, "-");
}

/* Whether 8 bytes are all 0: most of a block behind the file is. */
static bool counts_zero(struct qcow2_oracle *o, uint64_t offset)
{
	return !oracle_window_get(o, &o->block, offset, 8);
}

static void block_load(struct oracle_check *c, uint64_t block, uint64_t first_cluster)
{
	struct qcow2_oracle *o = c->o;
	uint64_t per_word = 64 / o->info.refcount_bits;

	for (uint64_t word = 0; word < o->cluster_bytes / 8; word++) {
		if (counts_zero(o, block + word * 8))
			continue;
		for (uint64_t i = word * per_word; i < (word + 1) * per_word; i++)
			count_set(c, first_cluster + i, count_get(o, block, i));
	}
}

/* Blocks that no entry leads to count nothing: all in them is 0. */
static void blocks_load(struct oracle_check *c)
{
	struct qcow2_oracle *o = c->o;
	uint64_t per_block = o->cluster_bytes * 8 / o->info.refcount_bits;

	for (uint64_t i = 0; i < o->reftable.bytes / 8; i++) {
		uint64_t entry = oracle_window_get(o, &o->table, o->reftable.offset + i * 8, 8);
		uint64_t block = entry & ~REFTABLE_RESERVED;
		bool usable = !oracle_unaligned(o, block) &&
			      block >> o->info.cluster_bits < o->cluster_nr;

		if (!entry)
			continue;
		if (entry != block || !usable)
			oracle_fault(c, QCOW2_ORACLE_TABLE,
				     "entry %" PRIu64 " of the reference count table: 0x%" PRIx64,
				     i, entry);
		else
			oracle_refer(c, (struct oracle_range){ block, o->cluster_bytes },
				     KIND_REFBLOCK, 0);
		if (block && usable)
			block_load(c, block, i * per_block);
	}
}

/* ---- both compared ---- */

static void counts_compare(struct oracle_check *c)
{
	struct qcow2_oracle *o = c->o;

	for (uint64_t i = 0; i < o->cluster_nr; i++) {
		const struct oracle_cluster *cluster = &o->clusters[i];

		c->report->referenced += cluster->refs != 0;
		if (cluster->count != cluster->refs)
			oracle_fault(c,
				     cluster->count < cluster->refs ? QCOW2_ORACLE_LOW
								    : QCOW2_ORACLE_LEAK,
				     "cluster 0x%" PRIx64 " (%s): reference count %" PRIu32
				     ", references %" PRIu32,
				     i,
				     cluster->kinds ? kind_names[__builtin_ctz(cluster->kinds)]
						    : "free",
				     cluster->count, cluster->refs);
	}
}

/* ---- in order ---- */

static int clusters_prepare(struct qcow2_oracle *o)
{
	o->cluster_nr =
		(o->file.bytes >> o->info.cluster_bits) + !!oracle_unaligned(o, o->file.bytes);
	if (o->cluster_nr > o->cluster_capacity) {
		free(o->clusters);
		o->cluster_capacity = 0;
		o->clusters = calloc(o->cluster_nr, sizeof(*o->clusters));
		if (!o->clusters)
			return -ENOMEM;
		o->cluster_capacity = o->cluster_nr;
	} else if (o->cluster_nr) {
		memset(o->clusters, 0, o->cluster_nr * sizeof(*o->clusters));
	}
	return 0;
}

int qcow2_oracle_check(struct qcow2_oracle *o, struct qcow2_oracle_report *ret_report)
{
	struct oracle_check c = { .o = o, .report = ret_report };

	*ret_report = (struct qcow2_oracle_report){ 0 };
	if (clusters_prepare(o))
		return -ENOMEM;
	ret_report->clusters = o->cluster_nr;
	o->io_error = false;
	oracle_refer(&c, (struct oracle_range){ 0, o->cluster_bytes }, KIND_HEADER, 0);
	if (!o->reftable.bytes)
		oracle_fault(&c, QCOW2_ORACLE_TABLE, "there is no reference count table");
	oracle_refer(&c, o->reftable, KIND_REFTABLE, 0);
	blocks_load(&c);
	oracle_l1_walk(&c, &o->active);
	oracle_snapshots_walk(&c);
	oracle_refer(&c, o->crypto, KIND_CRYPTO, 0);
	oracle_bitmaps_walk(&c);
	counts_compare(&c);
	oracle_copied_judge(&c);
	if (o->io_error)
		oracle_fault(&c, QCOW2_ORACLE_IO, "the file could not be read");
	totals(&c);
	return 0;
}
