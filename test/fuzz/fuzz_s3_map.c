/*
 * Any bytes as the map of a disk of 200 objects. The first byte says what: 0, a map as it is; else
 * one whose header is made right. What is taken names only what can be, and is the same when it was
 * written again.
 */
#include "fuzz.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "backends/s3_disk/s3_disk_map.h"
#include "base/assert.h"
#include "base/util.h"

#define OBJECTS 200u
#define GENERATION 9u
#define HEADER_BYTES 32u
#define ENTRY_BYTES 12u

const char *const fuzz_words[] = { "ublkdmap",
				   "\x01\x00\x00\x00",
				   "\x09\x00\x00\x00",
				   "\xc7\x00\x00\x00",
				   "\xff\xff\xff\x7f",
				   "\xff\xff\xff\xff",
				   NULL };

static void put32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static void header_mend(uint8_t *at, size_t bytes)
{
	static const uint8_t magic[8] = "ublkdmap";

	memcpy(at, magic, sizeof(magic));
	put32(at + 8, 1);
	put32(at + 12, OBJECTS);
	put32(at + 16, (uint32_t)((bytes - HEADER_BYTES) / ENTRY_BYTES));
	put32(at + 20, GENERATION);
	put32(at + 24, (uint32_t)crc32_z(0, at + HEADER_BYTES, bytes - HEADER_BYTES));
}

static void check_map(const struct s3_disk_map *map, const uint8_t *from, size_t bytes)
{
	size_t again_bytes = s3_disk_map_bytes(map);
	uint8_t *again = malloc(again_bytes);

	for (uint32_t i = 0; i < OBJECTS; i++) {
		const struct s3_disk_name *name = &map->name[i];

		ASSERT(name->generation < GENERATION && name->seq <= S3_DISK_SEQ_MAX);
		ASSERT(!name->generation == !name->seq);
	}
	ASSERT(again && again_bytes == bytes);
	s3_disk_map_write(map, GENERATION, again);
	/* But for the header's last field. */
	ASSERT(memcmp(again, from, HEADER_BYTES - 4) == 0);
	ASSERT(memcmp(again + HEADER_BYTES, from + HEADER_BYTES, bytes - HEADER_BYTES) == 0);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct s3_disk_map map;
	char words[100];
	uint8_t *at;
	int ret;

	if (bytes == 0)
		return 0;
	bytes--;
	at = malloc(bytes ? bytes : 1);
	ASSERT(at && s3_disk_map_init(&map, OBJECTS) == 0);
	memcpy(at, data + 1, bytes);
	if (data[0] && bytes >= HEADER_BYTES)
		header_mend(at, bytes);
	memset(words, 'x', sizeof(words));
	ret = s3_disk_map_read(&map, GENERATION, at, bytes, words, sizeof(words));
	if (ret == 0)
		check_map(&map, at, bytes);
	else
		ASSERT(ret == -EINVAL && memchr(words, 0, sizeof(words)));
	s3_disk_map_fini(&map);
	free(at);
	return 0;
}
