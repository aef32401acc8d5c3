/*
 * An image is opened: a helper reads the key, the control reactor reads the image.
 *
 *   HEADER -> (an empty one is written: qcow2_make.c -> HEADER)
 *   -> (reference counts are made anew: qcow2_rebuild.c -> HEADER)
 *   -> SNAPSHOTS -> tables of a process before, or of another device, or L1 -> REFTABLE
 *   -> (its base is noted: qcow2_base.c)
 *   -> (MARK: qcow2_mark.c, where the image is written) -> done
 *
 * Failure modes: whatever of the image makes no sense is told in words; nothing is written before
 * all has been read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/qcow2/qcow2_opening.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/util.h"
#include "storage/resize.h"

/* A file may become as long as an entry can say. */
#define GROWN_BYTES (1ull << 55)

struct qcow2_open *qcow2_opening_of(struct backend_visit *visit)
{
	struct qcow2_device *d = visit->device->priv;

	return d->opening;
}

void qcow2_open_fail(struct qcow2_open *p, int err, const char *words)
{
	if (words)
		backend_fail(p->d->device, err, "%s", words);
	backend_visit_done(p->visit, err);
}

/* ---- requests ---- */

uint32_t qcow2_open_block(const struct qcow2_open *p)
{
	return p->d->device->open_params.logical_block_bytes;
}

bool qcow2_open_io(struct qcow2_open *p, enum backend_op op, uint64_t at, uint64_t bytes,
		   const char *doing, backend_visit_fn *fn)
{
	int ret;

	p->visit->doing = doing;
	ret = backend_visit_io(p->visit, p->d->data_idx, op, at, p->buf, (uint32_t)bytes, fn);
	if (ret < 0)
		qcow2_open_fail(p, ret, NULL);
	return ret == 0;
}

static void image_header_came(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	if (result < 0)
		qcow2_open_fail(p, result, NULL);
	else
		p->headed(p);
}

void qcow2_open_get_header(struct qcow2_open *p, void (*then)(struct qcow2_open *p))
{
	p->headed = then;
	qcow2_open_io(p, BACKEND_READ, 0, p->header_bytes, "reading the header", image_header_came);
}

static void image_header_flushed(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	if (result < 0)
		qcow2_open_fail(p, result, "qcow2: the header cannot be written");
	else
		p->headed(p);
}

static void image_header_written(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	if (result < 0)
		qcow2_open_fail(p, result, "qcow2: the header cannot be written");
	else
		qcow2_open_io(p, BACKEND_FLUSH, 0, 0, "flushing the header", image_header_flushed);
}

void qcow2_open_put_header(struct qcow2_open *p, uint64_t bytes, void (*then)(struct qcow2_open *p))
{
	p->headed = then;
	qcow2_open_io(p, BACKEND_WRITE, 0, bytes, "writing the header", image_header_written);
}

uint64_t qcow2_open_chunk(const struct qcow2_open *p, uint64_t left)
{
	left = MIN(left, (uint64_t)QCOW2_OPEN_BUFFER_BYTES);
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

	/* A cluster is what is taken at a time, no size to gather writes for. */
	limits->io_opt_bytes = 0;
	limits->max_discard_bytes = limits->max_write_zeroes_bytes = 0;
	limits->boundary_bytes = 0;
	limits->discard_granularity_bytes = cluster;
	image_caps(d, limits);
	backend_set_found_size(d->device, d->header.size_bytes);
}

void qcow2_open_done(struct qcow2_open *p)
{
	struct qcow2_device *d = p->d;

	if (!d->is_read_only) {
		qcow2_tables_filled(d->t);
		d->owner = qcow2_owner_new(d);
		if (!d->owner) {
			qcow2_open_fail(p, -ENOMEM, "qcow2: out of memory");
			return;
		}
		/* A process has died between a loss and what follows from it. */
		if (qcow2_undo_is_wanted(&d->owner->commit))
			qcow2_undo_run(&d->owner->commit);
	}
	image_limits(d);
	log_info("image opened", "node=%s size_bytes=%llu version=%u cluster_bytes=%llu",
		 d->device->name, (unsigned long long)d->header.size_bytes, d->header.g.version,
		 (unsigned long long)qcow2_cluster_bytes(&d->header.g));
	backend_visit_done(p->visit, 0);
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
	if (wants_file != (d->guest_idx != d->data_idx)) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 wants_file ? "qcow2: the image has its data in another file: set data_file"
				    : "qcow2: data_file is set, but the image has none");
		return -EINVAL;
	}
	if (h->backing_name[0] && d->backing_idx < 0 && !d->ignores_backing) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 "qcow2: the image stands over \"%.*s\": set backing to it, to auto, or to "
			 "none",
			 utf8_fit(h->backing_name, 80), h->backing_name);
		return -EINVAL;
	}
	if (qcow2_cluster_bytes(&h->g) < qcow2_open_block(p)) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 "qcow2: clusters of %llu bytes are smaller than a block of %u: set "
			 "block_size",
			 (unsigned long long)qcow2_cluster_bytes(&h->g), qcow2_open_block(p));
		return -EINVAL;
	}
	return 0;
}

