/*
 * Stacks with counts: kept, sorted, written folded. Pure; main thread; owns the names it has
 * copied. Failure mode: out of memory.
 */
#include "ublktrace/stacks/fold.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static int fold_compare_frames(const struct fold_line *a, const char *const *frame,
			       unsigned frame_nr)
{
	for (unsigned i = 0; i < a->frame_nr && i < frame_nr; i++) {
		int order = strcmp(a->frame[i], frame[i]);

		if (order)
			return order;
	}
	return a->frame_nr < frame_nr ? -1 : a->frame_nr > frame_nr;
}

static void fold_line_free(struct fold_line *l)
{
	for (unsigned i = 0; i < l->frame_nr; i++)
		free(l->frame[i]);
}

static int fold_line_copy(struct fold_line *l, const char *const *frame, unsigned frame_nr)
{
	*l = (struct fold_line){ 0 };
	for (unsigned i = 0; i < MIN(frame_nr, FOLD_FRAMES_MAX); i++) {
		l->frame[i] = strdup(frame[i]);
		if (!l->frame[i]) {
			fold_line_free(l);
			return -ENOMEM;
		}
		l->frame_nr++;
	}
	return 0;
}

int fold_add(struct fold *f, const char *const *frame, unsigned frame_nr, uint64_t count)
{
	frame_nr = MIN(frame_nr, FOLD_FRAMES_MAX);
	for (size_t i = 0; i < f->line_nr; i++)
		if (!fold_compare_frames(&f->line[i], frame, frame_nr)) {
			f->line[i].count += count;
			return 0;
		}
	if (f->line_nr == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct fold_line *line = reallocarray(f->line, room, sizeof(*line));

		if (!line)
			return -ENOMEM;
		f->line = line;
		f->room = room;
	}
	if (fold_line_copy(&f->line[f->line_nr], frame, frame_nr))
		return -ENOMEM;
	f->line[f->line_nr++].count = count;
	return 0;
}

static int fold_compare_lines(const void *a, const void *b)
{
	const struct fold_line *x = a, *y = b;

	return fold_compare_frames(x, (const char *const *)y->frame, y->frame_nr);
}

void fold_sort(struct fold *f)
{
	if (f->line_nr)
		qsort(f->line, f->line_nr, sizeof(*f->line), fold_compare_lines);
}

void fold_free(struct fold *f)
{
	for (size_t i = 0; i < f->line_nr; i++)
		fold_line_free(&f->line[i]);
	free(f->line);
	*f = (struct fold){ 0 };
}

static void fold_write_frame(FILE *out, const char *name)
{
	for (; *name; name++)
		fputc(*name == ';' || *name == ' ' || *name == '\n' ? '_' : *name, out);
}

void fold_write(const struct fold *f, FILE *out)
{
	for (size_t i = 0; i < f->line_nr; i++) {
		for (unsigned j = 0; j < f->line[i].frame_nr; j++) {
			if (j)
				fputc(';', out);
			fold_write_frame(out, f->line[i].frame[j]);
		}
		fprintf(out, " %" PRIu64 "\n", f->line[i].count);
	}
}

/* block/blk-mq.c. The first row that is in the stack says it: a requeued request comes to the
 * driver through a dispatch list. Names with .part.0 and the like are meant too. */
const char *fold_issue_path(const char *const *frame, unsigned frame_nr)
{
	static const struct {
		const char *function, *path;
	} rows[] = {
		{ "blk_mq_requeue_work", "requeue" },
		{ "blk_mq_dispatch_rq_list", "dispatch list" },
		{ "blk_mq_run_work_fn", "dispatch list" },
		{ "blk_mq_flush_plug_list", "plug list" },
		{ "blk_mq_plug_issue_direct", "plug list" },
		{ "blk_mq_try_issue_directly", "direct" },
		{ "blk_mq_submit_bio", "direct" },
	};

	for (size_t r = 0; r < ARRAY_SIZE(rows); r++)
		for (unsigned i = 0; i < frame_nr; i++) {
			size_t length = strcspn(frame[i], ".");

			if (strlen(rows[r].function) == length &&
			    !strncmp(frame[i], rows[r].function, length))
				return rows[r].path;
		}
	return "other";
}
