/*
 * Lays a struct io_uring over plain arrays; ring_enter hands each SQE to the script's answer and
 * posts the CQE. One ring per process, one thread. The read of the mailbox is answered when the
 * test says so.
 */
#include "ring_script.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "reactor/ring.h"
#include "reactor/user_data.h"

#define ENTRIES 8u

struct ring_script ring_script;

static struct {
	struct io_uring_sqe sqes[ENTRIES];
	struct io_uring_cqe cqes[2 * ENTRIES];
	unsigned sq_head, sq_tail, sq_mask, sq_entries, sq_flags;
	unsigned cq_head, cq_tail, cq_mask, cq_entries;
	uint64_t mailbox; /* user_data of its read, or 0 */
} mem;

int ring_init(struct ring *ring, const struct ring_params *params)
{
	struct io_uring_sq *sq = &ring->uring.sq;
	struct io_uring_cq *cq = &ring->uring.cq;

	(void)params;
	memset(ring, 0, sizeof(*ring));
	memset(&mem, 0, sizeof(mem));
	mem.sq_mask = sq->ring_mask = ENTRIES - 1;
	mem.sq_entries = sq->ring_entries = ENTRIES;
	mem.cq_mask = cq->ring_mask = 2 * ENTRIES - 1;
	mem.cq_entries = cq->ring_entries = 2 * ENTRIES;
	sq->khead = &mem.sq_head;
	sq->ktail = &mem.sq_tail;
	sq->kring_mask = &mem.sq_mask;
	sq->kring_entries = &mem.sq_entries;
	sq->kflags = &mem.sq_flags;
	sq->sqes = mem.sqes;
	cq->khead = &mem.cq_head;
	cq->ktail = &mem.cq_tail;
	cq->kring_mask = &mem.cq_mask;
	cq->kring_entries = &mem.cq_entries;
	cq->cqes = mem.cqes;
	return 0;
}

void ring_fini(struct ring *ring)
{
	(void)ring;
}

void ring_script_post(uint64_t user_data, int res, uint32_t cqe_flags)
{
	ASSERT(mem.cq_tail - mem.cq_head < mem.cq_entries);
	mem.cqes[mem.cq_tail++ & mem.cq_mask] =
		(struct io_uring_cqe){ .user_data = user_data, .res = res, .flags = cqe_flags };
}

static void take(const struct io_uring_sqe *sqe)
{
	int res;

	if (user_data_kind(sqe->user_data) == OP_KIND_MAILBOX)
		mem.mailbox = sqe->user_data;
	if (user_data_kind(sqe->user_data) == OP_KIND_ALARM) {
		ring_script.alarm_nr++;
		if (ring_script.alarm_res)
			ring_script_post(sqe->user_data, ring_script.alarm_res, 0);
	}
	if (user_data_kind(sqe->user_data) == OP_KIND_MAILBOX ||
	    user_data_kind(sqe->user_data) == OP_KIND_ALARM)
		return;
	ASSERT(ring_script.log_nr < SCRIPT_LOG_MAX);
	ring_script.log[ring_script.log_nr++] = *sqe;
	res = ring_script.answer(sqe);
	if (res != SCRIPT_LATER)
		ring_script_post(sqe->user_data, res, 0);
}

static void answer_mailbox(void)
{
	if (!ring_script.mail || !mem.mailbox)
		return;
	ring_script.mail = false;
	ring_script_post(mem.mailbox, sizeof(uint64_t), 0);
	mem.mailbox = 0;
}

int ring_enter(struct ring *ring, unsigned wait_nr, uint64_t timeout_ns)
{
	ring_script.wait_nr = wait_nr;
	ring_script.slept_ns = wait_nr ? timeout_ns : 0;
	ring_script.now_ns += ring_script.step_ns;
	if (ring_script.refuse_nr > 0) {
		ring_script.refuse_nr--;
		return -EBUSY;
	}
	while (mem.sq_head != ring->uring.sq.sqe_tail) {
		take(&mem.sqes[mem.sq_head & mem.sq_mask]);
		mem.sq_head++;
	}
	mem.sq_tail = mem.sq_head;
	answer_mailbox();
	return 0;
}

int ring_wait(struct ring *ring, unsigned wait_nr)
{
	return ring_enter(ring, wait_nr, RING_NO_TIMEOUT);
}

int ring_file_set(struct ring *ring, unsigned slot, int fd)
{
	(void)ring;
	(void)slot;
	(void)fd;
	return 0;
}

int ring_eventfd_set(struct ring *ring, int efd)
{
	(void)ring;
	(void)efd;
	return 0;
}

uint64_t ring_clock_ns(void)
{
	return ring_script.now_ns;
}

/* Character devices are not played here. */

int ring_open(const char *path, int flags)
{
	(void)path;
	(void)flags;
	return -ENODEV;
}

void ring_close(int fd)
{
	(void)fd;
}

int ring_map(int fd, size_t bytes, uint64_t offset, void **ret_addr)
{
	(void)fd;
	(void)bytes;
	(void)offset;
	(void)ret_addr;
	return -ENODEV;
}

void ring_unmap(void *addr, size_t bytes)
{
	(void)addr;
	(void)bytes;
}

int ring_buffers_init(struct ring *ring, unsigned nr)
{
	(void)ring, (void)nr;
	return 0;
}

int ring_group_set(struct ring *ring, unsigned group, void *memory, unsigned nr)
{
	(void)ring, (void)group, (void)nr;
	ring_script.group = memory;
	return 0;
}

int ring_group_used(struct ring *ring, unsigned group, uint16_t *ret_nr)
{
	(void)ring, (void)group;
	*ret_nr = ring_script.group_used;
	return 0;
}

/* Nor is there a network, but for sockets that the test answers for. */
int ring_socket(int family)
{
	(void)family;
	return ring_script.socket_fd ? ring_script.socket_fd : -EAFNOSUPPORT;
}

int ring_connect_unix(int fd, const struct sockaddr *address, socklen_t address_bytes)
{
	(void)address, (void)address_bytes;
	return fd == ring_script.socket_fd ? 0 : -EBADF;
}

void ring_shutdown(int fd)
{
	(void)fd;
}

/* No request of these tests has its bytes with the driver. */
ssize_t ring_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n = pread(fd, buf, bytes, (off_t)offset);

	return n < 0 ? -errno : n;
}

ssize_t ring_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n = pwrite(fd, buf, bytes, (off_t)offset);

	return n < 0 ? -errno : n;
}

ssize_t ring_pwritev(int fd, const struct iovec *iov, unsigned nr, uint64_t offset)
{
	(void)fd, (void)iov, (void)nr, (void)offset;
	return -EBADF;
}
