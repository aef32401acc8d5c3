/*
 * One picture of `ublkctl top`: lines of coloured text, for a screen to paint or a pipe to get.
 * Pure; owned by its user, and used again for the next picture.
 */
#ifndef UBLKCTL_TOP_TOP_FRAME_H
#define UBLKCTL_TOP_TOP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum top_color {
	TOP_PLAIN,
	TOP_BOLD,
	TOP_GREEN,
	TOP_YELLOW,
	TOP_RED,
	TOP_DIM,
	TOP_COLOR_NR,
};

/* Text of one colour in one line. */
struct top_span {
	size_t offset, bytes; /* in text */
	unsigned line, column;
	enum top_color color;
};

/* Zeroed: empty, without limits, ASCII. */
struct top_frame {
	unsigned columns, rows; /* of the screen; 0: no limit */
	bool utf8;
	char *text;
	size_t text_bytes, text_size;
	struct top_span *spans;
	size_t span_nr, span_size;
	unsigned line, column;	/* where the next text goes; line: also how many are complete */
	unsigned selected_line; /* shown as such; TOP_NO_LINE: none */
};

#define TOP_NO_LINE (~0u)

/* Empties the frame; columns, rows and utf8 stay. */
void top_frame_clear(struct top_frame *f);
void top_frame_fini(struct top_frame *f);

void top_frame_text(struct top_frame *f, enum top_color color, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Width columns, two blanks after the cell before; below 0: left-aligned. Too long: cut. */
void top_frame_cell(struct top_frame *f, enum top_color color, int width, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Ends the line. */
void top_frame_line(struct top_frame *f);

/* The columns that are left in this line; limit, when there are more or the width is unknown. */
unsigned top_frame_room(const struct top_frame *f, unsigned limit);

/* Takes nr lines out, from line first on. */
void top_frame_drop(struct top_frame *f, unsigned first, unsigned nr);

/* Makes it nr lines, by dropping the last or adding empty ones. */
void top_frame_end(struct top_frame *f, unsigned nr);

/* All lines without colours, without blanks at their ends. */
void top_frame_print(const struct top_frame *f, FILE *file);

#endif
