/* The medium of cuts_disk.h: what is durable, what is read now, and the writes in between. */
#include "test/cuts/cuts_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/crc32c.h"

#define GARBAGE 0xa5

/* ---- the medium ---- */

static void make_durable(struct disk *d, const struct disk_done *w)
{
	memcpy(d->durable + w->at, d->log + w->log_at, w->bytes);
	d->durable_size = MAX(d->durable_size, w->at + w->bytes);
}

/* The oldest ones: they are in the order of their ends. */
static void forget_done(struct disk *d, unsigned nr)
{
	uint32_t log_at = nr < d->done_nr ? d->done[nr].log_at : d->log_bytes;

	if (nr == 0)
		return;
	d->done_nr -= nr;
	d->log_bytes -= log_at;
	memmove(d->done, d->done + nr, d->done_nr * sizeof(*d->done));
	memmove(d->log, d->log + log_at, d->log_bytes);
	for (unsigned i = 0; i < d->done_nr; i++)
		d->done[i].log_at -= log_at;
}

/* A cache writes back whenever it likes. */
static void make_room(struct disk *d, uint32_t bytes)
{
	unsigned nr = 0;

	if (d->done_nr < DISK_DONE_NR && d->log_bytes + bytes <= DISK_LOG_BYTES)
		return;
	for (; nr < d->done_nr / 2 + 1 && nr < d->done_nr; nr++)
		make_durable(d, &d->done[nr]);
	forget_done(d, nr);
}

static void land(struct disk *d, uint64_t at, const uint8_t *data, uint32_t bytes)
{
	struct disk_done *w;

	memcpy(d->now + at, data, bytes);
	d->size = MAX(d->size, at + bytes);
	if (d->is_plain) {
		d->durable_size = d->size;
		return;
	}
	make_room(d, bytes);
	w = &d->done[d->done_nr++];
	*w = (struct disk_done){
		.at = at, .bytes = bytes, .end_seq = ++d->seq, .log_at = d->log_bytes
	};
	memcpy(d->log + d->log_bytes, data, bytes);
	d->log_bytes += bytes;
}

static void land_in_part(struct disk *d, uint64_t at, const uint8_t *data, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += SECTOR_BYTES)
		if (prng_one_in(d->prng, 2))
			land(d, at + i, data + i, SECTOR_BYTES);
}

/* The bytes may be taken at any moment until the end. */
static void land_write(struct disk *d, struct disk_flight *f, struct backend_io *io, bool in_part)
{
	for (uint32_t i = 0; io && i < f->bytes; i += SECTOR_BYTES)
		if (prng_one_in(d->prng, 2))
			ASSERT(backend_data_get(io, i, f->data + i, SECTOR_BYTES) == 0);
	if (in_part)
		land_in_part(d, f->at, f->data, f->bytes);
	else
		land(d, f->at, f->data, f->bytes);
}

/* Undefined until written. */
static void land_discard(struct disk *d, uint64_t at, uint64_t bytes, bool in_part)
{
	static uint8_t data[CUTS_IO_BYTES];
	unsigned how = (unsigned)prng_below(d->prng, 3);

	memset(data, how == 1 ? 0 : GARBAGE, sizeof(data));
	for (uint64_t done = 0; how > 0 && done < bytes && at + done < d->size;) {
		uint64_t left = MIN(bytes - done, d->size - at - done);
		uint32_t now = (uint32_t)MIN(left, sizeof(data));

		if (in_part)
			land_in_part(d, at + done, data, now);
		else
			land(d, at + done, data, now);
		done += now;
	}
}

static void flush_ended(struct disk *d, const struct disk_flight *f)
{
	unsigned nr = 0;

	for (; nr < d->done_nr && d->done[nr].end_seq < f->since; nr++)
		make_durable(d, &d->done[nr]);
	forget_done(d, nr);
	d->flush_nr++;
}

/*
 * What was not durable is lost, but for some of it. Half of the time all goes on being read as if
 * it were there, as from a page cache whose writing has failed: only a cut tells.
 */
