/*
 * A request to the store that is sent until it is answered, or until the server was away for longer
 * than on_disconnect allows. Reactor thread of its client.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_CALL_H
#define BACKENDS_S3_DISK_S3_DISK_CALL_H

#include "backends/http/web.h"

struct s3_disk_client {
	struct http_client *http;
	/* The queue's; zeroed: that keys or the clock are refused is no outage. */
	struct s3_renew renew;
	struct reactor *reactor;
	struct web_device *d;
	uint64_t away_since_ns; /* 0: the last request was answered */
	struct prng prng;
	/* For people. */
	uint64_t since_ns, answered, resent, lost, sent_bytes, received_bytes;
	uint64_t ends[NET_END_NR];
	int last_end;
	struct histogram wait, answer;
};

#define S3_DISK_PATH_BYTES 128
#define S3_DISK_CONDITION_BYTES (HTTP_ETAG_BYTES + 20)

struct s3_disk_call {
	/* The owner's, before begin. */
	struct s3_disk_client *client;
	uint64_t pause_ns_max; /* between tries, of all its requests; 0: as web_pause_ns says */
	enum http_method method;
	char path[S3_DISK_PATH_BYTES]; /* behind the disk's prefix; "": query is set */
	char *query;		       /* of the bucket, borrowed until done; NULL: none */
	char condition[S3_DISK_CONDITION_BYTES]; /* a header; "": none */
	const void *body;			 /* of a PUT, until done */
	size_t body_bytes;
	/* Of a GET: the bytes to ask for; length 0: all, at most to_bytes. */
	uint64_t first_bytes, length_bytes;
	uint8_t *to; /* NULL: what comes is of no use any more */
	size_t to_bytes;
	/*
	 * From a turn, never from inside of begin. May begin it again.
	 *
	 *	0          done; got bytes of a GET are at `to`, etag is what the server says
	 *	-ENOENT    there is no such object
	 *	-ESTALE    the condition does not hold
	 *	-EMSGSIZE  the object is longer than to_bytes
	 *	-EIO       refused, in words; or not answered within on_disconnect
	 */
	void (*done)(struct s3_disk_call *call, int result);

	/* Out. */
	size_t got;
	unsigned tries; /* above 1: what an earlier one has done is unknown */
	char etag[HTTP_ETAG_BYTES];
	char words[HTTP_ERROR_BYTES];

	/* s3_disk_call.c's. */
	struct http_transfer transfer;
	struct timer pause;
	bool is_under_way, is_too_long;
	uint64_t began_ns, sent_ns;
	struct web_excuse excuse;
};

/* Return 0 or -errno with words; the client is of the reactor that calls. */
int s3_disk_client_init(struct s3_disk_client *client, struct web_device *d,
			struct reactor *reactor, char *error, size_t error_bytes);
/* No call is initialised. Accepts a zeroed one. */
void s3_disk_client_fini(struct s3_disk_client *client);

int s3_disk_call_init(struct s3_disk_call *call, struct s3_disk_client *client);
/* Ends it without a done. Not from inside of a done. Accepts a zeroed one. */
void s3_disk_call_fini(struct s3_disk_call *call);

typedef void s3_disk_call_done_fn(struct s3_disk_call *call, int result);

/* Of an object; condition: NULL: none; texts are copied. A GET brings all of it. */
void s3_disk_call_get(struct s3_disk_call *call, const char *path, void *to, size_t to_bytes,
		      s3_disk_call_done_fn *done);
void s3_disk_call_put(struct s3_disk_call *call, const char *path, const char *condition,
		      const void *body, size_t body_bytes, s3_disk_call_done_fn *done);
void s3_disk_call_delete(struct s3_disk_call *call, const char *path, s3_disk_call_done_fn *done);

/* Others: all fields but the client are as after init, then the owner's; a GET. */
void s3_disk_call_reset(struct s3_disk_call *call);
void s3_disk_call_begin(struct s3_disk_call *call, s3_disk_call_done_fn *done);

/* Whether the server is away. Any thread. */
bool s3_disk_client_is_away(const struct s3_disk_client *client);

#endif
