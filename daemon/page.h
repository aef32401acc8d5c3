/* The page at / of the metrics server: daemon/page.html, made into an array by the build. */
#ifndef DAEMON_PAGE_H
#define DAEMON_PAGE_H

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;

#endif
