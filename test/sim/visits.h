/* Openers of a block device, udev's probes, and people who stop devices that are not theirs. */
#ifndef SIM_VISITS_H
#define SIM_VISITS_H

#include "test/sim/ublk_model.h"

/* Somebody opens it now, for that long. */
void visits_stay(struct model_dev *dev, uint64_t for_ns);

/* The device has become live: whoever will come is planned. */
void visits_begin(struct model_dev *dev);

/* Forgets those who came too late. */
void visits_fini(void);

#endif
