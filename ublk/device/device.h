/*
 * The life of one block device, from configuration to /dev/ublkbN and back. Everything here runs on
 * the main thread; the queues run on their reactors and are reached by mail.
 *
 *   device_start:   ADDING -> PARAMS -> OPENING -> PLACING -> ATTACHING -> STARTING -> LIVE
 *   device_recover: RECOVERING -------> OPENING -> ...
 *   device_stop:    (FLUSHING ->) STOPPING -> DRAINING -> DELETING -> GONE
 *
 * A failure on the way up runs the way down from where it stood and ends in FAILED. Each device is
 * its own failure domain: nothing here can stop another one.
 */
#ifndef UBLK_DEVICE_DEVICE_H
#define UBLK_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/cache_control.h"
#include "storage/snapshot.h"
#include "base/histogram.h"
#include "reactor/helper.h"
#include "ublk/control.h"
#include "ublk/queue/queue.h"
#include "ublk/recovery.h"

enum device_state {
	DEVICE_ADDING,
	DEVICE_PARAMS,
	DEVICE_RECOVERING,
	DEVICE_OPENING,
	DEVICE_PLACING,
	DEVICE_ATTACHING,
	DEVICE_STARTING,
	DEVICE_LIVE,
	DEVICE_FLUSHING,
	DEVICE_STOPPING,
	DEVICE_DRAINING,
	DEVICE_DELETING,
	DEVICE_GONE,   /* stopped as asked; to be freed */
	DEVICE_FAILED, /* did not start; to be freed. See device_kept */
	DEVICE_STATE_NR,
};

const char *device_state_name(enum device_state state);

enum device_event {
	DEVICE_EVENT_LIVE,   /* serves */
	DEVICE_EVENT_FAILED, /* start failed: device_error says why */
	/*
	 * Somebody has it open, or what it has acknowledged does not reach its storage:
	 * device_error says so; still LIVE.
	 */
	DEVICE_EVENT_STOP_REFUSED,
	DEVICE_EVENT_GONE,     /* stopped and removed */
	DEVICE_EVENT_LATE,     /* a command or the stop is over its deadline: device_error */
	DEVICE_EVENT_RESIZED,  /* device_resize has ended: device_resized says how */
	DEVICE_EVENT_SNAPSHOT, /* device_snapshot has: device_snapshot_look says how */
	DEVICE_EVENT_CACHE,    /* device_cache_command has: device_cache_look says how */
	DEVICE_EVENT_SHMEM,    /* device_shmem_share or _unshare has: device_shmem_ended */
};

struct device;

/* What all devices of one daemon share. Lives longer than they. */
struct device_host {
	struct ctl *ctl;
	struct reactor **reactors; /* data reactors */
	const int *reactor_cpus;   /* the CPU each is pinned to; -1: none */
	unsigned reactor_nr;
	/* Do what may block while a device lives; NULL: it is done inside of the calls (tests). */
	struct helpers *helpers;
	/* Main thread, from a turn of the control reactor, never from inside a device_ call. */
	void (*event)(struct device *device, enum device_event event, void *arg);
	/* device_stop's deadline_ns, of a device that fails, or that others stop. */
	uint64_t stop_deadline_ns;
	/*
	 * The driver has the device, by device_info's id, and nobody can use it yet: the time to
	 * write that down. Returns 0, or -errno with words: then it is taken down again. May be
	 * NULL. Called as event is.
	 */
	int (*added)(struct device *device, void *arg, char *error, size_t error_bytes);
	/* From then on: backend_stored_fd may give another descriptor. The same. */
	void (*stored)(struct device *device, void *arg);
	void *arg;
};

struct device_spec {
	const char *name; /* copied */
	int64_t id;	  /* of /dev/ublkbN; -1: the kernel chooses */
	uint32_t queues, depth;
	uint32_t logical_block_bytes;
	uint32_t max_io_bytes;
	bool has_shmem; /* clients may share memory with it, at most: */
	uint64_t shmem_bytes;
	bool read_only, no_partition_scan;
	enum data_path data_path;
	enum batch_choice batch;
	enum recovery recovery;
	uint64_t mark; /* kept by the driver with the device (ublksrv_flags): whose it is */
	const struct backend_spec *backend; /* lives as long as the device */
	/*
	 * The backend, opened with device_wishes: the device's when device_start or device_recover
	 * returns 0, else still the caller's. device_discard does not look at it.
	 */
	struct backend_device *opened;
};

