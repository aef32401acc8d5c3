/*
 * The queues of ublk devices, and the slots of their tags. A queue is learnt when its first request
 * passes. Included once, by latency.bpf.c.
 */
#ifndef UBLKTRACE_BPF_LATENCY_QUEUE_H
#define UBLKTRACE_BPF_LATENCY_QUEUE_H

#include "ublktrace/bpf/latency_table.h"

INLINE struct queue *queue_find(__u64 ubq)
{
	__u32 first = place(ubq);

	for (__u32 i = 0; i < PROBES; i++) {
		struct queue *q = &queues[(first + i) & (QUEUES - 1)];

		if (q->ubq == ubq)
			return q;
	}
	return NULL;
}

/* N of "ublkbN"; -1: another disk. */
NOINLINE int ublk_number(struct gendisk___latency *disk)
{
	char name[16] = {};
	int number = 0;

	if (bpf_core_read_str(name, sizeof(name), &disk->disk_name) < 7)
		return -1;
	if (name[0] != 'u' || name[1] != 'b' || name[2] != 'l' || name[3] != 'k' || name[4] != 'b')
		return -1;
	for (int i = 5; i < 12; i++) {
		if (name[i] < '0' || name[i] > '9')
			break;
		number = number * 10 + name[i] - '0';
	}
	return number;
}

/* The row of a device's first operation; block_rows: there is no room. */
NOINLINE __u32 device_row(__u32 device)
{
	__u32 row, *known = bpf_map_lookup_elem(&devices, &device);

	if (known)
		return *known;
	row = __sync_fetch_and_add(&row_next, LATENCY_OP_NR);
	if (row + LATENCY_OP_NR > block_rows)
		return block_rows;
	bpf_map_update_elem(&devices, &device, &row, BPF_NOEXIST);
	/* another CPU may have been first */
	known = bpf_map_lookup_elem(&devices, &device);
	return known ? *known : block_rows;
}

/* Whose server is another process than the target, of that we tell nothing. */
NOINLINE bool server_is_target(__u64 ubq)
{
	struct ublk_queue *queue = (struct ublk_queue *)ubq;

	if (!target_pid)
		return true;
	if (!bpf_core_field_exists(struct ublk_device, dev_info))
		return false;
	return in_family(BPF_CORE_READ(queue, dev, dev_info.ublksrv_pid));
}

/* Such a queue needs ublk_start_io: user space is told. */
NOINLINE void look_for_batches(__u64 ubq)
{
	struct ublk_queue *queue = (struct ublk_queue *)ubq;

	if (bpf_core_field_exists(struct ublk_device, dev_info) &&
	    BPF_CORE_READ(queue, dev, dev_info.flags) & UBLK_F_BATCH_IO)
		batch_seen = 1;
}

INLINE void queue_fill(struct queue *q, struct gendisk___latency *disk, __u64 ubq, __u32 depth)
{
	int device = ublk_number(disk);

	q->diskseq = disk->diskseq;
	if (device < 0) {
		q->state = QUEUE_ELSEWHERE;
		return;
	}
	q->device = device;
	look_for_batches(ubq);
	q->row = device_row(device);
	if (q->depth <
	    depth) { /* a queue that is gone leaves its slots to the next of its address */
		q->slot = __sync_fetch_and_add(&slot_next, depth);
		q->depth = depth;
	}
	if (q->slot + depth > SLOTS || q->row >= block_rows)
		q->state = QUEUE_FULL;
	else
		q->state = server_is_target(ubq) ? QUEUE_UBLK : QUEUE_ELSEWHERE;
}

/* A place for a queue that is seen first; two CPUs may see it at once. */
NOINLINE struct queue *queue_take(__u64 ubq, bool *ret_mine)
{
	__u32 first = place(ubq);

	for (__u32 i = 0; i < PROBES; i++) {
		struct queue *q = &queues[(first + i) & (QUEUES - 1)];
		__u64 old;

		old = __sync_val_compare_and_swap(&q->ubq, 0, ubq);
		*ret_mine = !old;
		if (!old || old == ubq)
			return q;
	}
	return NULL;
}

/* The ublk_queue of a request's queue; anything for other drivers. */
INLINE __u64 driver_data(struct request *rq)
{
	return read8(rq->mq_hctx,
		     bpf_core_field_offset(struct blk_mq_hw_ctx___latency, driver_data));
}

/* The queue of a request; NULL: none of a ublk device, or not of our target's. */
INLINE struct queue *queue_of(struct request *rq)
{
	struct blk_mq_hw_ctx___latency *hctx = (void *)rq->mq_hctx;
	struct gendisk___latency *disk = (void *)rq->q->disk;
	__u64 ubq = driver_data(rq);
	struct queue *q = queue_find(ubq);
	bool mine = false;

	if (!ubq)
		return NULL;
	if (!q) {
		q = queue_take(ubq, &mine);
		if (!q) {
			COUNT(map_full);
			return NULL;
		}
	}
	if (mine || (q->state && q->diskseq != disk->diskseq) ||
	    (target_pid && q->state == QUEUE_ELSEWHERE))
		queue_fill(q, disk, ubq, hctx->tags->nr_tags);
	for (int i = 0; i < 200 && !*(volatile __u32 *)&q->state; i++)
		; /* the other CPU is about to fill it */
	if (q->state == QUEUE_UBLK)
		return q;
	if (q->state != QUEUE_ELSEWHERE)
		COUNT(map_full);
	return NULL;
}

/* There are slots for all tags of a queue: the mask is for the verifier. */
INLINE struct slot *slot_of(struct queue *q, __u32 tag)
{
	return &slots[(q->slot + tag) & (SLOTS - 1)];
}

#endif
