/* The option tables as man(7) source, so that the manual cannot say other than the parser does. */
#include <stdio.h>
#include <string.h>

#include "config/option_internal.h"

/* roff reads \ anywhere, . and ' at the beginning of a line, and prints - as a hyphen. */
static void man_put_text(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			fputc(*text == '\n' ? ' ' : *text, out);
	}
}

static const char *man_type_name(const struct option *o)
{
	static const char *const names[] = {
		[OPTION_STRING] = "text",
		[OPTION_BOOL] = "true or false",
		[OPTION_UINT] = "number",
		[OPTION_SIZE] = "size",
		[OPTION_DURATION] = "duration",
		[OPTION_ENUM] = "one of",
		[OPTION_SET] = "some of",
		[OPTION_RATIO] = "number, 0 to 1, or percent",
		[OPTION_CPUS] = "auto, or CPU numbers",
		[OPTION_OUTAGE_TIMEOUT] = "fail, forever, or {queue: time}",
		[OPTION_MAP] = "map",
		[OPTION_NODE] = "map or list",
	};

	return names[o->type];
}

static void put_values(FILE *out, const struct option *o)
{
	for (int i = 0; o->values[i]; i++) {
		fputs(i ? ", " : " ", out);
		man_put_text(out, o->values[i]);
	}
}

static bool is_number(const struct option *o)
{
	return o->type == OPTION_UINT || o->type == OPTION_SIZE || o->type == OPTION_DURATION;
}

static void put_limits(FILE *out, const struct option *o)
{
	enum option_type type = is_number(o) ? o->type : OPTION_UINT;
	char min[OPTION_NUMBER_BYTES], max[OPTION_NUMBER_BYTES];
	const char *unit = o->type == OPTION_STRING ? " bytes" : "";

	option_format_number(type, o->min, min);
	option_format_number(type, o->max, max);
	/* INT64_MAX is only what off_t can hold: no limit that a reader needs to know. */
	if (o->max != 0 && o->max != INT64_MAX)
		fprintf(out, ", %s to %s%s", min, max, unit);
	else if (o->type == OPTION_STRING && o->min == 1)
		fputs(", not empty", out);
	else if (o->min != 0)
		fprintf(out, ", at least %s%s", min, unit);
	if (o->flags & OPTION_POWER_OF_TWO)
		fputs(", a power of two", out);
}

static void put_default(FILE *out, const struct option *o)
{
	if (o->flags & OPTION_REQUIRED) {
		fputs("; required", out);
	} else if (o->def) {
		fputs("; default ", out);
		man_put_text(out, *o->def ? o->def : "empty");
	}
}

static void put_option(FILE *out, const struct option *o)
{
	fputs(".TP\n\\fB", out);
	man_put_text(out, o->name);
	fprintf(out, "\\fR (%s", man_type_name(o));
	if (o->type == OPTION_ENUM || o->type == OPTION_SET)
		put_values(out, o);
	if (o->type == OPTION_STRING || is_number(o))
		put_limits(out, o);
	put_default(out, o);
	fputs(")\n", out);
	if (o->help) {
		man_put_text(out, o->help);
		fputc('\n', out);
	}
	if (o->type == OPTION_MAP) {
		fputs(".RS\n", out);
		option_write_man(o->table, out);
		fputs(".RE\n", out);
	}
}

void option_write_man(const struct option *table, FILE *out)
{
	struct option_walk walk;

	option_for_each (&walk, table)
		if (!(walk.row->flags & OPTION_HIDDEN))
			put_option(out, walk.row);
}
