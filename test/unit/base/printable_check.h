/* What every message about a peer must be: nothing in it does something to a terminal. */
#ifndef TEST_UNIT_BASE_PRINTABLE_CHECK_H
#define TEST_UNIT_BASE_PRINTABLE_CHECK_H

#include <string.h>

#include "base/assert.h"
#include "base/printable.h"

/* The last letter may be cut: how much of it fits is the buffer's to say. */
static inline void check_printable(const char *text)
{
	size_t bytes = utf8_whole(text, strlen(text));
	char escape[PRINTABLE_ESCAPE_BYTES];

	for (size_t at = 0; at < bytes;) {
		at += printable_next(text + at, bytes - at, escape);
		ASSERT(escape[0] == '\0');
	}
}

#endif
