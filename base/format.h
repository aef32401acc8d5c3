/* Numbers for people, short enough for a column: "12.3k", "81us", "1GiB". Pure. */
#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H

#include <stdint.h>

#define FORMAT_BYTES 32

/* Each returns buf. */
const char *format_count(double count, char buf[static FORMAT_BYTES]);
const char *format_ns(uint64_t ns, char buf[static FORMAT_BYTES]);
const char *format_bytes(uint64_t bytes, char buf[static FORMAT_BYTES]);

#endif
