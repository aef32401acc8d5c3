/*
 * Columns. The cells are stored until printed, because the widths are known only then. Failure
 * mode: out of memory ends the program; it is a command-line tool's.
 */
#include "ublkctl/print/table.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/assert.h"
#include "base/printable.h"
#include "ublkctl/print/say.h"

static bool colorful(void)
{
	const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0 &&
	       (!no_color || no_color[0] == '\0');
}

void table_say(enum table_color color, const char *fmt, ...)
{
	static const char *const sequence[] = {
		[TABLE_BOLD] = "\033[1m", [TABLE_GREEN] = "\033[32m", [TABLE_YELLOW] = "\033[33m",
		[TABLE_RED] = "\033[31m", [TABLE_DIM] = "\033[2m",
	};
	bool in_color = color != TABLE_PLAIN && colorful();
	char text[PRINTABLE_GROWTH * TABLE_CELL_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (in_color)
		fputs(sequence[color], stdout);
	say_to(stdout, "%s", text);
	if (in_color)
		fputs("\033[0m", stdout);
}

void table_init(struct table *t, const char *align)
{
	ASSERT(strlen(align) <= TABLE_COLUMNS_MAX);
	*t = (struct table){ .column_nr = (unsigned)strlen(align), .align = align };
}

void table_fini(struct table *t)
{
	free(t->cells);
	*t = (struct table){ 0 };
}

static struct table_cell *new_cell(struct table *t)
{
	if (t->cell_nr == t->cell_max) {
		t->cell_max = t->cell_max ? t->cell_max * 2 : 64;
		t->cells = realloc(t->cells, t->cell_max * sizeof(t->cells[0]));
		if (!t->cells)
			abort();
	}
	return &t->cells[t->cell_nr++];
}

void table_cell(struct table *t, enum table_color color, const char *fmt, ...)
{
	struct table_cell *cell = new_cell(t);
	char text[PRINTABLE_GROWTH * TABLE_CELL_BYTES];
	va_list ap;

	cell->color = color;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printable(cell->text, sizeof(cell->text), text, strlen(text));
}

/* Columns of the terminal. Without a locale of UTF-8 each letter counts as one. */
static int text_width(const char *text)
{
	size_t bytes = strlen(text);
	uint32_t code;
	int width = 0;

	for (unsigned nr; bytes > 0 && (nr = utf8_letter(text, bytes, &code)); bytes -= nr) {
		int columns = wcwidth((wchar_t)code);

		width += columns < 0 ? 1 : columns;
		text += nr;
	}
	return width;
}

static void measure_columns(const struct table *t, int width[TABLE_COLUMNS_MAX])
{
	memset(width, 0, TABLE_COLUMNS_MAX * sizeof(width[0]));
	for (size_t i = 0; i < t->cell_nr; i++) {
		int len = text_width(t->cells[i].text);

		if (len > width[i % t->column_nr])
			width[i % t->column_nr] = len;
	}
}

static void print_cell(const struct table *t, const struct table_cell *cell, unsigned column,
		       int width)
{
	bool last = column + 1 == t->column_nr;
	bool right = t->align[column] == 'r';
	int len = text_width(cell->text);

	/* No blanks at the end of a line: it must not wrap for them. */
	if (!last || cell->text[0]) {
		say_to(stdout, "%s%*s", column > 0 ? "  " : "", right ? width - len : 0, "");
		table_say(cell->color, "%s", cell->text);
		say_to(stdout, "%*s", right || last ? 0 : width - len, "");
	}
	if (last)
		putchar('\n');
}

void table_print(const struct table *t)
{
	int width[TABLE_COLUMNS_MAX];

	measure_columns(t, width);
	for (size_t i = 0; i < t->cell_nr; i++) {
		unsigned column = (unsigned)(i % t->column_nr);

		print_cell(t, &t->cells[i], column, width[column]);
	}
}
