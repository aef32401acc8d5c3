/*
 * The memory of an image's tables: one area each, in a memfd or anonymous. Made and found on the
 * main thread; slices are put into it by the owner's reactor, or by all that share it.
 *
 *   | kept | freed | taken | slots | L1 | reference count table | dirty bits of both | slices ...
 *   | notes of what can be undone |
 *
 * Happy path: new -> open fills L1 -> install, lookups, changes -> free. A memfd that a process
 * before has left is mapped, compared, and used as it is: a slot with an odd sequence number was
 * being replaced and is empty; one that is dirty is dirty still.
 *
 * Failure modes: no memory; a memfd that does not belong to this image, or an image that another
 * program has changed since (qcow2_mark.c): refused in words.
 */
#include "backends/qcow2/qcow2_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"

#define KEPT_MAGIC 0x71636f7732746162ull
#define KEPT_VERSION 4u
/* Version 3 has zeroes where `image` is. 2 has no notes of qcow2_undo.c either, at its end. */
#define KEPT_VERSION_2 2u

/* At the start of the area: which image, and in what shape. */
struct qcow2_kept {
	uint64_t magic;
	uint32_t version, slot_nr;
	uint64_t area_bytes;
	uint64_t l1_offset, reftable_offset;
	uint32_t l1_entries, reftable_entries;
	struct qcow2_geometry g;
	_Atomic uint32_t is_filled; /* L1 and the reference count table have been read */
	_Atomic uint64_t end_bytes;
	_Atomic uint32_t changed; /* the header on the disk says "dirty" */
	struct qcow2_image_note image;
};

#define UNDO_BYTES round_up(sizeof(struct qcow2_undo_log), 4096)

static struct list_node shared_tables = LIST_INIT(shared_tables);

/* ---- how much ---- */

/* Slots for the whole disk, or as many as are wished for. */
static unsigned set_nr_for(const struct qcow2_tables *t, const struct qcow2_header *h,
			   uint64_t cache_bytes)
{
	uint64_t all = (h->size_bytes >> h->g.cluster_bits >> t->slice_bits) + 1;
	uint64_t wished = cache_bytes / QCOW2_SLICE_BYTES_MAX;
	uint64_t sets = 2;

	/* Room for reference counts too, and for sets that get more than their share. */
	all += all / 4 + 2 * QCOW2_WAYS;
	while (sets * 2 * QCOW2_WAYS <= wished && sets * QCOW2_WAYS < all)
		sets *= 2;
	return (unsigned)sets;
}

/* Places everything from area on; area NULL: only counts. Returns how many bytes it takes. */
static size_t tables_place(struct qcow2_tables *t, uint8_t *area)
{
	size_t at = 0;

	t->kept = (struct qcow2_kept *)(area + at);
	t->image = area ? &t->kept->image : NULL;
	at += 4096;
	t->freed = (struct qcow2_freed *)(area + at);
	at += round_up(QCOW2_FREED_NR * sizeof(*t->freed), 4096);
	t->taken = (struct qcow2_taken *)(area + at);
	at += round_up(QCOW2_TAKEN_NR * sizeof(*t->taken), 4096);
	t->slot = (struct qcow2_slot *)(area + at);
	at += round_up(qcow2_slot_nr(t) * sizeof(*t->slot), 4096);
	t->l1 = (_Atomic uint64_t *)(area + at);
	at += round_up((uint64_t)t->l1_entries * 8, 4096);
	t->reftable = (_Atomic uint64_t *)(area + at);
	at += round_up((uint64_t)t->reftable_entries * 8, 4096);
	t->l1_dirty = (uint64_t *)(area + at);
	at += round_up(qcow2_chunk_nr(t->l1_entries), 64) / 8;
	t->reftable_dirty = (uint64_t *)(area + at);
	at += round_up(qcow2_chunk_nr(t->reftable_entries), 64) / 8;
	at = round_up(at, 4096);
	t->data = area + at;
	at += (size_t)qcow2_slot_nr(t) * QCOW2_SLICE_BYTES_MAX;
	t->undo = (struct qcow2_undo_log *)(area + at);
	return at + UNDO_BYTES;
}