#define DEVICE_ERROR_BYTES 512

struct device_past;

/*
 * What the backend of this device is to be opened with; past: of a device that is to be recovered,
 * else NULL. parked_fd and found are left empty.
 */
void device_open_params(const struct device_spec *spec, const struct device_past *past,
			struct backend_open_params *ret_open_params);

/*
 * Begins to start. Returns 0 (an event will tell how it ended) or -errno with words in error: then
 * there is no device.
 */
int device_start(struct device **ret_device, const struct device_host *host,
		 const struct device_spec *spec, void *owner, char *error, size_t error_bytes);

/* What a device was when its server died. */
struct device_past {
	struct ublksrv_ctrl_dev_info info; /* as the driver says now */
	uint64_t size_bytes;
	const char *identity; /* backend_identity of then */
};

/*
 * The same for a device that the driver has kept since its server died. past overrules what spec
 * says about id, queues, depth, max_io, data path, batches, partition scan and recovery. -EBUSY:
 * the backend is still in use, by I/O of the dead server perhaps; try again. When the device cannot
 * be adopted it stays in the driver as it is, unless a stop is asked for meanwhile.
 */
int device_recover(struct device **ret_device, const struct device_host *host,
		   const struct device_spec *spec, const struct device_past *past, void *owner,
		   char *error, size_t error_bytes);

/*
 * A device for such a one without a backend and without serving it, only for device_stop to remove
 * it from the driver; refused as that is when somebody has it open: then it is FAILED and kept.
 */
int device_discard(struct device **ret_device, const struct device_host *host,
		   const struct device_spec *spec, const struct device_past *past, void *owner,
		   char *error, size_t error_bytes);

/* Before it is stopped, a cache of it is writing what only the cache has. */
bool device_drains(const struct device *device);

/* GONE: what is known to be missing in its storage, in words; or "". */
const char *device_loss(const struct device *device);

/* FAILED only: whether the driver still has it, for another device_recover. */
bool device_kept(const struct device *device);

/* FAILED only: whether another device has the id that it was to have. */
bool device_id_taken(const struct device *device);

/*
 * Begins to stop a LIVE (or still starting) device. Without force it is refused when somebody has
 * it open, and when what it has acknowledged cannot be brought to its storage: a FLUSH fails, or a
 * cache cannot write what only it has. force: they get I/O errors, and that may be lost. After
 * deadline_ns (relative) the backend's outstanding I/Os are cancelled, or, while that is being
 * brought there, it is told. Asking again makes a polite stop a forced one. Returns 0 or -EALREADY.
 */
int device_stop(struct device *device, bool force, uint64_t deadline_ns);

/*
 * LIVE only. on: requests that come from now on wait; device_quiet says when the backend has none
 * left of those before.
 */
void device_quiesce(struct device *device, bool on);
bool device_quiet(const struct device *device);
/*
 * LIVE and quiet: begins to bring to its storage what would end with this process. True: nothing
 * is left of that. To be asked again until then, and not to be resumed after.
 */
bool device_settle(const struct device *device);

/*
 * After its reactors have been abandoned: gives up the driver's end and the backend, so that
 * another process can recover the device. All that may follow is the end of this process.
 */
void device_abandon(struct device *device);

/*
 * Begins to change the size of a LIVE device, which goes on serving. size_bytes 0: as much as the
 * backend has by itself. Growing takes the backend first. Shrinking what is in use, or holds data
 * beyond size_bytes, takes force. Returns 0 (DEVICE_EVENT_RESIZED will come, before any end of the
 * device), -EALREADY when it has this size, or another -errno with words in error. What the backend
 * refuses comes with the event.
 */
int device_resize(struct device *device, uint64_t size_bytes, bool force, char *error,
		  size_t error_bytes);

