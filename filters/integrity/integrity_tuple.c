/* A tuple has one word of 8 bytes, or two. It stands at any byte. */
#include "filters/integrity/integrity_tuple.h"

#include <string.h>

#include "storage/metadata.h"

/* Whether all bits of it are the same. */
static bool word_is_uniform(uint64_t word)
{
	return word + 1 <= 1;
}

static void swap_one(uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	if (!word_is_uniform(word))
		return;
	word = ~word;
	memcpy(at, &word, sizeof(word));
}

static void swap_two(uint8_t *at)
{
	uint64_t word[2];

	memcpy(word, at, sizeof(word));
	if (word[0] != word[1] || !word_is_uniform(word[0]))
		return;
	word[0] = word[1] = ~word[0];
	memcpy(at, word, sizeof(word));
}

void integrity_tuples_swap(const struct backend_integrity_limits *shape, void *metadata,
			   uint32_t interval_nr)
{
	unsigned bytes = backend_tuple_bytes((enum backend_checksum)shape->checksum);
	uint8_t *at = (uint8_t *)metadata + shape->tuple_at;

	if (bytes == 0)
		return;
	for (; interval_nr > 0; interval_nr--, at += shape->metadata_bytes) {
		if (bytes == sizeof(uint64_t))
			swap_one(at);
		else
			swap_two(at);
	}
}
