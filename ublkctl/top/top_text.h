/*
 * Pictures made of characters: sparklines, bars, shades; of Unicode's block elements, or of ASCII
 * where the locale has no others. Pure.
 */
#ifndef UBLKCTL_TOP_TOP_TEXT_H
#define UBLKCTL_TOP_TOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_CHAR_BYTES 4 /* of UTF-8 at most; block elements have 3 */
#define TOP_LEVEL_MAX 8
#define TOP_SHADE_MAX 4

/*
 * The height of a value in a line whose highest is max: 0 for 0, else 1 to 8, each a factor of the
 * square root of 2: 8 is above 0.71 of max, 7 above its half, 1 what is below an eleventh.
 */
unsigned top_level(uint64_t value, uint64_t max);

/* nr values, one character each; ret_text has room for nr * TOP_CHAR_BYTES + 1. */
void top_spark(const uint64_t *values, size_t nr, bool utf8, char *ret_text);

/*
 * A bar of count / max of width characters, in eighths where possible; something even for 1 of a
 * million. ret_text has room for width * TOP_CHAR_BYTES + 1.
 */
void top_bar(uint64_t count, uint64_t max, unsigned width, bool utf8, char *ret_text);

/* 0 for 0; else 1 to 4: below 1/64, below 1/8, below 1/2 of max, above. */
unsigned top_shade(uint64_t count, uint64_t max);
const char *top_shade_char(unsigned shade, bool utf8);

/* How many columns a text takes, and how many bytes of it fit into so many columns. */
unsigned top_text_columns(const char *text, size_t bytes);
size_t top_text_fit(const char *text, size_t bytes, unsigned columns);

#endif
