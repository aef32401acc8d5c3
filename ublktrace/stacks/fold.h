/*
 * Stacks with counts, folded as flame graph tools read them: "read;outermost;...;innermost 12".
 * Pure; main thread.
 */
#ifndef UBLKTRACE_STACKS_FOLD_H
#define UBLKTRACE_STACKS_FOLD_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FOLD_FRAMES_MAX 66u

struct fold_line {
	uint64_t count;
	unsigned frame_nr;
	char *frame[FOLD_FRAMES_MAX]; /* the outermost first */
};

struct fold {
	struct fold_line *line;
	size_t line_nr, room;
};

/* Adds to the line of the same frames, or makes one; copies the names. Returns 0 or -ENOMEM. */
int fold_add(struct fold *f, const char *const *frame, unsigned frame_nr, uint64_t count);
void fold_sort(struct fold *f);
void fold_free(struct fold *f);

/* Both write without looking whether out takes it. Semicolons and blanks in names become '_'. */
void fold_write(const struct fold *f, FILE *out);

/* A flame graph: width by count, what is called above its caller, names and counts as tooltips. f
 * is sorted. */
void fold_write_svg(const struct fold *f, FILE *out, const char *title);

/* How a request came to the driver, from the names of its stack, outermost first: "direct",
 * "plug list", "requeue", "dispatch list", "other". Static. */
const char *fold_issue_path(const char *const *frame, unsigned frame_nr);

#endif
