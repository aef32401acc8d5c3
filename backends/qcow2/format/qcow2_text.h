/* Texts of an image. */
#ifndef BACKENDS_QCOW2_FORMAT_QCOW2_TEXT_H
#define BACKENDS_QCOW2_FORMAT_QCOW2_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of text that may hold a zero byte what is before it, as C programs do; buf has bytes + 1. */
static inline void qcow2_text(char *buf, const uint8_t *at, size_t bytes)
{
	size_t len = strnlen((const char *)at, bytes);

	memcpy(buf, at, len);
	buf[len] = '\0';
}

#endif
