/* Shared by device*.c and inflight.c only. */
#ifndef UBLK_DEVICE_DEVICE_INTERNAL_H
#define UBLK_DEVICE_DEVICE_INTERNAL_H

#include "storage/spec.h"
#include "ublk/device/device.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue.h"

#define CPU_MASK_BYTES 1024 /* of GET_QUEUE_AFFINITY: 8192 CPUs */

/* device_resize.c */
struct resize {
	bool busy, force;
	bool in_call; /* device_resize has not returned: it says itself what is refused */
	int err;
	uint64_t from_bytes, to_bytes;
	unsigned fenced_nr;
	int ret; /* of the step that a helper or the backend does */
	void (*grown)(struct device *d);
	char words[DEVICE_ERROR_BYTES];
};

/* device_snapshot.c */
struct snapshot_work {
	bool busy;
	bool in_call; /* device_snapshot has not returned: it says itself what is refused */
	int err;
	struct backend_device *node;
	char name[BACKEND_SNAPSHOT_NAME_BYTES];
	struct backend_snapshot_change change;
	int ret; /* of the change */
};

/* device_aside.c: of a snapshot_work or a flush_work, of which one is busy at a time */
struct aside {
	/* These are to stand aside, and so many of them do. */
	struct backend_device *cache[BACKEND_NODES_MAX];
	unsigned cache_nr, nr;
	enum backend_cache_op op;
	struct backend_cache_job job; /* to one of them */
	bool is_hurried;
	void (*done)(struct device *d, int ret);
	void (*ended)(struct device *d);
};

/* device_flush.c */
struct flush_work {
	bool busy;
	bool is_good;		/* of the stop that is wanted: it has been done */
	bool has_failed;	/* that of a stop, and was not followed by a good one of the user */
	uint32_t failed_losses; /* backend_losses of then, this one included */
	struct timer soon;
	char words[DEVICE_ERROR_BYTES - 64]; /* why it failed */
};

/* device_cache.c */
struct cache_work {
	bool busy;
	int err;
	const struct backend_device *node;
	struct backend_cache_job job;
};

struct device_shmem; /* device_shmem.c */

struct device {
	const struct device_host *host;
	struct device_spec spec; /* spec.name is owned */
	void *owner;
	enum device_state state;
	struct backend_device *backend;
	struct data_choice data;
	char stack[BACKEND_SPEC_TEXT_BYTES]; /* names of the backends */

	struct ctl_cmd cmd;		   /* the one command in flight */
	struct ublksrv_ctrl_dev_info info; /* as the driver answered */
	struct ctl_cmd ask;		   /* GET_DEV_INFO, for people: device_driver.c */
	struct ublksrv_ctrl_dev_info ask_info;
	struct device_driver said;
	struct ublk_params params;
	unsigned char cpu_mask[CPU_MASK_BYTES];
	struct io_errors *errors;
	struct resize resize;
	struct snapshot_work snapshot;
	struct cache_work cache;
	struct aside aside;
	struct flush_work flush;
	struct device_shmem *shmem;   /* NULL: clients cannot share memory with it */
	struct device_follow *follow; /* device_follow.c; NULL: it has no backend */
	struct helper_job job;	      /* what may block: of a resize, a snapshot, or a recovery */
	bool grows_to_driver;	      /* device_recover.c: the job does */
	struct timer retry;	      /* node not there yet, stop refused by a probe of udev */
	struct timer deadline;	      /* of the stop */
	uint64_t retry_until_ns;

	int cdev_fd;
	struct queue *queues;
	size_t descs_bytes;   /* of one queue's mapping */
	unsigned mapped_nr;   /* queues whose descriptors are mapped */
	unsigned placed_nr;   /* queues that have their reactor */
	unsigned attach_nr;   /* queues sent to their reactor */
	unsigned attached_nr; /* of these, with an answer */
	unsigned drained_nr, released_nr;
	unsigned del_tries;

	bool added;	  /* exists in the driver: DEL_DEV at the end */
	bool adopting;	  /* device_recover, not LIVE yet */
	bool was_adopted; /* it has served before this process */
	bool failed;	  /* on the way down because of an error */
	bool stop_wanted; /* device_stop came */
	bool stop_force;
	bool stop_sent;		   /* aborts of the tags were asked for */
	bool waits_for_openers;	   /* by the retry timer */
	bool stopped_outside;	   /* by somebody else's STOP_DEV or DEL_DEV */
	bool has_params;	   /* SET_PARAMS was done */
	bool id_taken;		   /* ADD_DEV: another device has our id */
	bool has_disk;		   /* START_DEV was done: /dev/ublkbN, which can be open */
	bool cancelled;		   /* queue_cancel was sent */
	bool finish_waits;	   /* all is done but the answer to `ask` */
	uint64_t stop_deadline_ns; /* relative; 0: no stop has a deadline */
	char error[DEVICE_ERROR_BYTES];
};

