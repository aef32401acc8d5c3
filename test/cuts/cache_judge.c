/*
 * What a cut, or the death of the process, has left: the product opens it, every sector that is
 * read is one that the model allows, twice the same, though blocks are given up between; then it is
 * closed, and the origin has what was read. Where nothing is dirty it has it from the beginning.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "filters/cache/cache_store.h"
#include "test/cuts/cache_rig.h"

static uint32_t values[MODEL_SECTORS_MAX];

static bool fail_sector(struct cache_world *w, const char *what, uint64_t sector, uint32_t value)
{
	char words[300];

	model_tell(&w->model, sector, words, sizeof(words));
	return cache_world_fail(w, "%s: sector %llu is %u, allowed:%s", what,
				(unsigned long long)sector, value, words);
}

/* What the origin has, without the cache. */
static uint32_t origin_value(const struct disk *d, uint64_t sector)
{
	uint8_t bytes[SECTOR_BYTES];

	disk_get(d, sector * SECTOR_BYTES, bytes, sizeof(bytes));
	return cache_content_value(bytes, sector);
}

static bool check_first(struct cache_world *w, uint64_t sector, uint32_t value, bool is_death)
{
	values[sector] = value;
	if (is_death ? model_may_read(&w->model, sector, cache_model_value(value), UINT64_MAX)
		     : model_may_be_left(&w->model, sector, cache_model_value(value)))
		return true;
	return fail_sector(w, is_death ? "after a death" : "after a cut", sector, value);
}

static bool read_all(struct cache_world *w, struct cache_rig *rig, bool is_first, bool is_death)
{
	for (uint64_t at = 0; at < w->origin_bytes;) {
		uint32_t bytes = (uint32_t)MIN(w->origin_bytes - at,
					       prng_between(&w->prng, 1, 128) * SECTOR_BYTES);
		int ret = cache_rig_do(rig, BACKEND_READ, at, bytes);

		if (ret < 0)
			return cache_world_fail(w, "a READ at %llu fails with %d",
						(unsigned long long)at, ret);
		for (uint32_t i = 0; i < bytes / SECTOR_BYTES; i++) {
			uint64_t sector = at / SECTOR_BYTES + i;
			uint32_t value =
				cache_content_value(rig->io[0].buf + i * SECTOR_BYTES, sector);

			if (is_first && !check_first(w, sector, value, is_death))
				return false;
			if (values[sector] != value)
				return fail_sector(w, "read again", sector, value);
		}
		at += bytes;
	}
	return true;
}

static bool is_in_origin(struct cache_world *w, const struct disk *origin, const char *what)
{
	for (uint64_t i = 0; i < w->model.sector_nr; i++)
		if (origin_value(origin, i) != values[i])
			return cache_world_fail(w, "%s: sector %llu is %u, the origin has %u", what,
						(unsigned long long)i, values[i],
						origin_value(origin, i));
	return true;
}

static bool write_a_little(struct cache_world *w, struct cache_rig *rig)
{
	for (unsigned i = 0; i < 4; i++) {
		uint64_t nr = prng_between(&w->prng, 1, 24);
		uint64_t sector = prng_below(&w->prng, w->model.sector_nr - nr + 1);
		uint32_t value = 0x7fff0000u + i;
		int ret;

		for (uint64_t k = 0; k < nr; k++) {
			content_fill(rig->io[0].buf + k * SECTOR_BYTES, value, sector + k);
			values[sector + k] = value;
		}
		ret = cache_rig_do(rig, BACKEND_WRITE, sector * SECTOR_BYTES,
				   (uint32_t)nr * SECTOR_BYTES);
		if (ret < 0)
			return cache_world_fail(w, "after a cut a WRITE fails with %d", ret);
	}
	return cache_rig_do(rig, BACKEND_FLUSH, 0, 0) == 0 ||
	       cache_world_fail(w, "after a cut a FLUSH fails");
}

static void init_left(struct cache_world *w, struct cache_rig *rig)
{
	cache_rig_init(rig, 1);
	rig->origin = w->left_origin;
	rig->store = w->left_store;
	rig->config = &w->config;
	rig->depth = 1;
}

/* A close left dirty blocks over an origin without a version: a user says that nobody wrote. */
static int force_dirty(struct cache_world *w)
{
	char path[64], words[CACHE_STORE_WORDS_BYTES] = "";
	struct disk *d = w->left_store;
	int fd = memfd_create("store", MFD_CLOEXEC);
	struct cache_store s;
	int ret;

	ASSERT(fd >= 0 && pwrite(fd, d->now, d->capacity, 0) == (ssize_t)d->capacity);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = cache_store_open(&s, path, true, words);
	if (ret == 0)
		ret = cache_store_accept(&s);
	cache_store_close(&s);
	ASSERT(pread(fd, d->now, d->capacity, 0) == (ssize_t)d->capacity);
	memcpy(d->durable, d->now, d->capacity);
	close(fd);
	return ret;
}

