/*
 * A ring that notes all it does: each call of io_uring_enter, each SQE, each CQE. One thread.
 *
 * Happy path: ring_init, then ring_sqe and io_uring_prep_* for each request, ring_run. Failure
 * mode: whatever fails ends the program with a line on stderr: a test that goes on with less proves
 * less.
 */
#include "test/trace/ring.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* of headers newer than the machine's */
enum { SETUP_SQE128 = 1 << 10, SETUP_CQE32 = 1 << 11, SETUP_NO_SQARRAY = 1 << 16 };
enum { ENTER_GETEVENTS = 1 << 0, ENTER_REGISTERED_RING = 1 << 4 };
enum { REGISTER_RING_FDS = 20 };

void die(const char *format, ...)
{
	va_list args;

	fputs("known: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\n", stderr);
	exit(1);
}

uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *map(int fd, size_t bytes, off_t at)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);

	if (p == MAP_FAILED)
		die("mmap of a ring: %s", strerror(errno));
	return p;
}

static size_t sqe_bytes(const struct ring *r)
{
	return r->p.flags & SETUP_SQE128 ? 128 : 64;
}

static void map_all(struct ring *r)
{
	const struct io_uring_params *p = &r->p;
	size_t cqe = p->flags & SETUP_CQE32 ? 32 : 16;
	size_t sq = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
	size_t cq = p->cq_off.cqes + p->cq_entries * cqe;
	char *rings = map(r->fd, sq > cq ? sq : cq, IORING_OFF_SQ_RING);

	r->sqes = map(r->fd, p->sq_entries * sqe_bytes(r), IORING_OFF_SQES);
	r->sq_head = (uint32_t *)(rings + p->sq_off.head);
	r->sq_tail = (uint32_t *)(rings + p->sq_off.tail);
	r->sq_mask = *(uint32_t *)(rings + p->sq_off.ring_mask);
	r->cq_head = (uint32_t *)(rings + p->cq_off.head);
	r->cq_tail = (uint32_t *)(rings + p->cq_off.tail);
	r->cq_mask = *(uint32_t *)(rings + p->cq_off.ring_mask);
	r->cqes = (struct io_uring_cqe *)(rings + p->cq_off.cqes);
	if (!(p->flags & SETUP_NO_SQARRAY))
		r->sq_array = (uint32_t *)(rings + p->sq_off.array);
}

bool ring_init(struct ring *r, const char *name, unsigned entries, unsigned flags)
{
	*r = (struct ring){ .name = name, .p.flags = flags };
	r->fd = (int)syscall(__NR_io_uring_setup, entries, &r->p);
	if (r->fd < 0 && errno == EINVAL)
		return false;
	if (r->fd < 0)
		die("io_uring_setup: %s", strerror(errno));
	r->enter_fd = r->fd;
	map_all(r);
	r->enter = calloc(NOTES_MAX, sizeof(*r->enter));
	r->sqe = calloc(NOTES_MAX, sizeof(*r->sqe));
	r->cqe = calloc(NOTES_MAX, sizeof(*r->cqe));
	if (!r->enter || !r->sqe || !r->cqe)
		die("no memory");
	return true;
}

void ring_register_fd(struct ring *r)
{
	struct io_uring_rsrc_update up = { .offset = -1u, .data = (uint64_t)r->fd };

	if (syscall(__NR_io_uring_register, r->fd, REGISTER_RING_FDS, &up, 1) != 1)
		die("the ring's descriptor cannot be registered: %s", strerror(errno));
	r->enter_fd = (int)up.offset;
	r->enter_flags = ENTER_REGISTERED_RING;
}

struct io_uring_sqe *ring_sqe(struct ring *r)
{
	static uint32_t request;
	uint32_t at = (*r->sq_tail + r->pending) & r->sq_mask;
	struct note_sqe *note = &r->sqe[r->sqe_nr];