/*
 * device_follow.c: from when the device has its backend until it gives it up; again: it is live, or
 * a resize is over. Returns 0 or -ENOMEM.
 */
int device_follow_begin(struct device *d);
void device_follow_again(struct device *d);
void device_follow_end(struct device *d);

/*
 * device_shmem.c: after the data path is chosen; with the device's memory. Returns 0, -ENOMEM or
 * -ENOBUFS.
 */
int device_shmem_init(struct device *d);
void device_shmem_fini(struct device *d);
/* For its queues; NULL: none. */
const struct shmem_buffers *device_shmem_buffers(const struct device *d);

/* The one setter of device->state: traces it. */
void device_set_state(struct device *d, enum device_state state);

/* Keeps the first reason only: what follows is a consequence. */
void device_set_error(struct device *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void device_event(struct device *d, enum device_event event);

/* Sends a command about this device on its one command slot. */
void device_send(struct device *d, uint32_t cmd_op, void *buf, uint16_t buf_bytes,
		 ctl_cmd_fn *done);

/* For those who fill a ctl_request themselves: its with_path. */
bool device_wants_path(const struct device *d, uint32_t cmd_op);

/* Records why cmd failed, and goes down. */
void device_fail_cmd(struct device *d, const struct ctl_cmd *cmd, int err);

/* Begins the way up. */
void device_go_up(struct device *d);

/* The step of both after the limits are settled: opens the driver's end of the device. */
void device_open_driver(struct device *d);

/* The last step: START_DEV or END_USER_RECOVERY. */
void device_begin_serving(struct device *d);

/* A step failed: goes down. what: "what: errno". */
void device_fail(struct device *d, const char *what, int err);

/* True when the way up ends here: a stop was asked for while the step was under way. */
bool device_turned_back(struct device *d);

/* Memory of a device, FAILED until it is on its way; spec.name is copied. Returns as device_start.
 */
int device_create(struct device **ret_device, const struct device_host *host,
		  const struct device_spec *spec, void *owner, char *error, size_t error_bytes);

/* Takes the opened backend, with limits of the log for its nodes, and chooses its data path.
 * Returns as device_start. */
int device_take_opened(struct device *d, char *error, size_t error_bytes);

/* device_recover.c: what the driver says of the device overrules the spec. */
void device_spec_take_over(struct device_spec *spec, const struct device_past *past);

/* One that is not on its way: a backend that the caller has opened stays the caller's. */
void device_free_unstarted(struct device *d);

/*
 * Takes the next step of the way down from wherever the device stands; call again after each event
 * that can be what it waited for.
 */
void device_go_down(struct device *d);

/* device_snapshot.c: caches that do not stand aside yet give it up. */
void device_snapshot_hurry(struct device *d);

/*
 * device_aside.c: the aside.cache_nr caches of aside.cache, at least one, stand aside. Returns 0,
 * and done follows, from a turn; or -errno: none does. Words say which of them failed and why.
 */
int device_aside_begin(struct device *d, enum backend_cache_op op,
		       void (*done)(struct device *d, int ret));
/* Those that do come back, and then `ended` is called, perhaps from inside. */
void device_aside_end(struct device *d, void (*ended)(struct device *d));
/* Those that do not yet give it up. Harmless at any time. */
void device_aside_hurry(struct device *d);
const char *device_aside_words(const struct device *d);

/* device_flush.c: whether a stop waits for it, which comes back to device_go_down then. */
bool device_flush_first(struct device *d);
/* A stop by force waits for its end. */
void device_flush_hurry(struct device *d);
/* The device stays live. */
void device_flush_undo(struct device *d);
/* It is about to be gone, and still has its backend: what is owed is device_loss. */
void device_flush_note_loss(struct device *d);

/* device_stop.c: a polite stop is given up for this reason; the device goes on as it was. */
void device_refuse_stop(struct device *d, const char *words);

/* Goes down when the driver has aborted all tags without being asked. */
void device_check_drained(struct device *d);

/* `ask` was answered: the end may have waited for it. */
void device_check_finish(struct device *d);

/*
 * Does job->work, by a helper where there are any, and then job->done. Returns 0, or the -errno of
 * a helper that could not be had: then nothing is done. Without helpers both are called from
 * inside.
 */
int device_help(struct device *d, void (*work)(struct helper_job *job),
		void (*done)(struct helper_job *job));

/*
 * device_resize.c: lets the backend make room; d->resize.ret and .words say what came of it when
 * done is called, perhaps from inside.
 */
void device_grow(struct device *d, uint64_t size_bytes, void (*done)(struct device *d));

/* Callbacks of the queues. */
void device_queue_attached(struct queue *q, int err);
void device_queue_drained(struct queue *q);
void device_queue_released(struct queue *q);
void device_queue_fenced(struct queue *q);
void device_queue_flushed(struct queue *q, int result);

#endif
