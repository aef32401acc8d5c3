/*
 * What the programs of events.bpf.c share: whom they watch, the records, and what they remember.
 *
 * A request is kept or dropped as a whole, by a hash (watch_sample). It is remembered from its
 * SUBMIT to its COMPLETE, which comes in any thread: from then on the request decides, not who
 * runs.
 */
#ifndef UBLKTRACE_BPF_WATCH_H
#define UBLKTRACE_BPF_WATCH_H

#include "ublktrace/bpf/kernel.h"
#include "ublktrace/events/event.h"

/* Set before loading. */
const volatile bool watch_all;
const volatile __u32 watch_self;       /* thread group of ublktrace: never traced */
const volatile __u32 watch_sample = 1; /* one of that many requests */
const volatile __u32 watch_ring_nr;    /* only rings with these descriptors; 0: all */
const volatile __s32 watch_rings[64];
const volatile __u64 watch_wake_bytes = 1; /* the reader is woken when so much waits for it */

/* True while records are wanted: between the last attach and the end. */
bool watch_on;

enum count { COUNT_RING_FULL, COUNT_MAP_FULL, COUNT_UNMATCHED, COUNT_NR };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNT_NR);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 25);
} records SEC(".maps");

/* Thread groups that are watched; unused when all are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} groups SEC(".maps");

/* Rings that were told, by their io_ring_ctx. */
struct ring {
	__s32 fd;
	bool wanted;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct ring);
} rings SEC(".maps");

/* Requests between SUBMIT and COMPLETE, by their io_kiocb. */
struct flight {
	__u64 submit_ns, ring;
	__u32 opcode, cpu;
	__s32 fd, ublk_id;
	__u32 cmd_op, q_id, tag;
	bool async;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__type(key, __u64);
	__type(value, struct flight);
} flights SEC(".maps");

/*
 * Those of req. One that ends without a CQE (IOSQE_CQE_SKIP_SUCCESS) leaves its own behind: at its
 * address there may be one of another ring by now, of another process even.
 */
static __always_inline struct flight *flight_find(struct io_kiocb *req, struct io_ring_ctx *ctx)
{
	__u64 key = (__u64)req;
	struct flight *f = key ? bpf_map_lookup_elem(&flights, &key) : NULL;

	return f && f->ring == (__u64)ctx ? f : NULL;
}

/* Requests between SUBMIT and COMPLETE that the sample leaves out, each at one of two places of its
 * address; one that finds others at both forgets the second, whose COMPLETE is unmatched then: with
 * a hundred in flight that is one request in 400,000. */
#define LEFT_OUT_NR 65536u
static __u64 left_out[LEFT_OUT_NR];

/* ublk devices that a watched process serves, by N of /dev/ublkcN. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} devices SEC(".maps");

/* Threads that used a ring, when all processes are watched. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} threads SEC(".maps");

/* Completions of a sample that their program has not taken yet, by user_data. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
} reaps SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &which);

	if (value)
		++*value;
}

/* Remembers value under key; says so when there is no room. */
static __always_inline bool remember(void *map, const void *key, const void *value)
{
	bool done = !bpf_map_update_elem(map, key, value, BPF_ANY);

	if (!done)
		count(COUNT_MAP_FULL);
	return done;
}

static __always_inline __u32 current_group(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline bool group_watched(__u32 group)
{
	if (group == watch_self)
		return false;
	return watch_all || bpf_map_lookup_elem(&groups, &group);
}

static __always_inline void thread_seen(void)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	__u8 one = 1;

	if (watch_all && !bpf_map_lookup_elem(&threads, &thread))
		bpf_map_update_elem(&threads, &thread, &one, BPF_ANY);
}

/* One of watch_sample keys, always the same ones (Fibonacci hashing). */
static __always_inline bool sampled(__u64 key)
{
	return watch_sample <= 1 || (key * 0x9e3779b97f4a7c15ull >> 32) % watch_sample == 0;
}

/* Of a ublk queue each watch_sample-th tag: one at least where it has so many. */
static __always_inline bool id_sampled(__u64 id)
{
	__u64 queue = (id >> 16) * 0x9e3779b97f4a7c15ull >> 32;

	return watch_sample <= 1 || (queue + (id & 0xffff)) % watch_sample == 0;
}

/* The verifier lets nobody compute with a pointer, but a difference of two is a number. */
static __always_inline __u64 number_of(const void *pointer)
{
	return (__u64)(pointer - (const void *)&watch_on);
}

/* A request goes by its address too: programs may give all of them the same user_data. */
static __always_inline bool request_sampled(__u64 user_data, const void *req)
{
	return watch_sample <= 1 || sampled(user_data ^ number_of(req));
}

