/*
 * Kernel stacks at one point of a request's way, counted by command: `ublktrace stacks`. User space
 * switches on the programs of its point, the others are never loaded.
 */
#include "ublktrace/bpf/kernel.h"
#include "ublktrace/stacks/stacks_map.h"

char LICENSE[] SEC("license") = "GPL";

struct request___stacks {
	struct request *rq_next;
} CORE;

enum { REQ_OP_MASK = 0xff };

const volatile __u64 disk_wanted[4]; /* the 32 bytes of its name; 0: all */

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, STACKS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACKS_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STACKS_MAX);
	__type(key, struct stacks_key);
	__type(value, __u64);
} counts SEC(".maps");

/* Requests given to the driver in one call. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STACKS_BATCH_MAX + 1);
	__type(key, __u32);
	__type(value, __u64);
} batches SEC(".maps");

__u64 map_full;

static bool stacks_is_wanted(struct request *rq)
{
	__u64 name[4] = {};

	if (!disk_wanted[0])
		return true;
	BPF_CORE_READ_STR_INTO(&name, rq, q, disk, disk_name);
	return name[0] == disk_wanted[0] && name[1] == disk_wanted[1] &&
	       name[2] == disk_wanted[2] && name[3] == disk_wanted[3];
}

static void count_batch(__u32 number)
{
	__u32 idx = number < STACKS_BATCH_MAX ? number : STACKS_BATCH_MAX;
	__u64 *count = bpf_map_lookup_elem(&batches, &idx);

	if (count)
		(*count)++;
}

static __attribute__((noinline)) void count(__s32 stack, __u32 op)
{
	struct stacks_key key = { .stack = stack, .op = op };
	__u64 zero = 0, *count;

	if (stack < 0) { /* another one has its place, or there is no room */
		key.stack = -1;
		__sync_fetch_and_add(&map_full, 1);
	}
	count = bpf_map_lookup_elem(&counts, &key);
	if (!count) {
		bpf_map_update_elem(&counts, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&counts, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		__sync_fetch_and_add(&map_full, 1);
}

static __u32 op_of(struct request *rq)
{
	return BPF_CORE_READ(rq, cmd_flags) & REQ_OP_MASK;
}

static int stacks_seen(void *ctx, struct request *rq)
{
	if (stacks_is_wanted(rq))
		count(bpf_get_stackid(ctx, &stacks, 0), op_of(rq));
	return 0;
}

SEC("?tp_btf/block_rq_issue")
int BPF_PROG(at_queue, struct request *rq)
{
	return stacks_seen(ctx, rq);
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(at_complete, struct request *rq)
{
	return stacks_seen(ctx, rq);
}

SEC("?fentry/ublk_dispatch_req")
int BPF_PROG(at_dispatch, void *ubq, struct request *rq)
{
	return stacks_seen(ctx, rq);
}

/* Of a request too, also where tags are dispatched in batches; Linux 7.2. */
SEC("?fentry/ublk_start_io")
int BPF_PROG(at_start_io, void *ubq, struct request *rq)
{
	return stacks_seen(ctx, rq);
}

/* Linux 6.12: of all that has come meanwhile; which, it does not say. */
SEC("?fentry/ublk_rq_task_work_cb")
int BPF_PROG(at_task_work)
{
	count(bpf_get_stackid(ctx, &stacks, 0), STACKS_ANY_OP);
	return 0;
}

SEC("?fentry/nvme_queue_rq")
int BPF_PROG(at_nvme_queue, void *hctx, const struct blk_mq_queue_data *bd)
{
	count_batch(1);
	return stacks_seen(ctx, BPF_CORE_READ(bd, rq));
}

/* ---- how many at once */

SEC("?fentry/ublk_queue_rq")
int BPF_PROG(one_queued, void *hctx, const struct blk_mq_queue_data *bd)
{
	if (stacks_is_wanted(BPF_CORE_READ(bd, rq)))
		count_batch(1);
	return 0;
}

/* A list is of one disk. Linux 6.12 has struct request **, 7.2 struct rq_list *, which begins with
 * the same pointer. */
static int count_list(void *ctx, void *list, bool with_stacks)
{
	__s32 stack = with_stacks ? bpf_get_stackid(ctx, &stacks, 0) : 0;
	struct request *rq = NULL;
	__u32 number = 0;

	bpf_probe_read_kernel(&rq, sizeof(rq), list);
	if (!rq || !stacks_is_wanted(rq))
		return 0;
	for (; number < STACKS_BATCH_MAX && rq; number++) {
		if (with_stacks)
			count(stack, op_of(rq));
		rq = BPF_CORE_READ((struct request___stacks *)rq, rq_next);
	}
	count_batch(number);
	return 0;
}

SEC("?fentry/ublk_batch_queue_rq")
int BPF_PROG(batch_one_queued, void *hctx, const struct blk_mq_queue_data *bd)
{
	if (stacks_is_wanted(BPF_CORE_READ(bd, rq)))
		count_batch(1);
	return 0;
}

SEC("?fentry/ublk_batch_queue_rqs")
int BPF_PROG(batch_list_queued, void *list)
{
	return count_list(ctx, list, false);
}

SEC("?fentry/ublk_queue_rqs")
int BPF_PROG(list_queued, void *list)
{
	return count_list(ctx, list, false);
}

SEC("?fentry/nvme_queue_rqs")
int BPF_PROG(at_nvme_list, void *list)
{
	return count_list(ctx, list, true);
}
