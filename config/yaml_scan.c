/*
 * One pass over the bytes before libyaml sees them. libyaml gives no position for bad characters,
 * and is slow (quadratic) on a few shapes that no configuration has; here both become an error
 * with a position, in linear time. Lines and columns are counted as libyaml counts them: columns
 * in characters, and CR, NEL, LS and PS end a line too.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "config/yaml_internal.h"

struct scan {
	const unsigned char *at, *end;
	struct config_pos pos;
	unsigned blank_run;
};

static const struct {
	unsigned char mask, lead;
	uint32_t min;
} utf8_form[] = {
	{ 0x80, 0x00, 0 },
	{ 0xe0, 0xc0, 0x80 },
	{ 0xf0, 0xe0, 0x800 },
	{ 0xf8, 0xf0, 0x10000 },
};

/* Bytes of the sequence at the cursor, or 0: not UTF-8. */
static size_t utf8_decode(const struct scan *s, uint32_t *ret_char)
{
	for (size_t extra = 0; extra < 4; extra++) {
		uint32_t c = s->at[0] & (unsigned char)~utf8_form[extra].mask;

		if ((s->at[0] & utf8_form[extra].mask) != utf8_form[extra].lead)
			continue;
		if ((size_t)(s->end - s->at) <= extra)
			return 0;
		for (size_t i = 1; i <= extra; i++) {
			if ((s->at[i] & 0xc0) != 0x80)
				return 0;
			c = c << 6 | (s->at[i] & 0x3f);
		}
		if (c < utf8_form[extra].min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
			return 0;
		*ret_char = c;
		return extra + 1;
	}
	return 0;
}

/* The characters of YAML 1.1 that libyaml accepts. */
static bool is_allowed(uint32_t c)
{
	return c == '\t' || c == '\n' || c == '\r' || (c >= ' ' && c <= '~') || c == 0x85 ||
	       (c >= 0xa0 && c <= 0xfffd) || c >= 0x10000;
}

static bool is_break(uint32_t c)
{
	return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static void advance(struct scan *s, uint32_t c, size_t bytes)
{
	bool is_crlf = c == '\r' && s->at + 1 < s->end && s->at[1] == '\n';

	s->at += bytes;
	if (is_break(c) && !is_crlf) {
		s->pos.line++;
		s->pos.column = 1;
	} else if (!is_break(c)) {
		s->pos.column++;
	}
	s->blank_run = is_break(c) || c == ' ' || c == '\t' ? s->blank_run + 1 : 0;
}

static bool is_tag_directive(const struct scan *s)
{
	return s->pos.column == 1 && s->end - s->at >= 4 && memcmp(s->at, "%TAG", 4) == 0;
}

static int scan_fail(const struct scan *s, struct config_errors *e, const char *what)
{
	config_errors_add(e, s->pos, "%s", what);
	return -EINVAL;
}

static int scan_char(struct scan *s, struct config_errors *e)
{
	uint32_t c = 0;
	size_t bytes = utf8_decode(s, &c);

	if (bytes == 0)
		return scan_fail(s, e, "invalid UTF-8: save the file as UTF-8");
	if (c == 0)
		return scan_fail(s, e, "a NUL byte: this is no text file");
	if (!is_allowed(c)) {
		config_errors_add(e, s->pos, "the control character U+%04X is not allowed",
				  (unsigned)c);
		return -EINVAL;
	}
	if (is_tag_directive(s))
		return scan_fail(s, e, "%TAG is not supported: no option needs a tag");
	advance(s, c, bytes);
	if (s->blank_run > YAML_BLANK_RUN_MAX)
		return scan_fail(s, e, "more than 1024 spaces or empty lines in a row");
	return 0;
}

static bool is_utf16(const char *text, size_t bytes)
{
	return bytes >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
}

int yaml_scan(const char *text, size_t bytes, struct config_errors *e)
{
	struct scan s = {
		.at = (const unsigned char *)text,
		.end = (const unsigned char *)text + bytes,
		.pos = { .line = 1, .column = 1 },
	};

	if (is_utf16(text, bytes))
		return scan_fail(&s, e, "UTF-16: save the file as UTF-8");
	while (s.at < s.end) {
		int err = scan_char(&s, e);

		if (err)
			return err;
	}
	return 0;
}
