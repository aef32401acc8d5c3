/*
 * The metrics over HTTP: /metrics, / and /heatmap.json. libmicrohttpd without a thread of its own:
 * libev watches its epoll. Main thread.
 */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <ev.h>

#include "daemon/metrics.h"

struct http {
	struct ev_loop *ev;
	struct MHD_Daemon *mhd;
	struct ev_io readable;
	struct ev_timer timeout;
	struct metrics_source source;
};

/* address as address_parse reads it. Returns 0 or -errno, logged. */
int http_start(struct http *h, struct ev_loop *ev, const char *address,
	       const struct metrics_source *source);

/* The port listened at, for port 0. */
unsigned http_port(const struct http *h);

/* Accepts a zeroed http. */
void http_stop(struct http *h);

#endif
