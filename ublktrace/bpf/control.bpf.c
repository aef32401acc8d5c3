/*
 * Commands of ublk servers. io_uring's tracepoints tell when a command comes and what it answers;
 * the driver's function, where it can be had, which thread ran it and how often. A request is known
 * by its io_kiocb, which begins with its io_uring_cmd (include/linux/io_uring/cmd.h).
 */
#include "ublktrace/bpf/kernel.h"
#include "ublktrace/control/control_event.h"

/* include/uapi/linux/ublk_cmd.h */
struct ctrl_cmd {
	__u32 dev_id;
	__u16 queue_id, len;
	__u64 addr, data;
};
struct io_cmd {
	__u16 q_id, tag;
	__s32 result;
};

#define OP_URING_CMD 46
#define OP_URING_CMD128 64 /* in a ring of SQEs of both sizes */
#define NR_ADD_DEV 4
#define NR_DATA 0x20 /* the first of the data commands: FETCH_REQ */
#define NR_END 0x40
#define ADD_DEV_ID_OFFSET 12 /* of dev_id in struct ublksrv_ctrl_dev_info */
#define PF_IO_WORKER 0x10    /* include/linux/sched.h */
#define UNKNOWN 0xffffffffu

const volatile __u32 target_pid = 0; /* 0: all */
volatile __u64 ring_full = 0, map_full = 0, unmatched = 0;

struct fetch {
	__u64 submit_ns;
	__u32 queue, tag;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct control_event);
} commands SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct fetch);
} fetches SEC(".maps");

/* Its number among ublk's; NR_END for any other command. Numbers without encoding are the form
 * before Linux 6.4, which drivers may still take. */
static __u32 control_command_nr(__u32 cmd_op)
{
	__u32 nr = cmd_op & 0xff;

	if ((cmd_op >> 8 & 0xff) != 'u' && cmd_op >= NR_END)
		return NR_END;
	return nr < NR_END ? nr : NR_END;
}

static bool control_is_command(struct io_kiocb *req)
{
	__u8 opcode = BPF_CORE_READ(req, opcode);

	return opcode == OP_URING_CMD || opcode == OP_URING_CMD128;
}

static bool wanted(void)
{
	return !target_pid || bpf_get_current_pid_tgid() >> 32 == target_pid;
}

/* The name of a request's file. Valid once it is issued, until it is freed. */
static void control_file_name(struct io_kiocb *req, char *name)
{
	const unsigned char *text = BPF_CORE_READ(req, file, f_path.dentry, d_name.name);

	bpf_probe_read_kernel_str(name, 16, text);
}

static bool control_is_device(const char *name)
{
	static const char control[] = "ublk-control";

	for (int i = 0; i < (int)sizeof(control); i++)
		if (name[i] != control[i])
			return false;
	return true;
}

static bool is_data(const char *name)
{
	return name[0] == 'u' && name[1] == 'b' && name[2] == 'l' && name[3] == 'k' &&
	       name[4] == 'c' && name[5] >= '0' && name[5] <= '9';
}

static void read_command(struct io_uring_cmd *cmd, struct control_event *e)
{
	struct io_uring_sqe *sqe = BPF_CORE_READ(cmd, sqe);
	struct ctrl_cmd ctrl = { .dev_id = UNKNOWN };

	bpf_probe_read_kernel(&ctrl, sizeof(ctrl), (char *)sqe + 48);
	e->cmd_op = BPF_CORE_READ(cmd, cmd_op);
	e->dev_id = ctrl.dev_id;
	e->data = ctrl.data;
	e->addr = ctrl.addr;
}

static void control_fill(struct control_event *e, struct io_kiocb *req)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct task_struct *task = (void *)bpf_get_current_task(), *leader;

	e->time_ns = bpf_ktime_get_ns();
	e->req = (__u64)req;
	e->user_data = BPF_CORE_READ(req, cqe.user_data);
	e->pid = id >> 32;
	e->tid = (__u32)id;
	e->first_ret = CONTROL_NO_RET;
	e->new_id = e->queue = e->tag = UNKNOWN;
	leader = BPF_CORE_READ(task, group_leader);
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), &leader->comm);
	read_command((void *)req, e);
}

static void control_tell(const struct control_event *e)
{
	if (bpf_ringbuf_output(&records, (void *)e, sizeof(*e), 0))
		__sync_fetch_and_add(&ring_full, 1);
}

static void submit_data(struct io_kiocb *req)
{
	struct io_uring_sqe *sqe = BPF_CORE_READ((struct io_uring_cmd *)req, sqe);
	struct io_cmd cmd = { 0 };
	struct fetch f = { .submit_ns = bpf_ktime_get_ns() };
	__u64 key = (__u64)req;

	bpf_probe_read_kernel(&cmd, sizeof(cmd), (char *)sqe + 48);
	f.queue = cmd.q_id;
	f.tag = cmd.tag;
	if (bpf_map_update_elem(&fetches, &key, &f, BPF_ANY))
		__sync_fetch_and_add(&map_full, 1);
}

SEC("?tp_btf/io_uring_submit_req")
int BPF_PROG(control_submit, struct io_kiocb *req)
{
	struct control_event e = { 0 };
	__u64 key = (__u64)req;
	__u32 nr;

	if (!control_is_command(req) || !wanted())
		return 0;
	nr = control_command_nr(BPF_CORE_READ((struct io_uring_cmd *)req, cmd_op));
	if (nr == NR_DATA)
		submit_data(req);
	if (nr >= NR_DATA)
		return 0;
	control_fill(&e, req);
	e.submit_ns = e.time_ns;
	if (bpf_map_update_elem(&commands, &key, &e, BPF_ANY))
		__sync_fetch_and_add(&map_full, 1);
	return 0;
}

