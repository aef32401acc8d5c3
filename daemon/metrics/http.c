/*
 * A web server inside the libev loop. Owns its socket and connections.
 *
 * Happy path: a client is accepted and given to libmicrohttpd; its epoll descriptor is readable ->
 * MHD_run -> a request is answered from a text made at once. Failure modes: the address is taken:
 * an error at start; too many or too slow clients: see http_clients.h; no descriptors: no
 * client is accepted for a while. Everything can be read and nothing changed here.
 *
 * Sockets are accepted here and not by libmicrohttpd: that leaves a client that is one too many in
 * the backlog, behind those who hold the places, and counts bytes where the time of a request
 * counts.
 *
 * A text that took long to make is the answer to all requests that come soon after, so that many at
 * once, or read slowly, cost neither the main thread's time nor memory for each.
 */
#include "daemon/metrics/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/settings/listen_address.h"
#include "reactor/ring.h"

#define BACKLOG 512
#define ACCEPTS_PER_TURN 64
#define PAUSE_SECONDS 0.5
/* A text is used again for this many times the time that it took to make. */
#define TEXT_TIMES 10u
/* Only while at least so many clients are connected: fewer clients always get a new text. */
#define CROWD_NR 5u
#define JSON_TYPE "application/json"
#define HTML_TYPE "text/html; charset=utf-8"
#define JS_TYPE "text/javascript; charset=utf-8"
/* The page runs its own script and asks this server; nothing else, nowhere else. */
#define PAGE_POLICY                                                                                \
	"default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; "   \
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* ---- answers ---- */

static void add_headers(struct MHD_Response *response, const char *type)
{
	/* An idle connection would occupy a slot. */
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Content-Security-Policy", PAGE_POLICY);
}

static enum MHD_Result send_answer(struct MHD_Connection *connection, unsigned status,
				   const char *type, struct MHD_Response *response)
{
	enum MHD_Result ret;

	if (!response)
		return MHD_NO;
	add_headers(response, type);
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

/* Who asks for plain text only (an old Prometheus, promtool, a browser) gets the older format. */
static enum http_text wanted_format(struct MHD_Connection *connection)
{
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	if (accept && !strstr(accept, "openmetrics") &&
	    (strstr(accept, "text/plain") || strstr(accept, "text/html")))
		return HTTP_TEXT_PROMETHEUS;
	return HTTP_TEXT_OPENMETRICS;
}

static char *make_text(struct http *h, enum http_text which, size_t *ret_bytes)
{
	if (which == HTTP_TEXT_PAGE)
		return metrics_page(&h->source, &h->page_asked_ns, ret_bytes);
	if (which == HTTP_TEXT_HEATMAP)
		return metrics_heatmap(&h->source, ret_bytes);
	return metrics_text(&h->source,
			    which == HTTP_TEXT_OPENMETRICS ? METRICS_OPENMETRICS
							   : METRICS_PROMETHEUS,
			    ret_bytes);
}

static const char *text_type(enum http_text which)
{
	if (which == HTTP_TEXT_PAGE || which == HTTP_TEXT_HEATMAP)
		return JSON_TYPE;
	return metrics_content_type(which == HTTP_TEXT_OPENMETRICS ? METRICS_OPENMETRICS
								   : METRICS_PROMETHEUS);
}

/* libmicrohttpd counts the connections that still send it. */
static void forget_text(struct http *h, enum http_text which)
{
	if (h->text[which].response)
		MHD_destroy_response(h->text[which].response);
	h->text[which].response = NULL;
}

static struct MHD_Response *fresh_text(struct http *h, enum http_text which)
{
	uint64_t begin_ns = ring_clock_ns(), end_ns;
	size_t bytes = 0;
	char *text;

	if (h->text[which].response && begin_ns < h->text[which].until_ns &&
	    http_clients_nr(&h->clients) >= CROWD_NR)
		return h->text[which].response;
	forget_text(h, which);
	text = make_text(h, which, &bytes);
	if (!text)
		return NULL;
	h->text[which].response =
		MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
	if (!h->text[which].response) {
		free(text);
		return NULL;
	}
	add_headers(h->text[which].response, text_type(which));
	end_ns = ring_clock_ns();
	h->text[which].until_ns = end_ns + (end_ns - begin_ns) * TEXT_TIMES;
	return h->text[which].response;
}

static enum MHD_Result send_made_text(struct http *h, struct MHD_Connection *connection,
				      enum http_text which)
{
	struct MHD_Response *response = fresh_text(h, which);

	if (!response)
		return send_words(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	return MHD_queue_response(connection, MHD_HTTP_OK, response);
}

static void set_answering(struct http *h, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	if (info && info->socket_context)
		http_clients_set_phase(&h->clients, info->socket_context, HTTP_ANSWER);
}

static enum MHD_Result on_http_request(void *arg, struct MHD_Connection *connection,
				       const char *url, const char *method,
				       const char *http_version, const char *upload_data,
				       size_t *upload_bytes, void **state)
{
	struct http *h = arg;

	(void)http_version, (void)upload_data, (void)state;
	set_answering(h, connection);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		*upload_bytes = 0;
		return send_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	}
	if (strcmp(url, "/metrics") == 0)
		return send_made_text(h, connection, wanted_format(connection));
	if (strcmp(url, "/page.json") == 0)
		return send_made_text(h, connection, HTTP_TEXT_PAGE);
	if (strcmp(url, "/heatmap.json") == 0)
		return send_made_text(h, connection, HTTP_TEXT_HEATMAP);
	if (strcmp(url, "/") == 0)
		return send_fixed(connection, MHD_HTTP_OK, HTML_TYPE, page_html, page_html_bytes);
	if (strcmp(url, "/page.js") == 0)
		return send_fixed(connection, MHD_HTTP_OK, JS_TYPE, page_js, page_js_bytes);
	return send_words(connection, MHD_HTTP_NOT_FOUND,
			  "/, /metrics, /page.json or /heatmap.json\n");
}

/* ---- the loop ---- */

static void run_http(struct http *h)
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

static void on_http_readable(struct ev_loop *ev, struct ev_io *w, int events)
{
	(void)ev, (void)events;
	run_http(container_of(w, struct http, readable));
}

static void on_http_timeout(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)ev, (void)events;
	run_http(container_of(w, struct http, timeout));
}