static int open_left(struct cache_world *w, struct cache_rig *rig, int stored_fd)
{
	int ret = cache_rig_open(rig, stored_fd);

	if (ret != -ESTALE || w->left_origin->version_kind != BACKEND_VERSION_NONE ||
	    !strstr(rig->words, "did not take them"))
		return ret;
	ret = force_dirty(w);
	return ret < 0 ? ret : cache_rig_open(rig, stored_fd);
}

static bool judge_left(struct cache_world *w, int stored_fd, int owed_fd, bool is_death)
{
	static struct cache_rig rig;
	bool is_back = w->config.mode == CACHE_WRITEBACK;
	int ret;

	init_left(w, &rig);
	rig.owed_fd = owed_fd;
	ret = open_left(w, &rig, stored_fd);
	if (ret < 0)
		return cache_world_fail(w, "it cannot be opened: %d %s", ret, rig.words);
	if (((struct cache_device *)rig.device->priv)->stats.moved_bytes > 0)
		return cache_world_fail(w, "it takes its own writes to the origin for another's");
	if (is_death && w->owes && !backend_is_owed(rig.device))
		return cache_world_fail(w, "nothing is owed, though a FLUSH has failed");
	if (backend_is_owed(rig.device) && cache_rig_do(&rig, BACKEND_FLUSH, 0, 0) == 0)
		return cache_world_fail(w, "a FLUSH succeeds, though one before has failed");
	if (!read_all(w, &rig, true, is_death) ||
	    (!is_back && !is_in_origin(w, w->left_origin, "a stale sector")) ||
	    !read_all(w, &rig, false, is_death))
		return false;
	if (prng_one_in(&w->prng, 2) && !write_a_little(w, &rig))
		return false;
	if (cache_rig_close(&rig) < 0)
		return cache_world_fail(w, "it cannot be closed");
	if (!is_in_origin(w, w->left_origin, "closed"))
		return false;
	init_left(w, &rig);
	ret = cache_rig_open(&rig, 0);
	if (ret < 0)
		return cache_world_fail(w, "closed, it cannot be opened: %d %s", ret, rig.words);
	return read_all(w, &rig, false, is_death) && cache_rig_close(&rig) == 0;
}

static bool judge_death(struct cache_world *w, const struct cache_rig *rig)
{
	int fd = cuts_copy_memory(backend_stored_fd(rig->device, 0));
	int owed_fd = cuts_copy_memory(rig->owed_fd);
	bool good;

	w->death_nr++;
	disk_copy_of_dead(&w->prng, w->origin, w->left_origin);
	disk_copy_of_dead(&w->prng, w->store, w->left_store);
	good = judge_left(w, fd, owed_fd, true);
	close(fd);
	close(owed_fd);
	return good;
}

bool cache_judge(struct cache_world *w, const struct cache_rig *rig, bool is_death)
{
	w->cut_nr++;
	if (is_death)
		return judge_death(w, rig);
	disk_cut(w->store, w->left_store);
	/* The origin may be another machine, which goes on. */
	if (prng_one_in(&w->prng, 2))
		disk_cut(w->origin, w->left_origin);
	else
		disk_copy_of_dead(&w->prng, w->origin, w->left_origin);
	return judge_left(w, 0, 0, false);
}

/* A snapshot of the origin may be made of what it has now, by a storage that has what is durable.
 */
bool cache_judge_aside(struct cache_world *w)
{
	uint64_t now = model_now(&w->model);

	/* What is lost, or owed, is nobody's. */
	if (w->loses)
		return true;
	disk_cut(w->origin, w->left_origin);
	for (uint64_t i = 0; i < w->model.sector_nr; i++) {
		uint32_t value = origin_value(w->origin, i);
		uint32_t left = origin_value(w->left_origin, i);

		if (!model_may_read(&w->model, i, cache_model_value(value), now))
			return fail_sector(w, "aside: the origin", i, value);
		if (!model_may_be_left(&w->model, i, cache_model_value(left)))
			return fail_sector(w, "aside: the origin after a cut", i, left);
	}
	return true;
}

bool cache_judge_closed(struct cache_world *w, bool is_whole)
{
	disk_copy(w->origin, w->left_origin);
	disk_copy(w->store, w->left_store);
	for (uint64_t i = 0; is_whole && i < w->model.sector_nr; i++)
		if (!model_may_read(&w->model, i,
				    cache_model_value(origin_value(w->left_origin, i)), UINT64_MAX))
			return fail_sector(w, "closed: the origin", i,
					   origin_value(w->left_origin, i));
	w->owes = w->loses = false;
	return judge_left(w, 0, 0, true);
}
