/* Numbers, sizes and durations: from text and back. Exact, or refused: no floating point. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/util.h"
#include "config/option_internal.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first: formatting takes the first that divides. */
static const struct unit size_units[] = {
	{ "EiB", 1ull << 60 }, { "PiB", 1ull << 50 }, { "TiB", TIB(1) }, { "GiB", GIB(1) },
	{ "MiB", MIB(1) },     { "KiB", KIB(1) },     { "", 1 },
};

static const struct unit duration_units[] = {
	{ "h", 3600 * NS_PER_SEC }, { "m", 60 * NS_PER_SEC }, { "s", NS_PER_SEC },
	{ "ms", NS_PER_MS },	    { "us", 1000 },	      { "ns", 1 },
};

static unsigned digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned)(c - 'a') + 10;
	if (c >= 'A' && c <= 'F')
		return (unsigned)(c - 'A') + 10;
	return 16;
}

/* Moves *text behind all digits. -EINVAL: none; -ERANGE: too many. */
static int parse_digits(const char **text, unsigned base, uint64_t *ret_number)
{
	const char *start = *text;
	uint64_t number = 0;
	bool overflow = false;

	for (; digit_value(**text) < base; ++*text)
		overflow |= __builtin_mul_overflow(number, base, &number) ||
			    __builtin_add_overflow(number, digit_value(**text), &number);
	if (*text == start)
		return -EINVAL;
	if (overflow)
		return -ERANGE;
	*ret_number = number;
	return 0;
}

static int parse_uint(const char *text, uint64_t *ret_number)
{
	bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	uint64_t number = 0;
	int err;

	text += is_hex ? 2 : 0;
	err = parse_digits(&text, is_hex ? 16 : 10, &number);
	if (*text != '\0')
		return -EINVAL;
	if (!err)
		*ret_number = number;
	return err;
}

/* k, Ki or KiB; B and nothing are bytes. KB and the like are refused: 1000 or 1024? */
static int parse_size_unit(const char *text, uint64_t *ret_factor)
{
	static const char letters[] = "kmgtpe";
	const char *letter;

	*ret_factor = 1;
	if (*text == '\0' || strcmp(text, "B") == 0)
		return 0;
	letter = strchr(letters, *text | 0x20);
	if (!letter)
		return -EINVAL;
	*ret_factor = 1ull << (10 * (letter - letters + 1));
	text++;
	return *text == '\0' || strcmp(text, "i") == 0 || strcmp(text, "iB") == 0 ? 0 : -EINVAL;
}

static int parse_duration_unit(const char *text, uint64_t *ret_factor)
{
	*ret_factor = NS_PER_SEC;
	if (*text == '\0')
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(duration_units); i++) {
		if (strcmp(text, duration_units[i].name) == 0) {
			*ret_factor = duration_units[i].factor;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_scaled(const char *text, int (*parse_unit)(const char *, uint64_t *),
			uint64_t *ret_number)
{
	uint64_t number = 0, factor;
	int err = parse_digits(&text, 10, &number);

	/* What is no number at all is told first: "99999999999999999999x" is not too large. */
	if (err == -EINVAL || parse_unit(text, &factor))
		return -EINVAL;
	if (err || __builtin_mul_overflow(number, factor, &number))
		return -ERANGE;
	*ret_number = number;
	return 0;
}

int option_parse_size(const char *text, uint64_t *ret_bytes)
{
	return parse_scaled(text, parse_size_unit, ret_bytes);
}

int option_parse_duration(const char *text, uint64_t *ret_ns)
{
	return parse_scaled(text, parse_duration_unit, ret_ns);
}

int option_parse_number(enum option_type type, const char *text, uint64_t *ret_number)
{
	if (type == OPTION_SIZE)
		return option_parse_size(text, ret_number);
	if (type == OPTION_DURATION)
		return option_parse_duration(text, ret_number);
	ASSERT(type == OPTION_UINT);
	return parse_uint(text, ret_number);
}

static char *format_units(const struct unit *units, uint64_t number, char *buf, size_t buf_bytes)
{
	while (number % units->factor != 0)
		units++;
	snprintf(buf, buf_bytes, "%" PRIu64 "%s", number / units->factor, units->name);
	return buf;
}

char *option_format_size(uint64_t bytes, char *buf, size_t buf_bytes)
{
	if (bytes != 0)
		return format_units(size_units, bytes, buf, buf_bytes);
	snprintf(buf, buf_bytes, "0");
	return buf;
}

char *option_format_number(enum option_type type, uint64_t number,
			   char buf[static OPTION_NUMBER_BYTES])
{
	if (type == OPTION_SIZE)
		return option_format_size(number, buf, OPTION_NUMBER_BYTES);
	if (type == OPTION_DURATION && number != 0)
		return format_units(duration_units, number, buf, OPTION_NUMBER_BYTES);
	snprintf(buf, OPTION_NUMBER_BYTES, "%" PRIu64, number);
	return buf;
}
