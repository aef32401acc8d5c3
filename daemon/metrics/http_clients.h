/*
 * The clients of the metrics server: how long each may take, and which is dropped when there is no
 * slot. The descriptors belong to libmicrohttpd: a client that has to go is shut down here, and
 * forgotten when the library has closed it. Main thread.
 */
#ifndef DAEMON_METRICS_HTTP_CLIENTS_H
#define DAEMON_METRICS_HTTP_CLIENTS_H

#include <ev.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define HTTP_CLIENTS_MAX 64
/* Of one address; of IPv6 the network of 64 bits, which one machine can have all addresses of. */
#define HTTP_ADDRESS_CLIENTS_MAX 32
/* Also those that are shut down and not closed yet. */
#define HTTP_SLOT_NR (2 * HTTP_CLIENTS_MAX)

#define HTTP_REQUEST_SECONDS 5. /* from connect to the end of the request's header */
#define HTTP_ANSWER_SECONDS 20. /* until the whole answer was taken */

enum http_phase {
	HTTP_FREE,
	HTTP_REQUEST, /* its header is not complete */
	HTTP_ANSWER,
	HTTP_LEAVING,
	HTTP_PHASE_NR,
};

struct http_client {
	enum http_phase phase;
	uint64_t since_ns; /* when the phase began */
	int fd;
	struct in6_addr from;
};

struct http_clients {
	struct ev_loop *ev;
	struct ev_timer deadline;
	double seconds[HTTP_PHASE_NR]; /* how long each phase may last */
	struct http_client slot[HTTP_SLOT_NR];
};

void http_clients_init(struct http_clients *c, struct ev_loop *ev);
void http_clients_fini(struct http_clients *c);

/*
 * A client came; there must be a free slot. Where its address or the server has as many as it may,
 * one of the busiest address is shut down: the one that has been in its phase for longest.
 */
void http_clients_take(struct http_clients *c, int fd, const struct sockaddr_storage *from);

/* False: connections that were shut down are not closed yet; try again when libmicrohttpd has run.
 */
bool http_clients_has_slot(const struct http_clients *c);

/* Of fd, which is not closed yet; NULL: unknown. */
struct http_client *http_clients_find(struct http_clients *c, int fd);

void http_clients_set_phase(struct http_clients *c, struct http_client *client,
			    enum http_phase phase);

/* It is closed. */
void http_clients_drop(struct http_client *client);

/* Clients that are not leaving. */
unsigned http_clients_nr(const struct http_clients *c);

#endif