static struct qcow2_tables *tables_alloc(const struct qcow2_header *h)
{
	struct qcow2_tables *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->fd = -1;
	t->user_nr = 1;
	list_init(&t->shared);
	t->g = h->g;
	t->slice_bytes = (uint32_t)MIN(qcow2_cluster_bytes(&h->g), QCOW2_SLICE_BYTES_MAX);
	t->slice_bits = log2_floor(t->slice_bytes / h->g.l2_entry_bytes);
	t->l1_offset = h->l1_offset;
	t->l1_entries = h->l1_entries;
	t->reftable_offset = h->reftable_offset;
	/* Also of an image that is only read: what lies there is no guest's. */
	t->reftable_entries = (uint32_t)((h->reftable_clusters * qcow2_cluster_bytes(&h->g)) / 8);
	return t;
}

/* ---- made, kept, found again ---- */

static int tables_map(struct qcow2_tables *t, size_t bytes)
{
	int flags = t->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, t->fd, 0);

	if (area == MAP_FAILED)
		return -errno;
	t->area = area;
	t->area_bytes = bytes;
	tables_place(t, area);
	if (t->fd < 0)
		return 0;
	t->dirty = calloc(qcow2_slot_nr(t), sizeof(*t->dirty));
	return t->dirty ? 0 : -ENOMEM;
}

static int memfd_new(size_t bytes)
{
	int fd = memfd_create("ublkd-qcow2", MFD_CLOEXEC);
	int err;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static void kept_fill(struct qcow2_tables *t)
{
	struct qcow2_kept *k = t->kept;

	ASSERT(k != NULL);

	k->version = KEPT_VERSION;
	k->slot_nr = qcow2_slot_nr(t);
	k->area_bytes = t->area_bytes;
	k->l1_offset = t->l1_offset;
	k->l1_entries = t->l1_entries;
	k->reftable_offset = t->reftable_offset;
	k->reftable_entries = t->reftable_entries;
	k->g = t->g;
	k->magic = KEPT_MAGIC;
}

struct qcow2_tables *qcow2_tables_new(const struct qcow2_header *h, uint64_t cache_bytes,
				      bool in_memfd)
{
	struct qcow2_tables *t = tables_alloc(h);
	size_t bytes;
	int ret = 0;

	if (!t)
		return NULL;
	t->set_mask = set_nr_for(t, h, cache_bytes) - 1;
	bytes = tables_place(t, NULL);
	if (in_memfd) {
		ret = memfd_new(bytes);
		t->fd = ret;
	}
	if (ret >= 0)
		ret = tables_map(t, bytes);
	if (ret < 0) {
		qcow2_tables_free(t);
		errno = -ret;
		return NULL;
	}
	kept_fill(t);
	qcow2_taken_init(t);
	return t;
}

static bool kept_matches(const struct qcow2_kept *k, const struct qcow2_tables *t, off_t bytes)
{
	return is_power_of_two(k->slot_nr) && k->slot_nr >= QCOW2_WAYS && k->slot_nr <= 1u << 24 &&
	       k->area_bytes == (uint64_t)bytes && k->l1_offset == t->l1_offset &&
	       k->l1_entries == t->l1_entries && k->reftable_offset == t->reftable_offset &&
	       k->reftable_entries == t->reftable_entries &&
	       memcmp(&k->g, &t->g, sizeof(k->g)) == 0;
}

/* A slot in the middle of a change is empty; nothing is on its way to the disk. */
static void slots_revive(struct qcow2_tables *t)
{
	ASSERT(t->slot != NULL);
	for (unsigned i = 0; i < qcow2_slot_nr(t); i++) {
		struct qcow2_slot *slot = &t->slot[i];
		uint32_t seq = atomic_load(&slot->seq);

		/* It may have reached the disk, or not. */
		t->used_nr += !(seq & 1) && atomic_load(&slot->at) != 0;
		slot->disk = slot->is_writing ? 0 : slot->disk;
		if (slot->is_writing)
			atomic_store(&slot->is_dirty, 1);
		slot->is_writing = 0;
		if (!(seq & 1)) {
			if (atomic_load(&slot->is_dirty))
				t->dirty[t->dirty_nr++] = i;
			continue;
		}
		atomic_store(&slot->at, 0);
		atomic_store(&slot->is_dirty, 0);
		atomic_store(&slot->seq, seq + 1);
	}
}

/* A process has died between the two words of an entry that was to be compressed no longer. */
static void entries_revive(struct qcow2_tables *t)
{
	if (t->g.l2_entry_bytes != 16)
		return;
	for (uint32_t i = 0; i < t->dirty_nr; i++) {
		struct qcow2_slot *slot = &t->slot[t->dirty[i]];
		void *slice = qcow2_slot_data(t, slot);

		for (unsigned k = 0; slot->is_l2 && k < 1u << t->slice_bits; k++)
			if (qcow2_entry_load(slice, 2 * k) & QCOW2_COMPRESSED)
				qcow2_entry_store(slice, 2 * k + 1, 0);
	}
}

/* What was given up: requests of the process before are under way nowhere any more. */
static void freed_revive(struct qcow2_tables *t)
{
	ASSERT(t->freed != NULL);
	for (unsigned i = 0; i < QCOW2_FREED_NR; i++) {
		struct qcow2_freed *f = &t->freed[i];

		if (f->stage > QCOW2_FREED_DURABLE)
			f->stage = QCOW2_FREED_DURABLE;
		t->freed_nr += f->stage != QCOW2_FREED_NONE;
	}
}

static int tables_take(struct qcow2_tables *t, const struct qcow2_seen *seen, int fd)
{
	struct qcow2_kept k;
	struct stat st;
	size_t bytes;
	int ret;

	if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(k) ||
	    pread(fd, &k, sizeof(k), 0) != (ssize_t)sizeof(k) || k.magic != KEPT_MAGIC)
		return -EINVAL;
	if (k.version < KEPT_VERSION_2 || k.version > KEPT_VERSION)
		return -EINVAL;
	if (!atomic_load(&k.is_filled))
		return -ENODATA;
	if (qcow2_image_is_changed(&k.image, seen))
		return -ESTALE;
	if (!kept_matches(&k, t, st.st_size))
		return -EINVAL;
	t->set_mask = k.slot_nr / QCOW2_WAYS - 1;
	bytes = tables_place(t, NULL);
	if (bytes != (size_t)st.st_size + (k.version == KEPT_VERSION_2 ? UNDO_BYTES : 0))
		return -EINVAL;
	t->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (t->fd < 0 || ftruncate(t->fd, (off_t)bytes) < 0)
		return -errno;
	ret = tables_map(t, bytes);
	if (ret == 0)
		kept_fill(t);
	return ret;
}

