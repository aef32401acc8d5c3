/*
 * An image is image_opened: a helper reads the key, the control reactor reads the image.
 *
 *   HEADER -> (CREATE: an empty one is written -> HEADER) -> (CRYPTO -> unlock_begin on a helper)
 *   -> SNAPSHOTS -> tables of a process before, or of another device, or L1 -> REFTABLE
 *   -> (CLEAR: what the image said of bitmaps holds no longer) -> done
 *
 * Failure modes: whatever of the image makes no sense is told in words; nothing is written before
 * all has been read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_create.h"
#include "backends/qcow2/qcow2_snapshot_change.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "net/secret_file.h"
#include "reactor/helper.h"

#define OPEN_BUFFER_BYTES 65536u
#define KEY_BYTES_MAX 4096u
#define TABLES_KEY_BYTES (BACKEND_IDENTITY_BYTES + 24)
/* As QEMU's default: L2 tables of 256 GiB with clusters of 64 KiB. */
#define CACHE_DEFAULT "32MiB"
/* A file may become as long as an entry can say. */
#define GROWN_BYTES (1ull << 55)

const struct option qcow2_options[] = {
	{ .name = "cache",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct qcow2_config, cache_bytes),
	  .min = KIB(64),
	  .max = GIB(64),
	  .def = CACHE_DEFAULT,
	  .help = "The most memory for tables of the image: 8 bytes for each cluster that is in "
		  "use, and it is taken when it is used. What the whole disk needs is enough." },
	{ .name = "create",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct qcow2_config, is_created),
	  .help = "Make a new image, of `size`, where `data` begins with zeroes or is empty. One "
		  "that is there already is used as it is." },
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct qcow2_config, size_bytes),
	  .help = "Size of the disk of a new image. Default: that of the backing image." },
	{ .name = "cluster_size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct qcow2_config, cluster_bytes),
	  .min = 1u << QCOW2_CLUSTER_BITS_MIN,
	  .max = 1u << QCOW2_CLUSTER_BITS_MAX,
	  .def = "64KiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "Of a new image: the unit in which space is allocated." },
	{ .name = "extended_l2",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct qcow2_config, with_subclusters),
	  .help = "Of a new image: clusters have 32 parts that are allocated one by one, so that a "
		  "small write over a backing image copies little." },
	{ .name = "key_file",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct qcow2_config, key_file),
	  .help = "File with the passphrase of an encrypted image (LUKS)." },
	{ .name = "snapshot",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct qcow2_config, snapshot),
	  .help = "Read this internal snapshot, by its ID or its name, instead of the disk; "
		  "read-only." },
	OPTION_END,
};

struct qcow2_open {
	struct qcow2_device *d;
	struct backend_visit *visit;
	uint8_t *buf;	       /* OPEN_BUFFER_BYTES */
	uint32_t header_bytes; /* of the image that were read */
	uint8_t *crypto;       /* the LUKS header */
	uint64_t at, end;      /* of what is being read or written */
	uint64_t image_bytes;  /* of a new one */
	bool is_made;
	char *key;
	size_t key_bytes;
	int stored_fd; /* -1: none */
	struct qcow2_create create;
};

static struct qcow2_open *opening_of(struct backend_visit *visit)
{
	struct qcow2_device *d = visit->device->priv;

	return d->opening;
}

static void open_fail(struct qcow2_open *p, int err, const char *words)
{
	if (words)
		backend_fail(p->d->device, err, "%s", words);
	backend_visit_done(p->visit, err);
}

/* ---- requests ---- */

static uint32_t block_bytes(const struct qcow2_open *p)
{
	return p->d->device->open_params.logical_block_bytes;
}

static bool open_io(struct qcow2_open *p, enum backend_op op, uint64_t at, uint64_t bytes,
		    const char *doing, backend_visit_fn *fn)
{
	int ret;

	p->visit->doing = doing;
	ret = backend_visit_io(p->visit, p->d->data_idx, op, at, p->buf, (uint32_t)bytes, fn);
	if (ret < 0)
		open_fail(p, ret, NULL);
	return ret == 0;
}

static uint64_t open_chunk(const struct qcow2_open *p, uint64_t left)
{
	left = MIN(left, (uint64_t)OPEN_BUFFER_BYTES);
	return MIN(left, (uint64_t)p->d->chunk_bytes);
}

/* ---- the end ---- */

