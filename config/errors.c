/*
 * The list of configuration errors. Any thread, one at a time. It never fails: without memory, or
 * above CONFIG_ERRORS_MAX, an error is counted instead of kept, so that "were there errors" stays
 * right.
 */
#include "config/errors.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

#define MESSAGE_BYTES_MAX 512
#define NO_FILE SIZE_MAX

void config_errors_init(struct config_errors *e, const char *file)
{
	memset(e, 0, sizeof(*e));
	config_errors_enter(e, file);
}

void config_errors_fini(struct config_errors *e)
{
	for (size_t i = 0; i < e->nr; i++)
		free(e->list[i].message);
	free(e->list);
	for (size_t i = 0; i < e->file_nr; i++)
		free(e->files[i]);
	free(e->files);
	memset(e, 0, sizeof(*e));
}

/* Returns its index, or NO_FILE without memory. */
static size_t errors_remember(struct config_errors *e, const char *file)
{
	char *name = strdup(file);
	char **files = reallocarray(e->files, e->file_nr + 1, sizeof(*files));

	if (files)
		e->files = files;
	if (!files || !name) {
		free(name);
		return NO_FILE;
	}
	files[e->file_nr] = name;
	return e->file_nr++;
}

void config_errors_enter(struct config_errors *e, const char *file)
{
	size_t idx = 0;

	while (file && idx < e->file_nr && strcmp(e->files[idx], file) != 0)
		idx++;
	e->file_idx = file && idx == e->file_nr ? errors_remember(e, file) : idx;
}

const char *config_excerpt(const char *text, char buf[static CONFIG_EXCERPT_BYTES])
{
	size_t len = strnlen(text, CONFIG_EXCERPT_BYTES);

	if (len < CONFIG_EXCERPT_BYTES) {
		memcpy(buf, text, len + 1);
		return buf;
	}
	len = utf8_whole(text, CONFIG_EXCERPT_BYTES - sizeof("..."));
	memcpy(buf, text, len);
	memcpy(buf + len, "...", sizeof("..."));
	return buf;
}

static char *format_message(const char *fmt, va_list ap)
{
	char raw[MESSAGE_BYTES_MAX], shown[PRINTABLE_GROWTH * MESSAGE_BYTES_MAX];
	int n = vsnprintf(raw, sizeof(raw), fmt, ap);

	if (n < 0) /* UNTESTED: only for a format of wide characters */
		return NULL;
	if ((size_t)n >= sizeof(raw))
		memcpy(raw + utf8_whole(raw, sizeof(raw) - sizeof("...")), "...", sizeof("..."));
	return strdup(printable(shown, sizeof(shown), raw, strlen(raw)));
}

static bool known(const struct config_errors *e, struct config_pos pos, const char *message)
{
	for (size_t i = 0; i < e->nr; i++)
		if (e->list[i].file_idx == e->file_idx && e->list[i].pos.line == pos.line &&
		    e->list[i].pos.column == pos.column && e->list[i].message &&
		    strcmp(e->list[i].message, message) == 0)
			return true;
	return false;
}

/* Takes over message. */
static void errors_append(struct config_errors *e, struct config_pos pos, char *message)
{
	if (!e->list)
		e->list = calloc(CONFIG_ERRORS_MAX, sizeof(*e->list));
	if (!e->list || !message) {
		e->dropped_nr++;
		free(message);
	} else if (known(e, pos, message)) {
		free(message);
	} else {
		e->list[e->nr++] = (struct config_error){ .file_idx = e->file_idx,
							  .pos = pos,
							  .message = message };
	}
}

void config_errors_add(struct config_errors *e, struct config_pos pos, const char *fmt, ...)
{
	va_list ap;

	if (e->nr == CONFIG_ERRORS_MAX) {
		e->dropped_nr++;
		return;
	}
	va_start(ap, fmt);
	errors_append(e, pos, format_message(fmt, ap));
	va_end(ap);
}

static bool error_before(const struct config_error *a, const struct config_error *b)
{
	if (a->file_idx != b->file_idx)
		return a->file_idx < b->file_idx;
	return a->pos.line != b->pos.line ? a->pos.line < b->pos.line
					  : a->pos.column < b->pos.column;
}

/* Insertion sort: at most CONFIG_ERRORS_MAX, and errors of one position keep their order. */
static void sort(struct config_errors *e)
{
	for (size_t i = 1; i < e->nr; i++) {
		struct config_error moved = e->list[i];
		size_t j = i;

		for (; j > 0 && error_before(&moved, &e->list[j - 1]); j--)
			e->list[j] = e->list[j - 1];
		e->list[j] = moved;
	}
}

/* Files of a folder have names that anybody may have chosen. */
static const char *errors_file(const struct config_errors *e, size_t idx, char buf[static PATH_MAX])
{
	const char *name = idx < e->file_nr ? e->files[idx] : "?";

	return printable(buf, PATH_MAX, name, strlen(name));
}

static void write_lines(const struct config_errors *e, FILE *out)
{
	char shown[PATH_MAX];

	for (size_t i = 0; i < e->nr; i++) {
		const struct config_error *error = &e->list[i];
		const char *file = errors_file(e, error->file_idx, shown);

		if (error->pos.line == 0)
			fprintf(out, "%s: %s\n", file, error->message);
		else
			fprintf(out, "%s:%u:%u: %s\n", file, error->pos.line, error->pos.column,
				error->message);
	}
	if (e->dropped_nr != 0)
		fprintf(out, "%s: %zu more errors are not shown\n", errors_file(e, 0, shown),
			e->dropped_nr);
}

char *config_errors_text(struct config_errors *e)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	sort(e);
	write_lines(e, out);
	if (fclose(out) != 0) { /* UNTESTED: no memory for the stream's own buffer */
		free(text);
		return NULL;
	}
	return text;
}
