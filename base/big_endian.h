/*
 * Numbers of files and protocols, big endian, at any address. Pure, any thread. A put returns the
 * byte behind.
 */
#ifndef BASE_BIG_ENDIAN_H
#define BASE_BIG_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t be_get16(const void *at)
{
	uint16_t n;

	memcpy(&n, at, sizeof(n));
	return be16toh(n);
}

static inline uint32_t be_get32(const void *at)
{
	uint32_t n;

	memcpy(&n, at, sizeof(n));
	return be32toh(n);
}

static inline uint64_t be_get64(const void *at)
{
	uint64_t n;

	memcpy(&n, at, sizeof(n));
	return be64toh(n);
}

static inline uint8_t *be_put16(void *at, uint16_t n)
{
	n = htobe16(n);
	memcpy(at, &n, sizeof(n));
	return (uint8_t *)at + sizeof(n);
}

static inline uint8_t *be_put32(void *at, uint32_t n)
{
	n = htobe32(n);
	memcpy(at, &n, sizeof(n));
	return (uint8_t *)at + sizeof(n);
}

static inline uint8_t *be_put64(void *at, uint64_t n)
{
	n = htobe64(n);
	memcpy(at, &n, sizeof(n));
	return (uint8_t *)at + sizeof(n);
}

#endif