static void image_caps(struct qcow2_device *d, struct backend_limits *limits)
{
	limits->caps &= BACKEND_CAP_ROTATIONAL;
	if (d->is_read_only) {
		limits->caps |= BACKEND_CAP_READ_ONLY;
		return;
	}
	limits->caps |= BACKEND_CAP_FLUSH | BACKEND_CAP_FUA;
	if (d->t->has_data_file)
		return;
	limits->caps |= BACKEND_CAP_DISCARD;
	if (d->header.g.version >= 3 || d->backing_bytes == 0)
		limits->caps |= BACKEND_CAP_WRITE_ZEROES;
}

static void image_limits(struct qcow2_device *d)
{
	struct backend_limits *limits = &d->device->limits;
	uint32_t cluster = (uint32_t)qcow2_cluster_bytes(&d->header.g);

	limits->size_bytes = d->header.size_bytes;
	limits->io_opt_bytes = cluster;
	limits->max_discard_bytes = limits->max_write_zeroes_bytes = 0;
	limits->boundary_bytes = 0;
	limits->discard_granularity_bytes = cluster;
	image_caps(d, limits);
}

static void image_opened(struct qcow2_open *p)
{
	struct qcow2_device *d = p->d;

	if (!d->is_read_only) {
		qcow2_tables_filled(d->t);
		d->owner = qcow2_owner_new(d);
		if (!d->owner) {
			open_fail(p, -ENOMEM, "qcow2: out of memory");
			return;
		}
	}
	image_limits(d);
	log_info("image image_opened", "node=%s size_bytes=%llu version=%u cluster_bytes=%llu",
		 d->device->name, (unsigned long long)d->header.size_bytes, d->header.g.version,
		 (unsigned long long)qcow2_cluster_bytes(&d->header.g));
	backend_visit_done(p->visit, 0);
}

/* ---- CLEAR ---- */

static void header_cleared(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);

	if (result < 0)
		open_fail(p, result, "qcow2: the header cannot be written");
	else
		image_opened(p);
}

static void header_read_again(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);

	if (result < 0) {
		open_fail(p, result, NULL);
		return;
	}
	qcow2_header_update(p->buf, &p->d->header);
	open_io(p, BACKEND_WRITE, 0, p->header_bytes, "writing the header", header_cleared);
}

/* Writes do not keep up what others note of an image: they must not trust it any more. */
static void clear_features(struct qcow2_open *p)
{
	struct qcow2_header *h = &p->d->header;
	uint64_t kept = h->autoclear & QCOW2_AUTOCLEAR_RAW_DATA_FILE;

	if (p->d->is_read_only || h->autoclear == kept) {
		image_opened(p);
		return;
	}
	log_info("what the image notes besides its content is not kept up",
		 "node=%s autoclear_bits=0x%llx", p->d->device->name,
		 (unsigned long long)h->autoclear);
	h->autoclear = kept;
	open_io(p, BACKEND_READ, 0, p->header_bytes, "reading the header", header_read_again);
}

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

static void read_reftable(struct qcow2_open *p);

static void reftable_read(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);
	struct qcow2_tables *t = p->d->t;
	uint64_t bytes = open_chunk(p, p->end - p->at);
	const char *words;

	if (result < 0) {
		open_fail(p, result, NULL);
		return;
	}
	words = take_entries(t, t->reftable, (p->at - t->reftable_offset) / 8, t->reftable_entries,
			     (const uint64_t *)p->buf, bytes, judge_block);
	if (words) {
		open_fail(p, -EINVAL, words);
		return;
	}
	p->at += bytes;
	read_reftable(p);
}

static void read_reftable(struct qcow2_open *p)
{
	if (p->at < p->end)
		open_io(p, BACKEND_READ, p->at, open_chunk(p, p->end - p->at),
			"reading the reference count table", reftable_read);
	else
		clear_features(p);
}

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
		image_opened(p);
		return;
	}
	p->at = t->reftable_offset;
	p->end = p->at + (uint64_t)t->reftable_entries * 8;
	read_reftable(p);
}

static void read_l1(struct qcow2_open *p);

static void l1_read(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);
	struct qcow2_tables *t = p->d->t;
	uint64_t bytes = open_chunk(p, p->end - p->at);
	const char *words;

	if (result < 0) {
		open_fail(p, result, NULL);
		return;
	}
	words = take_entries(t, t->l1, (p->at - t->l1_offset) / 8, t->l1_entries,
			     (const uint64_t *)p->buf, bytes, judge_l1);
	if (words) {
		open_fail(p, -EINVAL, words);
		return;
	}
	p->at += bytes;
	read_l1(p);
}

static void read_l1(struct qcow2_open *p)
{
	if (p->at < p->end)
		open_io(p, BACKEND_READ, p->at, open_chunk(p, p->end - p->at),
			"reading the L1 table", l1_read);
	else
		l1_done(p);
}

