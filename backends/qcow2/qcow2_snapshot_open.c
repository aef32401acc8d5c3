/*
 * The table of snapshots is read when an image is opened, and the one that is wanted takes the
 * place of the disk. Control reactor, by the visit that opens.
 *
 * Happy path: read, chunk by chunk, until all entries are there -> `snapshot`: its L1 table and its
 * size become the header's.
 * Failure modes: no such snapshot: the names that there are; a table that makes no sense: refused,
 * but for an image that is only read, and not by its snapshot: that is told in the log.
 */
#include "backends/qcow2/qcow2_snapshot_change.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/printable.h"
#include "base/util.h"

struct qcow2_snapshots_reader {
	struct backend_visit *visit;
	uint8_t *buf;
	uint32_t buf_bytes;
	uint64_t at;
	void (*done)(struct backend_visit *visit, int ret, const char *words);
};

static struct qcow2_device *reader_device(const struct qcow2_snapshots_reader *r)
{
	return r->visit->device->priv;
}

static const char *wanted_snapshot(const struct qcow2_device *d)
{
	const struct qcow2_config *config = d->device->config;

	return config->snapshot;
}

static int choose_snapshot(struct qcow2_device *d, const char *name,
			   char words[static QCOW2_WORDS_BYTES])
{
	int idx = qcow2_snapshots_find(d->snapshots, name);
	const struct qcow2_snapshot *s;
	char names[100];

	if (idx < 0) {
		qcow2_snapshots_names(d->snapshots, names, sizeof(names));
		snprintf(words, QCOW2_WORDS_BYTES,
			 "qcow2: the image has no snapshot \"%.*s\"; it has: %s",
			 utf8_fit(name, 40), name, names);
		return -ENOENT;
	}
	s = &d->snapshots->entry[idx];
	if (s->l1_offset + (uint64_t)s->l1_entries * 8 >
	    round_up(d->image_bytes, qcow2_cluster_bytes(&d->header.g))) {
		snprintf(words, QCOW2_WORDS_BYTES,
			 "qcow2: the L1 table of snapshot \"%.*s\" lies outside of the image",
			 utf8_fit(name, 60), name);
		return -EINVAL;
	}
	d->header.l1_offset = s->l1_offset;
	d->header.l1_entries = s->l1_entries;
	d->header.size_bytes = s->size_bytes;
	return 0;
}

static void read_end(struct qcow2_snapshots_reader *r, int ret, char *words)
{
	struct qcow2_device *d = reader_device(r);
	const char *wanted = wanted_snapshot(d);
	void (*done)(struct backend_visit *, int, const char *) = r->done;
	struct backend_visit *visit = r->visit;

	d->snapshots_reader = NULL;
	free(r);
	if (ret < 0) {
		qcow2_snapshots_free(d->snapshots);
		d->snapshots = NULL;
	}
	if (ret < 0 && ret != -ECANCELED && d->is_read_only && !wanted) {
		log_warn("the snapshots of the image cannot be read", "node=%s error=\"%s\"",
			 d->device->name, words);
		ret = 0;
	}
	if (ret == 0 && wanted)
		ret = choose_snapshot(d, wanted, words);
	done(visit, ret, words);
}

static void read_table(struct qcow2_snapshots_reader *r);

static uint32_t reader_bytes(const struct qcow2_snapshots_reader *r)
{
	const struct qcow2_device *d = reader_device(r);
	uint64_t bytes = MIN(r->buf_bytes, d->chunk_bytes);

	return r->at < d->data_bytes ? (uint32_t)MIN(bytes, d->data_bytes - r->at) : 0;
}

static void table_read(struct backend_visit *visit, int result)
{
	struct qcow2_device *d = visit->device->priv;
	struct qcow2_snapshots_reader *r = d->snapshots_reader;
	char words[QCOW2_WORDS_BYTES] = "";
	uint32_t bytes = reader_bytes(r);
	int ret = result;

	if (ret == 0)
		ret = qcow2_snapshots_feed(d->snapshots, &d->header, r->buf, bytes, words);
	r->at += bytes;
	if (ret == -EAGAIN)
		read_table(r);
	else
		read_end(r, ret, words);
}

static void read_table(struct qcow2_snapshots_reader *r)
{
	char words[QCOW2_WORDS_BYTES] = "";
	int ret;

	if (reader_bytes(r) == 0) {
		snprintf(words, sizeof(words),
			 "qcow2: the table of internal snapshots goes on beyond the end of the "
			 "image");
		read_end(r, -EINVAL, words);
		return;
	}
	r->visit->doing = "reading the table of snapshots";
	ret = backend_visit_io(r->visit, reader_device(r)->data_idx, BACKEND_READ, r->at, r->buf,
			       reader_bytes(r), table_read);
	if (ret < 0)
		read_end(r, ret, words);
}

void qcow2_snapshots_read(struct backend_visit *visit, void *buf, uint32_t buf_bytes,
			  void (*done)(struct backend_visit *visit, int ret, const char *words))
{
	struct qcow2_device *d = visit->device->priv;
	struct qcow2_snapshots_reader *r = calloc(1, sizeof(*r));
	char words[QCOW2_WORDS_BYTES] = "qcow2: out of memory";

	if (!r) {
		done(visit, -ENOMEM, words);
		return;
	}
	*r = (struct qcow2_snapshots_reader){ .visit = visit,
					      .buf = buf,
					      .buf_bytes = buf_bytes,
					      .at = d->header.snapshots_offset,
					      .done = done };
	if (d->header.snapshot_nr == 0) {
		read_end(r, 0, words);
		return;
	}
	d->snapshots = calloc(1, sizeof(*d->snapshots));
	d->snapshots_reader = r;
	if (d->snapshots)
		read_table(r);
	else
		read_end(r, -ENOMEM, words);
}