static const char *adopt_words(int err)
{
	_Static_assert(sizeof(QCOW2_CHANGED_WORDS) <= QCOW2_WORDS_BYTES, "it would be cut");
	switch (err) {
	case -ENODATA:
		return "";
	case -ESTALE:
		return QCOW2_CHANGED_WORDS;
	default:
		return "qcow2: the tables that the daemon before has left are not of this image";
	}
}

struct qcow2_tables *qcow2_tables_adopt(const struct qcow2_header *h, const struct qcow2_seen *seen,
					int fd, char words[static QCOW2_WORDS_BYTES])
{
	struct qcow2_tables *t = tables_alloc(h);
	int ret = t ? tables_take(t, seen, fd) : -ENOMEM;

	if (ret < 0) {
		snprintf(words, QCOW2_WORDS_BYTES, "%s", adopt_words(ret));
		qcow2_tables_free(t);
		return NULL;
	}
	slots_revive(t);
	entries_revive(t);
	freed_revive(t);
	qcow2_taken_revive(t);
	qcow2_undo_revive(t);
	/* Also when all has been written: perhaps nothing has been flushed. */
	atomic_store(&t->is_changed, true);
	atomic_store(&t->end_bytes, atomic_load(&t->kept->end_bytes));
	return t;
}

void qcow2_tables_filled(struct qcow2_tables *t)
{
	atomic_store(&t->kept->is_filled, 1);
}