enum left_out_bits { LEFT_OUT_FIRST = 32, LEFT_OUT_SECOND = 48 };

static __always_inline __u64 *left_out_place(__u64 number, enum left_out_bits bits)
{
	return &left_out[(number >> 6) * 0x9e3779b97f4a7c15ull >> bits & (LEFT_OUT_NR - 1)];
}

static __always_inline void leave_out(const void *req)
{
	__u64 number = number_of(req), *place = left_out_place(number, LEFT_OUT_FIRST);

	if (*place && *place != number)
		place = left_out_place(number, LEFT_OUT_SECOND);
	*place = number;
}

static __always_inline bool is_left_out(const void *req)
{
	__u64 number = number_of(req);

	return watch_sample > 1 && (*left_out_place(number, LEFT_OUT_FIRST) == number ||
				    *left_out_place(number, LEFT_OUT_SECOND) == number);
}

static __always_inline void left_out_end(const void *req)
{
	__u64 number = number_of(req), *first = left_out_place(number, LEFT_OUT_FIRST),
	      *second = left_out_place(number, LEFT_OUT_SECOND);

	if (*first == number)
		*first = 0;
	if (*second == number)
		*second = 0;
}

static __always_inline __u64 ublk_id_of(__u32 device, __u32 queue, __u32 tag)
{
	return (__u64)device << 32 | queue << 16 | tag;
}

/* ---- records ---- */

