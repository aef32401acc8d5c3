/*
 * What the programs of `ublktrace latency` share: the kernel's types that only they read, the maps,
 * how times and numbers are counted. Included once, by latency.bpf.c.
 */
#ifndef UBLKTRACE_BPF_LATENCY_TABLE_H
#define UBLKTRACE_BPF_LATENCY_TABLE_H

#include "ublktrace/bpf/kernel.h"
#include "ublktrace/latency/latency_map.h"

/* ---- the kernel's types, as far as only this file reads them */

struct io_submit_state___latency {
	unsigned short submit_nr;
} CORE;
struct io_ring_ctx___latency {
	struct io_submit_state___latency submit_state;
} CORE;
struct io_kiocb___latency {
	struct file *file; /* the first member of the command, too */
	__u8 opcode;
	__u32 flags;
} CORE;

struct blk_mq_tags {
	unsigned int nr_tags;
} CORE;
struct blk_mq_hw_ctx___latency {
	struct blk_mq_tags *tags;
	void *driver_data;
} CORE;
struct gendisk___latency {
	char disk_name[32];
	__u64 diskseq;
} CORE;

/* drivers/block/ublk_drv.c: there when the module is loaded. */
struct ublk_uring_cmd_pdu {
	struct ublk_queue *ubq;
	__u16 tag;
} CORE;
struct ublksrv_ctrl_dev_info {
	__s32 ublksrv_pid;
	__u64 flags;
} CORE;
struct ublk_device {
	struct ublksrv_ctrl_dev_info dev_info;
} CORE;
struct ublk_queue {
	struct ublk_device *dev;
} CORE;

enum {
	IORING_OP_URING_CMD = 46,
	IORING_CQE_F_MORE = 1 << 1,
	REQ_OP_MASK = 0xff,
	/* include/uapi/linux/ublk_cmd.h: numbers of the commands, with and without ioctl encoding
	 */
	UBLK_IO_FETCH = 0x20,
	UBLK_IO_COMMIT_AND_FETCH = 0x21,
	UBLK_IO_NEED_GET_DATA = 0x22,
	UBLK_IO_COMMIT_IO_CMDS = 0x26,
	UBLK_IO_FETCH_IO_CMDS = 0x27,
	UBLK_F_BATCH_IO = 1 << 15,
};

/* ---- set by user space before the load */

const volatile __u32 target_pid;   /* 0: everybody */
const volatile bool with_children; /* those that it starts belong to it */
const volatile bool by_ring;
const volatile __u32 block_rows;

/* ---- tables */

#define QUEUES 4096u
#define SLOTS 65536u
#define REQS 32768u
#define RINGS 256u
#define PROBES 8

enum { QUEUE_NEW, QUEUE_UBLK, QUEUE_ELSEWHERE, QUEUE_FULL };

/* A queue of the block layer: a ublk one, or one that is none of ours. */
struct queue {
	__u64 ubq;
	__u64 diskseq;
	__u32 state;
	__u32 depth, slot; /* its tags in the array of slots */
	__u32 row;	   /* of its device */
	__u32 device;	   /* N of ublkbN */
	__u32 pad;
};

struct slot {
	__u64 issue_ns, dispatch_ns;
};

/* A request of a ring between submission and completion. */
struct req {
	__u64 key; /* its address; 0: free */
	__u64 submit_ns;
	__u32 cpu;
	__u32 flags;
};
enum { REQ_ASYNC = 1, REQ_POLLED = 2 };

#define MAP(NAME, TYPE, ENTRIES, KEY, VALUE)                                                       \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, ENTRIES);                                                      \
		__type(key, KEY);                                                                  \
		__type(value, VALUE);                                                              \
	} NAME SEC(".maps")

MAP(rings, BPF_MAP_TYPE_ARRAY, RINGS, __u32, struct latency_ring);
MAP(cpus, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct latency_cpu);
MAP(devices, BPF_MAP_TYPE_HASH, 4096, __u32, __u32); /* N of ublkbN -> first row */
MAP(block, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct latency_block);
MAP(uring, BPF_MAP_TYPE_PERCPU_ARRAY, LATENCY_URING_ROWS, __u32, struct latency_uring);
MAP(errors, BPF_MAP_TYPE_HASH, 1024, struct latency_error, __u64);
MAP(family, BPF_MAP_TYPE_HASH, 4096, __u32, __u32); /* processes that the target has started */
MAP(totals, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct latency_totals);

/* Of the tables that only programs read: an entry's address is an addition, where that of a map's
 * is a dozen instructions. */
static struct queue queues[QUEUES];
static struct slot slots[SLOTS];
static struct req reqs[REQS];

__u32 slot_next, row_next;
__u32 batch_seen; /* for user space */

#define COUNT(FIELD)                                                                               \
	do {                                                                                       \
		__u32 zero = 0;                                                                    \
		struct latency_totals *t = bpf_map_lookup_elem(&totals, &zero);                    \
		if (t)                                                                             \
			t->FIELD++;                                                                \
	} while (0)

#define INLINE static __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

/* The verifier lets nobody compute with a pointer, but a difference of two is a number. */
INLINE __u64 number_of(const void *pointer)
{
	return (__u64)(pointer - (const void *)&slot_next);
}

/* Arguments that may be NULL at some tracepoint are mere numbers to some kernels. */
#define REQ(pointer) KERNEL_CAST(io_kiocb, pointer)
#define RING(pointer) KERNEL_CAST(io_ring_ctx, pointer)

/* The upper bits of the product are the good ones. Neighbours in memory lie apart. */
INLINE __u32 place(__u64 address)
{
	return (__u32)(address >> 6) * 2654435761u >> 16;
}

INLINE void hist_add(struct latency_hist *h, __u64 ns)
{
	__u32 idx = latency_bucket(ns);

	h->sum_ns += ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	if (idx < LATENCY_BUCKET_NR)
		h->bucket[idx]++;
}

/* Times of two CPUs may disagree by a little. */
INLINE __u64 since(__u64 now, __u64 then)
{
	return now > then ? now - then : 0;
}

#define DEPTH_EVERY 16

INLINE struct latency_cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

INLINE void level_add(struct latency_cpu *cpu, __u32 level, __u32 number)
{
	cpu->level[level][number < LATENCY_LEVEL_MAX ? number : LATENCY_LEVEL_MAX]++;
}

NOINLINE void error_add(__u32 is_block, __u32 code, __s32 error, __s32 device)
{
	struct latency_error key = {
		.block = is_block, .code = code, .error = error, .device = device
	};
	__u64 zero = 0, *count;

	count = bpf_map_lookup_elem(&errors, &key);
	if (!count) {
		bpf_map_update_elem(&errors, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&errors, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		COUNT(map_full);
}

INLINE bool in_family(__u32 tgid)
{
	return tgid == target_pid || (with_children && bpf_map_lookup_elem(&family, &tgid));
}

INLINE bool is_target(void)
{
	return !target_pid || in_family(bpf_get_current_pid_tgid() >> 32);
}

#endif