static void lose(struct disk *d)
{
	bool is_read = !d->lost_is_gone && prng_one_in(d->prng, 2);
	unsigned kept_one_in = (unsigned)prng_below(d->prng, 4), nr = 0;

	for (unsigned i = 0; i < d->done_nr && !is_read; i++)
		memcpy(d->now + d->done[i].at, d->durable + d->done[i].at, d->done[i].bytes);
	for (unsigned i = 0; i < d->done_nr; i++) {
		const struct disk_done *w = &d->done[i];

		if (!prng_one_in(d->prng, kept_one_in))
			continue;
		if (!is_read)
			memcpy(d->now + w->at, d->log + w->log_at, w->bytes);
		d->done[nr++] = *w;
	}
	d->done_nr = nr;
}

/* ---- requests ---- */

static bool is_full(const struct disk *d, const struct disk_flight *f)
{
	return f->op == BACKEND_WRITE && f->at + f->bytes > d->capacity;
}

static int error_for(struct disk *d, const struct disk_flight *f)
{
	if (is_full(d, f)) {
		d->has_failed = true;
		return -ENOSPC;
	}
	if (f->op == BACKEND_FLUSH && prng_one_in(d->prng, d->flush_error_one_in)) {
		lose(d);
		d->has_failed = true;
		return -EIO;
	}
	if (!prng_one_in(d->prng, d->error_one_in))
		return 0;
	d->has_failed = true;
	return prng_one_in(d->prng, 3) ? -ENOSPC : -EIO;
}

static void flight_free(struct disk *d, struct disk_flight *f)
{
	f->is_used = false;
	d->flight_nr--;
	d->flush_flight_nr -= f->op == BACKEND_FLUSH;
}

static void tell_flush_failed(struct disk *d)
{
	if (d->on_flush_failed)
		d->on_flush_failed(d->on_flush_failed_arg);
}

/* Its effect; the flight is free then. */
static int flight_end(struct disk *d, struct disk_flight *f, int result)
{
	if (result == 0)
		result = error_for(d, f);
	flight_free(d, f);
	switch (f->op) {
	case BACKEND_READ:
		disk_get(d, f->at, f->data, f->bytes);
		ASSERT(backend_data_put(f->io, 0, f->data, f->bytes) == 0);
		break;
	case BACKEND_WRITE:
		d->header_nr += f->at == 0;
		if (!is_full(d, f))
			land_write(d, f, f->io, result < 0);
		break;
	case BACKEND_DISCARD:
		land_discard(d, f->at, f->bytes, result < 0);
		break;
	case BACKEND_FLUSH:
		if (result == 0)
			flush_ended(d, f);
		else if (result != -ECANCELED)
			tell_flush_failed(d);
		break;
	default:
		ASSERT(!"not of this disk");
	}
	return result;
}

static struct disk_flight *flight_begin(struct disk *d, struct backend_io *io)
{
	struct disk_flight *f = d->flight;

	ASSERT(d->flight_nr < DISK_FLIGHT_NR);
	ASSERT(io->op > BACKEND_WRITE || io->length_bytes <= sizeof(f->data));
	while (f->is_used)
		f++;
	f->is_used = true;
	f->is_slow = io->op <= BACKEND_WRITE && prng_one_in(d->prng, 8);
	f->op = io->op;
	f->at = io->offset_bytes;
	f->bytes = io->length_bytes;
	f->since = ++d->seq;
	f->io = io;
	if (io->op == BACKEND_WRITE)
		ASSERT(backend_data_get(io, 0, f->data, io->length_bytes) == 0);
	d->write_nr += io->op == BACKEND_WRITE || io->op == BACKEND_DISCARD;
	d->read_bytes += io->op == BACKEND_READ ? io->length_bytes : 0;
	d->flight_nr++;
	d->flush_flight_nr += io->op == BACKEND_FLUSH;
	return f;
}

static struct disk *disk_of(const struct backend_io *io)
{
	const struct disk_config *config = io->queue->device->config;

	return config->disk;
}

static enum backend_submit disk_submit(struct backend_io *io)
{
	struct disk *d = disk_of(io);
	struct disk_flight *f;

