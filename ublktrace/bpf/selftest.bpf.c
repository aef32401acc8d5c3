/*
 * Counts the events that `ublktrace selftest` fires, and no others: by process, and by the request
 * that it reads with. Each program is one point; those that this machine lacks are not loaded.
 */
#include "ublktrace/bpf/kernel.h"
#include "ublktrace/selftest/selftest.h"

struct bpf_pidns_info {
	__u32 pid, tgid;
};
/* Of Linux 6.13 and on, where lists of requests have a type of their own. */
struct rq_list {
	struct request *head;
} CORE;

#define GETPPID 110 /* arch/x86/entry/syscalls/syscall_64.tbl */

/* The process, as its own PID namespace (/proc/self/ns/pid) knows it. */
const volatile __u64 ns_dev = 0, ns_ino = 0;
const volatile __u32 self = 0;
/* The process that reads, and the device: known only later. */
volatile __u32 reader = 0;
volatile __u32 disk_major = 0, disk_minor = 0;
volatile __u64 counts[SELFTEST_NR];
static volatile __u64 our_request;

static __u32 current_tgid(__u32 *ret_tid)
{
	struct bpf_pidns_info info = { 0 };

	if (bpf_get_ns_current_pid_tgid(ns_dev, ns_ino, &info, sizeof(info)))
		return 0;
	*ret_tid = info.pid;
	return info.tgid;
}

static bool is_self(void)
{
	__u32 tid, tgid = current_tgid(&tid);

	return tgid == self;
}

static void selftest_seen(enum selftest_layer layer)
{
	__sync_fetch_and_add(&counts[layer], 1);
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(selftest_sys_enter, struct pt_regs *regs, long id)
{
	if (id == GETPPID && is_self())
		selftest_seen(SELFTEST_SYSCALL);
	return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(selftest_sched_switch, bool preempt, struct task_struct *prev)
{
	if (is_self()) /* current is still the one that leaves */
		selftest_seen(SELFTEST_SWITCH);
	return 0;
}

SEC("?tp_btf/io_uring_submit_req")
int BPF_PROG(selftest_io_uring_submit_req, struct io_kiocb *req)
{
	if (BPF_CORE_READ(req, cqe.user_data) == SELFTEST_NOP && is_self())
		selftest_seen(SELFTEST_SUBMIT);
	return 0;
}

SEC("?tp_btf/io_uring_complete")
int BPF_PROG(selftest_io_uring_complete, void *ctx_, struct io_kiocb *req)
{
	if (req && BPF_CORE_READ(req, cqe.user_data) == SELFTEST_NOP && is_self())
		selftest_seen(SELFTEST_COMPLETE);
	return 0;
}

SEC("?tp_btf/io_uring_queue_async_work")
int BPF_PROG(selftest_io_uring_queue_async_work, struct io_kiocb *req)
{
	if (BPF_CORE_READ(req, cqe.user_data) == SELFTEST_WORK && is_self())
		selftest_seen(SELFTEST_ASYNC);
	return 0;
}

SEC("?fentry/io_wq_submit_work")
int BPF_PROG(selftest_io_wq_submit_work, struct io_wq_work *work)
{
	struct io_kiocb *req = (void *)work - bpf_core_field_offset(struct io_kiocb, work);

	if (BPF_CORE_READ(req, cqe.user_data) == SELFTEST_WORK && is_self())
		selftest_seen(SELFTEST_WORKER);
	return 0;
}

SEC("?fentry/ublk_ctrl_uring_cmd")
int BPF_PROG(selftest_ublk_ctrl_uring_cmd)
{
	if (is_self())
		selftest_seen(SELFTEST_CONTROL);
	return 0;
}

/* Whether it is the request of our read: the first that the reader makes for that device. */
static bool ours(struct request *rq)
{
	struct gendisk *disk;
	__u32 tid;

	if (our_request)
		return our_request == (__u64)rq;
	if (!reader || current_tgid(&tid) != reader)
		return false;
	disk = BPF_CORE_READ(rq, q, disk);
	if (BPF_CORE_READ(disk, major) != disk_major ||
	    BPF_CORE_READ(disk, first_minor) != disk_minor || BPF_CORE_READ(rq, __data_len) != 4096)
		return false;
	our_request = (__u64)rq;
	return true;
}

SEC("?tp_btf/block_io_start")
int BPF_PROG(selftest_block_io_start, struct request *rq)
{
	ours(rq);
	return 0;
}

SEC("?fentry/ublk_queue_rq")
int BPF_PROG(selftest_ublk_queue_rq, struct blk_mq_hw_ctx *hctx, struct blk_mq_queue_data *bd)
{
	if (ours(BPF_CORE_READ(bd, rq)))
		selftest_seen(SELFTEST_QUEUE);
	return 0;
}

SEC("?fentry/ublk_batch_queue_rq")
int BPF_PROG(selftest_ublk_batch_queue_rq, struct blk_mq_hw_ctx *hctx, struct blk_mq_queue_data *bd)
{
	if (ours(BPF_CORE_READ(bd, rq)))
		selftest_seen(SELFTEST_QUEUE);
	return 0;
}

SEC("?fentry/ublk_queue_rqs")
int BPF_PROG(selftest_ublk_queue_rqs, struct rq_list *list)
{
	if (ours(BPF_CORE_READ(list, head)))
		selftest_seen(SELFTEST_QUEUE);
	return 0;
}

SEC("?fentry/ublk_batch_queue_rqs")
int BPF_PROG(selftest_ublk_batch_queue_rqs, struct rq_list *list)
{
	if (ours(BPF_CORE_READ(list, head)))
		selftest_seen(SELFTEST_QUEUE);
	return 0;
}

SEC("?tp_btf/block_rq_issue")
int BPF_PROG(selftest_block_rq_issue, struct request *rq)
{
	if (ours(rq))
		selftest_seen(SELFTEST_ISSUE);
	return 0;
}

SEC("?fentry/ublk_dispatch_req")
int BPF_PROG(selftest_ublk_dispatch_req, void *ubq, struct request *rq)
{
	if (our_request && our_request == (__u64)rq)
		selftest_seen(SELFTEST_DISPATCH);
	return 0;
}

/* These two know a list, not a request: any of them while ours is on its way. */
static void dispatch_any(void)
{
	if (our_request && !counts[SELFTEST_ANSWER])
		selftest_seen(SELFTEST_DISPATCH);
}

SEC("?fentry/ublk_rq_task_work_cb")
int BPF_PROG(selftest_ublk_rq_task_work_cb)
{
	dispatch_any();
	return 0;
}

SEC("?fentry/ublk_batch_dispatch")
int BPF_PROG(selftest_ublk_batch_dispatch)
{
	dispatch_any();
	return 0;
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(selftest_block_rq_complete, struct request *rq)
{
	if (our_request && our_request == (__u64)rq)
		selftest_seen(SELFTEST_ANSWER);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
