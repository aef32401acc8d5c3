/*
 * Whether another program has written to an image while its tables were kept in memory, for the
 * next process (qcow2_tables.h). Such tables are of no use then: they name clusters that the other
 * program has taken for its own, and would be written over its tables. The control reactor; the
 * notes: whoever changes the tables.
 *
 * Who opens an image to write, by the format, clears the bits of its autoclear features that he
 * does not know. So does QEMU in all that it does to an image, before anything else: a virtual
 * machine, qemu-io, snapshot, resize, check -r, rebase, amend, bitmap. So a number is drawn at open
 * and stands in the upper half of these bits: QCOW2_AUTOCLEAR_MARK. Another process of ublkd draws
 * its own. It stays when the image is closed, as the version of what is in it.
 *
 * An image of version 2 has no such bits, and QEMU forgets about them when it first opens an image
 * to read, and then to write: the base of a commit. So the tables are compared, too. Of each slice
 * in memory a sum says what the disk has (slot->disk); slices that are in memory are all that can
 * be out of date, and no cluster is taken without a count in one of them, or in one that is read
 * anew.
 *
 *   open:  header has no mark of ours -> a new one is written -> FLUSH, lest a server that loses
 *          its cache takes it back -> noted, with all of the header
 *   adopt: the header is compared with the note (mark, tables, snapshots, names: every byte), and
 *          the length of the image with what was durable -> L1, the reference count table, and the
 *          slices in memory, with the disk (not in an upgrade, where nobody can have come between)
 *          -> a header that may not be durable is written again -> FLUSH
 *   close: if nothing was changed, the mark that was found is put back
 *
 * Nothing is compared that requests of a process which was killed may still change: no data, no
 * time of the file; no table that was on its way to the disk, or is new there and was not flushed.
 *
 * Failure modes: it does not fit: words. A program that changes neither header nor tables (a write
 * in place, of an image of version 2) takes no cluster, and is not found.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backends/qcow2/qcow2_opening.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/version.h"

/* A header is written by sectors; all fields that are ever changed are in the first one. */
#define SECTOR_BYTES 512u

/* ---- what is compared ---- */

static uint64_t hash_of(const uint8_t *bytes, uint64_t nr)
{
	uint64_t hash = hash_bytes(HASH_START, bytes, nr);

	return hash ? hash : 1;
}

void qcow2_seen_fill(struct qcow2_seen *seen, const void *header, uint64_t header_bytes,
		     uint64_t image_bytes)
{
	const uint8_t *bytes = header;

	seen->first = hash_of(bytes, SECTOR_BYTES);
	seen->rest = hash_of(bytes + SECTOR_BYTES, header_bytes - SECTOR_BYTES);
	seen->image_bytes = image_bytes;
}

void qcow2_open_saw_header(struct qcow2_open *p)
{
	const struct qcow2_device *d = p->d;

	qcow2_seen_fill(&p->seen, p->buf,
			MIN((uint64_t)p->header_bytes, qcow2_cluster_bytes(&d->header.g)),
			d->image_bytes);
}

bool qcow2_image_is_changed(const struct qcow2_image_note *image, const struct qcow2_seen *seen)
{
	if (seen->image_bytes < image->end_bytes)
		return true;
	if (image->first[0] == 0)
		return false;
	return seen->rest != image->rest ||
	       (seen->first != image->first[0] && seen->first != image->first[1]);
}

void qcow2_image_saw(struct qcow2_tables *t, const struct qcow2_seen *seen)
{
	t->image->rest = seen->rest;
	t->image->first[1] = seen->first;
	qcow2_image_header_settled(t, true);
	qcow2_image_reaches(t, seen->image_bytes);
	t->image->is_handed = 0;
}

void qcow2_image_header_changes(struct qcow2_tables *t, const void *sector)
{
	__atomic_store_n(&t->image->first[1], hash_of(sector, SECTOR_BYTES), __ATOMIC_RELEASE);
}

void qcow2_image_header_settled(struct qcow2_tables *t, bool is_new)
{
	__atomic_store_n(&t->image->first[!is_new], t->image->first[is_new], __ATOMIC_RELEASE);
}

bool qcow2_image_header_is_known(const struct qcow2_tables *t)
{
	return t->image->first[0] && t->image->first[0] == t->image->first[1];
}

void qcow2_image_reaches(struct qcow2_tables *t, uint64_t end_bytes)
{
	t->image->end_bytes = MAX(t->image->end_bytes, end_bytes);
}

void qcow2_image_handed_over(struct qcow2_tables *t)
{
	t->image->is_handed = 1;
}

uint32_t qcow2_slice_sum(const struct qcow2_tables *t, const void *slice)
{
	uint32_t sum = crc32c(0, slice, t->slice_bytes);

	return sum ? sum : 1;
}

void qcow2_slot_settled(struct qcow2_tables *t, struct qcow2_slot *slot, bool is_durable)
{
	bool is_dirty = atomic_load_explicit(&slot->is_dirty, memory_order_relaxed);

	/* One that was changed on its way may be there as before or after, or in parts. */
	slot->disk = is_durable && !is_dirty ? qcow2_slice_sum(t, qcow2_slot_data(t, slot)) : 0;
}

