/*
 * Static probes (USDT) at every border of an I/O, all of them in this file. Each is one nop until
 * somebody attaches (bpftrace, perf, systemtap): `bpftrace -l 'usdt:/usr/sbin/ublkd:*'`.
 * An I/O is known by (device, queue, tag) from fetch to commit; never match by thread.
 *
 *   io__fetch(device, queue, tag, op, sector, bytes)   taken from the driver
 *   io__submit(device, queue, tag)                     handed to the backend
 *   io__busy(device, queue, tag)                       the backend did not take it
 *   io__done(device, queue, tag, result)               answered by the backend
 *   io__commit(device, queue, tag, op, result, total_ns, throttle_ns, backend_ns)  handed back
 *
 * device: N of /dev/ublkbN; op: enum backend_op (0 read, 1 write, 2 flush, 3 discard,
 * 4 write_zeroes); result: bytes or 0, or -errno.
 */
#ifndef BASE_PROBES_H
#define BASE_PROBES_H

#if defined(UBLKD_USDT)
#include <sys/sdt.h>
#define PROBE3(name, a, b, c) DTRACE_PROBE3(ublkd, name, a, b, c)
#define PROBE4(name, a, b, c, d) DTRACE_PROBE4(ublkd, name, a, b, c, d)
#define PROBE6(name, a, b, c, d, e, f) DTRACE_PROBE6(ublkd, name, a, b, c, d, e, f)
#define PROBE8(name, a, b, c, d, e, f, g, h) DTRACE_PROBE8(ublkd, name, a, b, c, d, e, f, g, h)
#else
#define PROBE3(name, a, b, c) ((void)0)
#define PROBE4(name, a, b, c, d) ((void)0)
#define PROBE6(name, a, b, c, d, e, f) ((void)0)
#define PROBE8(name, a, b, c, d, e, f, g, h) ((void)0)
#endif

#endif
