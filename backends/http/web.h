/*
 * What the files of the backends http and s3 share. Ours are called web_*, as http_* is net/http's;
 * those of s3 alone, s3_*: it says in other words which object of which server is meant, proves who
 * asks by signatures, and reads the reasons that S3 gives.
 *
 *	web_url.c       the URL, in parts                               pure
 *	web_options.c   what the user can configure, of both             main thread
 *	web_http.c      what the user can configure of http; its open   main and helper thread
 *	web_open.c      limits, identity                                control thread
 *	web_judge.c     whether an answer is about the object of before pure
 *	web_place.c     redirections
 *	web.c           the tables of both backends: queues and requests
 *	web_get.c       requests of the queue become GETs of ranges
 *	web_outage.c    what waits while the server is away
 *	s3_options.c    what the user can configure of s3               main thread
 *	s3_open.c       its open: keys, the environment, the URL        helper thread
 *	s3_target.c     bucket, key and endpoint become a URL           pure
 *	s3_keys.c       the file of the keys                            pure
 *	s3_renew.c      ... is read, and again when they are refused
 *	s3_refusal.c    what S3 says of a refusal, and the cure         pure
 *
 * Those without a thread run on the queue's reactor.
 *
 * Reads wait in a list of the queue until a GET is free; then those that are next to each other go
 * as one, up to request_max. Each is complete when its bytes are there. The first answer, at open,
 * said which version of the object this is; each later one has to say the same before a byte of it
 * is taken.
 */
#ifndef BACKENDS_HTTP_WEB_H
#define BACKENDS_HTTP_WEB_H

#include "backends/http/s3_keys.h"
#include "backends/http/s3_renew.h"
#include "backends/http/s3_target.h"
#include "backends/http/web_judge.h"
#include "backends/http/web_url.h"
#include "base/histogram.h"
#include "base/log.h"
#include "base/prng.h"
#include "net/changed.h"
#include "net/http/http_client.h"
#include "net/options.h"
#include "storage/backend.h"

#define WEB_CONNECTIONS_MAX 64u
#define WEB_REQUEST_BYTES_MIN 4096u
#define WEB_REQUEST_BYTES_MAX (64u << 20)
#define WEB_HEADERS_MAX 32u
#define WEB_SECRET_BYTES 4096u
#define WEB_HOPS_MAX 5u

/* The beginning of both backends' configuration. */
struct web_config {
	char *ca_file;
	bool verify_peer;
	uint64_t connections;
	uint64_t request_max_bytes;
	struct net_outage_config outage;
};

extern const struct option web_options[]; /* a group: of struct web_config */

struct web_http_config {
	struct web_config web;
	char *url;
	char *user, *password_file, *token_file;
	struct yaml_node *headers;
};

extern const struct option web_http_options[];
extern const struct backend_uri web_http_uri;

enum s3_path_style { S3_PATH_STYLE_AUTO, S3_PATH_STYLE_ON, S3_PATH_STYLE_OFF };

/* Where the buckets are, and who asks. */
struct s3_server_config {
	char *endpoint, *region;
	int path_style; /* enum s3_path_style */
	char *credentials_file, *profile;
};

struct s3_config {
	struct web_config web;
	struct s3_server_config server;
	char *uri, *bucket, *key;
};

extern const struct option s3_server_options[]; /* a group: of struct s3_server_config */
extern const struct option s3_options[];
extern const struct backend_uri s3_backend_uri;

struct web_device {
	const struct web_config *config;
	const struct backend_device *device;
	const char *name;
	/* What the backend's own open makes of its configuration. */
	char start[HTTP_URL_BYTES]; /* where the object is asked for first */
	struct web_url url;	    /* the same, in parts */
	struct http_settings who;   /* its secrets */
	/* Of an answer that does not bring the object: better words, perhaps another verdict. NULL:
	 * none. */
	enum web_verdict (*explain)(const struct web_device *d, const struct http_answer *answer,
				    enum web_verdict verdict, const char *excuse, char *words,
				    size_t words_bytes);
	struct web_version version;
	char password[WEB_SECRET_BYTES], token[WEB_SECRET_BYTES];
	const struct s3_server_config *server; /* NULL: not of S3 */
	struct s3_keys keys;
	char region[S3_REGION_BYTES];
	char *header[WEB_HEADERS_MAX];
	unsigned header_nr;
	char condition[HTTP_ETAG_BYTES + 40]; /* a header of each GET; "": none */
	struct web_question *question;	      /* while it opens */
	struct net_changed changed;
	/* Of all its queues: how often the log is told. */
	struct log_limit lost_limit[NET_END_NR], refused_limit, hold_limit, lease_limit;
};

/* Where a queue asks for the object. */
struct web_place {
	char url[HTTP_URL_BYTES];
	bool is_home;  /* on the configured host: gets the secrets */
	bool is_start; /* it is the configured URL */
	unsigned hops; /* redirections since the object was last found */
	unsigned nr;   /* of the place: counts */
};

