/* Text as a JSON string, whatever its bytes are. Any thread. */
#ifndef DAEMON_WIRE_JSON_WORDS_H
#define DAEMON_WIRE_JSON_WORDS_H

#include <jansson.h>
#include <stddef.h>

/*
 * text as it is where it is UTF-8; JSON has no other bytes: they become escapes, as "\xff", and a
 * last letter that was cut becomes "..." (printable.h). Everything that anybody else may have
 * written goes through here, as jansson returns NULL for it. A new reference; NULL: out of memory.
 */
json_t *json_words(const char *text);

/* The same, of so many bytes. */
json_t *json_words_bytes(const char *text, size_t bytes);

/* The same, of what printf would print. */
json_t *json_words_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