/* ---- CHECK ---- */

/* The tables by an index: L1, the reference count table, what L1 names, what the other one does. */
enum { CHECK_L1, CHECK_REFTABLE, CHECK_NAMED };

/* It may not be durable yet: the next commit decides. */
static bool is_new_table(const struct qcow2_tables *t, uint64_t table)
{
	for (uint32_t i = 0; i < qcow2_undo_nr(t); i++)
		if (t->undo->note[i].kind == QCOW2_UNDO_TABLE && t->undo->note[i].host == table)
			return true;
	return false;
}

/* Any slice of the table with a sum. */
static bool is_worth_a_look(const struct qcow2_tables *t, uint64_t table)
{
	for (uint64_t at = 0; table && at < qcow2_cluster_bytes(&t->g); at += t->slice_bytes) {
		const struct qcow2_slot *slot = qcow2_slot_find(t, table + at);

		if (slot && slot->disk)
			return !is_new_table(t, table);
	}
	return false;
}

/* Sets p->at and p->end to the next table that is to be looked at; false: there is none. */
static bool next_table(struct qcow2_open *p)
{
	const struct qcow2_tables *t = p->d->t;
	uint64_t nr = CHECK_NAMED + (uint64_t)t->l1_entries + t->reftable_entries;

	while (p->table_idx < nr) {
		uint64_t idx = p->table_idx++;

		if (idx == CHECK_L1) {
			p->at = t->l1_offset;
			p->end = p->at + round_up((uint64_t)t->l1_entries * 8, qcow2_open_block(p));
			return true;
		}
		if (idx == CHECK_REFTABLE) {
			p->at = t->reftable_offset;
			p->end = p->at + (uint64_t)t->reftable_entries * 8;
			return true;
		}
		idx -= CHECK_NAMED;
		p->at = (idx < t->l1_entries ? t->l1[idx] : t->reftable[idx - t->l1_entries]) &
			QCOW2_OFFSET_MASK;
		p->end = p->at + qcow2_cluster_bytes(&t->g);
		if (is_worth_a_look(t, p->at))
			return true;
	}
	return false;
}

static bool entries_fit(const _Atomic uint64_t *table, uint32_t entries, const uint64_t *dirty,
			uint64_t first, const uint64_t *found, uint64_t bytes)
{
	for (uint64_t i = first; i < entries && i - first < bytes / 8; i++) {
		uint64_t chunk = i * 8 / QCOW2_CHUNK_BYTES;

		if (!(dirty[chunk / 64] >> chunk % 64 & 1) && table[i] != be64toh(found[i - first]))
			return false;
	}
	return true;
}

static bool slices_fit(const struct qcow2_tables *t, uint64_t at, const uint8_t *found,
		       uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += t->slice_bytes) {
		const struct qcow2_slot *slot = qcow2_slot_find(t, at + i);

		if (slot && slot->disk && slot->disk != qcow2_slice_sum(t, found + i))
			return false;
	}
	return true;
}

/* Of the table before p->table_idx. */
static bool chunk_fits(const struct qcow2_open *p, uint64_t bytes)
{
	const struct qcow2_tables *t = p->d->t;
	const uint64_t *found = (const uint64_t *)p->buf;

	switch (p->table_idx - 1) {
	case CHECK_L1:
		return entries_fit(t->l1, t->l1_entries, t->l1_dirty, (p->at - t->l1_offset) / 8,
				   found, bytes);
	case CHECK_REFTABLE:
		return entries_fit(t->reftable, t->reftable_entries, t->reftable_dirty,
				   (p->at - t->reftable_offset) / 8, found, bytes);
	default:
		return slices_fit(t, p->at, p->buf, bytes);
	}
}

static void check_on(struct qcow2_open *p);

static void chunk_came(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);
	uint64_t bytes = qcow2_open_chunk(p, p->end - p->at);

	if (result < 0) {
		qcow2_open_fail(p, result, NULL);
	} else if (!chunk_fits(p, bytes)) {
		p->visit->has_answer = true;
		qcow2_open_fail(p, -EINVAL, QCOW2_CHANGED_WORDS);
	} else {
		p->at += bytes;
		check_on(p);
	}
}

static void check_on(struct qcow2_open *p)
{
	if (p->at == p->end && !next_table(p))
		qcow2_open_mark(p);
	else
		qcow2_open_io(p, BACKEND_READ, p->at, qcow2_open_chunk(p, p->end - p->at),
			      "comparing the tables of the image", chunk_came);
}

void qcow2_open_check(struct qcow2_open *p)
{
	p->at = p->end = 0;
	p->table_idx = CHECK_L1;
	if (p->d->t->image->is_handed)
		qcow2_open_mark(p);
	else
		check_on(p);
}

/* ---- MARK ---- */

