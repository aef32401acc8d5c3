/*
 * The seam between the product and the world: everything that a reactor asks of a kernel goes
 * through these functions. ring_uring.c is the real kernel, test/sim/ring_sim.c a simulated one;
 * which one is chosen at link time. Both lay a genuine `struct io_uring` behind it, so that
 * liburing's header-only parts (get_sqe, prep_*, for_each_cqe) work on either.
 */
#ifndef REACTOR_RING_H
#define REACTOR_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <liburing.h>

/* Returned deadline of "no timer". */
#define RING_NO_TIMEOUT UINT64_MAX

struct ring {
	struct io_uring uring;
	unsigned enter_flags; /* of every io_uring_enter */
	int enter_fd;	      /* ring fd, or its registered index */
	void *sim;	      /* ring_sim.c's own */
};

struct ring_params {
	unsigned sq_entries; /* rounded up to a power of two by the kernel */
	unsigned cq_entries;
	unsigned files_nr;  /* size of the sparse table of registered files; 0: none */
	bool sqe128;	    /* 128-byte SQEs, for ublk control commands */
	bool single_issuer; /* SINGLE_ISSUER + DEFER_TASKRUN: only the calling thread will enter */
	bool taskrun_flag;  /* IORING_SQ_TASKRUN tells of work for the next enter; see reactor.c */
};

/*
 * Sets up a ring; with single_issuer it belongs to the calling thread from here on. Returns 0 or
 * -errno: -ENOSYS or -EPERM when io_uring is missing or forbidden (kernel.io_uring_disabled),
 * -ENOMEM for the memory lock limit.
 */
int ring_init(struct ring *ring, const struct ring_params *params);

/* Accepts a zeroed ring. */
void ring_fini(struct ring *ring);

/*
 * Submits every prepared SQE and waits until wait_nr CQEs are there or timeout_ns (relative;
 * RING_NO_TIMEOUT: for ever) has passed. A timeout or a signal is a success. Returns 0, or
 * -EAGAIN/-EBUSY when the kernel took none of the SQEs for now (they stay and go with the next
 * call), or another -errno, which is a bug.
 */
int ring_enter(struct ring *ring, unsigned wait_nr, uint64_t timeout_ns);

/*
 * The same without a time limit, which is what nearly every turn wants. Returns at least 0, or as
 * ring_enter does, or -EINTR after a signal.
 */
int ring_wait(struct ring *ring, unsigned wait_nr);

/* Puts fd (or -1 to clear) into a slot of the registered file table. Returns 0 or -errno. */
int ring_file_set(struct ring *ring, unsigned slot, int fd);

/*
 * Makes a table of nr registered buffers, all empty; once. The driver fills a slot with
 * the pages of a request. Returns 0 or -errno.
 */
int ring_buffers_init(struct ring *ring, unsigned nr);

/*
 * Makes the caller's memory (page-aligned, nr entries, a power of two) the ring of provided buffers
 * of a group; mem NULL: forgets the group. Returns 0 or -errno.
 */
int ring_group_set(struct ring *ring, unsigned group, void *mem, unsigned nr);

/*
 * How many buffers of a group the kernel has used up since it was made; wraps. Returns 0 or -errno
 * (-EINVAL before Linux 6.8).
 */
int ring_group_used(struct ring *ring, unsigned group, uint16_t *ret_nr);

/* Signals efd whenever a CQE is posted. Returns 0 or -errno. */
int ring_eventfd_set(struct ring *ring, int efd);

/* CLOCK_MONOTONIC in nanoseconds, or the simulation's virtual time. Any thread. */
uint64_t ring_clock_ns(void);

/*
 * open(2), close(2) and read-only shared mmap(2)/munmap(2) of a character device whose other end
 * is the driver: the calls that a simulated driver must see. ring_open returns an fd or -errno,
 * ring_map 0 or -errno.
 */
int ring_open(const char *path, int flags);
void ring_close(int fd);
int ring_map(int fd, size_t bytes, uint64_t offset, void **ret_addr);
void ring_unmap(void *addr, size_t bytes);

/*
 * A stream socket of that family, blocking (the ring waits, nobody else does), small messages of
 * TCP sent at once and dead peers looked for (TCP_NODELAY, SO_KEEPALIVE). Returns an fd, which
 * ring_close closes, or -errno.
 */
int ring_socket(int family);
/*
 * connect(2) of a unix socket, which needs nobody's answer: 0 or -errno; -EAGAIN: too many wait to
 * be accepted. Not by IORING_OP_CONNECT: that one tries again and again then, in every turn, and
 * cannot be cancelled (6.12, 7.2: the socket polls as writable all the time, io_arm_poll_handler).
 */
int ring_connect_unix(int fd, const struct sockaddr *address, socklen_t address_bytes);
/* shutdown(2), both directions: the peer sees the end, whatever still has the socket. */
void ring_shutdown(int fd);

/*
 * pread(2), pwrite(2) and pwritev(2) on a device of ring_open: the bytes of a request, moved by
 * hand. They do not wait for anything but memory. Return bytes, which can be fewer than asked for,
 * or -errno.
 */
ssize_t ring_pread(int fd, void *buf, size_t bytes, uint64_t offset);
ssize_t ring_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset);
ssize_t ring_pwritev(int fd, const struct iovec *iov, unsigned nr, uint64_t offset);

#endif
