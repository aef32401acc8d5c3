/*
 * The metrics over HTTP: /metrics, /, /page.json and /heatmap.json. libmicrohttpd without a thread
 * of its own: libev watches its epoll and the listening socket. Main thread.
 */
#ifndef DAEMON_METRICS_HTTP_H
#define DAEMON_METRICS_HTTP_H

#include <ev.h>

#include "daemon/metrics/http_clients.h"
#include "daemon/metrics/metrics.h"

enum http_text {
	HTTP_TEXT_OPENMETRICS,
	HTTP_TEXT_PROMETHEUS,
	HTTP_TEXT_PAGE,
	HTTP_TEXT_HEATMAP,
	HTTP_TEXT_NR,
};

struct http {
	struct ev_loop *ev;
	int fd; /* listens */
	struct MHD_Daemon *mhd;
	struct ev_io readable, acceptable;
	struct ev_timer timeout, pause;
	struct metrics_source source;
	uint64_t page_asked_ns; /* metrics_page */
	struct http_clients clients;
	/* The text made last: the answer to requests before until_ns. */
	struct {
		struct MHD_Response *response;
		uint64_t until_ns;
	} text[HTTP_TEXT_NR];
};

/* address as address_parse reads it. Returns 0 or -errno, logged. */
int http_start(struct http *h, struct ev_loop *ev, const char *address,
	       const struct metrics_source *source);

/* The port listened at, for port 0. */
unsigned http_port(const struct http *h);

/* Accepts a zeroed http. */
void http_stop(struct http *h);

#endif
