/*
 * The real kernel behind ring.h. Owns nothing but the ring it was given; each ring is used by one
 * thread. The happy path is one io_uring_enter a turn that submits and waits. Failure modes: the
 * kernel may take fewer SQEs than offered (memory pressure, CQ overflow); they stay in the SQ.
 */
#include "reactor/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "reactor/tsc_clock.h"

/* linux/io_uring.h since 6.15. */
#define FEAT_NO_IOWAIT (1u << 17)
#define ENTER_NO_IOWAIT (1u << 7)

#define SETUP_COMMON (IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL)

/*
 * liburing 2.3 fills the SQ index array at each submit, later versions once at setup. Entering
 * by ourselves, we fill it once for both: entry i always names SQE i.
 */
static void fill_sq_array(struct io_uring_sq *sq)
{
	if (!sq->array)
		return;
	for (unsigned i = 0; i < sq->ring_entries; i++)
		sq->array[i] = i;
}

static int setup(struct io_uring *uring, const struct ring_params *params, unsigned flags)
{
	struct io_uring_params p = {
		.flags = SETUP_COMMON | flags,
		.cq_entries = params->cq_entries,
	};

	if (params->sqe128)
		p.flags |= IORING_SETUP_SQE128;
	if (params->taskrun_flag)
		p.flags |= IORING_SETUP_TASKRUN_FLAG;
	return io_uring_queue_init_params(params->sq_entries, uring, &p);
}

int ring_init(struct ring *ring, const struct ring_params *params)
{
	unsigned fast =
		params->single_issuer ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN : 0;
	int ret;

	memset(ring, 0, sizeof(*ring));
	ret = setup(&ring->uring, params, fast);
	if (ret == -EINVAL && fast)
		ret = setup(&ring->uring, params, IORING_SETUP_COOP_TASKRUN);
	if (ret < 0)
		return ret;
	fill_sq_array(&ring->uring.sq);
	ring->enter_fd = ring->uring.ring_fd;
	ring->enter_flags = IORING_ENTER_GETEVENTS;
	/* The registered ring fd saves an fdget per enter; it is this thread's alone. */
	if (params->single_issuer && io_uring_register_ring_fd(&ring->uring) == 1) {
		ring->enter_fd = ring->uring.enter_ring_fd;
		ring->enter_flags |= IORING_ENTER_REGISTERED_RING;
	}
	/* A reactor that has nothing to do is idle: no iowait, no boost of its CPU's frequency. */
	if (ring->uring.features & FEAT_NO_IOWAIT)
		ring->enter_flags |= ENTER_NO_IOWAIT;
	if (params->files_nr == 0)
		return 0;
	ret = io_uring_register_files_sparse(&ring->uring, params->files_nr);
	if (ret < 0)
		ring_fini(ring);
	return ret;
}

void ring_fini(struct ring *ring)
{
	if (ring->uring.sq.ring_ptr)
		io_uring_queue_exit(&ring->uring);
	memset(ring, 0, sizeof(*ring));
}

/* Publishes the prepared SQEs to the kernel; returns how many it has not consumed yet. */
static unsigned flush_sq(struct io_uring_sq *sq)
{
	io_uring_smp_store_release(sq->ktail, sq->sqe_tail);
	sq->sqe_head = sq->sqe_tail;
	return sq->sqe_tail - *sq->khead;
}

/* Apart: what it has on its stack costs the other way, too. */
static __attribute__((noinline)) int enter_for(struct ring *ring, unsigned to_submit,
					       unsigned wait_nr, uint64_t timeout_ns)
{
	struct __kernel_timespec ts = {
		.tv_sec = (long long)(timeout_ns / NS_PER_SEC),
		.tv_nsec = (long long)(timeout_ns % NS_PER_SEC),
	};
	struct io_uring_getevents_arg arg = {
		.sigmask_sz = _NSIG / 8,
		.ts = (uint64_t)(uintptr_t)&ts,
	};

	return io_uring_enter2((unsigned)ring->enter_fd, to_submit, wait_nr,
			       ring->enter_flags | IORING_ENTER_EXT_ARG, (void *)&arg, sizeof(arg));
}

int ring_wait(struct ring *ring, unsigned wait_nr)
{
	return io_uring_enter2((unsigned)ring->enter_fd, flush_sq(&ring->uring.sq), wait_nr,
			       ring->enter_flags, NULL, _NSIG / 8);
}

