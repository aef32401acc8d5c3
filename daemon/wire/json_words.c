#include "daemon/wire/json_words.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

/* to: PRINTABLE_GROWTH times bytes, and one. Returns how many there are. */
static size_t words_copy(char *to, const char *text, size_t bytes)
{
	char escape[PRINTABLE_ESCAPE_BYTES];
	size_t len = 0;
	uint32_t code;

	for (size_t nr; bytes > 0; text += nr, bytes -= nr) {
		nr = utf8_letter(text, bytes, &code);
		if (nr > 0) {
			memcpy(to + len, text, nr);
			len += nr;
		} else {
			nr = printable_next(text, bytes, escape);
			len = (size_t)(stpcpy(to + len, escape) - to);
		}
	}
	return len;
}

json_t *json_words_bytes(const char *text, size_t bytes)
{
	char *copy = malloc(bytes * PRINTABLE_GROWTH + 1);
	json_t *words = copy ? json_stringn_nocheck(copy, words_copy(copy, text, bytes)) : NULL;

	free(copy);
	return words;
}

json_t *json_words(const char *text)
{
	return json_words_bytes(text, strlen(text));
}

json_t *json_words_format(const char *fmt, ...)
{
	json_t *words = NULL;
	char *text = NULL;
	va_list ap;
	int bytes;

	va_start(ap, fmt);
	bytes = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (bytes >= 0) {
		words = json_words_bytes(text, (size_t)bytes);
		free(text);
	}
	return words;
}
