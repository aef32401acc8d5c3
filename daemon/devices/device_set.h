/*
 * The set of devices of this daemon: adds, removes, reloads and stops them; a failure of one leaves
 * the others alone. Owns the members, their settings and their devices. Main thread.
 */
#ifndef DAEMON_DEVICES_DEVICE_SET_H
#define DAEMON_DEVICES_DEVICE_SET_H

#include <ev.h>
#include <stdbool.h>

#include "base/list.h"
#include "daemon/devices/backend_work.h"
#include "daemon/devices/latency.h"
#include "daemon/settings/settings.h"
#include "daemon/devices/state.h"
#include "ublk/device/device.h"

enum member_state {
	MEMBER_WAITING, /* is started when other members have stopped */
	MEMBER_STARTING,
	MEMBER_LIVE,
	MEMBER_STOPPING,
	MEMBER_FAILED, /* did not start; a reload tries again */
};

struct member {
	struct list_node node;
	struct device_settings *settings;
	struct device_settings *next; /* it is stopped and started again with these; or NULL */
	struct device *device; /* NULL when WAITING or FAILED, or STARTING and not open yet */
	/* STARTING: opens its backend; ended: closes it; or NULL */
	struct backend_work *work;
	uint64_t work_after_ns;	      /* STARTING, without a device or a work: when to open */
	struct ev_timer open_timeout; /* runs while its backend is being opened or closed */
	struct device_set *device_set;
	enum member_state state;
	struct member_past *past; /* the driver has it since a crash and it is not LIVE again */
	bool stop_when_live;	  /* a polite removal, or `next`, waits until it is adopted */
	bool given_up, given_up_by_force; /* the sweep discards it, when it has ended */
	bool from_file;			  /* a reload removes it when the file has it no more */
	bool ended;			  /* the device is GONE or FAILED and waits for the sweep */
	bool late;			  /* over its deadline: nobody waits for it any more */
	bool absent;			  /* STARTING: its file is missing, perhaps not for long */
	uint64_t absent_until_ns;	  /* how long to look for it */
	bool note_owed;			  /* device_notes.c: its note could not be written */
	int owed_fd;			  /* device_notes.c: what its backend owes; 0: none */
	bool quiesced, settled;		  /* upgrade.c: while devices come to rest */
	char error[DEVICE_ERROR_BYTES];
	struct list_node watches;
	/* Watches that wait for the end of one. */
	struct list_node resizes, snapshots, cache_commands, shmem_changes;
	uint64_t reload_size_bytes;  /* a reload's, to be noted in settings; 0: none */
	struct latency_view latency; /* of the device as it is now: a restart forgets it */
};

/* How starting or stopping a member ended. */
enum device_set_outcome {
	DEVICE_SET_LIVE,
	DEVICE_SET_FAILED,
	DEVICE_SET_REFUSED,
	DEVICE_SET_GONE,
	DEVICE_SET_LATE,
	DEVICE_SET_RESIZED,  /* of device_set_watch_resize only; REFUSED: its size is unchanged */
	DEVICE_SET_SNAPSHOT, /* of device_set_watch_snapshot only; REFUSED: it has failed */
	DEVICE_SET_CACHE,    /* the same of device_set_watch_cache */
	DEVICE_SET_SHMEM,    /* the same of device_set_watch_shmem */
};

/*
 * Called once, when what is under way with a member has ended, and taken off its list before.
 * error: words, or ""; with GONE too: the storage has not all that was written. Embedded in what
 * waits.
 */
struct device_set_watch {
	struct list_node node;
	void (*fn)(struct device_set_watch *watch, enum device_set_outcome outcome,
		   const char *error);
};

struct state;
struct fd_store;

#define DEVICE_SET_OPEN_TIMEOUT_SECONDS 10.

/* The other half is for cancelled requests to complete, and for the driver. */
#define DEVICE_SET_STOP_DEADLINE_NS(stop_timeout_ns) ((stop_timeout_ns) / 2)

struct device_set {
	struct ev_loop *ev;
	struct device_host *host;
	const char *control;	   /* path of the control socket: part of the mark of devices */
	struct state *state;	   /* notes of the devices; NULL: none are made, none adopted */
	struct fd_store *fd_store; /* memory that outlives us; NULL: none does */
	uint64_t stop_timeout_ns;
	/* How long a backend may take to open or close before nobody waits for it any more. */
	double open_timeout_seconds;
	struct list_node members; /* in the order of adding */
	unsigned member_nr;
	bool closing;
	struct backend_work_host work; /* takes the helpers of host */
	struct ev_timer sweep;
	struct ev_timer retry; /* looks again at members that cannot go on yet */
	struct ev_timer owed;  /* device_notes.c: writes notes that could not be written before */
	void (*changed)(struct device_set
				*device_set); /* after each sweep: ask settled or empty; or NULL */
	void *arg;			      /* the owner's */
};