/* The magic is missing: what else is there, in words that say what to do; or as they are. */
static void explain_zeroes(const struct qcow2_open *p, char words[static QCOW2_WORDS_BYTES])
{
	const struct qcow2_config *config = p->d->device->config;

	if (p->d->is_read_only || !qcow2_open_begins_blank(p))
		return;
	snprintf(words, QCOW2_WORDS_BYTES,
		 config->is_created
			 ? "qcow2: `data` begins with zeroes, but is not empty: remove what is in "
			   "it, for a new image"
			 : "qcow2: `data` begins with zeroes: set create: true for a new image");
}

static void header_read(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);
	struct qcow2_device *d = p->d;
	const struct qcow2_config *config = d->device->config;
	char words[QCOW2_WORDS_BYTES] = "";
	int ret = result;

	if (ret == 0 && config->is_created && !p->is_made && !d->is_read_only &&
	    qcow2_open_is_blank(p)) {
		qcow2_open_make(p);
		return;
	}
	if (ret == 0) {
		ret = qcow2_header_parse(&d->header, p->buf, p->header_bytes,
					 round_up(d->image_bytes, 1u << QCOW2_CLUSTER_BITS_MAX),
					 words);
		if (ret < 0)
			explain_zeroes(p, words);
	}
	if (ret == 0)
		ret = judge_features(p, words);
	if (ret == 0)
		qcow2_open_saw_header(p);
	if (ret == 0)
		ret = qcow2_base_judge(p);
	if (ret < 0)
		qcow2_open_fail(p, ret, words[0] ? words : NULL);
	else if (!d->is_read_only && p->stored_fd < 0 && qcow2_rebuild_is_wanted(p))
		qcow2_rebuild_begin(p);
	else
		qcow2_open_crypto(p);
}

void qcow2_open_again(struct qcow2_open *p)
{
	p->header_bytes = (uint32_t)MIN(p->d->data_bytes, qcow2_open_chunk(p, UINT64_MAX));
	qcow2_open_io(p, BACKEND_READ, 0, p->header_bytes, "reading the header", header_read);
}

/* ---- begin and end ---- */

void qcow2_open_async(struct backend_visit *visit)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	p->visit = visit;
	qcow2_open_again(p);
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
	const char *word = qcow2_backing_word(d->device->spec);
	unsigned idx = 0;

	d->backing_idx = -1;
	d->ignores_backing = word && strcmp(word, "none") == 0;
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

	d->is_read_only = params->read_only || config->snapshot ||
			  (data->limits.caps & BACKEND_CAP_READ_ONLY);
	d->image_bytes = d->data_bytes = backend_size(data);
	d->data_grows = !d->is_read_only && (data->limits.caps & BACKEND_CAP_GROWS);
	if (d->data_grows) {
		d->data_bytes = GROWN_BYTES;
		backend_set_size(data, GROWN_BYTES);
	}
	data = qcow2_child(d->device, d->guest_idx);
	if (!d->is_read_only && (data->limits.caps & BACKEND_CAP_GROWS))
		backend_set_size(data, GROWN_BYTES);
	d->guest_bytes = backend_size(data);
	atomic_store(&d->is_spread, params->queue_nr > 1);
	d->chunk_bytes = QCOW2_OWN_BYTES;
	if (params->max_io_bytes)
		d->chunk_bytes = MIN(d->chunk_bytes, params->max_io_bytes);
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
	p->buf = aligned_alloc(4096, QCOW2_OPEN_BUFFER_BYTES);
	if (!p->buf)
		return -ENOMEM;
	ret = qcow2_open_key(d, p);
	return ret;
}

void qcow2_opening_free(struct qcow2_device *d)
{
	struct qcow2_open *p = d->opening;

	if (!p)
		return;
	qcow2_open_key_free(p);
	qcow2_rebuild_free(p);
	if (p->stored_fd >= 0)
		close(p->stored_fd);
	free(p->crypto);
	free(p->buf);
	free(p);
	d->opening = NULL;
}