struct device_resized {
	int err; /* 0, or -errno: it has the size it had */
	uint64_t from_bytes, to_bytes;
	const char *words; /* of the error, or what else is to be told; or "" */
};
/* Of the last device_resize, from its event on. */
void device_resized(const struct device *device, struct device_resized *ret_resized);

struct device_snapshot_wish {
	enum backend_snapshot_op op;
	const char *name; /* copied; ID or name */
	const char *node; /* backend_snapshots_node */
	bool force;	  /* apply: also when somebody has the device open */
};

/*
 * Begins to change the snapshots of a LIVE device. Returns 0 (DEVICE_EVENT_SNAPSHOT will come,
 * before any end of the device), or -errno with words in error.
 */
int device_snapshot(struct device *device, const struct device_snapshot_wish *wish, char *error,
		    size_t error_bytes);

/* Of the last device_snapshot; what it points at stays until the next. */
struct device_snapshot_look {
	bool busy; /* it is under way */
	enum backend_snapshot_op op;
	const char *name;
	uint32_t done_permille;
	int err; /* how it ended: 0 or -errno with */
	const char *words;
};
void device_snapshot_look(const struct device *device, struct device_snapshot_look *ret_look);

struct device_cache_wish {
	enum backend_cache_op op;
	const char *node;		     /* backend_cache_node */
	uint64_t offset_bytes, length_bytes; /* struct backend_cache_job */
};

/*
 * Begins a command to a cache of a LIVE device. Returns 0 (DEVICE_EVENT_CACHE will come, before any
 * end of the device), or -errno with words in error.
 */
int device_cache_command(struct device *device, const struct device_cache_wish *wish, char *error,
			 size_t error_bytes);
/* Asks it to end soon, with what it has done; harmless when none is under way. */
void device_cache_cancel(struct device *device);

/* Of the last device_cache_command; what it points at stays until the next. */
struct device_cache_look {
	bool busy; /* it is under way */
	const char *node;
	const struct backend_cache_job *job; /* while busy: relaxed loads */
	int err;			     /* how it ended: 0 or -errno with job->words */
};
void device_cache_look(const struct device *device, struct device_cache_look *ret_look);

/*
 * Begins to use memory that a client shares (ublk/shmem.h), of a LIVE device. fd stays the caller's
 * and is looked at as a peer's. read_only: no request writes to the memory. Returns 0
 * (DEVICE_EVENT_SHMEM will come, before any end of the device), or -errno with words in error.
 */
int device_shmem_share(struct device *device, int fd, bool read_only, char *error,
		       size_t error_bytes);
/* The same: takes the buffer of this index back. No request uses it when the event comes. */
int device_shmem_unshare(struct device *device, unsigned idx, char *error, size_t error_bytes);

/*
 * After device_recover, before the device serves: the driver has kept this buffer under this index,
 * and fd is the memory that the server before had mapped. Returns 0 or -errno: then requests in it
 * are copied.
 */
int device_shmem_restore(struct device *device, unsigned idx, int fd);

/* One of them is under way. */
bool device_shmem_busy(const struct device *device);

/* Of the last one, when its event comes. */
struct device_shmem_end {
	struct device *device;
	bool shares;
	unsigned idx;
	int err; /* 0, or -errno with words */
	int fd;	 /* shares: the memory, borrowed until the event's handler returns */
	char words[DEVICE_ERROR_BYTES];
};
void device_shmem_ended(const struct device *device, struct device_shmem_end *ret_end);

#define DEVICE_SHMEM_FILE_BYTES 128
struct device_shmem_look {
	uint64_t bytes;
	const char *file; /* as its client calls it, "memfd:..." */
	bool read_only;
	bool torn;    /* its client has taken pages away: requests are copied again */
	bool leaving; /* the driver is asked to forget it */
};
/* Main thread; idx below SHMEM_BUFFERS_MAX. False: there is none. */
bool device_shmem_look(const struct device *device, unsigned idx,
		       struct device_shmem_look *ret_look);

/*
 * Only when GONE or FAILED: the backend, to be closed by the caller where that may block; or NULL.
 * Otherwise device_free closes it.
 */