static void mark_written(struct qcow2_open *p)
{
	p->seen.first = hash_of(p->buf, SECTOR_BYTES);
	qcow2_image_saw(p->d->t, &p->seen);
	qcow2_open_done(p);
}

static void mark_header(struct qcow2_open *p)
{
	qcow2_header_update(p->buf, &p->d->header);
	qcow2_open_put_header(p, qcow2_open_block(p), mark_written);
}

static uint64_t new_mark(void)
{
	uint32_t number = 0;

	/* Without random numbers it is a mark still, and the same each time. */
	(void)getrandom(&number, sizeof(number), GRND_NONBLOCK);
	return (uint64_t)(number | 1) << 32;
}

void qcow2_open_mark(struct qcow2_open *p)
{
	struct qcow2_header *h = &p->d->header;
	uint64_t kept = h->autoclear & QCOW2_AUTOCLEAR_RAW_DATA_FILE, mark = 0;

	if (p->d->is_read_only) {
		qcow2_open_done(p);
		return;
	}
	if (h->autoclear & ~(kept | QCOW2_AUTOCLEAR_MARK))
		log_info("what the image notes besides its content is not kept up",
			 "node=%s autoclear_bits=0x%llx", p->d->device->name,
			 (unsigned long long)h->autoclear);
	p->d->mark_found = (uint32_t)(h->autoclear >> 32);
	/* Tables that are taken over are of the process that has drawn it: it stays. */
	if (h->g.version >= 3 && p->stored_fd >= 0)
		mark = h->autoclear & QCOW2_AUTOCLEAR_MARK;
	if (h->g.version >= 3 && mark == 0)
		mark = new_mark();
	/* All relies on the header that was found: a FLUSH that fails later must not lose it. */
	if (h->autoclear == (kept | mark) && qcow2_image_header_is_known(p->d->t)) {
		qcow2_image_saw(p->d->t, &p->seen);
		qcow2_open_done(p);
		return;
	}
	h->autoclear = kept | mark;
	qcow2_open_get_header(p, mark_header);
}

/* ---- the version: storage/version.h ---- */

/*
 * Of an image that can be written it is the mark, which each opening that changes something leaves,
 * and what its backing says. It is good after a power cut too, and what is below needs no version.
 * One that is only read follows from its children. A snapshot has what lasts of its backing: the
 * file may change with each commit of who writes the image.
 */

uint32_t qcow2_mark_left(const struct qcow2_device *d)
{
	bool is_changed = atomic_load_explicit(&d->is_changed, memory_order_relaxed);

	/* Without a mark it cannot be told from what another program leaves. */
	return is_changed || d->mark_found == 0 ? (uint32_t)(d->header.autoclear >> 32)
						: d->mark_found;
}

/* Returns what is written of it. */
static int version_of_backing(const struct backend_device *device,
			      char words[BACKEND_VERSION_BYTES])
{
	const struct qcow2_device *d = device->priv;
	struct backend_version backing = { .kind = BACKEND_VERSION_NONE };

	if (d->backing_idx >= 0)
		backend_version(qcow2_child(device, (unsigned)d->backing_idx), &backing);
	return snprintf(words, BACKEND_VERSION_BYTES, "qcow2 over %016llx, mark ",
			(unsigned long long)hash_text(HASH_START, backing.found));
}

static void version_with_mark(const struct backend_device *device, uint32_t mark,
			      char words[BACKEND_VERSION_BYTES])
{
	int at = version_of_backing(device, words);

	snprintf(words + at, BACKEND_VERSION_BYTES - (size_t)at, "%08x", mark);
}

static void version_of_written(const struct backend_device *device, struct backend_version *ret)
{
	const struct qcow2_device *d = device->priv;
	uint32_t ours = (uint32_t)(d->header.autoclear >> 32);

	if (ours == 0)
		return;
	ret->kind = BACKEND_VERSION_LASTING;
	ret->is_known_now = true;
	version_with_mark(device, ours, ret->ours);
	version_with_mark(device, d->mark_found, ret->found);
	/* Another program has written, once more or not: no other opening finds this. */
	if (d->mark_found == 0)
		snprintf(ret->found, sizeof(ret->found), "qcow2 without a mark before %08x", ours);
}

static void qcow2_version_found(const struct backend_device *device, struct backend_version *ret)
{
	const struct qcow2_device *d = device->priv;
	const struct qcow2_config *config = device->config;

	if (!config->snapshot && !d->is_read_only) {
		version_of_written(device, ret);
	} else if (!config->snapshot) {
		backend_version_join(device, ret);
	} else if (d->backing_idx >= 0) {
		backend_version(qcow2_child(device, (unsigned)d->backing_idx), ret);
		backend_version_only_lasting(ret);
	}
}

static int qcow2_version_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	const struct qcow2_device *d = device->priv;

	if (d->is_read_only)
		return backend_version_join_now(device, words);
	version_with_mark(device, qcow2_mark_left(d), words);
	return 0;
}

const struct backend_version_ops qcow2_version = { .found = qcow2_version_found,
						   .now = qcow2_version_now };
