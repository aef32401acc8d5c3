/*
 * Static probes (USDT) at every border of an I/O, all of them in this file. Each is one nop until
 * somebody attaches (bpftrace, perf, systemtap): `bpftrace -l 'usdt:/usr/sbin/ublkd:*'`.
 * An I/O is known by its id from fetch to commit; never match by thread.
 * id: device << 32 | queue << 16 | tag. Six arguments at most: bpftrace on x86-64 reads no more.
 * Scripts that use them: ublktrace/bpftrace.
 *
 *   io__fetch(id, op, sector, bytes, inflight)   taken from the driver
 *   io__submit(id)                               handed to the backend
 *   io__busy(id)                                 the backend did not take it
 *   io__done(id, result)                         answered by the backend
 *   io__commit(id, op, result, total_ns, throttle_ns, backend_ns)   handed back
 *   cqe__reap(ring_fd, user_data, res)           a completion taken from a reactor's ring
 *
 * device: N of /dev/ublkbN; op: enum backend_op (0 read, 1 write, 2 flush, 3 discard,
 * 4 write_zeroes); inflight: I/Os of its queue in the daemon, itself included; result: bytes or 0,
 * or -errno.
 */
#ifndef BASE_PROBES_H
#define BASE_PROBES_H

#if defined(UBLKD_USDT)
#include <sys/sdt.h>
#define PROBE1(name, a) DTRACE_PROBE1(ublkd, name, a)
#define PROBE2(name, a, b) DTRACE_PROBE2(ublkd, name, a, b)
#define PROBE3(name, a, b, c) DTRACE_PROBE3(ublkd, name, a, b, c)
#define PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(ublkd, name, a, b, c, d, e)
#define PROBE6(name, a, b, c, d, e, f) DTRACE_PROBE6(ublkd, name, a, b, c, d, e, f)
#else
#define PROBE1(name, a) ((void)0)
#define PROBE2(name, a, b) ((void)0)
#define PROBE3(name, a, b, c) ((void)0)
#define PROBE5(name, a, b, c, d, e) ((void)0)
#define PROBE6(name, a, b, c, d, e, f) ((void)0)
#endif

#endif
