/*
 * The tables of an image that is opened: those that a process before has left, or that another
 * device has, or L1 and the reference count table are read. The control reactor.
 *
 * Failure modes: what lies outside of the image, or on another table, is refused in words.
 */
#include <errno.h>
#include <stdio.h>

#include "backends/qcow2/qcow2_opening.h"
#include "backends/qcow2/qcow2_snapshot_change.h"
#include "base/util.h"

#define TABLES_KEY_BYTES (BACKEND_IDENTITY_BYTES + 24)

/* ---- tables ---- */

static const char *judge_l1(const struct qcow2_tables *t, uint64_t entry)
{
	uint64_t table = entry & QCOW2_OFFSET_MASK, cluster = qcow2_cluster_bytes(&t->g);

	if (table == 0)
		return NULL;
	if ((table & (cluster - 1)) || (entry & QCOW2_L1_RESERVED))
		return "qcow2: the image is corrupt: an entry of its L1 table makes no sense";
	if (table >= atomic_load(&t->end_bytes) || qcow2_range_is_table(t, table, cluster))
		return "qcow2: the image is corrupt: an L2 table lies outside of it, or on another "
		       "table";
	return NULL;
}

static const char *judge_block(const struct qcow2_tables *t, uint64_t block)
{
	uint64_t cluster = qcow2_cluster_bytes(&t->g);

	if (block && ((block & (cluster - 1)) || block >= atomic_load(&t->end_bytes) ||
		      qcow2_range_is_table(t, block, cluster)))
		return "qcow2: the image is corrupt: a block of reference counts lies outside of "
		       "it, or on another table";
	return NULL;
}

static const char *take_entries(struct qcow2_tables *t, _Atomic uint64_t *table, uint64_t first,
				uint32_t entries, const uint64_t *from, uint64_t bytes,
				const char *(*judge)(const struct qcow2_tables *, uint64_t))
{
	for (uint64_t i = 0; i < bytes / 8 && first + i < entries; i++) {
		uint64_t entry = be64toh(from[i]);
		const char *words = judge(t, entry);

		if (words)
			return words;
		atomic_store_explicit(&table[first + i], entry, memory_order_relaxed);
	}
	return NULL;
}

/* What a table that is read whole is about: L1, or the reference count table. */
struct table_reading {
	const char *doing;
	const char *(*judge)(const struct qcow2_tables *t, uint64_t entry);
	void (*done)(struct qcow2_open *p);
	bool is_l1;
};

static void table_read_on(struct qcow2_open *p, const struct table_reading *what);

static void table_part_came(struct qcow2_open *p, const struct table_reading *what, int result)
{
	struct qcow2_tables *t = p->d->t;
	uint64_t table_at = what->is_l1 ? t->l1_offset : t->reftable_offset;
	uint64_t bytes = qcow2_open_chunk(p, p->end - p->at);
	const char *words;

	if (result < 0) {
		qcow2_open_fail(p, result, NULL);
		return;
	}
	words = take_entries(t, what->is_l1 ? t->l1 : t->reftable, (p->at - table_at) / 8,
			     what->is_l1 ? t->l1_entries : t->reftable_entries,
			     (const uint64_t *)p->buf, bytes, what->judge);
	if (words) {
		qcow2_open_fail(p, -EINVAL, words);
		return;
	}
	p->at += bytes;
	table_read_on(p, what);
}

static const struct table_reading l1_reading, reftable_reading;

static void l1_part_read(struct backend_visit *visit, int result)
{
	table_part_came(qcow2_opening_of(visit), &l1_reading, result);
}

static void reftable_part_read(struct backend_visit *visit, int result)
{
	table_part_came(qcow2_opening_of(visit), &reftable_reading, result);
}

/* From p->at to p->end. */
static void table_read_on(struct qcow2_open *p, const struct table_reading *what)
{
	if (p->at < p->end)
		qcow2_open_io(p, BACKEND_READ, p->at, qcow2_open_chunk(p, p->end - p->at),
			      what->doing, what->is_l1 ? l1_part_read : reftable_part_read);
	else
		what->done(p);
}

