/*
 * What a cut has left: the oracle finds no corruption, every sector is one of those that the model
 * allows, the product opens it, reads the same, writes a little, closes, and all is well again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "test/cuts/cuts_luks.h"
#include "test/cuts/cuts_world.h"
#include "test/rig/qcow2/qcow2_oracle.h"

static struct qcow2_oracle *oracle;
static uint32_t values_left[MODEL_SECTORS_MAX], values_read[MODEL_SECTORS_MAX];
static uint8_t buf[CUTS_IO_BYTES];

static ssize_t read_disk(void *arg, void *to, size_t n, uint64_t offset)
{
	const struct disk *d = arg;

	n = offset < d->size ? MIN(n, d->size - offset) : 0;
	memcpy(to, d->now + offset, n);
	return (ssize_t)n;
}

static void decrypt_data(void *arg, void *data, size_t n, uint64_t offset)
{
	(void)arg;
	cuts_luks_decrypt(data, n, offset);
}

static ssize_t read_backing(void *arg, void *to, size_t n, uint64_t offset)
{
	const struct image_shape *shape = arg;
	uint8_t sector[SECTOR_BYTES];
	size_t done = 0;

	n = offset < shape->backing ? MIN(n, shape->backing - offset) : 0;
	while (done < n) {
		uint64_t at = offset + done, within = at % SECTOR_BYTES;
		size_t now = MIN(n - done, SECTOR_BYTES - within);

		content_fill(sector, VALUE_BACKING, at / SECTOR_BYTES);
		memcpy((uint8_t *)to + done, sector + within, now);
		done += now;
	}
	return (ssize_t)n;
}

/* ---- the oracle's ---- */

static bool fail_report(struct world *w, const char *what, const struct qcow2_oracle_report *report)
{
	return world_fail(w, "%s: %llu corruptions, %llu leaks: %s; %s", what,
			  (unsigned long long)report->corruptions,
			  (unsigned long long)report->leaks, report->words[0],
			  report->words_nr > 1 ? report->words[1] : "");
}

static bool fail_sector(struct world *w, const char *what, uint64_t sector, uint32_t value)
{
	char words[300];

	model_tell(&w->model, sector, words, sizeof(words));
	return world_fail(w, "%s: sector %llu is %u, allowed:%s", what, (unsigned long long)sector,
			  value, words);
}

static bool may_be(struct world *w, uint64_t sector, uint32_t value, bool after_cut)
{
	return after_cut ? model_may_be_left(&w->model, sector, value)
			 : model_may_read(&w->model, sector, value, UINT64_MAX);
}

static bool take_values(struct world *w, const char *what, uint64_t offset, uint64_t bytes,
			bool after_cut, uint32_t *values)
{
	for (uint64_t i = 0; i < bytes / SECTOR_BYTES; i++) {
		uint64_t sector = offset / SECTOR_BYTES + i;
		uint32_t value = content_value(buf + i * SECTOR_BYTES, sector);

		if (!may_be(w, sector, value, after_cut))
			return fail_sector(w, what, sector, value);
		if (values)
			values[sector] = value;
	}
	return true;
}

bool judge_open(struct world *w, const struct disk *d)
{
	const struct qcow2_oracle_file file = {
		.read = read_disk, .arg = (void *)d, .bytes = d->size, .decrypt = decrypt_data
	};
	const struct qcow2_oracle_file data = { .read = read_disk,
						.arg = d->beside,
						.bytes = d->beside ? d->beside->size : 0 };
	char words[QCOW2_ORACLE_WORDS_BYTES];

	if (!oracle)
		oracle = qcow2_oracle_create();
	if (qcow2_oracle_open(oracle, &file, d->beside ? &data : NULL, words) < 0)
		return world_fail(w, "the oracle cannot open it: %s", words);
	return true;
}

static bool oracle_read(struct world *w, int snapshot, uint64_t offset, size_t bytes)
{
	const struct qcow2_oracle_file backing = { .read = read_backing,
						   .arg = &w->shape,
						   .bytes = w->shape.backing };
	int ret = qcow2_oracle_read(oracle, w->shape.backing ? &backing : NULL, snapshot, offset,
				    buf, bytes);

	return ret == 0 ||
	       world_fail(w, "the oracle cannot read at %llu", (unsigned long long)offset);
}

