/*
 * What the files of the nvme-tcp backend share: its device, queues, connections and requests.
 * Requests, connections that come and go, and what becomes of the ones with the others are
 * net/session.h's; PDUs, commands, the bring-up of a queue are the pure modules beside this file.
 *
 *	nvme_options.c     what the user can configure                  main thread
 *	nvme_host.c        who this host is, to targets                 helper
 *	nvme_keys.c        what it proves that with, and TLS            helper
 *	nvme_open.c        open, limits, identity, size                 helper and control thread
 *	nvme_examine.c     asks a target what it offers                 control thread
 *	nvme.c             the table of the backend: queues and their requests
 *	nvme_connection.c  the table of the protocol: what of a session is NVMe's
 *	nvme_admin.c       the admin queue of an association
 *	nvme_watch.c       what changes at the target: the namespace, its ANA state
 *	nvme_transfer.c    commands, data and completions as bytes of a connection
 *	nvme_retry.c       what becomes of a command that the target ends with an error
 *	nvme_changed.c     a namespace that came back as another one, in words
 *
 * Those without a thread run on the queue's reactor. Queues share nothing: each has an association
 * of its own with a controller, of one admin queue and one I/O queue, one for each path to the
 * subsystem. So a queue never waits for another reactor, and one that breaks breaks alone.
 */
#ifndef BACKENDS_NVME_NVME_H
#define BACKENDS_NVME_NVME_H

#include <stdatomic.h>

#include "backends/nvme/keys/nvme_dhchap_key.h"
#include "backends/nvme/nvme_admin.h"
#include "backends/nvme/protocol/nvme_receive.h"
#include "backends/nvme/protocol/nvme_uri.h"
#include "base/log.h"
#include "net/changed.h"
#include "net/flush.h"
#include "net/options.h"
#include "net/session.h"
#include "net/tls_start.h"
#include "net/witness.h"
#include "storage/backend.h"

#define NVME_PATHS_MAX NET_ADDRESS_NR_MAX

/* What is acknowledged and not yet flushed, when the connection to a target is lost. */
enum nvme_cache {
	NVME_CACHE_KEPT,     /* it is in the cache of a controller that lives on */
	NVME_CACHE_VOLATILE, /* may be lost: the next flush fails */
};

struct nvme_config {
	char *uri;
	char *host, *subsystem, *namespace; /* instead of the URI */
	uint64_t port;
	char *paths; /* more addresses of the subsystem, with commas */
	char *host_nqn, *host_id;
	char *host_key_file, *ctrl_key_file, *tls_key_file;
	int tls_identity; /* enum nvme_tls_version */
	int cache;	  /* enum nvme_cache */
	bool header_digest, data_digest;
	uint64_t keep_alive_ns; /* 0: none */
	struct net_outage_config outage;
};

extern const struct option nvme_options[];
extern const struct backend_uri nvme_backend_uri;

/* nvme_keys.c: the secrets of a device, wiped when it closes. */
struct nvme_keys {
	struct nvme_dhchap_key host, controller;
	bool has_host, has_controller;
	struct tls_credentials *tls; /* NULL: no TLS */
};

/* What all of that says: where, which namespace, as whom. */
struct nvme_target {
	struct nvme_uri uri; /* its server is path 0 */
	struct net_host path[NVME_PATHS_MAX];
	unsigned path_nr;
};

struct nvme_device {
	const struct nvme_config *config;
	const struct backend_device *device;
	const char *name;
	struct nvme_target target;
	struct nvme_keys keys;
	char address[NVME_PATHS_MAX][160]; /* of each path, for messages */
	const char *path[NVME_PATHS_MAX];  /* these */
	struct net_addresses addresses;	   /* of one path all that it has; of several one each */
	struct nvme_examine *question;	   /* while it opens */
	/* What open has found. */
	struct nvme_controller controller;
	struct nvme_namespace namespace;
	unsigned block_shift;
	struct net_changed changed; /* the namespace is another one: nothing is served any more */
	struct net_flush flush;
	struct net_witness witness;  /* the first connection of queue 0 */
	_Atomic uint64_t seen_bytes; /* its size as the target said it last */
	_Atomic uint64_t told_bytes; /* of those that the device was told to follow */
	struct session_log_limits limits;
	struct log_limit error_limit, path_limit, rank_limit;
};

struct nvme_io {
	struct session_request request;
	struct backend_io *io;
	struct nvme_slot slot;
	struct net_flush_mark flush;
	uint16_t cid; /* tag and a number, so that no late answer is taken for one of now */
	uint16_t number;
	/* nvme_retry.c's. */
	uint8_t tries; /* that the target has ended with an error */
	bool again;    /* it is to be sent again, after retry_ms */
	bool waits;    /* until then; any thread may read it */
	uint32_t retry_ms;
	struct timer retry;
	/* Of an R2T, what is not handed to the stream yet. */
	uint32_t h2c_at_bytes, h2c_bytes;
	uint16_t ttag;
	struct list_node pump;	/* its connection's, while h2c_bytes is not 0 */
	uint64_t h2c_end_bytes; /* of the stream: the last H2CData is sent */
	uint8_t h2c_head[NVME_PDU_HEAD_BYTES_MAX], digest[2][NVME_DIGEST_BYTES];
	uint8_t range[NVME_DSM_RANGE_BYTES];
};