	if (r->sqe_nr == NOTES_MAX || r->pending == r->p.sq_entries)
		die("%s: too many requests", r->name);
	/* all 64 bits, with the sign bit set: what prints it as a signed number is found out */
	*note = (struct note_sqe){ .enter = r->enter_nr };
	note->sqe.user_data = 0xfeed000000000000u | (uint64_t)++request;
	if (r->sq_array)
		r->sq_array[at] = at;
	r->pending++;
	r->unseen++;
	r->sqe_nr++;
	return &note->sqe;
}

void ring_expect(struct ring *r, int nr)
{
	r->unseen += (uint32_t)(nr - 1);
}

/* The notes are what the kernel gets. A ring of 128 byte entries has each at twice the distance. */
static void copy_pending(struct ring *r)
{
	uint32_t tail = *r->sq_tail;

	for (uint32_t i = 0; i < r->pending; i++)
		memcpy(r->sqes + ((tail + i) & r->sq_mask) * sqe_bytes(r),
		       &r->sqe[r->sqe_nr - r->pending + i].sqe, sizeof(struct io_uring_sqe));
	__atomic_store_n(r->sq_tail, tail + r->pending, __ATOMIC_RELEASE);
}

/* Another CPU for each call, where there is one. */
static int move(const struct ring *r)
{
	static cpu_set_t all;
	cpu_set_t one;
	int wanted, cpu;

	if (!CPU_COUNT(&all))
		sched_getaffinity(0, sizeof(all), &all);
	wanted = (int)(r->enter_nr % (unsigned)CPU_COUNT(&all));
	for (cpu = 0; !CPU_ISSET(cpu, &all) || wanted--; cpu++)
		;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("sched_setaffinity: %s", strerror(errno));
	return cpu;
}

static void enter(struct ring *r, unsigned min_complete, unsigned flags)
{
	struct note_enter *n = &r->enter[r->enter_nr];

	if (r->enter_nr == NOTES_MAX)
		die("%s: too many calls", r->name);
	n->cpu = move(r);
	copy_pending(r);
	n->to_submit = r->pending;
	n->min_complete = min_complete;
	n->flags = flags | r->enter_flags;
	n->fd = r->enter_fd;
	n->sq_head = *r->sq_head;
	n->sq_tail = *r->sq_tail;
	n->cq_head = *r->cq_head;
	n->cq_tail = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE);
	r->pending = 0;
	r->enter_nr++;
	n->begin_ns = now_ns(CLOCK_BOOTTIME);
	n->ret = (int)syscall(__NR_io_uring_enter, n->fd, n->to_submit, min_complete, n->flags,
			      NULL, 0);
	n->end_ns = now_ns(CLOCK_BOOTTIME);
	if (n->ret < 0 || (unsigned)n->ret != n->to_submit)
		die("%s: io_uring_enter of %u gave %d: %s", r->name, n->to_submit, n->ret,
		    n->ret < 0 ? strerror(errno) : "fewer");
}

static unsigned take(struct ring *r)
{
	uint32_t head = *r->cq_head, first = head,
		 tail = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE);
	unsigned step = r->p.flags & SETUP_CQE32 ? 2 : 1, nr = 0;
	const struct io_uring_cqe *cqe;

	for (; head != tail; head++, nr++) {
		cqe = &r->cqes[(head & r->cq_mask) * step];
		if (r->cqe_nr == NOTES_MAX)
			die("%s: too many completions", r->name);
		r->cqe[r->cqe_nr++] = (struct note_cqe){ .user_data = cqe->user_data,
							 .res = cqe->res,
							 .flags = cqe->flags,
							 .enter = r->enter_nr - 1,
							 .cq_head = first };
	}
	__atomic_store_n(r->cq_head, head, __ATOMIC_RELEASE);
	if (nr > r->unseen)
		die("%s: %u completions more than expected", r->name, nr - r->unseen);
	r->unseen -= nr;
	return nr;
}