	if (io->queue->inflight > 0 && prng_one_in(d->prng, d->busy_one_in))
		return BACKEND_BUSY;
	f = flight_begin(d, io);
	if (!d->is_plain && !prng_one_in(d->prng, d->sync_one_in))
		return BACKEND_QUEUED;
	io->result = flight_end(d, f, 0);
	return BACKEND_DONE;
}

static void end_flight(struct disk *d, struct disk_flight *f, int result)
{
	struct backend_io *io = f->io;

	backend_io_complete(io, flight_end(d, f, result));
}

static void disk_cancel(struct backend_io *io)
{
	struct disk *d = disk_of(io);

	for (unsigned i = 0; i < DISK_FLIGHT_NR; i++)
		if (d->flight[i].is_used && d->flight[i].io == io && prng_one_in(d->prng, 2)) {
			d->has_failed = true;
			end_flight(d, &d->flight[i], -ECANCELED);
			return;
		}
}

bool disk_end_one(struct disk *d)
{
	unsigned nr = d->flight_nr, beside_nr = d->beside ? d->beside->flight_nr : 0;

	if (nr + beside_nr == 0)
		return false;
	nr = (unsigned)prng_below(d->prng, nr + beside_nr);
	if (nr >= d->flight_nr)
		return disk_end_one(d->beside);
	for (unsigned i = 0; i < DISK_FLIGHT_NR; i++)
		if (d->flight[i].is_used && nr-- == 0) {
			if (!d->flight[i].is_slow || prng_one_in(d->prng, 16))
				end_flight(d, &d->flight[i], 0);
			return true;
		}
	ASSERT(!"flight_nr is wrong");
	return false;
}

uint64_t disk_moment(const struct disk *d)
{
	return d->seq + (d->beside ? d->beside->seq : 0);
}

bool disk_is_flushing(const struct disk *d)
{
	return (d->flush_flight_nr > 0 && d->done_nr > 0) ||
	       (d->beside && disk_is_flushing(d->beside));
}

/* ---- its life ---- */

static void disk_sum_words(const struct disk *d, const char *by, char words[BACKEND_VERSION_BYTES])
{
	snprintf(words, BACKEND_VERSION_BYTES, "%.40s%08x", by, crc32c(0, d->now, d->capacity));
}

void disk_begin_version(struct disk *d)
{
	uint32_t content = crc32c(0, d->now, d->capacity);

	if (!d->found[0] || content != d->content)
		disk_sum_words(d, d->ours, d->found);
	d->content = content;
	snprintf(d->ours, sizeof(d->ours), "o%u.", ++d->opening_nr);
}

static void disk_version_found(const struct backend_device *device, struct backend_version *ret)
{
	const struct disk *d = ((const struct disk_config *)device->config)->disk;

	ret->kind = d->version_kind;
	if (d->version_kind == BACKEND_VERSION_NOW) {
		snprintf(ret->found, sizeof(ret->found), "%08x", d->content);
	} else if (d->version_kind == BACKEND_VERSION_LASTING) {
		memcpy(ret->found, d->found, sizeof(ret->found));
		memcpy(ret->ours, d->ours, sizeof(ret->ours));
		ret->is_known_now = d->is_known_now;
	}
}

static int disk_version_now(const struct backend_device *device, char words[BACKEND_VERSION_BYTES])
{
	const struct disk *d = ((const struct disk_config *)device->config)->disk;

	if (d->version_kind == BACKEND_VERSION_NOW)
		disk_sum_words(d, "", words);
	else if (crc32c(0, d->now, d->capacity) == d->content)
		memcpy(words, d->found, sizeof(d->found));
	else
		disk_sum_words(d, d->ours, words);
	return 0;
}

static const struct backend_version_ops disk_version = { .found = disk_version_found,
							 .now = disk_version_now };

static int disk_open(struct backend_device *device)
{
	const struct disk_config *config = device->config;
	struct disk *d = config->disk;

	if (d->version_kind != BACKEND_VERSION_NONE)
		disk_begin_version(d);
	device->limits = (struct backend_limits){
		.size_bytes = d->grows ? round_down(d->size, SECTOR_BYTES) : d->capacity,
		.caps = BACKEND_CAP_FLUSH,
	};
	if (d->is_read_only)
		device->limits.caps |= BACKEND_CAP_READ_ONLY;
	if (d->grows)
		device->limits.caps |= BACKEND_CAP_GROWS;
	if (d->can_discard)
		device->limits.caps |= BACKEND_CAP_DISCARD;
	return 0;
}

