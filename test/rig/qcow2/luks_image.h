/*
 * An encrypted qcow2 image that qemu-img makes, and what of it a test needs: its LUKS header and
 * where a cluster lies. Clusters have 64 KiB, and the image is smaller than what one L2 table maps.
 */
#ifndef TEST_RIG_QCOW2_LUKS_IMAGE_H
#define TEST_RIG_QCOW2_LUKS_IMAGE_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"

#define LUKS_IMAGE_PASSPHRASE "geheim"
#define LUKS_IMAGE_CLUSTER 65536u

struct luks_image {
	char path[128];
	int fd;
	uint8_t *header; /* of LUKS, with the key slots */
	size_t header_bytes;
};

static inline bool luks_image_can(void)
{
	return system("qemu-img --version >/dev/null 2>&1 && qemu-io --version >/dev/null 2>&1") ==
	       0;
}

__attribute__((format(printf, 1, 2))) static inline bool luks_image_run(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	ASSERT(vsnprintf(command, sizeof(command), format, args) < (int)sizeof(command));
	va_end(args);
	return system(command) == 0;
}

static inline uint64_t luks_image_number(const struct luks_image *im, off_t at, unsigned bytes)
{
	uint8_t buf[8];
	uint64_t n = 0;

	ASSERT(pread(im->fd, buf, bytes, at) == (ssize_t)bytes);
	for (unsigned i = 0; i < bytes; i++)
		n = n << 8 | buf[i];
	return n;
}

/* The extension 0x0537be77 has the offset and the length of the header. */
static inline void luks_image_load(struct luks_image *im)
{
	off_t at = (off_t)luks_image_number(im, 100, 4);

	while (luks_image_number(im, at, 4) != 0x0537be77) {
		ASSERT(luks_image_number(im, at, 4) != 0);
		at += 8 + (off_t)round_up(luks_image_number(im, at + 4, 4), 8);
	}
	im->header_bytes = luks_image_number(im, at + 16, 8);
	im->header = malloc(im->header_bytes);
	ASSERT(im->header);
	ASSERT(pread(im->fd, im->header, im->header_bytes,
		     (off_t)luks_image_number(im, at + 8, 8)) == (ssize_t)im->header_bytes);
}

/* options: ",encrypt.cipher-alg=aes-128" and the like. */
static inline void luks_image_make(struct luks_image *im, const char *folder, const char *name,
				   const char *options)
{
	snprintf(im->path, sizeof(im->path), "%s/%s.qcow2", folder, name);
	unlink(im->path);
	ASSERT(luks_image_run("qemu-img create -q -f qcow2 --object secret,id=s,data=%s -o "
			      "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10%s "
			      "%s 4M",
			      LUKS_IMAGE_PASSPHRASE, options, im->path));
	im->fd = open(im->path, O_RDWR);
	ASSERT(im->fd >= 0);
	luks_image_load(im);
}

static inline void luks_image_drop(struct luks_image *im)
{
	close(im->fd);
	unlink(im->path);
	free(im->header);
}

/* Whether qemu-io does this: "write -P 1 0 64k". It fails when a read finds something else. */
static inline bool luks_image_io(const struct luks_image *im, const char *command)
{
	return luks_image_run("qemu-io --object secret,id=s,data=%s --image-opts "
			      "driver=qcow2,encrypt.format=luks,encrypt.key-secret=s,"
			      "file.filename=%s -c '%s' >/dev/null",
			      LUKS_IMAGE_PASSPHRASE, im->path, command);
}

/* Of an allocated cluster. */
static inline uint64_t luks_image_offset(const struct luks_image *im, uint64_t guest_offset)
{
	uint64_t mask = 0x00fffffffffffe00ull, l1 = luks_image_number(im, 40, 8);
	uint64_t l2 = luks_image_number(im, (off_t)l1, 8) & mask;
	uint64_t entry =
		luks_image_number(im, (off_t)(l2 + guest_offset / LUKS_IMAGE_CLUSTER * 8), 8);

	ASSERT((entry & mask) != 0);
	return (entry & mask) + guest_offset % LUKS_IMAGE_CLUSTER;
}

#endif