void ring_submit(struct ring *r)
{
	enter(r, 0, 0);
}

void ring_wait(struct ring *r, unsigned nr)
{
	unsigned seen = 0;

	while (seen < nr) {
		if (*r->cq_tail == *r->cq_head)
			enter(r, 1, ENTER_GETEVENTS);
		seen += take(r);
		r->enter[r->enter_nr - 1].end_ns = now_ns(CLOCK_BOOTTIME);
	}
}

void ring_run(struct ring *r)
{
	uint32_t wanted = r->unseen;

	/* the kernel waits until that many are in the CQ, and they stay there until it returns */
	enter(r, wanted, ENTER_GETEVENTS);
	take(r);
	ring_wait(r, r->unseen);
	r->enter[r->enter_nr - 1].end_ns = now_ns(CLOCK_BOOTTIME);
}

int32_t ring_result(const struct ring *r, uint64_t user_data)
{
	for (uint32_t i = r->cqe_nr; i; i--)
		if (r->cqe[i - 1].user_data == user_data)
			return r->cqe[i - 1].res;
	die("%s: no completion of %llx", r->name, (unsigned long long)user_data);
}

static void print_enters(const struct ring *r, FILE *out)
{
	for (uint32_t i = 0; i < r->enter_nr; i++) {
		const struct note_enter *n = &r->enter[i];

		fprintf(out,
			"%s{\"begin_ns\":%llu,\"end_ns\":%llu,\"to_submit\":%u,\"min_complete\":%u,"
			"\"flags\":%u,\"fd\":%d,\"sq_head\":%u,\"sq_tail\":%u,\"cq_head\":%u,"
			"\"cq_tail\":%u,\"cpu\":%d}",
			i ? ",\n" : "", (unsigned long long)n->begin_ns,
			(unsigned long long)n->end_ns, n->to_submit, n->min_complete, n->flags,
			n->fd, n->sq_head, n->sq_tail, n->cq_head, n->cq_tail, n->cpu);
	}
}

static void print_sqes(const struct ring *r, FILE *out)
{
	for (uint32_t i = 0; i < r->sqe_nr; i++) {
		const struct io_uring_sqe *s = &r->sqe[i].sqe;

		fprintf(out,
			"%s{\"user_data\":%llu,\"opcode\":%u,\"fd\":%d,\"len\":%u,\"off\":%llu,"
			"\"flags\":%u,\"ioprio\":%u,\"buf_index\":%u,\"personality\":%u,"
			"\"enter\":%u,\"init_fails\":%s}",
			i ? ",\n" : "", (unsigned long long)s->user_data, s->opcode, s->fd, s->len,
			(unsigned long long)s->off, s->flags, s->ioprio, s->buf_index,
			s->personality, r->sqe[i].enter, r->sqe[i].init_fails ? "true" : "false");
	}
}

void ring_print(const struct ring *r, FILE *out)
{
	fprintf(out,
		"{\"name\":\"%s\",\"fd\":%d,\"setup_flags\":%u,\"sq_entries\":%u,"
		"\"cq_entries\":%u,\n\"enters\":[",
		r->name, r->fd, r->p.flags, r->p.sq_entries, r->p.cq_entries);
	print_enters(r, out);
	fputs("],\n\"sqes\":[", out);
	print_sqes(r, out);
	fputs("],\n\"cqes\":[", out);
	for (uint32_t i = 0; i < r->cqe_nr; i++)
		fprintf(out,
			"%s{\"user_data\":%llu,\"res\":%d,\"flags\":%u,\"enter\":%u,"
			"\"cq_head\":%u}",
			i ? ",\n" : "", (unsigned long long)r->cqe[i].user_data, r->cqe[i].res,
			r->cqe[i].flags, r->cqe[i].enter, r->cqe[i].cq_head);
	fputs("]}", out);
}
