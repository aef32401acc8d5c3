/*
 * The product's node with zones at the top of some slots' devices, over the slot's own backend. Its
 * medium outlives a device that has ended well: the next one often finds the zones as they were.
 */
#ifndef SIM_SLOT_ZONES_H
#define SIM_SLOT_ZONES_H

#include "storage/backend.h"
#include "storage/life.h"
#include "test/sim/zones/sim_zones.h"

struct slot;
struct sim_event;
struct device_past;

struct slot_zones {
	struct backend_spec spec;
	void *config; /* NULL: there is none */
	struct sim_zones zones;
	bool is_kept;	 /* the device of now begins with what the one before has left */
	bool ended_well; /* that one has said so */
	/* The walk that opens or closes a backend. */
	struct backend_life *life;
	struct backend_device *closing;
	void (*then)(struct sim_event *event);
	int ret; /* of an opening */
	char words[BACKEND_LIFE_WORDS_BYTES];
};

/* By the seed and not by chance: whether there are zones in the slot with this number. */
bool slot_zones_seed(unsigned idx);
/* Whether its devices have zones: where the driver can have them, too. */
bool slot_zones_wanted(const struct slot *slot);
/* Before the spec of a device is chosen: the size of its medium. */
void slot_zones_choose(struct slot *slot);
/* The node over below, whose size is that of the slot's storage, which becomes the device's. */
const struct backend_spec *slot_zones_make(struct slot *slot, const struct backend_spec *below);
/* The rest of the spec of a device that has zones: to what they can do with. */
void slot_zones_fit(struct slot *slot);
/* It begins, with nothing or with what was there. */
void slot_zones_begin(struct slot *slot);
/* It has ended. */
void slot_zones_ended(struct slot *slot, bool failed);
/*
 * Opens spec.opened, for a start or (past) a recovery; the slot's event follows as `then`, with
 * zones.ret and zones.words.
 */
void slot_zones_open(struct slot *slot, const struct device_past *past,
		     void (*then)(struct sim_event *event));
/* Accepts NULL. Whose side it is does not matter. */
void slot_zones_close(struct slot *slot, struct backend_device *backend);
/* Whether one of them is under way: nothing else may be done with the medium. */
bool slot_zones_are_busy(const struct slot *slot);
/* The server is killed: returns the tree that was being opened or closed, or NULL. */
const struct backend_device *slot_zones_killed(struct slot *slot);
/* Accepts a zeroed one. */
void slot_zones_fini(struct slot *slot);

#endif