void qcow2_tables_unfill(struct qcow2_tables *t)
{
	atomic_store(&t->kept->is_filled, 0);
}

void qcow2_tables_set_l1(struct qcow2_tables *t, uint64_t l1_offset)
{
	t->l1_offset = t->kept->l1_offset = l1_offset;
	atomic_store(&t->kept->is_filled, 1);
}

void qcow2_tables_set_end(struct qcow2_tables *t, uint64_t end_bytes)
{
	atomic_store_explicit(&t->end_bytes, end_bytes, memory_order_relaxed);
	atomic_store_explicit(&t->kept->end_bytes, end_bytes, memory_order_relaxed);
}

void qcow2_tables_free(struct qcow2_tables *t)
{
	if (!t || --t->user_nr > 0)
		return;
	list_remove(&t->shared);
	if (t->area)
		munmap(t->area, t->area_bytes);
	if (t->fd >= 0)
		close(t->fd);
	free(t->dirty);
	free(t->key);
	free(t);
}

/* ---- shared ---- */

struct qcow2_tables *qcow2_tables_find(const char *key)
{
	for (struct list_node *n = shared_tables.next; n != &shared_tables; n = n->next) {
		struct qcow2_tables *t = list_entry(n, struct qcow2_tables, shared);

		if (strcmp(t->key, key) == 0) {
			t->user_nr++;
			return t;
		}
	}
	return NULL;
}

int qcow2_tables_share(struct qcow2_tables *t, const char *key)
{
	t->key = strdup(key);
	if (!t->key)
		return -ENOMEM;
	list_push_back(&shared_tables, &t->shared);
	return 0;
}

/* ---- slices come and go ---- */

/* Whether a data cluster may lie there. */
static bool host_is_sane(const struct qcow2_tables *t, uint64_t host)
{
	return (host & (qcow2_cluster_bytes(&t->g) - 1)) == 0 &&
	       host < atomic_load_explicit(&t->end_bytes, memory_order_relaxed) &&
	       !qcow2_range_is_table(t, host, qcow2_cluster_bytes(&t->g));
}

static bool entry_is_sane(const struct qcow2_tables *t, uint64_t entry, uint64_t bits)
{
	bool with_sub = t->g.l2_entry_bytes == 16;
	uint64_t host = entry & QCOW2_OFFSET_MASK, at, bytes;

	if (entry & QCOW2_COMPRESSED) {
		qcow2_compressed_range(&t->g, entry, &at, &bytes);
		return !(entry & QCOW2_COPIED) && bits == 0 &&
		       at < atomic_load_explicit(&t->end_bytes, memory_order_relaxed);
	}
	if ((entry & QCOW2_L2_RESERVED) || ((entry & QCOW2_ZERO) && (with_sub || t->g.version < 3)))
		return false;
	/*
	 * No subcluster is data and zeroes, and none is data without a cluster; the first one of a
	 * data file lies at 0.
	 */
	if (with_sub &&
	    (((uint32_t)bits & (bits >> 32)) || (host == 0 && (uint32_t)bits && !t->has_data_file)))
		return false;
	return host == 0 || (t->has_data_file ? (host & (qcow2_cluster_bytes(&t->g) - 1)) == 0
					      : host_is_sane(t, host));
}

/* What makes no sense is marked in memory. Returns whether there was any. */
static bool judge_entries(const struct qcow2_tables *t, uint64_t *slice)
{
	unsigned words = t->g.l2_entry_bytes / 8u;
	bool is_bad = false;

	for (unsigned i = 0; i < 1u << t->slice_bits; i++) {
		uint64_t entry = be64toh(slice[i * words]);
		uint64_t bits = words == 2 ? be64toh(slice[i * words + 1]) : 0;

		/* With a data file a cluster may lie at 0 there. */
		if ((entry | bits) == 0 || entry_is_sane(t, entry, bits))
			continue;
		slice[i * words] = htobe64(QCOW2_L2_BAD);
		is_bad = true;
	}
	return is_bad;
}

