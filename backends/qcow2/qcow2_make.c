/*
 * A new image is written where `data` has none: by requests of the open, from its start to its end,
 * and flushed. The control reactor.
 */
#include <errno.h>
#include <stdio.h>

#include "backends/qcow2/qcow2_opening.h"
#include "base/util.h"

static void write_image(struct qcow2_open *p);

static void image_written(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	if (result < 0) {
		qcow2_open_fail(p, result, "qcow2: the new image cannot be written");
		return;
	}
	p->at += qcow2_open_chunk(p, p->end - p->at);
	write_image(p);
}

static void image_flushed(struct backend_visit *visit, int result)
{
	struct qcow2_open *p = qcow2_opening_of(visit);

	p->is_made = true;
	p->d->image_bytes = MAX(p->d->image_bytes, p->image_bytes);
	if (result < 0)
		qcow2_open_fail(p, result, "qcow2: the new image cannot be written");
	else
		qcow2_open_again(p);
}

static void write_image(struct qcow2_open *p)
{
	uint64_t bytes = qcow2_open_chunk(p, p->end - p->at);

	if (bytes == 0) {
		qcow2_open_io(p, BACKEND_FLUSH, 0, 0, "flushing the new image", image_flushed);
		return;
	}
	qcow2_create_fill(&p->create, p->at, p->buf, bytes);
	qcow2_open_io(p, BACKEND_WRITE, p->at, bytes, "writing a new image", image_written);
}

void qcow2_open_make(struct qcow2_open *p)
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
		qcow2_open_fail(p, ret, words);
		return;
	}
	p->at = 0;
	p->end = round_up(p->image_bytes, qcow2_open_block(p));
	write_image(p);
}