int ring_enter(struct ring *ring, unsigned wait_nr, uint64_t timeout_ns)
{
	int ret;

	if (wait_nr == 0 || timeout_ns == RING_NO_TIMEOUT)
		ret = ring_wait(ring, wait_nr);
	else
		ret = enter_for(ring, flush_sq(&ring->uring.sq), wait_nr, timeout_ns);
	return ret >= 0 || ret == -ETIME || ret == -EINTR ? 0 : ret;
}

int ring_file_set(struct ring *ring, unsigned slot, int fd)
{
	int ret = io_uring_register_files_update(&ring->uring, slot, &fd, 1);

	return ret < 0 ? ret : 0;
}

int ring_buffers_init(struct ring *ring, unsigned nr)
{
	return io_uring_register_buffers_sparse(&ring->uring, nr);
}

int ring_group_set(struct ring *ring, unsigned group, void *mem, unsigned nr)
{
	struct io_uring_buf_reg reg = {
		.ring_addr = (uint64_t)(uintptr_t)mem,
		.ring_entries = nr,
		.bgid = (uint16_t)group,
	};

	if (!mem)
		return io_uring_unregister_buf_ring(&ring->uring, (int)group);
	return io_uring_register_buf_ring(&ring->uring, &reg, 0);
}

/* IORING_REGISTER_PBUF_STATUS and struct io_uring_buf_status, of headers since 6.8. */
#define REGISTER_PBUF_STATUS 26

int ring_group_used(struct ring *ring, unsigned group, uint16_t *ret_nr)
{
	struct {
		uint32_t group, head, resv[8];
	} status = { .group = group };

	if (syscall(__NR_io_uring_register, ring->uring.ring_fd, REGISTER_PBUF_STATUS, &status, 1) <
	    0)
		return -errno;
	*ret_nr = (uint16_t)status.head;
	return 0;
}

int ring_eventfd_set(struct ring *ring, int efd)
{
	return io_uring_register_eventfd(&ring->uring, efd);
}

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

#ifdef __x86_64__

static _Thread_local struct tsc_clock tsc_clock;

/* More between two readings of the counter, and the thread was off its CPU. */
#define CLOCK_PAIR_CYCLES 50000u

static uint64_t clock_real_ns(uint64_t *tsc)
{
	uint64_t ns, before;

	for (unsigned i = 0; i < 3; i++) {
		before = __builtin_ia32_rdtsc();
		ns = monotonic_ns();
		*tsc = __builtin_ia32_rdtsc();
		if (*tsc - before < CLOCK_PAIR_CYCLES)
			break;
	}
	return ns;
}

static __attribute__((noinline)) uint64_t clock_ask_ns(uint64_t tsc)
{
	return tsc_clock_usable() ? tsc_clock_at(&tsc_clock, tsc, clock_real_ns) : monotonic_ns();
}

uint64_t ring_clock_ns(void)
{
	uint64_t tsc = __builtin_ia32_rdtsc();

	/* Never, where the counter is not usable. */
	if (__builtin_expect(tsc_clock_knows(&tsc_clock, tsc), 1))
		return tsc_clock_count(&tsc_clock, tsc);
	return clock_ask_ns(tsc);
}

#else

uint64_t ring_clock_ns(void)
{
	return monotonic_ns();
}

#endif

int ring_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

void ring_close(int fd)
{
	close(fd);
}

int ring_map(int fd, size_t bytes, uint64_t offset, void **ret_addr)
{
	void *addr = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);

	if (addr == MAP_FAILED)
		return -errno;
	*ret_addr = addr;
	return 0;
}

void ring_unmap(void *addr, size_t bytes)
{
	munmap(addr, bytes);
}

int ring_socket(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -errno;
	if (family == AF_INET || family == AF_INET6) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	return fd;
}

int ring_connect_unix(int fd, const struct sockaddr *address, socklen_t address_bytes)
{
	int flags = fcntl(fd, F_GETFL), ret = 0;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	if (connect(fd, address, address_bytes) < 0)
		ret = -errno;
	fcntl(fd, F_SETFL, flags);
	return ret;
}

void ring_shutdown(int fd)
{
	shutdown(fd, SHUT_RDWR);
}

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
	ssize_t n = pwritev(fd, iov, (int)nr, (off_t)offset);

	return n < 0 ? -errno : n;
}