/* True: there are tables already, of a process before or of another device. */
static bool find_tables(struct qcow2_open *p, char words[static QCOW2_WORDS_BYTES])
{
	struct qcow2_device *d = p->d;
	char key[TABLES_KEY_BYTES];

	if (p->stored_fd >= 0) {
		d->t = qcow2_tables_adopt(&d->header, p->stored_fd, words);
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
		image_opened(p);
		return;
	}
	if (p->stored_fd >= 0 && words[0]) {
		open_fail(p, -EINVAL, words);
		return;
	}
	d->t = qcow2_tables_new(&d->header, config->cache_bytes, !d->is_read_only);
	if (!d->t) {
		open_fail(p, -ENOMEM, "qcow2: out of memory for the tables of the image");
		return;
	}
	fill_tables(p);
	qcow2_tables_set_end(d->t, round_up(d->image_bytes, qcow2_cluster_bytes(&d->header.g)));
	p->at = d->header.l1_offset;
	p->end = p->at + round_up((uint64_t)d->header.l1_entries * 8, block_bytes(p));
	read_l1(p);
}

/* ---- SNAPSHOTS ---- */

static void snapshots_read(struct backend_visit *visit, int ret, const char *words)
{
	struct qcow2_open *p = opening_of(visit);

	if (ret < 0)
		open_fail(p, ret, words[0] ? words : NULL);
	else
		get_tables(p);
}

static void get_snapshots(struct qcow2_open *p)
{
	qcow2_snapshots_read(p->visit, p->buf, OPEN_BUFFER_BYTES, snapshots_read);
}

/* ---- CRYPTO ---- */

struct unlocking {
	struct helper_job job;
	struct qcow2_open *p;
	struct qcow2_luks *luks;
	int ret;
	char words[QCOW2_LUKS_WORDS_BYTES];
};

static void unlock_work(struct helper_job *job)
{
	struct unlocking *u = container_of(job, struct unlocking, job);
	const struct qcow2_open *p = u->p;

	u->ret = qcow2_luks_unlock(&u->luks, p->crypto, p->d->header.crypto_bytes, p->key,
				   p->key_bytes, u->words);
}

static void unlock_done(struct helper_job *job)
{
	struct unlocking *u = container_of(job, struct unlocking, job);
	struct qcow2_open *p = u->p;

	p->d->luks = u->luks;
	if (u->ret < 0)
		open_fail(p, u->ret, u->words);
	else
		get_snapshots(p);
	free(u);
}

static void unlock_begin(struct qcow2_open *p)
{
	struct unlocking *u = calloc(1, sizeof(*u));

	if (!u) {
		open_fail(p, -ENOMEM, "qcow2: out of memory");
		return;
	}
	u->p = p;
	u->job = (struct helper_job){ .work = unlock_work, .done = unlock_done };
	p->visit->doing = "unlocking the image";
	if (p->visit->helpers && helper_start(p->visit->helpers, &u->job) == 0)
		return;
	unlock_work(&u->job);
	unlock_done(&u->job);
}

static void read_crypto(struct qcow2_open *p);

static void crypto_read(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);
	const struct qcow2_header *h = &p->d->header;
	uint64_t bytes = open_chunk(p, p->end - p->at);
	uint64_t done = p->at - h->crypto_offset;

	if (result < 0) {
		open_fail(p, result, NULL);
		return;
	}
	memcpy(p->crypto + done, p->buf, MIN(bytes, h->crypto_bytes - done));
	p->at += bytes;
	read_crypto(p);
}

static void read_crypto(struct qcow2_open *p)
{
	if (p->at < p->end)
		open_io(p, BACKEND_READ, p->at, open_chunk(p, p->end - p->at),
			"reading the LUKS header", crypto_read);
	else
		unlock_begin(p);
}

static void get_crypto(struct qcow2_open *p)
{
	const struct qcow2_header *h = &p->d->header;

	if (h->crypt == QCOW2_CRYPT_NONE) {
		get_snapshots(p);
		return;
	}
	if (!p->key) {
		open_fail(p, -EINVAL,
			  "qcow2: the image is encrypted: set key_file to the file with "
			  "its passphrase");
		return;
	}
	if (h->crypto_bytes > QCOW2_LUKS_BYTES_MAX) {
		open_fail(p, -EINVAL, "qcow2: the LUKS header is too large");
		return;
	}
	p->crypto = malloc(h->crypto_bytes);
	if (!p->crypto) {
		open_fail(p, -ENOMEM, "qcow2: out of memory");
		return;
	}
	p->at = h->crypto_offset;
	p->end = p->at + round_up(h->crypto_bytes, block_bytes(p));
	read_crypto(p);
}

