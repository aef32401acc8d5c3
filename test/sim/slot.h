/*
 * A slot is a place where one device after the other lives: started, used, stopped at whatever
 * moment, freed, started again. It plays the daemon: everything here is outside of reactor turns.
 */
#ifndef SIM_SLOT_H
#define SIM_SLOT_H

#include "test/sim/filters.h"
#include "test/sim/scripted.h"
#include "test/sim/storage.h"
#include "test/sim/ublk_model.h"
#include "ublk/device.h"

/* Ids below are the driver's to give. */
#define SLOT_ID_FIRST 8

enum slot_kind {
	SLOT_SCRIPTED,
	SLOT_MOVER, /* scripted too, with BACKEND_DATA_MOVES */
	SLOT_FILE,
	SLOT_MEM,
	SLOT_NULL,
	SLOT_PATTERN,
	SLOT_KIND_NR
};

struct slot {
	unsigned idx;
	enum slot_kind kind;
	char name[16];
	struct device_spec spec;
	struct backend_spec backend;
	struct sim_filters filters;
	struct storage *st;
	void *config; /* of a product's backend */
	struct scripted_config scripted;
	int file_fd;

	struct device *dev;
	bool over; /* starts no more */
	bool was_live, stop_asked, stop_forced, ended;
	uint64_t late_ns; /* no stop may be called late before */
	uint64_t excuses; /* failures injected before this start */
	uint64_t starts, lives, refusals;
	struct sim_event event, stop_event, truncate_event, tune_event, resize_event;
	bool resizing, resize_forced, resize_kept;
	uint64_t resize_excuses;
	uint64_t first_bytes; /* of a backend that forgets, at each start */
	uint64_t *budget;
	const struct device_host *host;
};

/* kind: what it serves. */
void slot_init(struct slot *slot, unsigned idx, enum slot_kind kind, const struct device_host *host,
	       uint64_t *budget);
void slot_fini(struct slot *slot);
/* From the host's event callback. */
void slot_event(struct device *device, enum device_event event);
/* model.live */
void slot_live(struct slot *slot, struct model_dev *dev);
/* resize.c: from now on the device becomes larger and smaller at random. */
void slot_resize_often(struct slot *slot);
/* resize.c: DEVICE_EVENT_RESIZED */
void slot_resized(struct slot *slot);
void slot_dump(const struct slot *slot);

#endif
