/* FNV-1a of 64 bits, of bytes and texts: to tell them apart where nobody tries to make them alike.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START 0xcbf29ce484222325ull

static inline uint64_t hash_byte(uint64_t hash, uint8_t byte)
{
	return (hash ^ byte) * 0x100000001b3ull;
}

/* The hash of what hash is the hash of (HASH_START: of nothing) and data. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < bytes; i++)
		hash = hash_byte(hash, at[i]);
	return hash;
}

static inline uint64_t hash_text(uint64_t hash, const char *text)
{
	return hash_bytes(hash, text, strlen(text));
}

#endif