/* ---- HEADER ---- */

static int judge_features(struct qcow2_open *p, char words[static QCOW2_WORDS_BYTES])
{
	struct qcow2_device *d = p->d;
	const struct qcow2_header *h = &d->header;
	bool wants_file = h->incompatible & QCOW2_INCOMPAT_DATA_FILE;

	if (!d->is_read_only && (h->incompatible & QCOW2_INCOMPAT_CORRUPT)) {
		snprintf(
			words, QCOW2_WORDS_BYTES,
			"qcow2: the image is marked corrupt: repair it with qemu-img check -r all, "
			"or open it read_only");
		return -EINVAL;
	}
	if (!d->is_read_only && (h->incompatible & QCOW2_INCOMPAT_DIRTY)) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 "qcow2: the image was not closed and its reference counts are old: repair "
			 "it with qemu-img check -r all");
		return -EINVAL;
	}
	if (wants_file != (d->guest_idx != d->data_idx)) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 wants_file ? "qcow2: the image has its data in another file: set data_file"
				    : "qcow2: data_file is set, but the image has none");
		return -EINVAL;
	}
	if (h->backing_name[0] && d->backing_idx < 0 && !d->ignores_backing) {
		snprintf(
			words, QCOW2_WORDS_BYTES,
			"qcow2: the image stands over \"%.80s\": set backing to it, to auto, or to "
			"none",
			h->backing_name);
		return -EINVAL;
	}
	if (qcow2_cluster_bytes(&h->g) < block_bytes(p)) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 "qcow2: clusters of %llu bytes are smaller than a block of %u: set "
			 "block_size",
			 (unsigned long long)qcow2_cluster_bytes(&h->g), block_bytes(p));
		return -EINVAL;
	}
	return 0;
}

static void read_header(struct qcow2_open *p);

static bool header_is_blank(const struct qcow2_open *p)
{
	for (uint32_t i = 0; i < p->header_bytes; i++)
		if (p->buf[i])
			return false;
	return true;
}

static void write_image(struct qcow2_open *p);

static void image_written(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);

	if (result < 0) {
		open_fail(p, result, "qcow2: the new image cannot be written");
		return;
	}
	p->at += open_chunk(p, p->end - p->at);
	write_image(p);
}

static void image_flushed(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);

	p->is_made = true;
	p->d->image_bytes = MAX(p->d->image_bytes, p->image_bytes);
	if (result < 0)
		open_fail(p, result, "qcow2: the new image cannot be written");
	else
		read_header(p);
}

static void write_image(struct qcow2_open *p)
{
	uint64_t bytes = open_chunk(p, p->end - p->at);

	if (bytes == 0) {
		open_io(p, BACKEND_FLUSH, 0, 0, "flushing the new image", image_flushed);
		return;
	}
	qcow2_create_fill(&p->create, p->at, p->buf, bytes);
	open_io(p, BACKEND_WRITE, p->at, bytes, "writing a new image", image_written);
}

static void make_image(struct qcow2_open *p)
{
	const struct qcow2_config *config = p->d->device->config;
	char words[QCOW2_WORDS_BYTES];
	int ret;

	p->create = (struct qcow2_create){
		.size_bytes = config->size_bytes ? config->size_bytes : p->d->backing_bytes,
		.cluster_bytes = config->cluster_bytes,
		.extended_l2 = config->with_subclusters,
	};
	ret = qcow2_create_check(&p->create, &p->image_bytes, words);
	if (ret == 0 && p->image_bytes > p->d->data_bytes) {
		snprintf(words, sizeof(words),
			 "qcow2: an empty image has %llu bytes, and `data` "
			 "is smaller",
			 (unsigned long long)p->image_bytes);
		ret = -ENOSPC;
	}
	if (ret < 0) {
		open_fail(p, ret, words);
		return;
	}
	p->at = 0;
	p->end = round_up(p->image_bytes, block_bytes(p));
	write_image(p);
}

static void header_read(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = opening_of(visit);
	struct qcow2_device *d = p->d;
	const struct qcow2_config *config = d->device->config;
	char words[QCOW2_WORDS_BYTES] = "";
	int ret = result;

	if (ret == 0 && config->is_created && !p->is_made && !d->is_read_only &&
	    header_is_blank(p)) {
		make_image(p);
		return;
	}
	if (ret == 0)
		ret = qcow2_header_parse(&d->header, p->buf, p->header_bytes,
					 round_up(d->image_bytes, 1u << QCOW2_CLUSTER_BITS_MAX),
					 words);
	if (ret == 0)
		ret = judge_features(p, words);
	if (ret < 0)
		open_fail(p, ret, words[0] ? words : NULL);
	else
		get_crypto(p);
}

