/*
 * What the BPF programs of `ublktrace latency` count in, and how values become buckets. Shared by
 * both sides, so only fixed-width types.
 *
 * A bucket is at most 1/8 wide of its value: each power of two is cut into 8 equal ones.
 */
#ifndef UBLKTRACE_LATENCY_LATENCY_MAP_H
#define UBLKTRACE_LATENCY_LATENCY_MAP_H

#ifndef TRACE_BPF
#include <linux/types.h>
#endif

#define LATENCY_SUB_BITS 3u
#define LATENCY_SUB_NR (1u << LATENCY_SUB_BITS)
/* Up to 2^38 ns, four and a half minutes; what is longer lands in the last bucket. */
#define LATENCY_EXP_MAX 38u
#define LATENCY_BUCKET_NR ((LATENCY_EXP_MAX - LATENCY_SUB_BITS + 1) * LATENCY_SUB_NR)

struct latency_hist {
	__u64 sum_ns, max_ns;
	__u64 bucket[LATENCY_BUCKET_NR];
};

/* BPF has no instruction for it: the first byte that is not 0 is looked up. */
#ifdef TRACE_BPF
#define LOG2_TWO(N) N, N
#define LOG2_FOUR(N) LOG2_TWO(N), LOG2_TWO(N)
#define LOG2_EIGHT(N) LOG2_FOUR(N), LOG2_FOUR(N)
#define LOG2_16(N) LOG2_EIGHT(N), LOG2_EIGHT(N)
#define LOG2_32(N) LOG2_16(N), LOG2_16(N)
#define LOG2_64(N) LOG2_32(N), LOG2_32(N)
/* Not static: libbpf 1.1 cannot place it then. */
const __u8 log2_of_byte[256] = { 0,	     0,		 LOG2_TWO(1), LOG2_FOUR(2), LOG2_EIGHT(3),
				 LOG2_16(4), LOG2_32(5), LOG2_64(6),  LOG2_64(7),   LOG2_64(7) };

/* The compiler would leave the mask out where it knows better, and the verifier would not. */
static inline __u32 byte_log2(__u64 byte)
{
	asm volatile("" : "+r"(byte));
	return log2_of_byte[byte & 0xff];
}

static inline __u32 latency_log2(__u64 value)
{
	if (value < 1ull << 8)
		return byte_log2(value);
	if (value < 1ull << 16)
		return 8 + byte_log2(value >> 8);
	if (value < 1ull << 24)
		return 16 + byte_log2(value >> 16);
	if (value < 1ull << 32)
		return 24 + byte_log2(value >> 24);
	return 32 + byte_log2(value >> 32); /* below 2^LATENCY_EXP_MAX */
}
#else
static inline __u32 latency_log2(__u64 value)
{
	return 63u - (__u32)__builtin_clzll(value);
}
#endif

static inline __u32 latency_bucket(__u64 ns)
{
	__u32 shift;

	if (ns >= 1ull << LATENCY_EXP_MAX)
		return LATENCY_BUCKET_NR - 1;
	/* How many low bits a bucket spans; the bits above it are its number in 8..15. */
	shift = latency_log2(ns | LATENCY_SUB_NR) - LATENCY_SUB_BITS;
	return (shift << LATENCY_SUB_BITS) + (__u32)(ns >> shift);
}

/* ---- requests of ublk devices: a row for each device and class of operation */

enum latency_stage {
	LATENCY_QUEUED, /* given to the ublk driver -> the daemon's ring has its CQE */
	LATENCY_DAEMON, /* -> the daemon's commit is submitted */
	LATENCY_COMMIT, /* -> the block layer has its request back */
	LATENCY_TOTAL,	/* all of that */
	/* Parts of the total that could not be told apart: the dispatch or the commit of these was
	 * not seen. */
	LATENCY_UNSPLIT,
	LATENCY_STAGE_NR,
};

enum latency_op {
	LATENCY_READ,
	LATENCY_WRITE,
	LATENCY_FLUSH,
	LATENCY_DISCARD,
	LATENCY_WRITE_ZEROES,
	LATENCY_OTHER,
	LATENCY_OP_NR,
};

/* Row device * LATENCY_OP_NR + op of a per-CPU array; devices are numbered as they are met. */
struct latency_block {
	struct latency_hist stage[LATENCY_STAGE_NR];
	__u64 errors;
};

/* ---- requests of io_uring: a row for each opcode, or for each ring */

#define LATENCY_URING_ROWS 256u

struct latency_uring {
	struct latency_hist hist;
	__u64 async;	/* an io-wq thread had them */
	__u64 polled;	/* waited for a file to become ready */
	__u64 migrated; /* completed on another CPU than they were submitted on */
	__u64 errors;
};

struct latency_ring {
	__u64 ctx;
	__u64 waits;
	__u32 cq_tail; /* at its last wait */
	__u32 pid;
	char comm[16];
};

/* ---- sizes of batches and levels of rings: how often each number was seen */

enum latency_level {
	/* Each SQE counts the number that was submitted with it: a batch of 8 adds 8 to [8]. */
	LATENCY_BATCH,
	LATENCY_REAP, /* CQEs since the wait before, at each wait */
	LATENCY_SQ,   /* SQEs left in the SQ behind one that is taken, each 16th time */
	LATENCY_CQ,   /* CQEs that the program has not taken yet, at the same times */
	LATENCY_LEVEL_NR,
};

#define LATENCY_LEVEL_MAX 999u /* that many, or more */
#define LATENCY_LEVELS (LATENCY_LEVEL_MAX + 1)

/* Of each CPU: the levels, and what it took from an SQ last. One value, so that a program looks up
 * one; the kernel allows 32 KiB. */
struct latency_cpu {
	__u64 task;
	__u64 time_ns;
	__u32 commit;  /* 1: a commit of one tag, 2: of many */
	__u32 turn;    /* of depths: one in 16 is looked at */
	__u64 fetches; /* of ublk, submitted: idle time, no latency */
	__u64 level[LATENCY_LEVEL_NR][LATENCY_LEVELS];
};

/* ---- errors */

struct latency_error {
	__u32 block; /* 0: code is an opcode of io_uring; 1: of the block layer */
	__u32 code;
	__s32 error; /* errno, or the blk_status_t of the block layer */
	__s32 device;
};

/* ---- what cannot be told in histograms */

struct latency_totals {
	__u64 map_full, unmatched;
	__u64 aux; /* CQEs without a request: multishot, messages */
};

#endif
