/*
 * A slot is a place where one device after the other lives: started, used, stopped at whatever
 * moment, freed, started again; after a kill recovered, or given up. It plays the daemon:
 * everything here is outside of reactor turns.
 */
#ifndef SIM_SLOT_H
#define SIM_SLOT_H

#include "test/sim/tree/filters.h"
#include "test/sim/scripted.h"
#include "test/sim/storage.h"
#include "test/sim/tree/top.h"
#include "test/sim/tree/tree.h"
#include "test/sim/ublk_model.h"
#include "test/sim/zones/slot_zones.h"
#include "ublk/device/device.h"

/* Ids below are the driver's to give. */
#define SLOT_ID_FIRST 8

enum slot_kind {
	SLOT_SCRIPTED,
	SLOT_MOVER, /* scripted too, with BACKEND_DATA_MOVES */
	SLOT_FILE,
	SLOT_MEM,
	SLOT_NULL,
	SLOT_PATTERN,
	SLOT_NBD, /* from here on: on a server */
	SLOT_NVME,
	SLOT_KIND_NR
};

/* daemon/devices/state.h: what outlives the server. */
enum slot_note {
	NOTE_NONE,
	NOTE_ADDING,
	NOTE_SERVING,
	NOTE_RECOVERING,
};

struct slot_past {
	enum slot_note note;
	int64_t id;
	uint64_t size_bytes;
	char identity[BACKEND_IDENTITY_BYTES];
	int stored_fds[BACKEND_STORED_MAX]; /* as in struct backend_open_params; 0: none */
	uint64_t attach_excuses; /* as slot.excuses, for giving it up once it is served */
	bool shmem;		 /* the fd store has the memory that is shared, as */
	unsigned shmem_idx;
	bool kept;	  /* not adopted: the driver still has it */
	unsigned retries; /* since the server was killed */
};

struct slot {
	unsigned idx;
	enum slot_kind kind;
	char name[16];
	struct device_spec spec;
	struct backend_spec backend;
	struct sim_filters filters;
	struct sim_tree tree;	 /* of a scripted backend */
	struct sim_top top;	 /* of one whose device keeps metadata */
	struct slot_zones zones; /* of one whose device has some */
	struct storage *st;
	void *config; /* of a product's backend */
	struct scripted_config scripted;
	int file_fd;
	bool nbd_tcp; /* not by a unix socket */

	struct device *dev;
	struct slot_past past;
	bool over; /* starts no more */
	bool was_live, stop_asked, stop_forced, ended;
	uint64_t late_ns; /* no stop may be called late before */
	uint64_t excuses; /* failures injected before this start */
	uint64_t open_excuses;
	struct device_past adopted; /* by the recovery that is under way */
	uint64_t starts, lives, refusals;
	struct sim_event event, stop_event, truncate_event, tune_event, resize_event, shmem_event;
	bool resizing, resize_forced, resize_kept;
	uint64_t resize_excuses;
	uint64_t first_bytes; /* of a backend that forgets, at each start */
	int shmem_fd;	      /* what its client shares */
	uint8_t *shmem_view;
	uint64_t *budget;
	const struct device_host *host;
};

/* kind: what it serves. */
void slot_init(struct slot *slot, unsigned idx, enum slot_kind kind, const struct device_host *host,
	       uint64_t *budget);
void slot_fini(struct slot *slot);
/* From the host's event callback. */
void slot_event(struct device *device, enum device_event event);
/* The server was killed; another one begins. */
void slot_killed(struct slot *slot);
void slot_restart(struct slot *slot);
/* device_host.added */
int slot_added(struct device *device, void *arg, char *error, size_t error_bytes);

/* Between slot.c and slot_past.c. */
void slot_begin_later(struct slot *slot);
void slot_reset_counters(struct slot *slot);
/* UBLK_F_* that devices of this seed can have. */
uint64_t slot_features(const struct device_host *host);
/*
 * Opens spec.opened, for a start or (past) a recovery, as its caller does who may block;
 * slot_opened follows with what came of both. Returns as backend_open.
 */
int slot_open(struct slot *slot, const struct device_past *past, char *error, size_t error_bytes);
void slot_opened(struct slot *slot, int err);
/* Whether there is a reason that it could not be opened. */
bool slot_may_not_open(const struct slot *slot);
void slot_ask_stop(struct sim_event *event);
/* slot_judge.c */
void slot_stop_is_late(struct slot *slot);
uint64_t slot_choose_deadline(void);
void slot_truncate_file(struct sim_event *event);
/* Notes. */
uint64_t slot_mark(const struct slot *slot);
void slot_note_adding(struct slot *slot);
void slot_note_size(struct slot *slot, uint64_t size_bytes);
void slot_note_serving(struct slot *slot, const struct device *device);
void slot_forget(struct slot *slot);
/* A recovery has failed, and its device is freed: what now. */
void slot_retry(struct slot *slot);
/* Whether the driver has a reason not to let it be recovered. */
bool slot_is_excused(const struct slot *slot);

/* slot_shmem.c: what a client shares. Before a start: whether it may. */
void slot_shmem_choose(struct slot *slot);
void slot_shmem_fini(struct slot *slot);
/* A client comes. */
void slot_shmem_live(struct slot *slot, struct model_dev *dev);
/* Of a live device: it shares memory after a while, or takes it back. */
void slot_shmem_later(struct slot *slot);
void slot_shmem_ended(struct slot *slot);
/* Of one that is being recovered. */
void slot_shmem_restore(struct slot *slot);

/*
 * slot_judge.c: failures so far that a device may fail to start for; may be given up for in a
 * recovery; may not be opened for.
 */
uint64_t slot_excuses(void);
uint64_t slot_attach_excuses(void);
uint64_t slot_open_excuses(void);
/* It became live. */
void slot_judge_live(const struct slot *slot);
/* Before a stop: no queue cancels but for one that is late. */
void slot_judge_cancels(const struct slot *slot);
/* After the last event (failed: it was that); past.kept is known. */
void slot_judge_end(const struct slot *slot, bool failed);

/* model.live */
void slot_live(struct slot *slot, struct model_dev *dev);
/* A server, and the configuration of a device on it; before each opening. */
void slot_nbd_init(struct slot *slot);
void slot_nbd_begin(struct slot *slot, bool anew);
void slot_nvme_init(struct slot *slot);
void slot_nvme_begin(struct slot *slot, bool anew);
static inline bool slot_on_server(const struct slot *slot)
{
	return slot->kind >= SLOT_NBD;
}
static inline void slot_server_begin(struct slot *slot, bool anew)
{
	if (slot->kind == SLOT_NBD)
		slot_nbd_begin(slot, anew);
	else if (slot->kind == SLOT_NVME)
		slot_nvme_begin(slot, anew);
}
/* resize.c: from now on the device becomes larger and smaller at random. */
void slot_resize_often(struct slot *slot);
/* resize.c: the server was killed, perhaps in a resize. */
void slot_resize_killed(struct slot *slot);
/* resize.c: DEVICE_EVENT_RESIZED */
void slot_resized(struct slot *slot);
void slot_dump(const struct slot *slot);

#endif
