/*
 * What `ublkctl top` knows of one moment: the counters of all devices and reactors, and for one
 * device the histograms of its layers. Pure: from JSON to numbers, and the difference of two.
 */
#ifndef UBLKCTL_TOP_TOP_SAMPLE_H
#define UBLKCTL_TOP_TOP_SAMPLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

#define TOP_NAME_BYTES 64

enum { TOP_READ, TOP_WRITE, TOP_OP_NR = 5 };
enum top_layer { TOP_TOTAL, TOP_THROTTLE, TOP_DAEMON, TOP_BACKEND, TOP_LAYER_NR };

struct top_op {
	uint64_t done, failed, bytes;
	struct histogram latency; /* of the layer total */
};

struct top_device {
	char name[TOP_NAME_BYTES], state[16], backend[TOP_NAME_BYTES];
	uint64_t inflight;
	/* Set by top_sample_subtract: the numbers are of an interval. */
	bool measured;
	struct top_op op[TOP_OP_NR];
};

struct top_reactor {
	char name[16];
	int cpu; /* below 0: the control loop */
	bool measured;
	uint64_t turns, cqes, callback_ns, kernel_ns, poll_ns, idle_ns, stalls, sq_full,
		timers_late;
};

/* Zeroed: nothing is known. */
struct top_sample {
	uint64_t time_ns;	   /* of the daemon's clock */
	uint64_t reactors_time_ns; /* of ours; the answer has none */
	struct top_device *devices;
	size_t device_nr;
	struct top_reactor *reactors;
	size_t reactor_nr;
};

/* Of one device; large. */
struct top_layers {
	char name[TOP_NAME_BYTES];
	struct histogram op[TOP_OP_NR][TOP_LAYER_NR];
};

/* As in the JSON: "read", "total". */
const char *top_op_name(unsigned op);
const char *top_layer_name(enum top_layer layer);

void top_sample_fini(struct top_sample *s);

/* The data of the answers to stats (with buckets), list (after stats) and reactors. */
void top_sample_read_stats(struct top_sample *s, const json_t *data);
void top_sample_read_list(struct top_sample *s, const json_t *data);
void top_sample_read_reactors(struct top_sample *s, const json_t *data, uint64_t time_ns);

/* The answer to stats of one device with layer_buckets. Returns false when it is none. */
bool top_layers_read(struct top_layers *l, const json_t *data);

/*
 * now -= before, in place. A device or reactor that before did not have, or had with higher
 * counters, was made anew in between and counts from zero.
 */
void top_sample_subtract(struct top_sample *now, const struct top_sample *before);
void top_layers_subtract(struct top_layers *now, const struct top_layers *before);

/* Of all kinds of request together; bytes: of reads and writes. */
uint64_t top_device_done(const struct top_device *d);
uint64_t top_device_failed(const struct top_device *d);
uint64_t top_device_bytes(const struct top_device *d);
void top_device_latency(const struct top_device *d, struct histogram *ret_latency);

#endif
