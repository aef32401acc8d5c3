/*
 * Text from outside (a peer's, a file's, another user's) made fit for terminals, logs and JSON:
 * what is no UTF-8, and what would move a cursor or turn the direction of writing, becomes an
 * escape. Any thread.
 */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stddef.h>
#include <stdint.h>

/*
 * The bytes of the letter that text begins with, 1 to 4, and its code. 0: these bytes are no UTF-8
 * (overlong, a surrogate, above U+10FFFF, or not whole).
 */
unsigned utf8_letter(const void *text, size_t bytes, uint32_t *ret_code);

/* The bytes of text without a last letter of which a buffer that was too small has cut the end. */
size_t utf8_whole(const char *text, size_t bytes);

/* Ends text, which a buffer may have cut, at its last whole letter. */
void utf8_end_whole(char *text);

/* For "%.*s": the bytes of text, at most max of them, without the letter that max would cut. */
int utf8_fit(const char *text, size_t max);

/* Writes '?' over each byte of text that is no UTF-8: its length stays. */
void utf8_repair(char *text);

/*
 * How the beginning of text is shown; bytes: at least 1. Returns how many bytes of text that is:
 * with "" in escape they are shown as they are. Else they are a control character of C0, DEL or a
 * byte that is no UTF-8, as "\x1b"; a control character of C1, a separator of lines or an override
 * of the direction of writing, as "\u202e"; or the beginning of a letter that was cut, as "...".
 */
#define PRINTABLE_ESCAPE_BYTES 7
size_t printable_next(const char *text, size_t bytes, char escape[static PRINTABLE_ESCAPE_BYTES]);

/* Text grows to at most so many times its bytes. */
#define PRINTABLE_GROWTH 4

/*
 * text as printable_next shows it; "..." where it did not fit, never inside a letter or an escape.
 * buf_bytes: at least 4. Returns buf, which is terminated.
 */
const char *printable(char *buf, size_t buf_bytes, const void *text, size_t text_bytes);

#endif
