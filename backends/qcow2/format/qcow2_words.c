#include "backends/qcow2/format/qcow2_words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "qcow2: "

int qcow2_fail(char words[static QCOW2_WORDS_BYTES], int err, const char *format, ...)
{
	const size_t at = sizeof(PREFIX) - 1;
	va_list args;

	memcpy(words, PREFIX, sizeof(PREFIX));
	va_start(args, format);
	vsnprintf(words + at, QCOW2_WORDS_BYTES - at, format, args);
	va_end(args);
	return err;
}
