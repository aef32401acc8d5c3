/*
 * A web server inside the libev loop. Owns its socket and connections.
 *
 * Happy path: the epoll descriptor is readable -> MHD_run -> a request is answered from a text made
 * at once. Failure modes: the address is taken: told at start; more than 32 clients, or one that is
 * silent for 10 seconds: dropped by libmicrohttpd. Everything can be read and nothing changed here.
 */
#include "daemon/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/address.h"
#include "daemon/page.h"

#define CLIENTS_MAX 32u
#define CLIENT_SECONDS_MAX 10u
#define JSON_TYPE "application/json"
#define HTML_TYPE "text/html; charset=utf-8"
#define JS_TYPE "text/javascript; charset=utf-8"
/* The page runs its own script and asks this server; nothing else, nowhere else. */
#define PAGE_POLICY                                                                                \
	"default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; "   \
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* ---- answers ---- */

static enum MHD_Result send_answer(struct MHD_Connection *connection, unsigned status,
				   const char *type, struct MHD_Response *response)
{
	enum MHD_Result ret;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Content-Security-Policy", PAGE_POLICY);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	ret = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return ret;
}

static enum MHD_Result send_fixed(struct MHD_Connection *connection, unsigned status,
				  const char *type, const void *data, size_t bytes)
{
	/* The library does not write to it. */
	return send_answer(connection, status, type,
			   MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)data,
							   MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result send_words(struct MHD_Connection *connection, unsigned status,
				  const char *words)
{
	return send_fixed(connection, status, "text/plain; charset=utf-8", words, strlen(words));
}

/* Takes text. */
static enum MHD_Result send_made(struct MHD_Connection *connection, const char *type, char *text,
				 size_t bytes)
{
	struct MHD_Response *response;

	if (!text)
		return send_words(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
	if (!response)
		free(text);
	return send_answer(connection, MHD_HTTP_OK, type, response);
}

/* Who asks for plain text only (an old Prometheus, promtool, a browser) gets the older format. */
static enum metrics_format wanted_format(struct MHD_Connection *connection)
{
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	if (accept && !strstr(accept, "openmetrics") &&
	    (strstr(accept, "text/plain") || strstr(accept, "text/html")))
		return METRICS_PROMETHEUS;
	return METRICS_OPENMETRICS;
}

static enum MHD_Result send_metrics(struct http *h, struct MHD_Connection *connection)
{
	enum metrics_format format = wanted_format(connection);
	size_t bytes = 0;
	char *text = metrics_text(&h->source, format, &bytes);

	return send_made(connection, metrics_content_type(format), text, bytes);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *http_version,
				  const char *upload_data, size_t *upload_bytes, void **state)
{
	struct http *h = arg;
	size_t bytes = 0;
	char *text;

	(void)http_version, (void)upload_data, (void)state;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		*upload_bytes = 0;
		return send_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	}
	if (strcmp(url, "/metrics") == 0)
		return send_metrics(h, connection);
	if (strcmp(url, "/heatmap.json") == 0) {
		text = metrics_heatmap(&h->source, &bytes);
		return send_made(connection, JSON_TYPE, text, bytes);
	}
	if (strcmp(url, "/") == 0)
		return send_fixed(connection, MHD_HTTP_OK, HTML_TYPE, page_html, page_html_bytes);
	if (strcmp(url, "/page.js") == 0)
		return send_fixed(connection, MHD_HTTP_OK, JS_TYPE, page_js, page_js_bytes);
	return send_words(connection, MHD_HTTP_NOT_FOUND, "/, /metrics or /heatmap.json\n");
}

/* ---- the loop ---- */

static void run(struct http *h)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms;

	MHD_run(h->mhd);
	ev_timer_stop(h->ev, &h->timeout);
	if (MHD_get_timeout(h->mhd, &timeout_ms) != MHD_YES)
		return;
	ev_now_update(h->ev);
	ev_timer_set(&h->timeout, (double)timeout_ms / 1000, 0.);
	ev_timer_start(h->ev, &h->timeout);
}

static void on_readable(struct ev_loop *ev, struct ev_io *w, int events)
{
	(void)ev, (void)events;
	run(container_of(w, struct http, readable));
}

static void on_timeout(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)ev, (void)events;
	run(container_of(w, struct http, timeout));
}

static int listen_at(const struct sockaddr_storage *addr)
{
	int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	socklen_t bytes = addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
						     : sizeof(struct sockaddr_in6);
	int ret;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const void *)addr, bytes) < 0 || listen(fd, (int)CLIENTS_MAX) < 0) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

static int serve(struct http *h, int fd)
{
	const union MHD_DaemonInfo *info;

	h->mhd = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h,
				  MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
				  CLIENTS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, CLIENT_SECONDS_MAX,
				  MHD_OPTION_END);
	if (!h->mhd) {
		close(fd);
		return -ENOMEM;
	}
	info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	ev_io_init(&h->readable, on_readable, info->epoll_fd, EV_READ);
	ev_io_start(h->ev, &h->readable);
	ev_timer_init(&h->timeout, on_timeout, 0., 0.);
	return 0;
}

int http_start(struct http *h, struct ev_loop *ev, const char *address,
	       const struct metrics_source *source)
{
	struct sockaddr_storage addr;
	int ret = address_parse(address, &addr);

	*h = (struct http){ .ev = ev, .source = *source };
	if (ret == 0)
		ret = listen_at(&addr);
	if (ret >= 0)
		ret = serve(h, ret);
	if (ret < 0) {
		log_error("cannot serve metrics", "address=%s error=%s", address, errname(ret));
		return ret;
	}
	if (!address_is_loopback(&addr))
		log_warn("everybody who reaches this address can read the metrics", "address=%s",
			 address);
	return 0;
}

unsigned http_port(const struct http *h)
{
	return MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_BIND_PORT)->port;
}

void http_stop(struct http *h)
{
	if (!h->mhd)
		return;
	ev_timer_stop(h->ev, &h->timeout);
	ev_io_stop(h->ev, &h->readable);
	MHD_stop_daemon(h->mhd);
	*h = (struct http){ 0 };
}
