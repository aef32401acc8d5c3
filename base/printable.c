#include "base/printable.h"

#include <stdint.h>
#include <string.h>

#include "base/util.h"

const char *printable(char *buf, size_t buf_bytes, const void *text, size_t text_bytes)
{
	const uint8_t *from = text;
	size_t nr = MIN(text_bytes, buf_bytes - 1);

	for (size_t i = 0; i < nr; i++)
		buf[i] = from[i] >= ' ' && from[i] < 0x7f ? (char)from[i] : '?';
	if (nr < text_bytes)
		memcpy(buf + nr - 3, "...", 3);
	buf[nr] = '\0';
	return buf;
}
