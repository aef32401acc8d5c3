/*
 * A new image is written where `data` has none, by requests of the open. The control reactor.
 *
 * Happy path: all but the first cluster -> flush -> the first cluster -> flush. So whatever has a
 * header is whole, and what power leaves without one is made again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/qcow2/qcow2_opening.h"
#include "base/util.h"

#define BLANK_BYTES 512u

static void write_image(struct qcow2_open *p);

/* The first cluster. */
static uint64_t first_bytes(const struct qcow2_open *p)
{
	return round_up(p->create.cluster_bytes, (uint64_t)qcow2_open_block(p));
}

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

	if (result < 0) {
		qcow2_open_fail(p, result, "qcow2: the new image cannot be written");
		return;
	}
	if (!p->has_tables) {
		p->has_tables = true;
		p->at = 0;
		p->end = first_bytes(p);
		write_image(p);
		return;
	}
	p->is_made = true;
	p->d->image_bytes = MAX(p->d->image_bytes, p->image_bytes);
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

/* What the configuration asks for; as qcow2_create_check. */
static int choose_shape(struct qcow2_open *p, char words[static QCOW2_WORDS_BYTES])
{
	const struct qcow2_config *config = p->d->device->config;

	p->create = (struct qcow2_create){
		.size_bytes = config->size_bytes ? config->size_bytes : p->d->backing_bytes,
		.cluster_bytes = config->cluster_bytes,
		.extended_l2 = config->with_subclusters,
	};
	return qcow2_create_check(&p->create, &p->image_bytes, words);
}

static bool is_zeroes(const uint8_t sector[static BLANK_BYTES])
{
	static const uint8_t zeroes[BLANK_BYTES];

	return memcmp(sector, zeroes, BLANK_BYTES) == 0;
}

bool qcow2_open_begins_blank(const struct qcow2_open *p)
{
	return is_zeroes(p->buf);
}

bool qcow2_open_is_blank(struct qcow2_open *p)
{
	uint8_t wanted[BLANK_BYTES];
	char words[QCOW2_WORDS_BYTES];
	bool has_shape = choose_shape(p, words) == 0;

	for (uint32_t at = 0; at < p->header_bytes; at += BLANK_BYTES) {
		if (is_zeroes(p->buf + at))
			continue;
		if (at == 0 || !has_shape)
			return false;
		qcow2_create_fill(&p->create, at, wanted, BLANK_BYTES);
		if (memcmp(p->buf + at, wanted, BLANK_BYTES) != 0)
			return false;
	}
	return true;
}

void qcow2_open_make(struct qcow2_open *p)
{
	char words[QCOW2_WORDS_BYTES];
	int ret = choose_shape(p, words);

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
	p->at = first_bytes(p);
	p->end = round_up(p->image_bytes, qcow2_open_block(p));
	write_image(p);
}
