/* Openers of a block device, udev's probes, and people who stop devices that are not theirs. */
#ifndef SIM_VISITS_H
#define SIM_VISITS_H

#include "test/sim/ublk_model.h"

/* The device has become live: whoever will come is planned. */
void visits_begin(struct model_dev *dev);

/* Forgets those who came too late. */
void visits_fini(void);

#endif
