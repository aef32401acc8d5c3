/*
 * throttle: limits of rate with the names of libvirt (<iotune>) and the arithmetic of QEMU
 * (docs/throttle.txt there): leaky buckets as a meter.
 *
 *   throttle_math.c     the buckets: pure functions
 *   throttle_options.c  the option table, and which values go together
 *   throttle_group.c    who shares buckets, and whose turn it is
 *   throttle.c          the filter
 */
#ifndef FILTERS_THROTTLE_THROTTLE_H
#define FILTERS_THROTTLE_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/backend.h"

enum throttle_dir { THROTTLE_READ, THROTTLE_WRITE, THROTTLE_DIR_NR };

enum throttle_bucket {
	THROTTLE_TOTAL_BYTES,
	THROTTLE_READ_BYTES,
	THROTTLE_WRITE_BYTES,
	THROTTLE_TOTAL_IOPS,
	THROTTLE_READ_IOPS,
	THROTTLE_WRITE_IOPS,
	THROTTLE_BUCKET_NR,
};

/* Of avg, max, and max times length: what a double counts exactly. */
#define THROTTLE_VALUE_MAX 1000000000000000ull

struct throttle_rate {
	uint64_t avg; /* per second; 0: no limit */
	uint64_t max; /* per second while a burst lasts; 0: avg, smoothed over 100 ms */
	uint64_t max_length_s;
};

struct throttle_limits {
	struct throttle_rate rate[THROTTLE_BUCKET_NR];
	uint64_t size_iops_bytes; /* a longer request counts as several; 0: each is one */
};

struct throttle_config {
	struct throttle_limits limits;
	char *group; /* NULL: the device shares with nobody */
};

/* ---- throttle_options.c; main thread ---- */

extern const struct option throttle_options[];

/* Names of the options that set the rate of a bucket, its burst and how long that may last. */
const char *throttle_rate_name(enum throttle_bucket bucket);

/* As backend->check; config is a struct throttle_config. */
void throttle_check(const void *config, const struct yaml_node *map, struct config_errors *e);

/* ---- throttle_math.c; any thread, one at a time ---- */

struct throttle_state {
	struct throttle_limits limits;
	double level[THROTTLE_BUCKET_NR];	/* leaks at avg */
	double burst_level[THROTTLE_BUCKET_NR]; /* leaks at max, when max_length_s > 1 */
	uint64_t leaked_ns;			/* the time up to which they have leaked */
};

/* New limits and empty buckets. */
void throttle_state_set(struct throttle_state *s, const struct throttle_limits *limits,
			uint64_t now_ns);

/* Lets the buckets leak up to now. */
void throttle_leak(struct throttle_state *s, uint64_t now_ns);

/* How long the next request of this direction has to wait, of whatever length; 0: none. */
uint64_t throttle_wait_ns(const struct throttle_state *s, enum throttle_dir dir);

/* Fills the buckets with a request that goes. */
void throttle_account(struct throttle_state *s, enum throttle_dir dir, uint64_t bytes);

/* ---- throttle.c; main thread ---- */

bool throttle_is(const struct backend_device *device);

/* The uppermost throttle of a tree, of several the first; NULL: none. Accepts NULL. */
struct backend_device *throttle_find(struct backend_device *top);

/* The limits in force now. throttle is what throttle_find returned. */
void throttle_get(struct backend_device *throttle, struct throttle_limits *ret_limits);

/*
 * Other limits, from now on, for all members of the group. They have passed throttle_check. One
 * waiting request goes at once, as in QEMU; the others wait as the new limits say.
 */
void throttle_update(struct backend_device *throttle, const struct throttle_limits *limits);

#endif