const struct backend cuts_disk_backend = {
	.name = "cuts_disk",
	.config_bytes = sizeof(struct disk_config),
	.open = disk_open,
	.version = &disk_version,
	.submit = disk_submit,
	.cancel = disk_cancel,
};

const struct backend cuts_mover_backend = {
	.name = "cuts_mover",
	.config_bytes = sizeof(struct disk_config),
	.data = BACKEND_DATA_MOVES,
	.open = disk_open,
	.submit = disk_submit,
	.cancel = disk_cancel,
};

struct disk *disk_new(struct prng *prng, uint64_t capacity, bool grows, bool is_plain)
{
	struct disk *d = cuts_shared_alloc(sizeof(*d));

	d->prng = prng;
	d->capacity = capacity;
	d->grows = grows;
	d->is_plain = is_plain;
	d->now = cuts_shared_alloc(capacity);
	d->durable = is_plain ? d->now : cuts_shared_alloc(capacity);
	d->log = is_plain ? NULL : cuts_shared_alloc(DISK_LOG_BYTES);
	if (!grows) {
		memset(d->now, GARBAGE, capacity);
		memset(d->durable, GARBAGE, capacity);
		d->size = d->durable_size = capacity;
	}
	return d;
}

void disk_free(struct disk *d)
{
	if (d->beside)
		disk_free(d->beside);
	if (!d->is_plain) {
		cuts_shared_free(d->durable, d->capacity);
		cuts_shared_free(d->log, DISK_LOG_BYTES);
	}
	cuts_shared_free(d->now, d->capacity);
	cuts_shared_free(d, sizeof(*d));
}

void disk_put(struct disk *d, uint64_t at, const void *from, size_t bytes)
{
	ASSERT(at + bytes <= d->capacity);
	memcpy(d->now + at, from, bytes);
	memcpy(d->durable + at, from, bytes);
	d->size = MAX(d->size, at + bytes);
	d->durable_size = MAX(d->durable_size, at + bytes);
}

void disk_get(const struct disk *d, uint64_t at, void *to, size_t bytes)
{
	uint64_t nr = at < d->size ? MIN((uint64_t)bytes, d->size - at) : 0;

	memcpy(to, d->now + at, nr);
	memset((uint8_t *)to + nr, 0, bytes - nr);
}

/* ---- failures ---- */

void disk_fail_flushes(struct disk *d, unsigned one_in)
{
	for (; d; d = d->beside)
		d->flush_error_one_in = one_in;
}

bool disk_has_failed(const struct disk *d)
{
	return d->has_failed || (d->beside && disk_has_failed(d->beside));
}

void disk_forget_failures(struct disk *d)
{
	for (; d; d = d->beside)
		d->has_failed = false;
}

/* ---- the end of power, and of a process ---- */

/* How a cut chooses among what is not durable. */
enum cut_way { CUT_ANY, CUT_MOST, CUT_FEW, CUT_NEW, CUT_OLD, CUT_ALL, CUT_WAY_NR };

static bool survives(struct prng *p, enum cut_way way, unsigned idx, unsigned nr)
{
	switch (way) {
	case CUT_ANY:
		return prng_one_in(p, 2);
	case CUT_MOST:
		return !prng_one_in(p, 8);
	case CUT_FEW:
		return prng_one_in(p, 8);
	case CUT_NEW:
		return idx >= nr / 2;
	case CUT_OLD:
		return idx < nr / 2;
	case CUT_ALL:
	case CUT_WAY_NR:
		break;
	}
	return true;
}

