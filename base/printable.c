#include "base/printable.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* What the first byte says: how many there are; 0: no letter begins with it. */
static unsigned letter_bytes(uint8_t first)
{
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Which second bytes may follow: the others are overlong, surrogates, or above U+10FFFF. */
static bool second_fits(uint8_t first, uint8_t second)
{
	uint8_t min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	uint8_t max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return second >= min && second <= max;
}

/* How many of the bytes are those of one letter; *ret_wanted: how many it has. */
static unsigned letter_begins(const uint8_t *at, size_t bytes, unsigned *ret_wanted)
{
	unsigned nr = 1;

	*ret_wanted = bytes ? letter_bytes(at[0]) : 0;
	if (*ret_wanted == 0)
		return 0;
	while (nr < *ret_wanted && nr < bytes &&
	       (nr == 1 ? second_fits(at[0], at[1]) : (at[nr] & 0xc0) == 0x80))
		nr++;
	return nr;
}

unsigned utf8_letter(const void *text, size_t bytes, uint32_t *ret_code)
{
	static const uint8_t mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	const uint8_t *at = text;
	unsigned wanted, nr = letter_begins(at, bytes, &wanted);

	if (nr == 0 || nr < wanted)
		return 0;
	*ret_code = at[0] & mask[nr];
	for (unsigned i = 1; i < nr; i++)
		*ret_code = *ret_code << 6 | (at[i] & 0x3f);
	return nr;
}

/* Bytes of a letter up to the end of text, where more of it belongs. */
static bool is_cut(const char *text, size_t bytes)
{
	unsigned wanted, nr = letter_begins((const uint8_t *)text, bytes, &wanted);

	return nr > 0 && nr < wanted && nr == bytes;
}

size_t utf8_whole(const char *text, size_t bytes)
{
	for (size_t back = 1; back <= MIN(bytes, (size_t)3); back++)
		if (is_cut(text + bytes - back, back))
			return bytes - back;
	return bytes;
}

void utf8_end_whole(char *text)
{
	text[utf8_whole(text, strlen(text))] = '\0';
}

int utf8_fit(const char *text, size_t max)
{
	size_t bytes = strnlen(text, max);

	return (int)(bytes < max ? bytes : utf8_whole(text, bytes));
}

void utf8_repair(char *text)
{
	size_t bytes = strlen(text);
	uint32_t code;

	while (bytes > 0) {
		unsigned nr = utf8_letter(text, bytes, &code);

		if (nr == 0) {
			*text = '?';
			nr = 1;
		}
		text += nr;
		bytes -= nr;
	}
}

/* LRM, RLM, ALM; the separators; embeddings, overrides and isolates. */
static bool turns_writing(uint32_t code)
{
	return code == 0x061c || code == 0x200e || code == 0x200f ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

size_t printable_next(const char *text, size_t bytes, char escape[static PRINTABLE_ESCAPE_BYTES])
{
	uint32_t code;
	unsigned nr = utf8_letter(text, bytes, &code);

	escape[0] = '\0';
	if (nr == 0 && is_cut(text, bytes)) {
		strcpy(escape, "...");
		return bytes;
	}
	if (nr == 0 || code < 0x20 || code == 0x7f)
		snprintf(escape, PRINTABLE_ESCAPE_BYTES, "\\x%02x", (uint8_t)text[0]);
	else if ((code >= 0x80 && code < 0xa0) || turns_writing(code))
		snprintf(escape, PRINTABLE_ESCAPE_BYTES, "\\u%04x", (uint16_t)code);
	return nr ? nr : 1;
}

const char *printable(char *buf, size_t buf_bytes, const void *text, size_t text_bytes)
{
	char escape[PRINTABLE_ESCAPE_BYTES];
	const char *from = text;
	size_t len = 0, fits = 0; /* fits: where "..." has room */

	for (size_t at = 0, nr; at < text_bytes; at += nr) {
		const char *piece = from + at;
		size_t bytes;

		nr = printable_next(piece, text_bytes - at, escape);
		bytes = escape[0] ? strlen(escape) : nr;
		if (len + 4 <= buf_bytes)
			fits = len;
		if (len + bytes >= buf_bytes) {
			memcpy(buf + fits, "...", 3);
			len = fits + 3;
			break;
		}
		memcpy(buf + len, escape[0] ? escape : piece, bytes);
		len += bytes;
	}
	buf[len] = '\0';
	return buf;
}
