/* The page at / of the metrics server: page.html and page.js, made into arrays by the build. */
#ifndef DAEMON_METRICS_PAGE_H
#define DAEMON_METRICS_PAGE_H

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;
extern const unsigned char page_js[];
extern const size_t page_js_bytes;

#endif
