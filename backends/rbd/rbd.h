/*
 * What the files of the rbd backend share: its device, queues and requests. Ours are called ceph_*,
 * as rbd_* and rados_* are the libraries'.
 *
 *	rbd_config.h    what the user can configure:
 *	rbd_options.c     the table                           main thread
 *	rbd_word.c        rbd:pool/namespace/image@snapshot     pure
 *	ceph_api.c      the libraries, loaded                 any thread
 *	ceph_client.c   clients of clusters, shared by images threads that may block
 *	ceph_image.c    one image, open                       threads that may block
 *	rbd_open.c      open, limits, identity, size          helper
 *	rbd_fence.c     what a client leaves to the next one  helper, the thread of rbd_revive.c
 *	rbd_revive.c    opens the image again                 a thread of its own, while that lasts
 *	rbd_hold.c      requests while there is no image      reactor
 *	rbd.c           the table of the backend: queues and their requests
 *
 * All queues share one handle of the image, since two of one process take the exclusive lock from
 * each other for each write. librbd calls back from its threads; the answer goes by mail to the
 * reactor of the request. A handle that the cluster does not serve any more (the client is on the
 * blocklist, or a request has taken too long) is replaced by another one of a new client, and the
 * requests that it had are sent again; rbd_revive.c says in which order.
 */
#ifndef BACKENDS_RBD_RBD_H
#define BACKENDS_RBD_RBD_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "backends/rbd/ceph_client.h"
#include "backends/rbd/rbd_config.h"
#include "base/histogram.h"
#include "base/log.h"
#include "net/changed.h"
#include "net/flush.h"
#include "net/session_look.h"
#include "storage/backend.h"

#define CEPH_ID_BYTES 64

/* One image, open with one client. */
struct ceph_image {
	struct ceph_device *device;
	struct ceph_client *client;
	bool has_older_client; /* it was connected before, for other images */
	rados_ioctx_t ioctx;
	rbd_image_t rbd;
	uint64_t watch;
	bool is_open, is_watched;
	char id[CEPH_ID_BYTES];
	struct ceph_image *older; /* of the device; freed with it */
	/*
	 * Requests that librbd has, and queues that are about to give it one. Whoever takes the
	 * image from the device waits until it is 0: rbd.c.
	 */
	_Alignas(64) atomic_uint out_nr;
};

struct ceph_device {
	const struct ceph_config *config;
	const struct ceph_api *api;
	const struct backend_device *device;
	const char *name;
	struct ceph_target target;
	char address[CEPH_NAME_BYTES]; /* "pool/image", for messages */
	bool read_only;
	char identity[BACKEND_IDENTITY_BYTES]; /* made by open: an image may be closed later */
	cpu_set_t cpus; /* of who opens: threads of librbd and ours are not pinned to a reactor */
	/* rbd_fence.c's. */
	int record_fd; /* -1: none */
	pthread_mutex_t record_lock;
	atomic_bool is_given_away; /* set under it: the record is the next process's */

	/* NULL: there is none now. */
	_Atomic(struct ceph_image *) image;
	struct ceph_image *images; /* all that there have been */
	/* rbd_revive.c's. */
	atomic_bool closing;
	atomic_uint revive_nr; /* threads that open an image, or close what it replaces */
	atomic_uint lost_nr;   /* images that were given up */

	struct net_changed changed;
	struct net_flush flush;
	/* rbd_settle.c's. */
	struct ceph_settle {
		atomic_bool is_out; /* librbd has a FLUSH of it */
		struct ceph_image *image;
	} settle;
	_Atomic uint64_t seen_bytes; /* its size as the cluster said it last */
	pthread_mutex_t news_lock;
	unsigned news_queue_nr; /* under news_lock: open queues, while which growing may be told */
	struct log_limit lost_limit, size_limit, again_limit, hold_limit, lock_limit, full_limit;
};

struct ceph_io {
	struct mail mail; /* the answer, to the reactor */
	struct backend_io *io;
	struct ceph_image *image; /* that has it */
	struct net_flush_mark flush;
	struct list_node held; /* its queue's */
	bool is_held;	       /* any thread may read it */
	bool is_cancelled;     /* librbd has it: it is not sent again */
	int result;
	uint64_t came_ns, sent_ns;
};