/* Tells of a command that has come so far, once, if it is one of ublk's. */
static void control_begin(struct control_event *e, struct io_kiocb *req)
{
	if (e->type)
		return;
	control_file_name(req, e->file);
	if (!control_is_device(e->file))
		return;
	e->type = CONTROL_BEGIN;
	control_tell(e);
}

SEC("?tp_btf/io_uring_queue_async_work")
int BPF_PROG(control_queue, struct io_kiocb *req)
{
	__u64 key = (__u64)req;
	struct control_event *e = bpf_map_lookup_elem(&commands, &key);

	if (!e)
		return 0;
	e->queued_ns = bpf_ktime_get_ns();
	control_begin(e, req);
	return 0;
}

static __u32 worker_tid(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, flags) & PF_IO_WORKER ? (__u32)bpf_get_current_pid_tgid() : 0;
}

static int driver_called(__u64 key)
{
	struct control_event *e = bpf_map_lookup_elem(&commands, &key);

	if (!e)
		return 0;
	e->driver_ns = bpf_ktime_get_ns();
	e->tries++;
	e->worker = worker_tid();
	control_begin(e, (void *)key);
	return 0;
}

SEC("?fentry/ublk_ctrl_uring_cmd")
int BPF_PROG(control_driver, void *cmd)
{
	return driver_called((__u64)cmd);
}

SEC("?fexit/ublk_ctrl_uring_cmd")
int BPF_PROG(control_driver_end, void *cmd, unsigned int issue_flags, int ret)
{
	__u64 key = (__u64)cmd;
	struct control_event *e = bpf_map_lookup_elem(&commands, &key);

	if (e && e->first_ret == CONTROL_NO_RET)
		e->first_ret = ret;
	return 0;
}

/* Where fentry is not to be had. */
SEC("?kprobe/ublk_ctrl_uring_cmd")
int control_driver_kprobe(struct pt_regs *regs)
{
	return driver_called(regs->di);
}

SEC("?fentry/io_wq_submit_work")
int BPF_PROG(control_worker, struct io_wq_work *work)
{
	__u64 key = (__u64)work - bpf_core_field_offset(struct io_kiocb, work);
	struct control_event *e = bpf_map_lookup_elem(&commands, &key);

	if (e)
		e->worker = (__u32)bpf_get_current_pid_tgid();
	return 0;
}

static void end_control(struct control_event *e, struct io_kiocb *req, int res)
{
	__u64 key = (__u64)req;
	struct control_event out = *e;

	bpf_map_delete_elem(&commands, &key);
	control_file_name(req, out.file);
	if (!control_is_device(out.file))
		return;
	out.type = CONTROL_END;
	out.time_ns = bpf_ktime_get_ns();
	out.res = res;
	if (control_command_nr(out.cmd_op) == NR_ADD_DEV && res >= 0)
		bpf_probe_read_user(&out.new_id, sizeof(out.new_id),
				    (void *)(out.addr + ADD_DEV_ID_OFFSET));
	control_tell(&out);
}

static void end_data(struct io_kiocb *req, int res, __u32 nr)
{
	struct control_event e = { 0 };
	__u64 key = (__u64)req;
	struct fetch *f = nr == NR_DATA ? bpf_map_lookup_elem(&fetches, &key) : NULL;
	__u32 queue = f ? f->queue : UNKNOWN, tag = f ? f->tag : UNKNOWN;
	__u64 submit_ns = f ? f->submit_ns : 0;

	if (f)
		bpf_map_delete_elem(&fetches, &key);
	if (res >= 0)
		return;
	control_file_name(req, e.file);
	if (!is_data(e.file))
		return;
	control_fill(&e, req);
	e.type = CONTROL_DATA;
	e.submit_ns = submit_ns;
	e.queue = queue;
	e.tag = tag;
	e.res = res;
	control_tell(&e);
}

/* The end of a control command that began before us. */
static void end_unknown(struct io_kiocb *req)
{
	char name[16] = { 0 };

	control_file_name(req, name);
	if (control_is_device(name))
		__sync_fetch_and_add(&unmatched, 1);
}

static int control_complete(struct io_kiocb *req, int res)
{
	__u64 key = (__u64)req;
	struct control_event *e;
	__u32 nr;

	if (!req || !control_is_command(req))
		return 0;
	nr = control_command_nr(BPF_CORE_READ((struct io_uring_cmd *)req, cmd_op));
	if (nr == NR_END || !wanted())
		return 0;
	if (nr >= NR_DATA) {
		if (res < 0 || nr == NR_DATA)
			end_data(req, res, nr);
		return 0;
	}
	e = bpf_map_lookup_elem(&commands, &key);
	if (e)
		end_control(e, req, res);
	else
		end_unknown(req);
	return 0;
}

/* (ctx, req, user_data, res, cflags, extra1, extra2): until 6.15 */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(control_complete_7, void *ring, struct io_kiocb *req, __u64 user_data, int res)
{
	return control_complete(req, res);
}

/* (ctx, req, cqe) */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(control_complete_3, void *ring, struct io_kiocb *req, struct io_uring_cqe *cqe)
{
	int res = 0;

	bpf_probe_read_kernel(&res, sizeof(res), &cqe->res);
	return control_complete(req, res);
}

char LICENSE[] SEC("license") = "GPL";