struct backend_device *device_take_backend(struct device *device);

/* Only when GONE or FAILED. Accepts NULL. */
void device_free(struct device *device);

/* What the event callback and the control socket ask. */
void *device_owner(const struct device *device);
const char *device_name(const struct device *device);
enum device_state device_state(const struct device *device);
const char *device_error(const struct device *device);

/* The top of its stack, from device_start to device_free; NULL after device_discard. */
struct backend_device *device_backend(struct device *device);

struct device_info {
	int64_t id; /* -1 before the kernel gave one */
	uint32_t queues, depth, logical_block_bytes, physical_block_bytes, max_io_bytes;
	uint64_t size_bytes;
	uint32_t caps;	       /* enum backend_caps */
	uint64_t flags;	       /* UBLK_F_* in force */
	const char *backend;   /* the stack, "throttle > file" */
	const char *data_path; /* in use: "copy"; NULL before it is chosen */
	bool partition_scan;   /* the kernel looks for partitions when it starts */
	bool batch, resizing, changes_snapshot, has_cache_command;
	uint64_t buffer_bytes_max;	 /* worst-case memory for data */
	unsigned queue_reactor_nr;	 /* as queues */
	unsigned char queue_reactor[64]; /* reactor index of the first 64 queues */
};
void device_info(const struct device *device, struct device_info *ret_info);

struct device_op_stats {
	uint64_t done, failed; /* completed I/Os; of these with an error */
	uint64_t bytes;
	struct histogram layer[QUEUE_LAYER_NR]; /* failed I/Os count too */
};

struct device_stats {
	struct device_op_stats op[BACKEND_OP_NR]; /* device_op_is_told says which to tell of */
	uint64_t inflight;			  /* in the daemon now */
	uint64_t inflight_max;			  /* per queue, summed: an upper bound */
	uint64_t busy_retries;			  /* a backend said BUSY */
	uint64_t errors[QUEUE_ERRNO_NR];	  /* by errno */
	uint64_t fallbacks; /* zero copy: requests that were copied after all */
	uint64_t shmem;	    /* requests in memory that a client shares */
	uint64_t lost_tags; /* a FETCH or COMMIT the driver refused */
};

/* Requests of zones are told of only where there were any: few devices have zones. */
static inline bool device_op_is_told(const struct device_stats *stats, unsigned op)
{
	return op < BACKEND_PLAIN_OP_NR || stats->op[op].done > 0;
}
/* Sums the queues' counters, live: any time from LIVE to DRAINING; zeroes otherwise. */
void device_stats(const struct device *device, struct device_stats *ret_stats);

/* What the driver said when it was asked last, by GET_DEV_INFO. */
struct device_driver {
	bool owed;	      /* the answer to the last question is not here yet */
	uint64_t asked_ns;    /* of what is owed, or of the answer below; 0: never asked */
	uint64_t answered_ns; /* 0: no answer yet; the rest is of the last one */
	int result;	      /* 0 or -errno */
	unsigned state;	      /* UBLK_S_DEV_* */
	int server_pid;	      /* who serves it; -1: nobody */
};

/* Asks, unless an answer is owed or the device is not in the driver; whoever wants it asks later.
 */
void device_ask_driver(struct device *device);
void device_driver(const struct device *device, struct device_driver *ret_said);

/* The command about the device that the driver has not answered yet. */
struct device_command {
	const char *name; /* "START_DEV"; NULL: none */
	uint64_t waited_ns;
	char where[192]; /* the kernel's function that it waits in, worker.h; "": not asked yet */
};
/* where is looked for only after as_of_ns: it takes reading of /proc. */
void device_command(const struct device *device, uint64_t as_of_ns,
		    struct device_command *ret_command);

/* "QUIESCED" for UBLK_S_DEV_QUIESCED. */
const char *device_driver_state_name(unsigned state);

/*
 * Bytes of memory the spec may take at most, for the sum printed at start: by its queues, depth,
 * logical_block_bytes, max_io_bytes and backend.
 */
uint64_t device_memory_max(const struct device_spec *spec);

#endif
