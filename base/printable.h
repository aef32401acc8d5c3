/* Text that a peer or a file sent, made fit for logs and messages. Any thread. */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stddef.h>

/*
 * Copies printable ASCII as it is and writes every other byte as '?'; "..." where it did not fit.
 * buf_bytes: at least 4. Returns buf, which is terminated.
 */
const char *printable(char *buf, size_t buf_bytes, const void *text, size_t text_bytes);

#endif