/* It costs a copy or space, and no data: qcow2_snapshot_change.h. */
static bool copied_may_differ(const struct world *w)
{
	return w->changes.state != CHANGE_NONE || w->changes.may_differ;
}

static bool oracle_check(struct world *w, const char *what, bool no_leaks)
{
	struct qcow2_oracle_report report;

	ASSERT(qcow2_oracle_check(oracle, &report) == 0);
	if (qcow2_oracle_info(oracle)->dirty && !w->shape.is_dirty)
		return world_fail(w, "%s: it is marked dirty", what);
	if (copied_may_differ(w) && report.copied_shared == 0)
		report.corruptions -= report.nr[QCOW2_ORACLE_COPIED];
	if (report.corruptions > 0 || (no_leaks && report.leaks > 0))
		return fail_report(w, what, &report);
	return true;
}

unsigned judge_snapshot_nr(void)
{
	return qcow2_oracle_info(oracle)->snapshot_nr;
}

bool judge_read(struct world *w, const struct disk *d, int snapshot, uint32_t *ret_values)
{
	if (!judge_open(w, d))
		return false;
	for (uint64_t at = 0; at < w->shape.bytes; at += sizeof(buf)) {
		uint64_t bytes = MIN(sizeof(buf), w->shape.bytes - at), first = at / SECTOR_BYTES;

		if (!oracle_read(w, snapshot, at, bytes))
			return false;
		for (uint64_t i = 0; i < bytes / SECTOR_BYTES; i++)
			ret_values[first + i] = content_value(buf + i * SECTOR_BYTES, first + i);
	}
	return true;
}

bool judge_image(struct world *w, bool after_cut, bool no_leaks, uint32_t *values)
{
	const char *what = after_cut ? "after a cut" : "at the end";

	if (!judge_open(w, w->left) || !oracle_check(w, what, no_leaks))
		return false;
	for (uint64_t at = 0; at < w->shape.bytes; at += sizeof(buf)) {
		uint64_t bytes = MIN(sizeof(buf), w->shape.bytes - at);

		if (!oracle_read(w, QCOW2_ORACLE_ACTIVE, at, bytes) ||
		    !take_values(w, what, at, bytes, after_cut, values))
			return false;
	}
	if (values && !change_judge_apply(w, values, after_cut))
		return false;
	return change_judge_snapshots(w, false);
}

/* ---- the product's ---- */

bool world_read_all(struct world *w, struct rig *rig, bool after_cut, uint32_t *values)
{
	for (uint64_t at = 0; at < w->shape.bytes; at += sizeof(buf)) {
		uint64_t bytes = MIN(sizeof(buf), w->shape.bytes - at);
		int ret = rig_do(rig, BACKEND_READ, at, (uint32_t)bytes);

		if (ret < 0)
			return world_fail(w, "a READ at %llu fails with %d", (unsigned long long)at,
					  ret);
		memcpy(buf, rig->io[0][0].buf, bytes);
		if (!take_values(w, after_cut ? "opened after a cut" : "opened after a kill", at,
				 bytes, after_cut, values))
			return false;
	}
	return true;
}

/* What it writes is in values then. No space is no failure. */
static bool write_a_little(struct world *w, struct rig *rig, uint32_t *values)
{
	for (unsigned i = 0; i < 3; i++) {
		uint64_t nr = prng_between(&w->prng, 1, 16);
		uint64_t sector = prng_below(&w->prng, w->model.sector_nr - nr + 1);
		uint32_t value = 0x7fff0000u + i;
		int ret;

		for (uint64_t k = 0; k < nr; k++)
			content_fill(rig->io[0][0].buf + k * SECTOR_BYTES, value, sector + k);
		ret = rig_do(rig, BACKEND_WRITE, sector * SECTOR_BYTES,
			     (uint32_t)nr * SECTOR_BYTES);
		if (ret < 0 && ret != -ENOSPC)
			return world_fail(w, "after a cut a WRITE fails with %d", ret);
		for (uint64_t k = 0; k < nr; k++)
			values[sector + k] = ret < 0 ? VALUE_OTHER : value;
	}
	if (rig_do(rig, BACKEND_FLUSH, 0, 0) < 0)
		return world_fail(w, "after a cut a FLUSH fails");
	return true;
}

