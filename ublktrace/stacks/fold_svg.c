/*
 * A flame graph of folded stacks: one static picture, no scripts. Pure; main thread.
 */
#include <inttypes.h>
#include <string.h>

#include "base/util.h"
#include "ublktrace/stacks/fold.h"

#define WIDTH 1200.0
#define ROW_HEIGHT 17
#define MARGIN 10.0
#define TITLE_HEIGHT 40
#define CHAR_WIDTH 7.0
#define NARROWEST 0.2 /* of a frame that is drawn at all */

struct picture {
	const struct fold *fold;
	FILE *out;
	uint64_t total;
	unsigned depth; /* of the deepest stack */
};

/* Text of XML: names come from the kernel and from the command line. */
static void svg_escape(FILE *out, const char *text, size_t most)
{
	for (size_t i = 0; text[i] && i < most; i++)
		switch (text[i]) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc((unsigned char)text[i] < ' ' ? '?' : text[i], out);
		}
}

/* The same name has the same colour, from yellow to red. */
static void svg_colour(const char *name, unsigned *ret_green, unsigned *ret_blue)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	*ret_green = 70 + hash % 150;
	*ret_blue = 20 + (hash >> 8) % 60;
}

static void svg_draw_frame(const struct picture *p, const char *name, uint64_t before,
			   uint64_t count, unsigned depth)
{
	double scale = (WIDTH - 2 * MARGIN) / (double)p->total;
	double x = MARGIN + (double)before * scale, width = (double)count * scale;
	unsigned y = TITLE_HEIGHT + (p->depth - 1 - depth) * ROW_HEIGHT, green, blue;
	size_t letters = (size_t)(width / CHAR_WIDTH);

	if (width < NARROWEST)
		return;
	svg_colour(name, &green, &blue);
	fputs("<g><title>", p->out);
	svg_escape(p->out, name, SIZE_MAX);
	fprintf(p->out,
		": %" PRIu64
		" (%.1f%%)</title><rect x=\"%.1f\" y=\"%u\" width=\"%.1f\" height=\"%d\" "
		"rx=\"1\" fill=\"rgb(240,%u,%u)\"/>",
		count, 100.0 * (double)count / (double)p->total, x, y, width, ROW_HEIGHT - 1, green,
		blue);
	if (letters >= 3) {
		fprintf(p->out, "<text x=\"%.1f\" y=\"%u\">", x + 3, y + 12);
		svg_escape(p->out, name, letters);
		fputs("</text>", p->out);
	}
	fputs("</g>\n", p->out);
}

static uint64_t svg_count(const struct fold *f, size_t first, size_t end)
{
	uint64_t count = 0;

	for (size_t i = first; i < end; i++)
		count += f->line[i].count;
	return count;
}

/* Where the lines end that have the same frame as first at depth. */
static size_t svg_same_until(const struct fold *f, size_t first, size_t end, unsigned depth)
{
	size_t i = first + 1;

	while (i < end && f->line[i].frame_nr > depth &&
	       !strcmp(f->line[i].frame[depth], f->line[first].frame[depth]))
		i++;
	return i;
}

/* Lines first to end have the same frames below depth, which is at most FOLD_FRAMES_MAX. */
static void svg_draw_lines(const struct picture *p, size_t first, size_t end, unsigned depth,
			   uint64_t before)
{
	while (first < end) {
		const struct fold_line *l = &p->fold->line[first];
		size_t next = first + 1;
		uint64_t count = l->count;

		if (l->frame_nr > depth) {
			next = svg_same_until(p->fold, first, end, depth);
			count = svg_count(p->fold, first, next);
			svg_draw_frame(p, l->frame[depth], before, count, depth);
			svg_draw_lines(p, first, next, depth + 1, before);
		}
		before += count;
		first = next;
	}
}

void fold_write_svg(const struct fold *f, FILE *out, const char *title)
{
	struct picture p = { .fold = f, .out = out, .total = svg_count(f, 0, f->line_nr) };

	for (size_t i = 0; i < f->line_nr; i++)
		p.depth = MAX(p.depth, f->line[i].frame_nr);
	fprintf(out,
		"<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
		"height=\"%u\" font-family=\"monospace\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fffdf5\"/>\n"
		"<text x=\"%.0f\" y=\"24\" font-size=\"15\">",
		WIDTH, TITLE_HEIGHT + p.depth * ROW_HEIGHT + 10, MARGIN);
	svg_escape(out, title, SIZE_MAX);
	fputs("</text>\n", out);
	if (p.total)
		svg_draw_lines(&p, 0, f->line_nr, 0, 0);
	fputs("</svg>\n", out);
}