/* Takes host->event. */
void device_set_init(struct device_set *set, struct ev_loop *ev, struct device_host *host,
		     uint64_t stop_timeout_ns);

/* Forgets all members; their devices must be gone, or the process about to exit. */
void device_set_fini(struct device_set *set);

/* NULL when there is none. */
struct member *device_set_find(const struct device_set *set, const char *name);

/*
 * Begins to start a device; settings becomes the device set's. A member made from the file stays
 * when it fails; any other is gone then, once its watches were told. Never NULL but for -ENOMEM.
 */
struct member *device_set_add(struct device_set *set, struct device_settings *settings,
			      bool from_file);

/*
 * Begins to adopt a device that the driver still has although its daemon died; takes the settings
 * of the record. Never NULL but for -ENOMEM. A member that cannot be adopted stays, FAILED; a
 * reload tries again, device_set_del gives the device up.
 */
struct member *device_set_adopt(struct device_set *set, struct state_record *record,
				const struct ublksrv_ctrl_dev_info *info);

/*
 * Begins to remove a member; watch it to hear how that ends. Without force a device stays that
 * somebody has open, or whose storage does not take what it has acknowledged (device_stop).
 */
void device_set_del(struct device_set *set, struct member *m, bool force);

/* What settings say of a device, without the mark of this daemon; pointers stay the settings'. */
struct device_spec device_set_spec_of(const struct device_settings *settings);

/* The member must have something under way, or nothing would be told. */
void device_set_watch(struct member *m, struct device_set_watch *watch);
static inline void device_set_unwatch(struct device_set_watch *watch)
{
	list_remove(&watch->node);
}
static inline bool device_set_busy(const struct member *m)
{
	return m->state != MEMBER_LIVE && (m->state != MEMBER_FAILED || m->ended);
}

/*
 * Changes the size of a live member, as device_resize; settings stay as configured, so that a
 * reload of the same file changes nothing. Watch it to hear how that ends.
 */
int device_set_resize(struct member *m, uint64_t size_bytes, bool force, char *error,
		      size_t error_bytes);
static inline void device_set_watch_resize(struct member *m, struct device_set_watch *watch)
{
	list_push_back(&m->resizes, &watch->node);
}

/* The same for device_snapshot. */
int device_set_snapshot(struct member *m, const struct device_snapshot_wish *wish, char *error,
			size_t error_bytes);
static inline void device_set_watch_snapshot(struct member *m, struct device_set_watch *watch)
{
	list_push_back(&m->snapshots, &watch->node);
}

/* The same for device_cache_command. */
int device_set_cache_command(struct member *m, const struct device_cache_wish *wish, char *error,
			     size_t error_bytes);
static inline void device_set_watch_cache(struct member *m, struct device_set_watch *watch)
{
	list_push_back(&m->cache_commands, &watch->node);
}

/* The same for device_shmem_share (fd stays the caller's) and device_shmem_unshare. */
int device_set_share(struct member *m, int fd, bool read_only, char *error, size_t error_bytes);
int device_set_unshare(struct member *m, unsigned idx, char *error, size_t error_bytes);
static inline void device_set_watch_shmem(struct member *m, struct device_set_watch *watch)
{
	list_push_back(&m->shmem_changes, &watch->node);
}

/* Makes the device set what settings says; takes the devices it needs from it. */
void device_set_reload(struct device_set *set, struct settings *settings);

/* Stops everything by force and takes in nothing new. */
void device_set_stop_all(struct device_set *set);

/* Plans a call of `changed`. */
void device_set_check(struct device_set *set);

/* Nothing is under way, but for members that are late. */
bool device_set_settled(const struct device_set *set);

/* "live", "failed", "waiting", or the device's own state. */
const char *member_state_name(const struct member *m);

/* The top of its stack while its device is there; NULL: it is not, or it has ended. */
static inline struct backend_device *member_backend(const struct member *m)
{
	return m->device && !m->ended ? device_backend(m->device) : NULL;
}

#endif