static bool reads_as(struct world *w, const uint32_t *values)
{
	for (uint64_t at = 0; at < w->shape.bytes; at += sizeof(buf)) {
		uint64_t bytes = MIN(sizeof(buf), w->shape.bytes - at);

		if (!oracle_read(w, QCOW2_ORACLE_ACTIVE, at, bytes))
			return false;
		for (uint64_t i = 0; i < bytes / SECTOR_BYTES; i++) {
			uint64_t sector = at / SECTOR_BYTES + i;

			if (values[sector] != VALUE_OTHER &&
			    content_value(buf + i * SECTOR_BYTES, sector) != values[sector])
				return fail_sector(w, "written after a cut", sector,
						   content_value(buf + i * SECTOR_BYTES, sector));
		}
	}
	return true;
}

/* What a change has left half done is no harm for the next one. */
static bool change_a_little(struct world *w, struct rig *rig)
{
	int ret;

	if (w->changes.one_in == 0 || !prng_one_in(&w->prng, 4))
		return true;
	ret = rig_change_do(rig, BACKEND_SNAPSHOT_CREATE, "after");
	if (ret == 0)
		ret = rig_do(rig, BACKEND_WRITE, 0, SECTOR_BYTES);
	if (ret == 0)
		ret = rig_change_do(rig, BACKEND_SNAPSHOT_APPLY, "after");
	if (ret == 0)
		ret = rig_change_do(rig, BACKEND_SNAPSHOT_DELETE, "after");
	return ret == 0 || world_fail(w, "after a cut a change of snapshots fails: %d, %s", ret,
				      rig->change.words);
}

static bool judge_opened(struct world *w, struct rig *rig, bool is_made)
{
	bool good = world_read_all(w, rig, true, values_read);

	if (good && !is_made &&
	    memcmp(values_read, values_left, w->model.sector_nr * sizeof(*values_left)) != 0)
		good = world_fail(w, "the product reads something else than the oracle");
	good = good && write_a_little(w, rig, values_read) && change_a_little(w, rig);
	if (good && rig_close(rig) < 0)
		good = world_fail(w, "after a cut it cannot be closed");
	if (!good || !judge_open(w, w->left) || !oracle_check(w, "closed after a cut", false))
		return false;
	if (qcow2_oracle_info(oracle)->dirty)
		return world_fail(w, "closed after a cut it is dirty still");
	return reads_as(w, values_read) && change_judge_snapshots(w, true);
}

static bool judge_by_product(struct world *w, bool is_made)
{
	static struct rig rig;
	int ret;

	memset(&rig, 0, sizeof(rig));
	rig.queue_nr = 1;
	rig.depth = 1;
	rig.home = rig_reactor(1, 0);
	rig.reactor[0] = rig_reactor(1, 1);
	rig.config.cache_bytes = w->cache_bytes;
	ret = rig_open(&rig, &w->shape, w->left, 0);
	if (ret < 0)
		return world_fail(w, "the product cannot open it: %d %s", ret, rig.words);
	return judge_opened(w, &rig, is_made);
}

/* The image that is being made has no header yet. */
static bool has_no_header(const struct world *w)
{
	return w->shape.kind == IMAGE_NONE && memcmp(w->left->now, "QFI\xfb", 4) != 0;
}

bool judge_cut(struct world *w)
{
	bool is_made;

	w->cut_nr++;
	disk_cut(w->disk, w->left);
	is_made = has_no_header(w);
	if (!is_made && !judge_image(w, true, false, values_left))
		return false;
	if (w->is_soak && w->cut_nr % 100 == 0 && !is_made && !w->shape.is_dirty &&
	    !copied_may_differ(w) && !image_check(w->left))
		return world_fail(w, "qemu-img check finds corruption");
	return judge_by_product(w, is_made);
}

void judge_end(void)
{
	qcow2_oracle_destroy(oracle);
	oracle = NULL;
}
