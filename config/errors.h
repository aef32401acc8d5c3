/*
 * All errors of one configuration, collected and told at once, in the order of its files and of
 * their lines: `file:line:column: message`. Any thread, one at a time.
 */
#ifndef CONFIG_ERRORS_H
#define CONFIG_ERRORS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config_pos {
	unsigned line, column; /* from 1; line 0: the file as a whole */
};

struct config_error {
	size_t file_idx; /* in files; of one that could not be remembered: none */
	struct config_pos pos;
	char *message;
};

/* Beyond this many the rest is counted, not kept: a hostile file must not fill memory. */
#define CONFIG_ERRORS_MAX 100

struct config_errors {
	char **files;		  /* the first one is that of config_errors_init */
	size_t file_nr, file_idx; /* file_idx: which the next errors are in */
	struct config_error *list;
	size_t nr;	   /* kept in list */
	size_t dropped_nr; /* above CONFIG_ERRORS_MAX, or out of memory */
};

/* file is copied; "-" or "<control>" are as good as a path. */
void config_errors_init(struct config_errors *e, const char *file);
void config_errors_fini(struct config_errors *e);

/*
 * The errors added from now on are in another file, whose name is copied; NULL: in the first one
 * again.
 */
void config_errors_enter(struct config_errors *e, const char *file);

/*
 * Control characters in the message are escaped (a configuration must not write to the admin's
 * terminal), a message too long is cut, and the same message at the same position is kept once
 * (an alias is visited once per use).
 */
void config_errors_add(struct config_errors *e, struct config_pos pos, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* False while nothing was added. */
static inline bool config_errors_any(const struct config_errors *e)
{
	return e->nr != 0 || e->dropped_nr != 0;
}

/* All lines, sorted by file and position, each ending in '\n'. The caller frees. NULL: out of
 * memory. */
char *config_errors_text(struct config_errors *e);

/*
 * text, or its beginning and "...", in buf: for quoting in a message what somebody else wrote and
 * what may be megabytes long. Returns buf.
 */
#define CONFIG_EXCERPT_BYTES 72
const char *config_excerpt(const char *text, char buf[static CONFIG_EXCERPT_BYTES]);

#endif
