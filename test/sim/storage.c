/* The byte model and the model of the volatile cache. */
#include "test/sim/storage.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "test/sim/world.h"

#define STORAGE_NR_MAX 64
#define GROWTH_MAX 2

static struct storage *storages[STORAGE_NR_MAX];
static uint64_t last_seq;

struct storage *storage_create(unsigned idx, uint64_t size_bytes, uint32_t block_bytes)
{
	struct storage *st = calloc(1, sizeof(*st));

	*st = (struct storage){
		.idx = idx,
		.size_bytes = size_bytes,
		.block_bytes = block_bytes,
		.block_nr = size_bytes / block_bytes,
		.max_bytes = size_bytes * GROWTH_MAX,
		.max_block_nr = size_bytes * GROWTH_MAX / block_bytes,
		.has_data = true,
	};
	st->image = calloc(1, st->max_bytes);
	st->unknown = calloc(st->max_block_nr, 1);
	st->metadata = calloc(st->max_block_nr, 1);
	st->acked_seq = calloc(st->max_block_nr, sizeof(*st->acked_seq));
	st->dirty_seq = calloc(st->max_block_nr, sizeof(*st->dirty_seq));
	storages[idx] = st;
	return st;
}

void storage_destroy(struct storage *st)
{
	if (!st)
		return;
	storages[st->idx] = NULL;
	free(st->image);
	free(st->unknown);
	free(st->metadata);
	free(st->acked_seq);
	free(st->dirty_seq);
	free(st->medium);
	free(st->gone);
	free(st);
}

void storage_set_inode(struct storage *st, dev_t dev, ino_t ino)
{
	st->has_inode = true;
	st->dev = dev;
	st->ino = ino;
}

struct storage *storage_by_fd(int fd)
{
	struct stat stat;

	if (fstat(fd, &stat) < 0)
		sim_fail("the product submits I/O on a closed file");
	for (int i = 0; i < STORAGE_NR_MAX; i++) {
		struct storage *st = storages[i];

		if (st && st->has_inode && st->dev == stat.st_dev && st->ino == stat.st_ino)
			return st;
	}
	return NULL;
}

uint64_t storage_next_seq(void)
{
	return ++last_seq;
}

static uint64_t first_block(const struct storage *st, uint64_t offset_bytes)
{
	return offset_bytes / st->block_bytes;
}

/* Beyond the end there is nothing to watch (a punched hole may be longer than the device). */
static uint64_t end_block(const struct storage *st, uint64_t end_bytes)
{
	return MIN((end_bytes + st->block_bytes - 1) / st->block_bytes, st->max_block_nr);
}

void storage_dirty(struct storage *st, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t seq = storage_next_seq();
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	for (uint64_t i = first_block(st, offset_bytes); i < end; i++)
		st->dirty_seq[i] = seq;
	for (uint64_t i = first_block(st, offset_bytes); st->gone && i < end; i++)
		st->gone[i] = STORAGE_KEPT;
}

static enum storage_gone gone(const struct storage *st, uint64_t block)
{
	return st->gone ? (enum storage_gone)st->gone[block] : STORAGE_KEPT;
}

/* On the medium; beyond its end: of nobody. */
static uint64_t *dirty_of(const struct storage *st, uint64_t block)
{
	static uint64_t none;
	uint64_t place = block + st->data_at / st->block_bytes;

	return place < st->max_block_nr ? &st->dirty_seq[place] : &none;
}

void storage_clean(struct storage *st, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	for (uint64_t i = first_block(st, offset_bytes); i < end; i++)
		st->dirty_seq[i] = 0;
}

void storage_flush_part(struct storage *st, const struct sim_part *part, uint64_t before_seq)
{
	for (uint64_t i = 0; i < st->max_block_nr; i++)
		if (st->dirty_seq[i] < before_seq && !gone(st, i) &&
		    sim_part_has(part, i * st->block_bytes))
			st->dirty_seq[i] = 0;
}

void storage_flush(struct storage *st, uint64_t before_seq)
{
	const struct sim_part all = { 0 };

	storage_flush_part(st, &all, before_seq);
}

void storage_pattern(uint8_t *buf, uint64_t seed, uint64_t offset_bytes, uint32_t length_bytes)
{
	uint64_t *word = (uint64_t *)(void *)buf;
	uint64_t value = (seed ^ offset_bytes * 0x9e3779b97f4a7c15ull) | 1;

	for (uint32_t i = 0; i < length_bytes / sizeof(*word); i++) {
		value = value * 6364136223846793005ull + 1442695040888963407ull;
		word[i] = value;
	}
}

static void known(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes)
{
	uint64_t seq = storage_next_seq();
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	for (uint64_t i = first_block(st, offset_bytes); i < end; i++) {
		st->unknown[i] = 0;
		st->acked_seq[i] = seq;
	}
}

void storage_acked_write(struct storage *st, uint64_t seed, uint64_t offset_bytes,
			 uint32_t length_bytes)
{
	storage_acked_append(st, seed, offset_bytes, offset_bytes, length_bytes);
}

void storage_acked_append(struct storage *st, uint64_t seed, uint64_t pattern_at,
			  uint64_t offset_bytes, uint32_t length_bytes)
{
	storage_pattern(st->image + offset_bytes, seed, pattern_at, length_bytes);
	known(st, offset_bytes, length_bytes);
}

void storage_acked_zeroes(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes)
{
	memset(st->image + offset_bytes, 0, length_bytes);
	known(st, offset_bytes, length_bytes);
}