struct web_io {
	struct list_node node; /* waiting, or of its GET: in the order of their offsets */
	struct backend_io *io;
	struct web_get *get; /* that has it; NULL: it waits */
	uint64_t came_ns;
	bool was_sent; /* before */
	uint8_t state; /* enum web_io_state; any thread may read it */
};

enum web_io_state { WEB_IO_IDLE, WEB_IO_WAITS, WEB_IO_HELD, WEB_IO_SENT };

/* A GET of a range. */
struct web_get {
	struct http_transfer transfer;
	struct web_queue *q;
	struct list_node node; /* of those that are free */
	struct list_node ios;  /* that are not complete */
	uint64_t first_bytes, length_bytes, at_bytes;
	enum web_verdict verdict;
	char words[HTTP_ERROR_BYTES];
	uint64_t sent_ns;
	unsigned place_nr;
	struct web_excuse excuse;
};

struct web_queue {
	struct web_device *d;
	struct backend_queue *queue;
	struct http_client *client;
	struct s3_renew renew;
	struct web_place place;
	struct web_get *get; /* config->connections */
	struct list_node free_gets;
	struct list_node waiting; /* web_io */
	struct task task;
	bool has_unwanted; /* GETs that nobody waits for any more */

	/* web_outage.c's. */
	struct timer pause, outage;
	unsigned tries;
	bool is_away; /* the last answer was none */
	bool gave_up;
	uint64_t since_ns; /* in the state that people see */
	struct prng prng;

	/* For people. */
	uint64_t answered, resent, lost, received_bytes;
	uint64_t ends[NET_END_NR];
	int last_end;
	struct histogram wait, answer;
};

/* web_open.c */
void web_open_async(struct backend_visit *visit);
void web_cancel_async(struct backend_visit *visit);
void web_close(struct backend_device *device);
void web_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
extern const struct backend_version_ops web_version_ops;
/* For who makes a client: the settings of the device. */
void web_settings(const struct web_device *d, struct http_settings *ret_settings);

/* What explain says, where there is one. */
void web_explain(const struct web_device *d, const struct http_answer *answer,
		 enum web_verdict *verdict, const struct web_excuse *excuse, char *words,
		 size_t words_bytes);
/* In open: begins a device whose `start` is filled in; the next header of secret requests. Return
 * 0 or -errno with the device's words. */
int web_begin(struct backend_device *device);
int web_add_header(struct backend_device *device, const char *name, const char *value);

/* web_http.c */
int web_http_open(struct backend_device *device);
void web_http_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* s3_options.c, s3_open.c */
int s3_open(struct backend_device *device);
/* The device's keys become those of clients that are made from now on. */
void s3_use_keys(struct web_device *d);
void s3_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* web_get.c */
int web_gets_init(struct web_queue *q);
void web_gets_fini(struct web_queue *q);
/* Later in this turn: what waits is sent as far as GETs are free. */
void web_gets_start(struct web_queue *q);
/* A request that is with a GET is taken from it. */
void web_get_forget(struct web_io *w);

/* web_outage.c */
void web_outage_init(struct web_queue *q);
void web_outage_fini(struct web_queue *q);
/* The server has answered. */
void web_outage_over(struct web_queue *q);
/* It has not, or asks for a pause (0: it does not). What waits may fail. */
void web_outage_note(struct web_queue *q, uint64_t retry_after_ns);
/*
 * Before the next try, after so many that failed before this one. The server asks for at least
 * retry_after_ns (0: it does not), which net_outage_grant_ns bounds.
 */
uint64_t web_pause_ns(struct prng *prng, unsigned tries, const struct net_outage_config *outage,
		      uint64_t retry_after_ns);
/* True: no request is sent now. */
bool web_outage_pauses(const struct web_queue *q);
/* A request that has come, or comes back: true: it waits; false: it is to fail. */
bool web_outage_may_wait(const struct web_queue *q);

/* web_place.c: where the object is asked for */
void web_place_begin(struct web_place *p, const struct web_device *d);
/*
 * As the answer of t, which has ended, sends us on. The secrets go along where scheme, host and
 * port are those of the configured URL, however the server writes the place. Returns 0, or -errno
 * with words.
 */
int web_place_move(struct web_place *p, const struct web_device *d, const struct http_transfer *t,
		   char *words, size_t words_bytes);

/* web.c */
/* It is in no list. */
void web_io_end(struct web_io *w, int result);
/* What waits ends with this. */
void web_fail_waiting(struct web_queue *q, int result);

static inline void web_io_set_state(struct web_io *w, enum web_io_state state)
{
	__atomic_store_n(&w->state, (uint8_t)state, __ATOMIC_RELAXED);
}

#endif
