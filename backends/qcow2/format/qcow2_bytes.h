/* Numbers of an image, big endian, at any address; its texts. */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_BYTES_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t qcow2_get16(const void *at)
{
	uint16_t n;

	memcpy(&n, at, sizeof(n));
	return be16toh(n);
}

static inline uint32_t qcow2_get32(const void *at)
{
	uint32_t n;

	memcpy(&n, at, sizeof(n));
	return be32toh(n);
}

static inline uint64_t qcow2_get64(const void *at)
{
	uint64_t n;

	memcpy(&n, at, sizeof(n));
	return be64toh(n);
}

static inline void qcow2_put16(void *at, uint16_t n)
{
	n = htobe16(n);
	memcpy(at, &n, sizeof(n));
}

static inline void qcow2_put32(void *at, uint32_t n)
{
	n = htobe32(n);
	memcpy(at, &n, sizeof(n));
}

static inline void qcow2_put64(void *at, uint64_t n)
{
	n = htobe64(n);
	memcpy(at, &n, sizeof(n));
}

/* Of text that may hold a zero byte what is before it, as C programs do; buf has bytes + 1. */
static inline void qcow2_text(char *buf, const uint8_t *at, size_t bytes)
{
	size_t len = strnlen((const char *)at, bytes);

	memcpy(buf, at, len);
	buf[len] = '\0';
}

#endif