/* A zeroed record of this moment and thread, or NULL (counted). It must be given to event_send. */
static __always_inline struct event *event_new(__u32 type, __u64 ring, __u64 req, __u64 user_data)
{
	struct event *e = bpf_ringbuf_reserve(&records, sizeof(*e), 0);
	__u64 id = bpf_get_current_pid_tgid();

	if (!e) {
		count(COUNT_RING_FULL);
		return NULL;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->time_ns = bpf_ktime_get_ns();
	e->type = type;
	e->cpu = bpf_get_smp_processor_id();
	e->pid = id >> 32;
	e->tid = (__u32)id;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	e->ring = ring;
	e->req = req;
	e->user_data = user_data;
	return e;
}

/* Waking the reader costs more than the record: it looks by itself now and then. */
static __always_inline void event_send(struct event *e)
{
	__u64 waiting = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(e, waiting >= watch_wake_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline void event_levels(struct event *e, struct io_ring_ctx *ctx)
{
	struct io_rings *r;

	if (!ctx || !(r = ctx->rings))
		return;
	e->levels.sq_head = r->sq.head;
	e->levels.sq_tail = r->sq.tail;
	e->levels.cq_head = r->cq.head;
	e->levels.cq_tail = r->cq.tail;
	e->levels.have = 1;
}

/* ---- files ---- */

/* The first sixteen characters of a name, as numbers; what is behind its end is anything. Nothing
 * is so near to the end of what can be read. */
struct name {
	__u64 first, second;
};

static __always_inline struct name name_at(const void *text)
{
	return (struct name){ .first = read8(text, 0), .second = read8(text, 8) };
}

#define EIGHT(A, B, C, D, E, F, G, H)                                                              \
	((__u64)(A) | (B) << 8 | (C) << 16 | (__u64)(D) << 24 | (__u64)(E) << 32 |                 \
	 (__u64)(F) << 40 | (__u64)(G) << 48 | (__u64)(H) << 56)
#define FIRST(NR, NUMBER) ((NUMBER) & ((1ull << NR * 8) - 1))

/* N of a name such as "ublkc12", behind its first five characters; -1: there is none. */
static __always_inline __s32 name_number(struct name n)
{
	__u64 rest = n.first >> 40 | n.second << 24;
	__s32 number = -1;
	int i;

	for (i = 0; i < 8; i++, rest >>= 8) {
		__u32 digit = (__u32)(rest & 0xff) - '0';

		if (digit > 9)
			break;
		number = (number < 0 ? 0 : number * 10) + (__s32)digit;
	}
	return number;
}

static __always_inline struct name file_name(struct file *file)
{
	return name_at(file->f_path.dentry->d_name.name);
}

/* As in struct event_sqe. */
static __always_inline __s32 file_ublk_id(struct file *file)
{
	struct name n;

	if (!file)
		return -1;
	n = file_name(file);
	if (FIRST(5, n.first) == EIGHT('u', 'b', 'l', 'k', 'c', 0, 0, 0))
		return name_number(n);
	return n.first == EIGHT('u', 'b', 'l', 'k', '-', 'c', 'o', 'n') ? -2 : -1;
}

/* The file that a number of the current process means, or NULL. */
static __always_inline struct file *fd_file(__s32 fd)
{
	struct fdtable *table = bpf_get_current_task_btf()->files->fdt;
	struct file *file = NULL;

	if (fd < 0 || (__u32)fd >= table->max_fds)
		return NULL;
	file = (void *)read8(table->fd + fd, 0);
	return file ? KERNEL_CAST(file, file) : NULL;
}

/* The file of a ring's own table (IOSQE_FIXED_FILE), or NULL. */
static __always_inline struct file *fixed_file(struct io_ring_ctx *ctx, __u32 slot)
{
	struct io_ring_ctx___old *old = (void *)ctx;
	struct io_rsrc_node *node = NULL;
	__u64 pointer = 0;

	if (!bpf_core_field_exists(ctx->file_table.data.nodes)) {
		if (slot >= old->nr_user_files)
			return NULL;
		pointer = read8(old->file_table.files + slot, 0);
	} else {
		if (slot >= ctx->file_table.data.nr)
			return NULL;
		node = (void *)read8(ctx->file_table.data.nodes + slot, 0);
		pointer = node ? KERNEL_CAST(io_rsrc_node, node)->file_ptr : 0;
	}
	return pointer ? KERNEL_CAST(file, (void *)(pointer & ~7ull)) : NULL;
}

/* ---- rings ---- */

static __always_inline bool fd_wanted(__s32 fd)
{
	__u32 i;

	if (!watch_ring_nr)
		return true;
	for (i = 0; i < 64; i++)
		if (i < watch_ring_nr && watch_rings[i] == fd)
			return true;
	return false;
}

static __always_inline void ring_tell(struct io_ring_ctx *ctx, __s32 fd, bool existed)
{
	struct event *e = event_new(EVENT_RING, (__u64)ctx, 0, 0);

	if (!e)
		return;
	event_levels(e, ctx);
	e->ring_info = (struct event_ring){
		.fd = fd,
		.setup_flags = ctx->flags,
		.sq_entries = ctx->sq_entries,
		.cq_entries = ctx->cq_entries,
		.existed = existed,
	};
	event_send(e);
}

static __always_inline bool ring_learn(struct io_ring_ctx *ctx, __s32 fd, bool existed)
{
	struct ring r = { .fd = fd, .wanted = fd_wanted(fd) };
	__u64 key = (__u64)ctx;

	remember(&rings, &key, &r);
	if (r.wanted)
		ring_tell(ctx, fd, existed);
	return r.wanted;
}

/* The search for the descriptor of a ring, when nothing tells it: once for each ring. */
struct ring_search {
	struct file **table;
	__u64 ctx;
	__s32 found;
};

static long ring_is_fd(__u32 fd, struct ring_search *search)
{
	struct file *file = NULL;

	bpf_probe_read_kernel(&file, sizeof(file), search->table + fd);
	if (!file || (__u64)KERNEL_CAST(file, file)->private_data != search->ctx)
		return 0;
	search->found = (__s32)fd;
	return 1;
}

static __always_inline __s32 ring_find_fd(struct io_ring_ctx *ctx)
{
	struct fdtable *table = bpf_get_current_task_btf()->files->fdt;
	struct ring_search search = { .table = table->fd, .ctx = (__u64)ctx, .found = -1 };
	__u32 nr = table->max_fds;

	bpf_loop(nr < 4096 ? nr : 4096, ring_is_fd, &search, 0);
	return search.found;
}

/* Whether the ring is wanted, called by a thread of its process. Tells it when it is new. */
static __always_inline bool ring_wanted(struct io_ring_ctx *ctx)
{
	__u64 key = (__u64)ctx;
	struct ring *r = bpf_map_lookup_elem(&rings, &key);

	return r ? r->wanted : ring_learn(ctx, ring_find_fd(ctx), true);
}

/* The ring behind a file, or NULL when it is none. */
static __always_inline struct io_ring_ctx *file_ring(struct file *file)
{
	struct name n;

	if (!file)
		return NULL;
	n = file_name(file);
	if (n.first != EIGHT('[', 'i', 'o', '_', 'u', 'r', 'i', 'n') ||
	    FIRST(3, n.second) != EIGHT('g', ']', 0, 0, 0, 0, 0, 0))
		return NULL;
	return KERNEL_CAST(io_ring_ctx, file->private_data);
}

/* The ring that a number means which was passed to io_uring_enter or _register, or NULL. */
static __always_inline struct io_ring_ctx *fd_ring(__s32 fd, bool registered)
{
	struct file *file = NULL;

	if (!registered)
		return file_ring(fd_file(fd));
	if ((__u32)fd >= 16)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file),
			      bpf_get_current_task_btf()->io_uring->registered_rings + fd);
	return file ? file_ring(KERNEL_CAST(file, file)) : NULL;
}

#endif
