/* Sparklines, bars and shades. Nothing is owned, nothing fails. */
#include "ublkctl/top/top_text.h"

#include <string.h>

#include "base/util.h"

unsigned top_level(uint64_t value, uint64_t max)
{
	double edge = (double)max;
	unsigned level = TOP_LEVEL_MAX;

	if (value == 0)
		return 0;
	while (level > 1 && (double)value < edge * 0.70710678) {
		edge *= 0.70710678;
		level--;
	}
	return level;
}

static char *append_text(char *at, const char *text)
{
	size_t bytes = strlen(text);

	memcpy(at, text, bytes + 1);
	return at + bytes;
}

void top_spark(const uint64_t *values, size_t nr, bool utf8, char *ret_text)
{
	static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { " ", ".", ":", "-", "=", "+", "x", "*", "#" };
	uint64_t max = 0;

	for (size_t i = 0; i < nr; i++)
		max = MAX(max, values[i]);
	*ret_text = '\0';
	for (size_t i = 0; i < nr; i++)
		ret_text =
			append_text(ret_text, (utf8 ? blocks : ascii)[top_level(values[i], max)]);
}

void top_bar(uint64_t count, uint64_t max, unsigned width, bool utf8, char *ret_text)
{
	static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	unsigned part = 0;

	if (max)
		part = (unsigned)((double)count / (double)max * width * 8 + 0.5);
	if (count && part == 0)
		part = 1;
	if (!utf8 && part)
		part = MAX(part / 8 * 8, 8u);
	*ret_text = '\0';
	for (unsigned i = 0; i < part / 8; i++)
		ret_text = append_text(ret_text, utf8 ? "█" : "#");
	append_text(ret_text, eighths[part % 8]);
}

unsigned top_shade(uint64_t count, uint64_t max)
{
	if (count == 0)
		return 0;
	if (count < max / 64)
		return 1;
	if (count < max / 8)
		return 2;
	return count < max / 2 ? 3 : 4;
}

const char *top_shade_char(unsigned shade, bool utf8)
{
	static const char *const blocks[] = { " ", "░", "▒", "▓", "█" };
	static const char *const ascii[] = { " ", ".", "+", "*", "#" };

	return (utf8 ? blocks : ascii)[shade];
}

/* All our characters are one column wide: what does not continue one begins one. */
static bool begins(char c)
{
	return ((unsigned char)c & 0xc0) != 0x80;
}

unsigned top_text_columns(const char *text, size_t bytes)
{
	unsigned columns = 0;

	for (size_t i = 0; i < bytes; i++)
		columns += begins(text[i]);
	return columns;
}

size_t top_text_fit(const char *text, size_t bytes, unsigned columns)
{
	size_t i;

	for (i = 0; i < bytes; i++) {
		if (begins(text[i]) && columns == 0)
			break;
		columns -= begins(text[i]);
	}
	return i;
}
