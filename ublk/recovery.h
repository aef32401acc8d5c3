/*
 * What becomes of a device when its server dies: docs/recovery.md. Pure functions, any thread.
 */
#ifndef UBLK_RECOVERY_H
#define UBLK_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

enum recovery {
	RECOVERY_REISSUE, /* all requests wait for the next server, those in flight come again */
	RECOVERY_HOLD,	  /* new requests wait, those in flight fail */
	RECOVERY_FAIL,	  /* all fail until there is a next server (Linux 6.13) */
	RECOVERY_NONE,	  /* there is no next server: the device is dead */
	RECOVERY_NR,
};

/* Names for the configuration; NULL after the last. */
extern const char *const recovery_names[];

/* UBLK_F_* to ask ADD_DEV for. */
uint64_t recovery_flags(enum recovery recovery);

/* Whether a device with these UBLK_F_* outlives its server. */
bool recovery_possible(uint64_t flags);

#define RECOVERY_ERROR_BYTES 192

/* Returns 0, or -EOPNOTSUPP with words: the driver (its features: UBLK_F_*) cannot do that. */
int recovery_check(enum recovery recovery, uint64_t features,
		   char error[static RECOVERY_ERROR_BYTES]);

#endif