struct ceph_queue {
	struct ceph_device *device;
	struct backend_queue *queue;
	/* rbd_hold.c's. */
	struct list_node held;
	struct timer look_again;
	uint64_t held_since_ns; /* the oldest of them */
	bool gave_up;
	/* For people. */
	uint64_t answered, resent, lost;
	struct histogram wait, answer;
};

/* ---- ceph_image.c: threads that may block ---- */

/*
 * Opens the device's image with a client, shared or new; *ret_image is the device's until
 * ceph_images_free. Returns 0 or -errno with words.
 */
int ceph_image_open(struct ceph_image **ret_image, struct ceph_device *device, char *error,
		    size_t error_bytes);
/* No request is with it. The memory stays. */
void ceph_image_close(struct ceph_image *image);
/* Frees all that the device has had; all are closed. */
void ceph_images_free(struct ceph_device *device);

/* ---- rbd_open.c ---- */

int ceph_open(struct backend_device *device);
void ceph_close(struct backend_device *device);
void ceph_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
extern const struct backend_resize ceph_resize;
/* A thread of librbd, or of rbd_revive.c: the image may have another size. */
void ceph_size_changed(struct ceph_device *device, const struct ceph_image *image);
/* Reactor thread: a queue of the device begins, and ends. Growing is told only between. */
void ceph_news_begin(struct ceph_device *device);
void ceph_news_end(struct ceph_device *device);

/* ---- rbd_fence.c ---- */

/*
 * What the client of a device that died, or is to end, may have left under way is done or never
 * will be; before its image is opened, and with the device's first client. The record of that
 * client comes from open_params.stored_fd. Returns 0 or -errno with words.
 */
int ceph_fence_predecessor(struct ceph_device *device, struct ceph_client *client, char *error,
			   size_t error_bytes);
/*
 * Notes who is the device's client from now on, for its successor. Returns 0 or -errno; -ECANCELED:
 * the record is the next process's.
 */
int ceph_fence_note(struct ceph_device *device, const struct ceph_client *client);
/* Main thread: the record is the next process's. is_clean: all that was acknowledged is durable. */
void ceph_fence_give_away(struct ceph_device *device, bool is_clean);
/* Whether the one before has said so; until ceph_fence_note. */
bool ceph_fence_was_clean(const struct ceph_device *device);
int ceph_fence_open(struct ceph_device *device, int stored_fd);
void ceph_fence_close(struct ceph_device *device);
int ceph_stored_fd(const struct backend_device *device);

/* ---- rbd_revive.c ---- */

/* A thread that may block: 10 ms, between two looks at what others do. */
void ceph_nap(void);

/* Any thread: the cluster serves this image no more, err says how. Only the first one counts. */
void ceph_revive(struct ceph_device *device, struct ceph_image *image, int err);
/* Helper: waits for the end of the thread; no queue is open. */
void ceph_revive_stop(struct ceph_device *device);

/* ---- rbd_settle.c: main thread ---- */

/* As in struct backend. */
bool ceph_settle(struct backend_device *device);
void ceph_abandon(struct backend_device *device);
/* Helper: waits for the answer, if one is to come; before the image is closed. */
void ceph_settle_stop(struct ceph_device *device);

/* ---- rbd_hold.c: reactor thread ---- */

void ceph_hold_init(struct ceph_queue *q);
/* Keeps the request until there is an image. Returns 0, or -EIO: requests do not wait now. */
int ceph_hold(struct ceph_queue *q, struct ceph_io *n);
/* True: it was held, and is complete. */
bool ceph_hold_cancel(struct ceph_io *n);
void ceph_hold_fini(struct ceph_queue *q);

/* ---- rbd.c ---- */

/* The error of a request says that the cluster does not serve the image's client any more. */
static inline bool ceph_is_lost(int result)
{
	return result == -ESHUTDOWN || result == -ETIMEDOUT;
}

/*
 * Any thread: the image, which is not closed until ceph_give_back_image; NULL: there is none. Waits
 * for nobody.
 */
struct ceph_image *ceph_take_image(struct ceph_device *device);
void ceph_give_back_image(struct ceph_image *image);

/* ---- rbd.c: reactor thread ---- */

/* Gives it to librbd. Returns 0, -EAGAIN: there is no image now, or another -errno: it is over. */
int ceph_send(struct ceph_queue *q, struct ceph_io *n);

#endif
