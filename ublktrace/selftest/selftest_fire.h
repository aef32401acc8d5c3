/* The events of `ublktrace selftest`: each is fired once. Main thread. */
#ifndef UBLKTRACE_SELFTEST_SELFTEST_FIRE_H
#define UBLKTRACE_SELFTEST_SELFTEST_FIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One getppid, one sleep. */
void fire_syscalls(void);

/* A NOP, and one with IOSQE_ASYNC. Returns 0 or -errno: -EPERM where sysctl
 * kernel.io_uring_disabled forbids rings, -ENOSYS without io_uring. */
int fire_nops(void);

/* GET_FEATURES to /dev/ublk-control; *ret_features is what the driver answers. Returns 0 or -errno:
 * -ENOENT without the driver, -EACCES without rights. */
int fire_control(uint64_t *ret_features);

/* The first /dev/ublkbN by number into path. Returns 0 or -ENOENT. */
int fire_find_device(char *path, size_t bytes);

/*
 * Reads 4 KiB of a block device past the page cache, in a process of its own, as a
 * read that a device never answers cannot be ended. armed(pid, arg) is called before it reads.
 * Returns 0 or -errno: -ETIME: no answer in timeout_ms; the process stays until there is one.
 */
int fire_read(const char *path, int timeout_ms, void (*armed)(pid_t pid, void *arg), void *arg);

#endif