/* ---- clients ---- */

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http *h = arg;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = http_clients_find(&h->clients, info->connect_fd);
	} else if (*context) {
		http_clients_drop(*context);
		*context = NULL;
	}
}

/* libmicrohttpd closes fd whatever happens. */
static void take_connection(struct http *h, int fd, const struct sockaddr_storage *from,
			    socklen_t bytes)
{
	struct http_client *client;

	http_clients_take(&h->clients, fd, from);
	if (MHD_add_connection(h->mhd, fd, (const void *)from, bytes) == MHD_YES)
		return;
	client = http_clients_find(&h->clients, fd);
	if (client)
		http_clients_drop(client);
}

static void on_http_acceptable(struct ev_loop *ev, struct ev_io *w, int events)
{
	struct http *h = container_of(w, struct http, acceptable);

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN && http_clients_has_slot(&h->clients); i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t bytes = sizeof(from);
		int fd = accept4(h->fd, (void *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take_connection(h, fd, &from, bytes);
			continue;
		}
		if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
			break;
		/* The socket stays acceptable: do not spin on it. */
		log_limited(LOG_LEVEL_WARN, "cannot take in a client of the metrics", "error=%s",
			    errname(errno));
		ev_io_stop(ev, w);
		ev_timer_set(&h->pause, PAUSE_SECONDS, 0.);
		ev_timer_start(ev, &h->pause);
		break;
	}
	run_http(h);
}

static void on_http_pause_over(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)events;
	ev_io_start(ev, &container_of(w, struct http, pause)->acceptable);
}

/* ---- start and stop ---- */

static int listen_at(const struct sockaddr_storage *addr)
{
	int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	socklen_t bytes = addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
						     : sizeof(struct sockaddr_in6);
	int ret;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const void *)addr, bytes) < 0 || listen(fd, BACKLOG) < 0) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

static int start_serving(struct http *h, int fd)
{
	const union MHD_DaemonInfo *info;

	h->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
				  on_http_request, h, MHD_OPTION_CONNECTION_LIMIT,
				  (unsigned)HTTP_SLOT_NR, MHD_OPTION_NOTIFY_CONNECTION,
				  on_connection, h, MHD_OPTION_END);
	if (!h->mhd) {
		close(fd);
		return -ENOMEM;
	}
	h->fd = fd;
	http_clients_init(&h->clients, h->ev);
	info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	ev_io_init(&h->readable, on_http_readable, info->epoll_fd, EV_READ);
	ev_io_start(h->ev, &h->readable);
	ev_io_init(&h->acceptable, on_http_acceptable, fd, EV_READ);
	ev_io_start(h->ev, &h->acceptable);
	ev_timer_init(&h->timeout, on_http_timeout, 0., 0.);
	ev_timer_init(&h->pause, on_http_pause_over, 0., 0.);
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
		ret = start_serving(h, ret);
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
	struct sockaddr_in6 addr = { 0 };
	socklen_t bytes = sizeof(addr);

	if (getsockname(h->fd, (void *)&addr, &bytes) < 0)
		return 0;
	/* At the same place in a sockaddr_in, which is shorter. */
	_Static_assert(offsetof(struct sockaddr_in, sin_port) ==
			       offsetof(struct sockaddr_in6, sin6_port),
		       "the port of IPv4 and of IPv6");
	return ntohs(addr.sin6_port);
}

void http_stop(struct http *h)
{
	if (!h->mhd)
		return;
	ev_timer_stop(h->ev, &h->timeout);
	ev_timer_stop(h->ev, &h->pause);
	ev_io_stop(h->ev, &h->readable);
	ev_io_stop(h->ev, &h->acceptable);
	MHD_stop_daemon(h->mhd);
	for (unsigned i = 0; i < HTTP_TEXT_NR; i++)
		forget_text(h, i);
	http_clients_fini(&h->clients);
	close(h->fd);
	*h = (struct http){ 0 };
}