struct nvme_connection {
	struct session_connection c;
	struct nvme_admin *admin;
	/* nvme_connection.c's: the bring-up of the I/O queue. */
	struct tls_start tls;
	struct nvme_fabrics fabrics;
	struct nvme_slot slot; /* of its command under way */
	bool is_secured, has_icresp, is_asked;
	/* nvme_transfer.c's. */
	struct nvme_receive receive;
	uint8_t *heads; /* of capsules: a ring, one for each tag */
	unsigned head_idx, head_bytes;
	uint32_t nsid, capsule_data_bytes;
	unsigned large_nr;     /* of what is sent: READs of much */
	struct list_node pump; /* requests with H2CData to send */
	/* nvme_watch.c's. */
	struct timer look_again;
	bool namespace_dirty, ana_dirty, absent;
	bool unsure; /* a question had no answer: it is asked again, later */
	uint8_t ana_state;
	uint32_t ana_group;
	uint8_t page[NVME_FABRICS_DATA_BYTES];
};

struct nvme_queue {
	struct session session;
	struct backend_queue *queue;
	struct nvme_device *nvme;
	struct nvme_io **io; /* by tag */
	unsigned tag_bits;   /* of a command identifier; the others are a number */
	/* Commands under way, of as many as the controller takes. */
	uint32_t out_nr, out_max;
};

static inline struct nvme_connection *nvme_connection_of(struct session_connection *c)
{
	return container_of(c, struct nvme_connection, c);
}

static inline struct nvme_io *nvme_io_of(struct session_request *r)
{
	return container_of(r, struct nvme_io, request);
}

/* Not of a connection whose queue is gone. */
static inline struct nvme_queue *nvme_queue_of(const struct session_connection *c)
{
	return container_of(c->session, struct nvme_queue, session);
}

static inline struct nvme_device *nvme_device_of(const struct nvme_connection *conn)
{
	return nvme_queue_of(&conn->c)->nvme;
}

/* A request is over. Reactor thread. */
static inline void nvme_end(struct nvme_io *n, int result)
{
	struct nvme_queue *q = n->io->queue->priv;

	q->out_nr--;
	backend_io_complete(n->io, result);
}

/* nvme_options.c */
/*
 * Where, which namespace and as whom. Any thread. Returns 0, or -EINVAL with words for the user.
 */
int nvme_config_target(const struct nvme_config *config, struct nvme_target *ret_target,
		       char *error, size_t error_bytes);
void nvme_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* nvme_keys.c */
/* Reads the files. Returns 0, or -errno with words; nvme_keys_free follows anyway. */
int nvme_keys_read(struct nvme_keys *keys, const struct nvme_config *config,
		   const struct nvme_uri *uri, char *error, size_t error_bytes);
void nvme_keys_free(struct nvme_keys *keys);

/* nvme_open.c */
int nvme_open(struct backend_device *device);
void nvme_open_async(struct backend_visit *visit);
void nvme_cancel_async(struct backend_visit *visit);
void nvme_close(struct backend_device *device);
void nvme_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
int nvme_stored_fd(const struct backend_device *device);
extern const struct backend_resize nvme_resize;
/* Of the bring-up of an admin queue of this device, for config's mode ADMIN. */
struct nvme_fabrics_config nvme_fabrics_wish(const struct nvme_device *nvme);

/* nvme_changed.c */
/*
 * Reactor thread. Whether the namespace, or what its controller can do, is not what the device was
 * opened with; then the device fails from now on. A size that has grown is noted.
 */
bool nvme_changed_note(struct nvme_device *nvme, const struct nvme_controller *controller,
		       const struct nvme_namespace *is);
/* Any thread: the words, NULL while it is what it was. */
const char *nvme_failure(const struct backend_device *device);

/* nvme_connection.c */
extern const struct session_protocol nvme_protocol;
/*
 * The I/O queue is over, or the queue of the device will be: the admin queue says shutdown, and
 * nothing more to the connection.
 */
void nvme_connection_leave(struct session_connection *c);
/* As session_submit. */
int nvme_connection_submit(struct nvme_queue *q, struct nvme_io *n);

/* nvme_watch.c */
void nvme_watch_init(struct nvme_connection *conn);
/* The admin queue is ready, the I/O queue will be: the rank of the connection. */
void nvme_watch_begin(struct nvme_connection *conn);
void nvme_watch_end(struct nvme_connection *conn);
/* An asynchronous event: dword 0 of its completion. */
void nvme_watch_event(struct nvme_connection *conn, uint32_t result);
/* A command was told that the namespace, or the path to it, is not there now: it is no use. */
void nvme_watch_lost_namespace(struct nvme_connection *conn);
void nvme_watch_lost_path(struct nvme_connection *conn);

/* nvme_transfer.c */
/* After each bring-up. */
void nvme_transfer_begin(struct nvme_connection *conn);
/* Adds the command to what the stream sends, with a new identifier. */
void nvme_transfer_send(struct nvme_connection *conn, struct nvme_io *n);
/* The stream has sent more: more H2CData can follow. */
void nvme_transfer_sent(struct nvme_connection *conn);
/* It is answered and sent, or the connection is lost. */
void nvme_transfer_left(struct nvme_connection *conn, struct nvme_io *n);
/* So many bytes of what was to be received straight to its place are there. */
void nvme_transfer_received_into(struct nvme_connection *conn, uint32_t bytes);
/*
 * 1: *ret_answered has the completion receive.cqe; 0: there is no more in these bytes; -errno:
 * receive.error.
 */
int nvme_transfer_received(struct nvme_connection *conn, struct nvme_input *in,
			   struct nvme_io **ret_answered);

/* nvme_retry.c */
/* The target ended the command with this status, an error: sent again, elsewhere, or over. */
void nvme_retry_judge(struct nvme_connection *conn, struct nvme_io *n, uint16_t status);
/* From done: true: it is sent again by itself, now or later; *result is the end if false. */
bool nvme_retry_takes(struct nvme_io *n, int *result);
/* True: it waited to be sent again, and is complete. */
bool nvme_retry_cancel(struct nvme_io *n);
void nvme_retry_on_timer(struct timer *timer);

#endif
