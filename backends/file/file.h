/*
 * What file.c (I/O), file_open.c (opening), file_lock.c (who else has it), file_limits.c (what is
 * below), file_zones.c (zoned block devices) and file_resize.c (while it serves) share.
 */
#ifndef BACKENDS_FILE_FILE_H
#define BACKENDS_FILE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "storage/backend.h"
#include "base/list.h"
#include "reactor/op.h"

/* The shared source of zeroes, and so the length of one write of them. */
#define FILE_ZEROES_BYTES (1u << 20)

enum file_direct { FILE_DIRECT_AUTO, FILE_DIRECT_ON, FILE_DIRECT_OFF };

enum file_lock_mode { FILE_LOCK_AUTO, FILE_LOCK_ON, FILE_LOCK_OFF };

struct file_config {
	char *path;
	uint64_t size_bytes; /* 0: that of the file */
	bool create;
	int direct; /* enum file_direct */
	int lock;   /* enum file_lock_mode */
};

struct file_device {
	int fd;
	int kept_fd; /* file_lock.c: another description, for the fd store; -1: none */
	bool is_block;
	bool is_zoned; /* a block device with zones, served as such: file_zones.c */
	bool direct;
	bool in_image;	    /* below an image format: what is beyond its end reads as zeroes */
	bool ends_anywhere; /* images, metadata: created without a size */
	/* From here on the file may end, and reads as zeroes; UINT64_MAX: it may not end. */
	uint64_t zeroes_from_bytes;
	uint64_t zoned_bytes; /* of the block device with zones, with a last one that is smaller */
	const void *zeroes;   /* FILE_ZEROES_BYTES, read-only, shared by all queues */
	struct stat stat;
	char identity[BACKEND_IDENTITY_BYTES];
	const char *name;	 /* of the device, for the next one that wants the same file */
	struct list_node opened; /* file_lock.c: all of this process */

	/* Learned from the first EOPNOTSUPP, by whichever queue gets it. */
	_Atomic bool no_discard, no_punch, no_zero_range;
};

/* file_open.c */
enum { FILE_OPTION_PATH, FILE_OPTION_SIZE };
extern const struct option file_options[];
int file_open(struct backend_device *device);
void file_close(struct backend_device *device);
void file_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES]);
extern const struct backend_version_ops file_version;

/* file_open.c: of the file or block device as it is now. Returns 0 or -errno with words. */
int file_found_size(struct backend_device *device, uint64_t *ret_bytes);

/*
 * file_lock.c: against other devices and other processes. Returns 0, also where the file system has
 * no locks (logged), or -EBUSY with words. The locks end with the process, but for those of an
 * image that is written, which the fd store keeps: kept_fd.
 */
int file_lock(struct backend_device *device);
void file_unlock(struct file_device *file);
/* The same: struct backend's stored_fd. */
int file_stored_fd(const struct backend_device *device);
/* The same: puts the file on the list of those that this process serves, and takes it off. */
void file_remember(struct file_device *file);
void file_forget(struct file_device *file);

/* file_resize.c */
extern const struct backend_resize file_resize;

/* file_open.c: struct backend's look. */
void file_look(const struct backend_queue *queue, struct backend_image_look *look);

/*
 * file.c, any thread: after an fsync that failed the page cache calls clean what is perhaps not on
 * the disk (mm/filemap.c, file_check_and_advance_wb_err); from here on what is there is read. Pages
 * that are dirty again stay.
 */
void file_drop_cached(const struct file_device *file);

/* file_limits.c: direct I/O as wished or possible. Returns 0 or -errno with words. */
int file_choose_direct(struct backend_device *device);

/* file_limits.c: fills device->limits but for the size. */
void file_find_limits(struct backend_device *device);

/*
 * file_limits.c: a value of the queue in sysfs of the block device dev, or of the disk of which it
 * is a partition. 0, NULL: there is none; the stream is the caller's to close.
 */
uint64_t file_queue_limit(dev_t dev, const char *name);
FILE *file_queue_limit_open(dev_t dev, const char *name);

/*
 * file_zones.c, at open: whether the block device has zones, and whether it is served as such.
 * Returns 0, or -errno with words: it has zones, and nothing over it that writes them in order.
 */
int file_check_zones(struct backend_device *device);
/* The same, after the other limits: those of zones, and a size of whole ones. */
void file_find_zones(struct backend_device *device);

/*
 * file_zones.c: the requests ZONE_MANAGE of a queue (storage/zones.h), one after the other, each
 * as an ioctl on a helper thread. The queue's reactor. NULL with -errno in *ret_err: no memory.
 */
struct file_zones *file_zones_create(struct backend_queue *queue, int *ret_err);
/* None of them is under way. Accepts NULL. */
void file_zones_free(struct file_zones *zones);
/* As struct backend's submit: DONE only when it cannot begin. */
enum backend_submit file_zones_submit(struct file_zones *zones, struct backend_io *io);

#endif
