/*
 * Spans of text in lines. Owns the text. Failure mode: out of memory ends the program; it is a
 * command-line tool's.
 */
#include "ublkctl/top/top_frame.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ublkctl/top/top_text.h"

#define CELL_BYTES 1024

void top_frame_clear(struct top_frame *f)
{
	f->text_bytes = 0;
	f->span_nr = 0;
	f->line = f->column = 0;
	f->selected_line = TOP_NO_LINE;
}

void top_frame_fini(struct top_frame *f)
{
	free(f->text);
	free(f->spans);
	*f = (struct top_frame){ 0 };
}

static void *grow_array(void *array, size_t need, size_t *size, size_t item_bytes)
{
	if (need <= *size)
		return array;
	*size = MAX(need, *size * 2);
	array = realloc(array, *size * item_bytes);
	if (!array)
		abort();
	return array;
}

static void add_span(struct top_frame *f, enum top_color color, const char *text, size_t bytes)
{
	if (bytes == 0)
		return;
	f->spans = grow_array(f->spans, f->span_nr + 1, &f->span_size, sizeof(f->spans[0]));
	f->text = grow_array(f->text, f->text_bytes + bytes, &f->text_size, 1);
	f->spans[f->span_nr++] = (struct top_span){
		.offset = f->text_bytes,
		.bytes = bytes,
		.line = f->line,
		.column = f->column,
		.color = color,
	};
	memcpy(f->text + f->text_bytes, text, bytes);
	f->text_bytes += bytes;
	f->column += top_text_columns(text, bytes);
}

static void add_blanks(struct top_frame *f, unsigned nr)
{
	static const char blanks[] = "                                ";

	for (; nr > 0; nr -= MIN(nr, (unsigned)sizeof(blanks) - 1))
		add_span(f, TOP_PLAIN, blanks, MIN(nr, (unsigned)sizeof(blanks) - 1));
}

void top_frame_text(struct top_frame *f, enum top_color color, const char *fmt, ...)
{
	char text[CELL_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	add_span(f, color, text, strlen(text));
}

void top_frame_cell(struct top_frame *f, enum top_color color, int width, const char *fmt, ...)
{
	unsigned room = (unsigned)(width < 0 ? -width : width), columns;
	char text[CELL_BYTES];
	size_t bytes;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	bytes = top_text_fit(text, strlen(text), room);
	columns = top_text_columns(text, bytes);
	if (f->column > 0)
		add_blanks(f, 2);
	if (width > 0)
		add_blanks(f, room - columns);
	add_span(f, color, text, bytes);
	if (width < 0)
		add_blanks(f, room - columns);
}

void top_frame_line(struct top_frame *f)
{
	f->line++;
	f->column = 0;
}

unsigned top_frame_room(const struct top_frame *f, unsigned limit)
{
	if (f->columns == 0)
		return limit;
	return f->columns <= f->column ? 0 : MIN(f->columns - f->column, limit);
}

void top_frame_drop(struct top_frame *f, unsigned first, unsigned nr)
{
	size_t kept = 0;

	nr = first < f->line ? MIN(nr, f->line - first) : 0;
	for (size_t i = 0; i < f->span_nr; i++) {
		struct top_span span = f->spans[i];

		if (span.line >= first && span.line < first + nr)
			continue;
		if (span.line >= first)
			span.line -= nr;
		f->spans[kept++] = span;
	}
	f->span_nr = kept;
	f->line -= nr;
}

void top_frame_end(struct top_frame *f, unsigned nr)
{
	if (f->line > nr)
		top_frame_drop(f, nr, f->line - nr);
	f->line = nr;
	f->column = 0;
}

static bool is_blank(const struct top_frame *f, const struct top_span *span)
{
	for (size_t i = 0; i < span->bytes; i++)
		if (f->text[span->offset + i] != ' ')
			return false;
	return true;
}

/* From idx on this line has only blanks. */
static bool rest_is_blank(const struct top_frame *f, size_t idx)
{
	unsigned line = f->spans[idx].line;

	for (; idx < f->span_nr && f->spans[idx].line == line; idx++)
		if (!is_blank(f, &f->spans[idx]))
			return false;
	return true;
}

void top_frame_print(const struct top_frame *f, FILE *file)
{
	size_t i = 0;

	for (unsigned line = 0; line < f->line; line++) {
		for (; i < f->span_nr && f->spans[i].line == line; i++) {
			const struct top_span *span = &f->spans[i];

			if (!rest_is_blank(f, i))
				fwrite(f->text + span->offset, 1, span->bytes, file);
		}
		putc('\n', file);
	}
}
