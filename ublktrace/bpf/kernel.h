/*
 * The kernel's types as far as the BPF programs read them: only the fields that are used, found at
 * load time by name in the BTF of the kernel that runs (CO-RE). One object file serves 6.12 to 7.2
 * and on. A name with three underscores (struct io_ring_ctx___old) is another kernel's form of the
 * same type. Sources: include/linux/io_uring_types.h, include/linux/blk-mq.h,
 * include/linux/sched.h.
 */
#ifndef UBLKTRACE_BPF_KERNEL_H
#define UBLKTRACE_BPF_KERNEL_H

#define TRACE_BPF

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h, which cannot be included beside these types. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_F_REUSE_STACKID = 1 << 10 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };

#define CORE __attribute__((preserve_access_index))

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		cs, flags, sp, ss;
} CORE;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} CORE;
struct files_struct {
	struct fdtable *fdt;
} CORE;
struct dentry;
struct qstr {
	const unsigned char *name;
} CORE;
struct dentry {
	struct qstr d_name;
} CORE;
struct path {
	struct dentry *dentry;
} CORE;
struct inode {
	unsigned short i_mode;
	__u32 i_rdev;
} CORE;
struct file_operations;
struct file {
	void *private_data;
	struct inode *f_inode;
	struct path f_path;
	const struct file_operations *f_op;
} CORE;

struct io_uring_task {
	struct file *registered_rings[16]; /* IO_RINGFD_REG_MAX */
} CORE;
struct signal_struct {
	struct {
		int counter;
	} live; /* threads that have not ended */
} CORE;
struct task_struct {
	int pid, tgid;
	struct signal_struct *signal;
	char comm[16];
	unsigned int __state, flags;
	void *worker_private;
	struct files_struct *files;
	struct io_uring_task *io_uring;
	struct task_struct *group_leader;
} CORE;

/* A ring as user space sees it: include/uapi/linux/io_uring.h, so never relocated. */
struct io_uring_sqe {
	__u8 opcode, flags;
	__u16 ioprio;
	__s32 fd;
	__u64 off; /* its lower half is cmd_op of URING_CMD */
	__u64 addr;
	__u32 len, op_flags;
	__u64 user_data;
	__u16 buf_index, personality;
	__u32 file_index;
	__u64 cmd[2];
};
struct io_uring_cqe {
	__u64 user_data;
	__s32 res;
	__u32 flags;
};

struct io_uring {
	__u32 head, tail;
} CORE;
struct io_rings {
	struct io_uring sq, cq;
	__u32 sq_ring_entries, cq_ring_entries;
} CORE;
struct io_rsrc_node {
	unsigned long file_ptr; /* its three lowest bits are flags */
} CORE;
struct io_rsrc_data {
	unsigned int nr;
	struct io_rsrc_node **nodes;
} CORE;
struct io_file_table {
	struct io_rsrc_data data;
} CORE;
struct io_ring_ctx {
	unsigned int flags;
	struct io_rings *rings;
	__u32 *sq_array;
	struct io_uring_sqe *sq_sqes;
	unsigned int cached_sq_head, sq_entries, cached_cq_tail, cq_entries;
	struct io_file_table file_table;
} CORE;
/* until 6.12 */
struct io_fixed_file {
	unsigned long file_ptr;
} CORE;
struct io_file_table___old {
	struct io_fixed_file *files;
} CORE;
struct io_ring_ctx___old {
	struct io_file_table___old file_table;
	unsigned int nr_user_files;
} CORE;
struct io_cqe {
	__u64 user_data;
	__s32 res;
	__u32 flags;
} CORE;
struct io_uring_cmd {
	struct io_uring_sqe *sqe;
	__u32 cmd_op;
	__u8 pdu[32];
} CORE;
struct io_wq_work {
	int cancel_seq;
} CORE;
struct io_worker {
	struct io_wq_work *cur_work;
} CORE;
struct io_kiocb {
	struct file *file;
	__u8 opcode;
	__u16 buf_index;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
	struct io_wq_work work;
} CORE;

/* ---- block layer ---- */

struct gendisk {
	int major, first_minor;
	char disk_name[32];
} CORE;
struct request_queue {
	struct gendisk *disk;
} CORE;
struct blk_mq_hw_ctx {
	struct request_queue *queue;
	unsigned int queue_num;
} CORE;
struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	__u32 cmd_flags;
	int tag;
	unsigned int __data_len;
	__u64 __sector;
	__u64 start_time_ns, io_start_time_ns;
} CORE;
struct blk_mq_queue_data {
	struct request *rq;
	bool last;
} CORE;

#define __VMLINUX_H__ /* pt_regs has the names of the kernel (bpf_tracing.h) */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * A pointer that comes without its type, to be read as a struct NAME: a read of an address that is
 * none gives 0 (since 6.2).
 */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;
#define KERNEL_CAST(name, pointer)                                                                 \
	((struct name *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(struct name)))

/* 8 bytes as a number, whatever the kernel's type says they are: read as the first member of a
 * struct that begins with a number. */
static __always_inline __u64 read8(const void *base, __u32 offset)
{
	return KERNEL_CAST(io_cqe, base + offset)->user_data;
}

#endif