void storage_set_unknown(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes)
{
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	for (uint64_t i = first_block(st, offset_bytes); i < end; i++) {
		st->unknown[i] = 1;
		st->metadata[i] = STORAGE_ANY;
		/* Not acknowledged: a flush owes it nothing. */
		st->acked_seq[i] = 0;
	}
}

void storage_resize(struct storage *st, uint64_t size_bytes)
{
	if (size_bytes > st->max_bytes || size_bytes % st->block_bytes != 0)
		sim_fail("storage %u becomes %llu bytes", st->idx, (unsigned long long)size_bytes);
	st->size_bytes = size_bytes;
	st->block_nr = size_bytes / st->block_bytes;
}

void storage_forget(struct storage *st, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	memset(st->image + offset_bytes, 0, length_bytes);
	for (uint64_t i = first_block(st, offset_bytes); i < end; i++)
		st->unknown[i] = st->acked_seq[i] = *dirty_of(st, i) = 0;
}

bool storage_is_acked(const struct storage *st, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	for (uint64_t i = first_block(st, offset_bytes); i < end; i++)
		if (st->acked_seq[i] && !st->unknown[i])
			return true;
	return false;
}

bool storage_has_data(const struct storage *st, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	for (uint64_t i = first_block(st, offset_bytes); i < end; i++) {
		const uint8_t *at = st->image + i * st->block_bytes;

		if (!st->unknown[i] && (at[0] || memcmp(at, at + 1, st->block_bytes - 1) != 0))
			return true;
	}
	return false;
}

void storage_reset(struct storage *st)
{
	memset(st->image, 0, st->max_bytes);
	memset(st->unknown, 0, st->max_block_nr);
	memset(st->metadata, STORAGE_UNCHECKED, st->max_block_nr);
	memset(st->acked_seq, 0, st->max_block_nr * sizeof(*st->acked_seq));
	memset(st->dirty_seq, 0, st->max_block_nr * sizeof(*st->dirty_seq));
	st->has_inode = false;
}

void storage_check_read(const struct storage *st, const uint8_t *buf, uint64_t offset_bytes,
			uint32_t length_bytes)
{
	if (!st->has_data)
		return;
	for (uint32_t at = 0; at < length_bytes; at += st->block_bytes) {
		uint64_t place = offset_bytes + at;
		uint32_t i = 0;

		if (st->unknown[first_block(st, place)] || gone(st, first_block(st, place)) ||
		    memcmp(buf + at, st->image + place, st->block_bytes) == 0)
			continue;
		while (buf[at + i] == st->image[place + i])
			i++;
		sim_fail("storage %u: read of %u bytes at %llu: byte %llu is %02x, not %02x",
			 st->idx, length_bytes, (unsigned long long)offset_bytes,
			 (unsigned long long)(place + i), buf[at + i], st->image[place + i]);
	}
}

void storage_set_metadata(struct storage *st, uint64_t offset_bytes, uint32_t length_bytes,
			  enum storage_metadata metadata)
{
	memset(st->metadata + first_block(st, offset_bytes), (int)metadata,
	       length_bytes / st->block_bytes);
}

uint64_t storage_metadata_of(const struct storage *st, const uint8_t *buf, uint64_t offset_bytes)
{
	uint64_t hash = offset_bytes, word;

	for (uint32_t i = 0; i < st->block_bytes; i += sizeof(word)) {
		memcpy(&word, buf + i, sizeof(word));
		hash = (hash ^ word) * 0x100000001b3ull;
	}
	return hash;
}

void storage_check_metadata(const struct storage *st, const uint8_t *buf, const uint64_t *metadata,
			    uint64_t offset_bytes, uint32_t length_bytes)
{
	for (uint32_t at = 0; at < length_bytes; at += st->block_bytes, metadata++) {
		uint64_t place = offset_bytes + at;
		uint8_t state = st->metadata[first_block(st, place)];
		uint64_t wanted = state == STORAGE_UNCHECKED
					  ? UINT64_MAX
					  : storage_metadata_of(st, buf + at, place);

		if (state != STORAGE_ANY && *metadata != wanted)
			sim_fail("storage %u: metadata of block %llu are %llx, not %llx (%s)",
				 st->idx, (unsigned long long)first_block(st, place),
				 (unsigned long long)*metadata, (unsigned long long)wanted,
				 state == STORAGE_UNCHECKED ? "unchecked" : "of its bytes");
	}
}

/* A write that was acknowledged, and that nothing has made durable. */
static bool is_owed(const struct storage *st, uint64_t block, uint64_t before_seq)
{
	uint64_t dirty = *dirty_of(st, block), acked = st->acked_seq[block];

	if (dirty == 0 || dirty >= before_seq || acked == 0 || acked >= before_seq)
		return false;
	/* What was lost may be a later write, that is still to be done again. */
	return !gone(st, block) || (gone(st, block) == STORAGE_LOST && dirty < acked);
}

void storage_check_flushed(const struct storage *st, uint64_t before_seq)
{
	if (!st->has_cache)
		return;
	for (uint64_t i = 0; i < st->max_block_nr; i++)
		if (is_owed(st, i, before_seq))
			sim_fail("storage %u: a flush is answered, but the write of block %llu, "
				 "acknowledged before, is not durable",
				 st->idx, (unsigned long long)i);
}

void storage_check_durable(const struct storage *st, uint64_t offset_bytes, uint32_t length_bytes)
{
	uint64_t end = end_block(st, offset_bytes + length_bytes);

	if (!st->has_cache)
		return;
	for (uint64_t i = first_block(st, offset_bytes); i < end; i++)
		if (*dirty_of(st, i) != 0)
			sim_fail("storage %u: a FUA write is answered, but block %llu is not "
				 "durable",
				 st->idx, (unsigned long long)i);
}
