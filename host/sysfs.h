/* Small files of /sys and /proc. Any thread; nothing here waits for storage or for a network. */
#ifndef HOST_SYSFS_H
#define HOST_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The first line of a file, without its end. False: there is no such file, or it cannot be read. */
bool sysfs_line(char *line, size_t bytes, const char *path_fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Reads "98:3"; false: it is none. */
bool sysfs_parse_dev(const char *text, dev_t *ret_dev);

/* The number of a disk or a partition by its name ("ublkb0", "ublkb0p1"); false: there is none. */
bool sysfs_dev_of(const char *name, dev_t *ret_dev);

/*
 * What a path is, as far as the kernel has it at hand: neither a server of a network file system
 * nor an automounter is asked about the last part of the path. Each result is 0 where it does not
 * apply.
 */
struct sysfs_node {
	dev_t block;	   /* of a block device: its number */
	dev_t file_system; /* the device number of the file system that the path is on */
};

/* 0, or -errno: as stat(2). */
int sysfs_stat(const char *path, struct sysfs_node *ret_node);

#endif
