/*
 * Requests to web servers, by libcurl: HTTP/1.1 and HTTP/2, TLS, connections kept and used again.
 * libcurl never waits: its sockets are polled by the ring, its timers are the reactor's. It asks
 * for memory while it works, and looks up names of hosts in a thread of its own; no byte of a disk
 * goes through that thread.
 *
 *	http_client_create
 *	http_transfer_init, once for each request that may be under way at a time
 *	http_transfer_begin -> answered (the headers) -> body, body, ... -> done -> begin again
 *	http_transfer_fini, http_client_free
 *
 * Redirections are not followed: who asked decides. Reactor thread, but for http_client_create:
 * any.
 */
#ifndef NET_HTTP_HTTP_CLIENT_H
#define NET_HTTP_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/http/http_answer.h"
#include "net/session_look.h"
#include "reactor/reactor.h"

struct http_client;
struct http_transfer;
struct curl_slist;

#define HTTP_ERROR_BYTES 256
#define HTTP_URL_BYTES 4096

/* Texts are copied where nothing else is said. NULL: none. */
struct http_settings {
	const char *ca_file;	     /* PEM; NULL: the system's */
	bool accepts_any_peer;	     /* certificates are not verified */
	uint64_t timeout_ns;	     /* of a transfer, from its beginning to its end */
	unsigned connection_nr;	     /* at most so many at a time */
	const char *user, *password; /* basic authentication */
	const char *token;	     /* bearer authentication */
	/*
	 * Requests that are secret are signed for S3 in this region (AWS Signature Version 4), with
	 * user as access key and password as secret key. libcurl signs headers, too: those here
	 * have a value. The hash of a body is not signed.
	 */
	const char *sign_region;
	const char *session_token; /* of keys that are good for a while: a header, signed too */
	bool keeps_dots;	   /* /a/../b is sent as it is */
	/* "Name: value", of requests that are said to be secret (struct http_request). */
	const char *const *headers;
	unsigned header_nr;
};

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_PUT, HTTP_DELETE };

struct http_request {
	const char *url; /* http or https; copied */
	enum http_method method;
	const char *condition; /* a header, "If-Match: ..."; NULL: none; copied */
	const void *body;      /* of a PUT: stays as it is until done */
	size_t body_bytes;
	uint64_t first_bytes, length_bytes; /* Range; length 0: the whole */
	/* The settings' user, token and headers go with it: not to a host that a server has named.
	 */
	bool is_secret;
};

/* How a transfer has ended. */
struct http_end {
	/*
	 * 0: the answer is whole, whatever its status. -ECANCELED: answered or body refused it.
	 * Else there is none: end and words say why.
	 */
	int result;
	enum net_end end;
	char words[HTTP_ERROR_BYTES];
};

/* Called from turns, never from http_transfer_begin. */
struct http_transfer_ops {
	/* t->answer is whole. False: the rest is of no use; done follows. */
	bool (*answered)(struct http_transfer *t);
	/* More of the body. False: as above. */
	bool (*body)(struct http_transfer *t, const uint8_t *data, size_t bytes);
	/* The last call; may begin t, or others, again, but not free them or the client. */
	void (*done)(struct http_transfer *t, const struct http_end *end);
};

struct http_transfer {
	struct http_client *client;
	const struct http_transfer_ops *ops;
	void *easy; /* NULL: not initialised */
	struct http_answer answer;
	bool is_under_way;
	bool is_refused; /* by a function of ops, or by its headers */
	char error[HTTP_ERROR_BYTES];
	/* http_transfer.c: headers of this request alone, before those of the client. */
	struct curl_slist *own_headers, *own_tail;
	const uint8_t *body;
	size_t body_bytes, body_at;
};

/*
 * Any thread that may wait for files; the client is the reactor's from then on. Returns 0 or -errno
 * with words.
 */
int http_client_create(struct http_client **ret_client, struct reactor *reactor,
		       const struct http_settings *settings, char *error, size_t error_bytes);
/* No transfer is initialised. It frees itself when the kernel has let go of its sockets. NULL:
 * none. */
void http_client_free(struct http_client *client);

/* Returns 0 or -ENOMEM. The transfer starts zeroed. */
int http_transfer_init(struct http_transfer *t, struct http_client *client,
		       const struct http_transfer_ops *ops);
/* Not under way. Accepts a zeroed one. */
void http_transfer_fini(struct http_transfer *t);

/* Returns 0: done follows; or -errno. */
int http_transfer_begin(struct http_transfer *t, const struct http_request *request);
/* Ends it without a done. Not from answered or body. Harmless when it is not under way. */
void http_transfer_stop(struct http_transfer *t);

/*
 * Within done, of an answer that answered has not refused: where it, a redirection, sends us. Its
 * Location is taken relative to base, the URL that was asked for, by RFC 3986, 5.2; a fragment is
 * left out. Neither user nor password of the client come into it: those that are there, the server
 * has named. Returns 0, -ENOENT: it names no place, or none that fits; or -ENOMEM.
 */
int http_transfer_location(const struct http_transfer *t, const char *base,
			   char ret_url[static HTTP_URL_BYTES]);

/*
 * Other keys to sign with, or another user, from the next request on; texts are copied,
 * session_token: NULL: none. Returns 0 or -ENOMEM: all is as before.
 */
int http_client_set_keys(struct http_client *client, const char *user, const char *password,
			 const char *session_token);
/* The one that it was made for; any thread. */
struct reactor *http_client_reactor(const struct http_client *client);

/* Connections made since the beginning; any thread. */
uint64_t http_client_connects(const struct http_client *client);

#endif
