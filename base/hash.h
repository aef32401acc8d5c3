/* FNV-1a of 64 bits, of texts: to tell them apart where nobody tries to make them alike. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdint.h>

#define HASH_START 0xcbf29ce484222325ull

/* The hash of what hash is the hash of (HASH_START: of nothing) and text. */
static inline uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
	return hash;
}

#endif