static void cut_put(struct disk *to, struct prng *p, uint64_t at, const uint8_t *data,
		    uint32_t bytes)
{
	bool is_torn = prng_one_in(p, 5);

	for (uint32_t i = 0; is_torn && i < bytes; i += SECTOR_BYTES)
		if (prng_one_in(p, 2)) {
			memcpy(to->now + at + i, data + i, SECTOR_BYTES);
			to->size = MAX(to->size, at + i + SECTOR_BYTES);
		}
	if (is_torn)
		return;
	memcpy(to->now + at, data, bytes);
	to->size = MAX(to->size, at + bytes);
}

static void cut_discard(struct disk *to, struct prng *p, const struct disk_flight *f)
{
	uint64_t end = MIN(f->at + f->bytes, to->size);

	for (uint64_t at = f->at; at < end; at += SECTOR_BYTES)
		if (prng_one_in(p, 2))
			memset(to->now + at, prng_one_in(p, 2) ? 0 : GARBAGE, SECTOR_BYTES);
}

static void cut_flights(const struct disk *d, struct disk *to, enum cut_way way)
{
	struct prng *p = d->prng;

	for (unsigned i = 0; i < DISK_FLIGHT_NR; i++) {
		const struct disk_flight *f = &d->flight[i];

		if (!f->is_used || !survives(p, way, 1, 2))
			continue;
		if (f->op == BACKEND_WRITE && !is_full(d, f))
			cut_put(to, p, f->at, f->data, f->bytes);
		else if (f->op == BACKEND_DISCARD)
			cut_discard(to, p, f);
	}
}

static void copy_to(const struct disk *d, struct disk *to, const uint8_t *bytes, uint64_t size)
{
	memcpy(to->now, bytes, size);
	if (to->size > size)
		memset(to->now + size, 0, to->size - size);
	to->size = to->durable_size = size;
	to->grows = d->grows;
	to->can_discard = d->can_discard;
	to->version_kind = d->version_kind;
	to->is_known_now = d->is_known_now;
	memcpy(to->found, d->found, sizeof(to->found));
	memcpy(to->ours, d->ours, sizeof(to->ours));
	to->content = d->content;
	to->opening_nr = d->opening_nr;
}

void disk_copy(const struct disk *d, struct disk *to)
{
	copy_to(d, to, d->now, d->size);
	if (d->beside)
		disk_copy(d->beside, to->beside);
}

void disk_copy_of_dead(struct prng *p, const struct disk *d, struct disk *to)
{
	disk_copy(d, to);
	for (unsigned i = 0; i < DISK_FLIGHT_NR; i++) {
		const struct disk_flight *f = &d->flight[i];
		unsigned part = (unsigned)prng_below(p, 3);

		for (uint32_t k = 0; f->is_used && f->op == BACKEND_WRITE && k < f->bytes;
		     k += SECTOR_BYTES)
			if (part == 2 || (part == 1 && prng_one_in(p, 2)))
				memcpy(to->now + f->at + k, f->data + k, SECTOR_BYTES);
	}
}

void disk_cut(const struct disk *d, struct disk *to)
{
	enum cut_way way = (enum cut_way)prng_below(d->prng, CUT_WAY_NR);

	copy_to(d, to, d->durable, d->durable_size);
	for (unsigned i = 0; i < d->done_nr; i++)
		if (survives(d->prng, way, i, d->done_nr))
			cut_put(to, d->prng, d->done[i].at, d->log + d->done[i].log_at,
				d->done[i].bytes);
	cut_flights(d, to, way);
	/* The length of a file may be durable before what is in it. */
	if (prng_one_in(d->prng, 4))
		to->size = MAX(to->size, d->size);
	to->durable_size = to->size;
	if (d->beside)
		disk_cut(d->beside, to->beside);
}

void disk_orphan(struct disk *d)
{
	for (unsigned i = 0; i < DISK_FLIGHT_NR; i++) {
		struct disk_flight *f = &d->flight[i];

		if (!f->is_used)
			continue;
		flight_free(d, f);
		if (prng_one_in(d->prng, 3))
			continue;
		if (f->op == BACKEND_WRITE && !is_full(d, f))
			land_write(d, f, NULL, prng_one_in(d->prng, 2));
		else if (f->op == BACKEND_DISCARD)
			land_discard(d, f->at, f->bytes, true);
	}
	if (d->beside)
		disk_orphan(d->beside);
}
