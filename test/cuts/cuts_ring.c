/*
 * reactor/ring.h for reactors that have nothing to do with a kernel: only the mailbox is read.
 * Time passes by 50 microseconds with each turn. The memory that a killed process leaves is here
 * too.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "reactor/reactor.h"
#include "reactor/user_data.h"
#include "test/cuts/cuts.h"
#include "test/cuts/cuts_disk.h"

#define ENTRIES 32u

struct memory {
	struct io_uring_sqe sqes[ENTRIES];
	struct io_uring_cqe cqes[2 * ENTRIES];
	unsigned sq_head, sq_tail, sq_mask, sq_entries, sq_flags;
	unsigned cq_head, cq_tail, cq_mask, cq_entries;
	uint64_t mailbox; /* user_data of its read; 0: none */
};

static uint64_t now_ns = 1000000;

int ring_init(struct ring *ring, const struct ring_params *params)
{
	struct io_uring_sq *sq = &ring->uring.sq;
	struct io_uring_cq *cq = &ring->uring.cq;
	struct memory *m = calloc(1, sizeof(*m));

	(void)params;
	memset(ring, 0, sizeof(*ring));
	ring->sim = m;
	m->sq_mask = sq->ring_mask = ENTRIES - 1;
	m->sq_entries = sq->ring_entries = ENTRIES;
	m->cq_mask = cq->ring_mask = 2 * ENTRIES - 1;
	m->cq_entries = cq->ring_entries = 2 * ENTRIES;
	sq->khead = &m->sq_head;
	sq->ktail = &m->sq_tail;
	sq->kring_mask = &m->sq_mask;
	sq->kring_entries = &m->sq_entries;
	sq->kflags = &m->sq_flags;
	sq->sqes = m->sqes;
	cq->khead = &m->cq_head;
	cq->ktail = &m->cq_tail;
	cq->kring_mask = &m->cq_mask;
	cq->kring_entries = &m->cq_entries;
	cq->cqes = m->cqes;
	return 0;
}

void ring_fini(struct ring *ring)
{
	free(ring->sim);
	ring->sim = NULL;
}

static void answer_mailbox(struct ring *ring, struct memory *m)
{
	struct reactor *r = container_of(ring, struct reactor, ring);
	uint64_t count;

	if (!m->mailbox || mailbox_empty(&r->mailbox))
		return;
	ASSERT(read(r->mailbox.efd, &count, sizeof(count)) == sizeof(count));
	m->cqes[m->cq_tail++ & m->cq_mask] =
		(struct io_uring_cqe){ .user_data = m->mailbox, .res = sizeof(count) };
	m->mailbox = 0;
}

int ring_enter(struct ring *ring, unsigned wait_nr, uint64_t timeout_ns)
{
	struct memory *m = ring->sim;

	(void)wait_nr, (void)timeout_ns;
	now_ns += 50000;
	for (; m->sq_head != ring->uring.sq.sqe_tail; m->sq_head++) {
		const struct io_uring_sqe *sqe = &m->sqes[m->sq_head & m->sq_mask];

		if (user_data_kind(sqe->user_data) == OP_KIND_MAILBOX)
			m->mailbox = sqe->user_data;
	}
	m->sq_tail = m->sq_head;
	answer_mailbox(ring, m);
	return 0;
}

int ring_wait(struct ring *ring, unsigned wait_nr)
{
	return ring_enter(ring, wait_nr, RING_NO_TIMEOUT);
}

uint64_t ring_clock_ns(void)
{
	return now_ns;
}

/* ---- memory that outlives a process ---- */

void *cuts_shared_alloc(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ASSERT(at != MAP_FAILED);
	return at;
}

void cuts_shared_free(void *at, size_t bytes)
{
	munmap(at, bytes);
}

int cuts_copy_memory(int fd)
{
	int copy = memfd_create("cuts", MFD_CLOEXEC);
	struct stat st;
	void *from;

	ASSERT(copy >= 0 && fstat(fd, &st) == 0);
	from = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT(from != MAP_FAILED && write(copy, from, (size_t)st.st_size) == st.st_size);
	munmap(from, (size_t)st.st_size);
	return copy;
}

/* ---- nobody asks for the rest ---- */

int ring_file_set(struct ring *ring, unsigned slot, int fd)
{
	(void)ring, (void)slot, (void)fd;
	return 0;
}

int ring_eventfd_set(struct ring *ring, int efd)
{
	(void)ring, (void)efd;
	return 0;
}

int ring_open(const char *path, int flags)
{
	(void)path, (void)flags;
	return -ENODEV;
}

void ring_close(int fd)
{
	(void)fd;
}

int ring_map(int fd, size_t bytes, uint64_t offset, void **ret_addr)
{
	(void)fd, (void)bytes, (void)offset, (void)ret_addr;
	return -ENODEV;
}

void ring_unmap(void *addr, size_t bytes)
{
	(void)addr, (void)bytes;
}

int ring_buffers_init(struct ring *ring, unsigned nr)
{
	(void)ring, (void)nr;
	return 0;
}

int ring_group_set(struct ring *ring, unsigned group, void *memory, unsigned nr)
{
	(void)ring, (void)group, (void)memory, (void)nr;
	return 0;
}

int ring_group_used(struct ring *ring, unsigned group, uint16_t *ret_nr)
{
	(void)ring, (void)group, (void)ret_nr;
	return -EINVAL;
}

int ring_socket(int family)
{
	(void)family;
	return -EAFNOSUPPORT;
}

int ring_connect_unix(int fd, const struct sockaddr *address, socklen_t address_bytes)
{
	(void)fd, (void)address, (void)address_bytes;
	return -EBADF;
}

void ring_shutdown(int fd)
{
	(void)fd;
}

/* The driver's bytes: its positions are addresses (cache_rig_submit). */
ssize_t ring_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
	ASSERT(fd == CUTS_DRIVER_FD);
	memcpy(buf, (const void *)(uintptr_t)offset, bytes);
	return (ssize_t)bytes;
}

ssize_t ring_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
	ASSERT(fd == CUTS_DRIVER_FD);
	memcpy((void *)(uintptr_t)offset, buf, bytes);
	return (ssize_t)bytes;
}

ssize_t ring_pwritev(int fd, const struct iovec *iov, unsigned nr, uint64_t offset)
{
	ssize_t done = 0;

	for (unsigned i = 0; i < nr; i++)
		done += ring_pwrite(fd, iov[i].iov_base, iov[i].iov_len, offset + (uint64_t)done);
	return done;
}