static void read_header(struct qcow2_open *p)
{
	p->header_bytes = (uint32_t)MIN(p->d->data_bytes, open_chunk(p, UINT64_MAX));
	open_io(p, BACKEND_READ, 0, p->header_bytes, "reading the header", header_read);
}

/* ---- begin and end ---- */

void qcow2_open_async(struct backend_visit *visit)
{
	struct qcow2_open *p = opening_of(visit);

	p->visit = visit;
	read_header(p);
}

struct backend_device *qcow2_child(const struct backend_device *device, unsigned idx)
{
	struct backend_device *child = device->child;

	while (idx-- > 0)
		child = child->sibling;
	return child;
}

static void find_children(struct qcow2_device *d)
{
	unsigned idx = 0;

	d->backing_idx = -1;
	for (struct backend_device *c = d->device->child; c; c = c->sibling, idx++) {
		if (strcmp(c->as->name, "data") == 0) {
			d->data_idx = d->guest_idx = idx;
		} else if (strcmp(c->as->name, "data_file") == 0) {
			d->guest_idx = idx;
		} else {
			d->backing_idx = (int)idx;
			d->backing_bytes = backend_size(c);
		}
	}
}

static void find_data(struct qcow2_device *d)
{
	struct backend_device *data = qcow2_child(d->device, d->data_idx);
	const struct backend_open_params *params = &d->device->open_params;
	const struct qcow2_config *config = d->device->config;

	d->is_read_only = params->read_only || config->snapshot || (data->limits.caps & BACKEND_CAP_READ_ONLY);
	d->image_bytes = d->data_bytes = backend_size(data);
	d->data_grows = !d->is_read_only && (data->limits.caps & BACKEND_CAP_GROWS);
	if (d->data_grows) {
		d->data_bytes = GROWN_BYTES;
		backend_set_size(data, GROWN_BYTES);
	}
	d->chunk_bytes = QCOW2_OWN_BYTES;
	if (params->max_io_bytes)
		d->chunk_bytes = MIN(d->chunk_bytes, params->max_io_bytes);
}

static int read_key(struct qcow2_device *d, struct qcow2_open *p)
{
	const struct qcow2_config *config = d->device->config;
	size_t bytes;
	ssize_t n;
	int fd;

	if (!config->key_file)
		return 0;
	fd = secret_file_open(config->key_file, FILE_SECRET, &bytes, d->device->error,
			      sizeof(d->device->error));
	if (fd < 0)
		return fd;
	p->key = mmap(NULL, KEY_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	n = p->key == MAP_FAILED ? -1 : read(fd, p->key, KEY_BYTES_MAX);
	close(fd);
	if (p->key == MAP_FAILED)
		p->key = NULL;
	if (n < 0 || n == KEY_BYTES_MAX)
		return backend_fail(d->device, -EINVAL,
				    "qcow2: key_file cannot be read, or is longer "
				    "than %u bytes",
				    KEY_BYTES_MAX);
	madvise(p->key, KEY_BYTES_MAX, MADV_DONTDUMP);
	/* An editor's line end is no part of a passphrase. */
	while (n > 0 && (p->key[n - 1] == '\n' || p->key[n - 1] == '\r'))
		n--;
	p->key_bytes = (size_t)n;
	return 0;
}

int qcow2_open(struct backend_device *device)
{
	struct qcow2_device *d = device->priv;
	struct qcow2_open *p = calloc(1, sizeof(*p));
	int ret;

	d->device = device;
	d->opening = p;
	if (!p)
		return -ENOMEM;
	p->d = d;
	p->stored_fd = -1;
	find_children(d);
	find_data(d);
	if (device->open_params.stored_fd > 0)
		p->stored_fd = fcntl(device->open_params.stored_fd, F_DUPFD_CLOEXEC, 3);
	p->buf = aligned_alloc(4096, OPEN_BUFFER_BYTES);
	if (!p->buf)
		return -ENOMEM;
	ret = read_key(d, p);
	return ret;
}

void qcow2_opening_free(struct qcow2_device *d)
{
	struct qcow2_open *p = d->opening;

	if (!p)
		return;
	if (p->key) {
		explicit_bzero(p->key, KEY_BYTES_MAX);
		munmap(p->key, KEY_BYTES_MAX);
	}
	if (p->stored_fd >= 0)
		close(p->stored_fd);
	free(p->crypto);
	free(p->buf);
	free(p);
	d->opening = NULL;
}