static void reftable_done(struct qcow2_open *p)
{
	if (atomic_load(&p->d->t->reftable[0]) == 0)
		qcow2_open_fail(p, -EINVAL,
				"qcow2: the image is corrupt: nothing counts its header as used: "
				"repair it with qemu-img check -r all");
	else
		qcow2_base_note(p);
}

static const struct table_reading reftable_reading = {
	.doing = "reading the reference count table",
	.judge = judge_block,
	.done = reftable_done,
};

/* Which bytes, and which of their L1 tables. */
static void tables_key(const struct qcow2_device *d, char key[static TABLES_KEY_BYTES])
{
	char identity[BACKEND_IDENTITY_BYTES];

	backend_identity(qcow2_child(d->device, d->data_idx), identity);
	snprintf(key, TABLES_KEY_BYTES, "%s@%llu", identity,
		 (unsigned long long)d->header.l1_offset);
}

static void l1_done(struct qcow2_open *p)
{
	struct qcow2_tables *t = p->d->t;
	char key[TABLES_KEY_BYTES];

	if (p->d->is_read_only) {
		tables_key(p->d, key);
		/* Without a share each has its own: no harm but memory. */
		(void)qcow2_tables_share(t, key);
		qcow2_open_done(p);
		return;
	}
	p->at = t->reftable_offset;
	p->end = p->at + (uint64_t)t->reftable_entries * 8;
	table_read_on(p, &reftable_reading);
}

static const struct table_reading l1_reading = {
	.doing = "reading the L1 table",
	.judge = judge_l1,
	.done = l1_done,
	.is_l1 = true,
};

/* True: there are tables already, of a process before or of another device. */
static bool find_tables(struct qcow2_open *p, char words[static QCOW2_WORDS_BYTES])
{
	struct qcow2_device *d = p->d;
	char key[TABLES_KEY_BYTES];

	if (p->stored_fd >= 0) {
		d->t = qcow2_tables_adopt(&d->header, &p->seen, p->stored_fd, words);
	} else if (d->is_read_only) {
		tables_key(d, key);
		d->t = qcow2_tables_find(key);
	}
	return d->t;
}

static void fill_tables(struct qcow2_open *p)
{
	struct qcow2_device *d = p->d;
	const struct qcow2_header *h = &d->header;

	d->t->has_data_file = h->incompatible & QCOW2_INCOMPAT_DATA_FILE;
	d->t->snapshots_offset = h->snapshots_offset;
	d->t->snapshots_bytes = d->snapshots ? d->snapshots->raw_bytes : 0;
}

static void get_tables(struct qcow2_open *p)
{
	struct qcow2_device *d = p->d;
	const struct qcow2_config *config = d->device->config;
	char words[QCOW2_WORDS_BYTES];

	if (find_tables(p, words)) {
		fill_tables(p);
		if (p->stored_fd >= 0)
			qcow2_open_check(p);
		else
			qcow2_open_mark(p);
		return;
	}
	if (p->stored_fd >= 0 && words[0]) {
		/* Another try would find the same. */
		p->visit->has_answer = true;
		qcow2_open_fail(p, -EINVAL, words);
		return;
	}
	d->t = qcow2_tables_new(&d->header, config->cache_bytes, !d->is_read_only);
	if (!d->t) {
		qcow2_open_fail(p, -ENOMEM, "qcow2: out of memory for the tables of the image");
		return;
	}
	fill_tables(p);
	qcow2_tables_set_end(d->t, round_up(d->image_bytes, qcow2_cluster_bytes(&d->header.g)));
	p->at = d->header.l1_offset;
	p->end = p->at + round_up((uint64_t)d->header.l1_entries * 8, qcow2_open_block(p));
	table_read_on(p, &l1_reading);
}

/* ---- SNAPSHOTS ---- */

static void snapshots_read(struct backend_visit *visit, int ret, const char *words)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	if (ret < 0)
		qcow2_open_fail(p, ret, words[0] ? words : NULL);
	else
		get_tables(p);
}

void qcow2_open_tables(struct qcow2_open *p)
{
	qcow2_snapshots_read(p->visit, p->buf, QCOW2_OPEN_BUFFER_BYTES, snapshots_read);
}
