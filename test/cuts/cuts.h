/*
 * Power is cut, and the process killed, in the middle of writes to a qcow2 image: what the files of
 * this folder share.
 *
 *   main.c            scenarios, options, TAP
 *   cuts_run.c        one run: a guest, a disk, a clock that nobody waits for
 *   cuts_kill.c       a run whose process dies, again and again
 *   cuts_change.c     internal snapshots: what each has, and changes of them
 *   cuts_judge.c      what a cut has left: judged by the oracle, and by the product opened on it
 *   cuts_rig.c        the product's node over made-up children
 *   cuts_disk.c       the child `data`: bytes, and the writes that no FLUSH has made durable
 *   cuts_model.c      which values a sector may have
 *   cuts_luks.c       their encryption
 *   cuts_image.c      the images that runs begin with
 *   cuts_ring.c       a kernel that does nothing
 */
#ifndef TEST_CUTS_CUTS_H
#define TEST_CUTS_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/prng.h"
#include "base/util.h"

#define SECTOR_BYTES 512u
/* Of a request, of the guest's or the node's. */
#define CUTS_IO_BYTES 65536u

/* What a sector holds: these, or the number of a write. */
#define VALUE_ZERO 0u
#define VALUE_IMAGE 1u	 /* was there when the run began */
#define VALUE_BACKING 2u /* of the backing image */
#define VALUE_FIRST 16u
#define VALUE_OTHER UINT32_MAX /* no write has ever put that there */

static inline void content_fill(uint8_t *to, uint32_t value, uint64_t sector)
{
	uint64_t word = (uint64_t)value << 32 | (uint32_t)sector;
	uint64_t words[SECTOR_BYTES / 8];

	if (value == VALUE_ZERO) {
		memset(to, 0, SECTOR_BYTES);
		return;
	}
	for (unsigned i = 0; i < SECTOR_BYTES / 8; i++)
		words[i] = word + i * 0x9e3779b97f4a7c15ull;
	memcpy(to, words, SECTOR_BYTES);
}

static inline uint32_t content_value(const uint8_t *from, uint64_t sector)
{
	uint8_t wanted[SECTOR_BYTES];
	uint64_t word;
	uint32_t value;

	memcpy(&word, from, sizeof(word));
	value = (uint32_t)(word >> 32);
	if (value != VALUE_ZERO && (uint32_t)word != (uint32_t)sector)
		return VALUE_OTHER;
	content_fill(wanted, value, sector);
	return memcmp(from, wanted, SECTOR_BYTES) == 0 ? value : VALUE_OTHER;
}

static inline uint64_t prng_between(struct prng *p, uint64_t from, uint64_t to)
{
	return from + prng_below(p, to - from + 1);
}

/* Memory that a killed process leaves to the next one; zeroed. */
void *cuts_shared_alloc(size_t bytes);
void cuts_shared_free(void *at, size_t bytes);
/* Another memfd with what this one holds. */
int cuts_copy_memory(int fd);

#endif