static bool slot_is_clean(const struct qcow2_slot *slot)
{
	return !atomic_load_explicit(&slot->is_dirty, memory_order_relaxed) && !slot->is_writing;
}

/*
 * A handler needs two slices at once, and perhaps of one set: with fewer that can go they would
 * take each other's place for ever.
 */
static bool has_enough_clean(const struct qcow2_slot *set)
{
	unsigned nr = 0;

	for (unsigned way = 0; way < QCOW2_WAYS; way++)
		nr += slot_is_clean(&set[way]);
	return nr >= 3;
}

/* By a clock: one that was not used since the hand passed last. */
static struct qcow2_slot *slot_to_replace(struct qcow2_slot *set)
{
	if (!has_enough_clean(set))
		return NULL;
	for (unsigned round = 0; round < 2; round++)
		for (unsigned way = 0; way < QCOW2_WAYS; way++) {
			struct qcow2_slot *slot = &set[way];

			if (!slot_is_clean(slot))
				continue;
			if (atomic_load_explicit(&slot->at, memory_order_relaxed) == 0 ||
			    !atomic_load_explicit(&slot->was_used, memory_order_relaxed))
				return slot;
			atomic_store_explicit(&slot->was_used, 0, memory_order_relaxed);
		}
	return NULL;
}

/* For tables that are shared another thread may be at the same slot: only one gets it. */
static bool slot_begin(struct qcow2_slot *slot)
{
	uint32_t seq = atomic_load_explicit(&slot->seq, memory_order_relaxed);

	if ((seq & 1) || !atomic_compare_exchange_strong(&slot->seq, &seq, seq + 1))
		return false;
	qcow2_fence(memory_order_release);
	return true;
}

static void slot_end(struct qcow2_slot *slot)
{
	atomic_fetch_add_explicit(&slot->seq, 1, memory_order_release);
}

/* Words, not bytes: who looks in without the right reads whole ones. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
}

struct qcow2_slot *qcow2_tables_install(struct qcow2_tables *t, uint64_t at, void *slice,
					bool is_l2)
{
	struct qcow2_slot *slot = qcow2_slot_find(t, at);
	/* Before what makes no sense is marked in it. */
	uint32_t sum = t->fd >= 0 && !slot ? qcow2_slice_sum(t, slice) : 0;
	bool is_bad = is_l2 && judge_entries(t, slice);

	if (slot)
		return slot;
	slot = slot_to_replace(qcow2_set_of(t, at));
	if (!slot || !slot_begin(slot))
		return NULL;
	if (atomic_load_explicit(&slot->at, memory_order_relaxed) == 0)
		atomic_fetch_add_explicit(&t->used_nr, 1, memory_order_relaxed);
	atomic_store_explicit(&slot->is_l2, is_l2, memory_order_relaxed);
	slot->is_bad = is_bad;
	slot->disk = sum;
	atomic_store_explicit(&slot->was_used, 1, memory_order_relaxed);
	copy_words(qcow2_slot_data(t, slot), slice, t->slice_bytes);
	atomic_store_explicit(&slot->at, at, memory_order_relaxed);
	slot_end(slot);
	return slot;
}

/* One that is dirty is on its way to a table that is no more: not any longer. */
static void slot_forget(struct qcow2_tables *t, struct qcow2_slot *slot)
{
	unsigned nr = 0;

	if (atomic_load_explicit(&slot->is_dirty, memory_order_relaxed)) {
		for (unsigned i = 0; i < t->dirty_nr; i++)
			if (t->dirty[i] != qcow2_slot_idx(t, slot))
				t->dirty[nr++] = t->dirty[i];
		t->dirty_nr = nr;
	}
	if (!slot_begin(slot))
		return;
	atomic_store_explicit(&slot->at, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->is_dirty, 0, memory_order_relaxed);
	slot_end(slot);
}

void qcow2_tables_forget(struct qcow2_tables *t, uint64_t at)
{
	for (uint64_t done = 0; done < qcow2_cluster_bytes(&t->g); done += t->slice_bytes) {
		struct qcow2_slot *slot = qcow2_slot_find(t, at + done);

		if (slot)
			slot_forget(t, slot);
	}
}
