/*
 * What `ublkctl top` and `ublkctl stats` know of one moment: the counters of all devices and
 * reactors, and for one device the histograms of its layers. Pure: from JSON to numbers, and the
 * difference of two.
 */
#ifndef UBLKCTL_SAMPLE_H
#define UBLKCTL_SAMPLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

#define SAMPLE_NAME_BYTES 64

enum { SAMPLE_READ, SAMPLE_WRITE, SAMPLE_FLUSH, SAMPLE_DISCARD, SAMPLE_WRITE_ZEROES, SAMPLE_OP_NR };

struct sample_op {
	uint64_t done, failed, bytes;
	struct histogram latency; /* of the layer total */
};

struct sample_device {
	char name[SAMPLE_NAME_BYTES], state[16], backend[SAMPLE_NAME_BYTES];
	uint64_t inflight;
	char errors[128]; /* "EIO 3, ENOSPC 1", since the start */
	/* Set by sample_subtract: the numbers are of an interval. */
	bool measured;
	struct sample_op op[SAMPLE_OP_NR];
};

struct sample_reactor {
	char name[16];
	int cpu; /* below 0: the control loop */
	bool measured;
	uint64_t turns, cqes, callback_ns, kernel_ns, poll_ns, idle_ns, stalls, sq_full,
		timers_late;
};

/* Zeroed: nothing is known. */
struct sample {
	uint64_t time_ns;	   /* of the daemon's clock */
	uint64_t reactors_time_ns; /* of ours; the answer has none */
	struct sample_device *devices;
	size_t device_nr;
	struct sample_reactor *reactors;
	size_t reactor_nr;
};

/* Of one device; large. */
struct sample_layers {
	char name[SAMPLE_NAME_BYTES];
	struct histogram op[SAMPLE_OP_NR][QUEUE_LAYER_NR];
};

/* As in the JSON: "read". */
const char *sample_op_name(unsigned op);

/* Zeroed, with room for one more; out of memory ends the program. */
void *sample_array(size_t nr, size_t bytes);

/* to: nothing, or zeroed. */
void sample_copy(struct sample *to, const struct sample *from);
void sample_fini(struct sample *s);

/* The data of the answers to stats (with buckets), list (after stats) and reactors. */
void sample_read_stats(struct sample *s, const json_t *data);
void sample_read_list(struct sample *s, const json_t *data);
void sample_read_reactors(struct sample *s, const json_t *data, uint64_t time_ns);

/* The answer to stats of one device with layer_buckets. Returns false when it is none. */
bool sample_layers_read(struct sample_layers *l, const json_t *data);

/*
 * now -= before, in place. A device or reactor that before did not have, or had with higher
 * counters, was made anew in between and counts from zero.
 */
void sample_subtract(struct sample *now, const struct sample *before);
void sample_layers_subtract(struct sample_layers *now, const struct sample_layers *before);

/* Of all kinds of request together; bytes: of reads and writes. */
uint64_t sample_device_done(const struct sample_device *d);
uint64_t sample_device_failed(const struct sample_device *d);
uint64_t sample_device_bytes(const struct sample_device *d);
void sample_device_latency(const struct sample_device *d, struct histogram *ret_latency);

#endif
