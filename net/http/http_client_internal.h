/* What http_client.c, http_socket.c and http_transfer.c share. Reactor thread. */
#ifndef NET_HTTP_HTTP_CLIENT_INTERNAL_H
#define NET_HTTP_HTTP_CLIENT_INTERNAL_H

#include "net/http/http_client.h"
#include "net/http/http_curl.h"

/* A socket of libcurl that the ring polls. It is free when it has no fd and both ops are idle. */
struct http_socket {
	struct http_client *client;
	struct op poll, cancel;
	int fd;		 /* -1: none */
	uint32_t wanted; /* POLLIN, POLLOUT */
	uint32_t polled; /* the same, of the poll under way */
};

/* NULL: none. */
struct http_keys {
	char *user, *password;
	char *session_header; /* as it is sent */
};

/* A connection that is tried by two addresses has two; those that are given up leave slowly. */
#define HTTP_SOCKETS_PER_CONNECTION 4u

struct http_client {
	const struct http_curl *curl;
	struct reactor *reactor;
	CURLM *multi;
	bool is_leaving;
	struct timer timer;
	struct task task;
	struct http_socket *socket;
	unsigned socket_nr;
	struct http_socket *acting; /* libcurl is told of it: it is polled again afterwards */
	uint64_t connects;

	/* Settings. */
	uint64_t timeout_ns;
	char *ca_file, *token, *signing;
	struct http_keys keys;
	bool accepts_any_peer, keeps_dots;
	struct curl_slist *headers, *secret_headers;
};

/* http_socket.c */
int http_sockets_init(struct http_client *c, unsigned nr);
/* libcurl is gone: none is polled any more. */
void http_sockets_forget(struct http_client *c);
/* The kernel has let go of all. */
bool http_sockets_are_free(const struct http_client *c);
void http_sockets_fini(struct http_client *c);
/* As CURLMOPT_SOCKETFUNCTION. */
int http_socket_want(CURL *easy, curl_socket_t fd, int what, void *client, void *socket);

/* http_client.c: a socket is ready, or (NULL) time has passed; ends transfers. */
void http_client_act(struct http_client *c, struct http_socket *socket, int events);
/* The last socket has been let go of. */
void http_client_left(struct http_client *c);

/* http_transfer.c: libcurl has ended it. */
void http_transfer_ended(struct http_transfer *t, CURLcode code);

#endif
