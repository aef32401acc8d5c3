/*
 * What `ublktrace latency` has counted, as read from the kernel: pure data, and what is computed
 * from it. Main thread; nothing here needs rights.
 */
#ifndef UBLKTRACE_LATENCY_LATENCY_REPORT_H
#define UBLKTRACE_LATENCY_LATENCY_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ublktrace/latency/latency_map.h"
#include "ublktrace/events/losses.h"

/* ---- histograms */

/* First nanosecond of a bucket; the bucket ends before that of idx + 1. */
uint64_t latency_bucket_start_ns(unsigned idx);
uint64_t latency_hist_count(const struct latency_hist *h);
void latency_hist_add(struct latency_hist *dst, const struct latency_hist *src);

/* dst -= base, an earlier reading of the same. The maximum is then only known as the end of the
 * last bucket in use, or as the old one when it cannot have grown. */
void latency_hist_subtract(struct latency_hist *dst, const struct latency_hist *base);

/* The value below which the fraction q (0 to 1) lies: the last nanosecond of its bucket, but never
 * more than the maximum. 0: empty. */
uint64_t latency_hist_quantile_ns(const struct latency_hist *h, double q);

struct latency_summary {
	uint64_t count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
};
struct latency_summary latency_summarize(const struct latency_hist *h);

/* ---- numbers of things: how often each was seen */

struct latency_numbers {
	uint64_t count;
	double mean;
	uint32_t p50, p99, max;
};

/* count[n]: how often n was seen, n up to LATENCY_LEVEL_MAX. */
struct latency_numbers latency_numbers(const uint64_t *count);

/* Of LATENCY_BATCH, where a batch of n adds n to count[n]: count[n] becomes that of batches. */
void latency_batches(uint64_t *count);

/* ---- the report */

enum latency_by {
	LATENCY_BY_ALL, /* ublk by device and operation, io_uring by opcode */
	LATENCY_BY_OP,
	LATENCY_BY_DEVICE,
	LATENCY_BY_OPCODE,
	LATENCY_BY_RING,
};

#define LATENCY_DEVICES_MAX 4096u
#define LATENCY_ERRORS_MAX 1024u

struct latency_device {
	uint32_t number; /* N of ublkbN */
	struct latency_block op[LATENCY_OP_NR];
};

struct latency_error_count {
	struct latency_error error;
	uint64_t count;
};

struct latency_report {
	double seconds;
	bool by_ring;
	struct latency_device *device; /* sorted by number */
	unsigned device_nr;
	struct latency_uring uring[LATENCY_URING_ROWS]; /* by opcode, or by ring */
	struct latency_ring ring[LATENCY_URING_ROWS];
	uint64_t level[LATENCY_LEVEL_NR][LATENCY_LEVELS];
	struct latency_error_count error[LATENCY_ERRORS_MAX]; /* the most frequent first */
	unsigned error_nr;
	__u64 fetches; /* of ublk: idle time, no latency */
	struct latency_totals totals;
	struct losses losses;
};

/* NULL: out of memory. The copy is the caller's to free. */
struct latency_report *latency_report_clone(const struct latency_report *r);
void latency_report_free(struct latency_report *r);

/* now -= before, of the same trace: what happened in between. Losses stay those
 * since the start. */
void latency_report_subtract(struct latency_report *now, const struct latency_report *before);

/* A line of the table of ublk devices: all stages of what belongs together. */
struct latency_row {
	char name[48];
	struct latency_block sum;
};

/* Rows of ublk devices, grouped by BY (ALL: each device and operation). *ret_row is the caller's to
 * free. Rows without a request are left out. Returns their number or -ENOMEM. */
int latency_rows(const struct latency_report *r, enum latency_by by, struct latency_row **ret_row);

const char *latency_op_name(enum latency_op op);
const char *latency_stage_name(enum latency_stage stage);
const char *latency_level_name(enum latency_level level);

/* "EIO" for an errno, or a blk_status_t of the block layer. */
const char *latency_error_name(const struct latency_error *e);

/* "READV", or "opcode 99", of io_uring; "read" of the block layer. Returns buf. */
const char *latency_error_code(const struct latency_error *e, char *buf, size_t bytes);
/* The name of row idx of r->uring: an opcode, or "ring 3 of fio (123)". Returns buf. */
const char *latency_uring_name(const struct latency_report *r, unsigned idx, char *buf,
			       size_t bytes);

/* "1.23 us" into buf of 16 bytes: four digits at most, the unit that fits. Returns buf. */
const char *latency_time(uint64_t ns, char *buf);

/* Print all of r. Return 0 or -errno (nothing is printed then). colour: with the escape sequences
 * of terminals. */
int latency_print(FILE *out, const struct latency_report *r, enum latency_by by, bool colour);
int latency_print_json(FILE *out, const struct latency_report *r, enum latency_by by);

#endif
