/*
 * What the files of the fake share: the cluster, its clients and their handles of the image. All of
 * it is under fake.lock.
 */
#ifndef TEST_RIG_FAKE_CEPH_INTERNAL_H
#define TEST_RIG_FAKE_CEPH_INTERNAL_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/util.h"
#include "test/rig/fake_ceph.h"

#define FAKE_THREADS 3
#define FAKE_CALLS_MAX 64
#define FAKE_CONF_MAX 32
#define FAKE_SEEN_MAX 1024
#define FAKE_EVENTS_BYTES 16384

#define FAKE_CHECK(condition)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "fake ceph: %s:%d: not so: %s\n", __FILE__, __LINE__,      \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A function of the libraries. */
struct fake_call {
	char name[40];
	int err;
	unsigned err_nr, call_nr, blocked_nr;
	bool blocks;
};

struct fake_client {
	struct list_node node;
	unsigned nr; /* 0: not connected */
	bool is_listed;
	unsigned ioctx_nr;
	struct fake_option {
		char name[64], value[256];
	} conf[FAKE_CONF_MAX];
	unsigned conf_nr;
};

struct fake_ioctx {
	struct fake_client *client;
	char pool[64], namespace[64];
	unsigned handle_nr;
};

/* Bytes that are not in the image yet: of a cache, or of a request that was given up. */
struct fake_write {
	struct list_node node;
	unsigned client; /* its number: it may be gone */
	uint64_t offset_bytes, length_bytes;
	uint8_t data[];
};

/* An open image. */
struct fake_handle {
	struct list_node node;
	struct fake_ioctx *ioctx;
	struct fake_client *client;
	bool read_only, caches;
	uint64_t size_bytes, header_bytes;
	unsigned out_nr;
	struct list_node dirty; /* struct fake_write */
	rbd_update_callback_t on_update;
	void *on_update_arg;
	bool has_news, is_telling;
};

struct fake_completion {
	rbd_callback_t cb;
	void *arg;
	ssize_t ret;
	bool is_used, is_done;
};

struct fake_request {
	struct list_node node;
	struct fake_handle *handle;
	struct fake_seen seen;
	uint8_t *buf;
	struct fake_completion *completion;
};

extern struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_thread {
		pthread_t thread;
		unsigned call_nr; /* of callbacks; odd while it is in one */
	} thread[FAKE_THREADS];
	bool stops;
	struct fake_image *image;
	struct list_node clients, handles, requests, late;
	unsigned client_nr; /* connected so far */
	unsigned char listed[65536 / 8];
	unsigned out_nr;
	bool holds;
	unsigned let_go_nr;
	struct fake_call call[FAKE_CALLS_MAX];
	unsigned call_nr;
	int answer_err[FAKE_OP_NR];
	unsigned answer_err_nr[FAKE_OP_NR];
	struct fake_seen seen[FAKE_SEEN_MAX];
	unsigned seen_nr;
	char events[FAKE_EVENTS_BYTES];
} fake;

/* ---- fake_ceph.c ---- */

void fake_lock(void);
/* Whoever waits for anything looks again. */
void fake_unlock(void);
/* A call has come: it is counted, and waits where it is told to. Returns 0, or what it fails with.
 */
int fake_enter(const char *call);
void fake_event(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fake_list_addrs(const char *addrs, unsigned by);
void fake_tell_all(void);

/* ---- fake_ceph_io.c ---- */

void fake_io_start(void);
void fake_io_stop(void);
/* What the cache has is in the image, or is lost with its client. */
void fake_cache_empty(struct fake_handle *h);
/* Those of a client; 0: all. */
void fake_drop_writes(struct list_node *writes, unsigned client);
int fake_rbd_aio_create_completion(void *arg, rbd_callback_t cb, rbd_completion_t *ret_completion);
ssize_t fake_rbd_aio_get_return_value(rbd_completion_t completion);
void fake_rbd_aio_release(rbd_completion_t completion);
int fake_rbd_aio_read(rbd_image_t image, uint64_t off, size_t len, char *buf, rbd_completion_t c);
int fake_rbd_aio_write2(rbd_image_t image, uint64_t off, size_t len, const char *buf,
			rbd_completion_t c, int op_flags);
int fake_rbd_aio_flush(rbd_image_t image, rbd_completion_t c);
int fake_rbd_aio_discard(rbd_image_t image, uint64_t off, uint64_t len, rbd_completion_t c);
int fake_rbd_aio_write_zeroes(rbd_image_t image, uint64_t off, size_t len, rbd_completion_t c,
			      int zero_flags, int op_flags);

/* ---- fake_ceph_calls.c ---- */

extern const struct ceph_api fake_api;

#endif
