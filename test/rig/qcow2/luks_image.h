/*
 * An encrypted qcow2 image for QEMU: qemu-img makes it without encryption, and a LUKS header of the
 * test's is put into it. qemu-img cannot be relied on to make that as well: it measures the CPU
 * time of 2^15 rounds of hashing first, and fails when that is less than the kernel counts ("Unable
 * to get accurate CPU usage"). Clusters have 64 KiB, and one L2 table maps the disk.
 */
#ifndef TEST_RIG_QCOW2_LUKS_IMAGE_H
#define TEST_RIG_QCOW2_LUKS_IMAGE_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "test/rig/qcow2/luks_header.h"

#define LUKS_IMAGE_CLUSTER 65536u
/* Where no cluster of a disk of 4 MiB comes to lie. */
#define LUKS_IMAGE_HEADER_AT (64u << 20)

struct luks_image {
	char path[128];
	int fd;
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

static inline void luks_image_put(const struct luks_image *im, off_t at, const void *data,
				  size_t bytes)
{
	ASSERT(pwrite(im->fd, data, bytes, at) == (ssize_t)bytes);
}

static inline uint64_t luks_image_number(const struct luks_image *im, uint64_t at, unsigned bytes)
{
	uint8_t buf[8];
	uint64_t n = 0;

	ASSERT(pread(im->fd, buf, bytes, (off_t)at) == (ssize_t)bytes);
	for (unsigned i = 0; i < bytes; i++)
		n = n << 8 | buf[i];
	return n;
}

/* The extension 0x0537be77 goes before the others: offset and length of the LUKS header. */
static inline void luks_image_encrypt(const struct luks_image *im, const struct luks_made *m)
{
	uint64_t header_bytes = luks_image_number(im, 100, 4);
	uint8_t extension[24] = { 0x05, 0x37, 0xbe, 0x77 }, method[4] = { 0, 0, 0, 2 };
	static uint8_t others[4096];

	ASSERT(pread(im->fd, others, sizeof(others), (off_t)header_bytes) == sizeof(others));
	be_put32(extension + 4, 16);
	be_put32(extension + 12, LUKS_IMAGE_HEADER_AT);
	be_put32(extension + 20, (uint32_t)m->header_bytes);
	luks_image_put(im, (off_t)header_bytes, extension, sizeof(extension));
	luks_image_put(im, (off_t)header_bytes + 24, others, sizeof(others));
	luks_image_put(im, 32, method, sizeof(method));
	luks_image_put(im, LUKS_IMAGE_HEADER_AT, m->header, m->header_bytes);
}

static inline void luks_image_make(struct luks_image *im, const char *folder,
				   const struct luks_made *m)
{
	snprintf(im->path, sizeof(im->path), "%s/luks.qcow2", folder);
	ASSERT(luks_image_run("qemu-img create -q -f qcow2 %s 4M", im->path));
	im->fd = open(im->path, O_RDWR);
	ASSERT(im->fd >= 0);
	luks_image_encrypt(im, m);
}

static inline void luks_image_drop(struct luks_image *im)
{
	close(im->fd);
	unlink(im->path);
}

/* Whether qemu-io does this: "write -P 1 0 64k". It fails when a read finds something else. */
static inline bool luks_image_io(const struct luks_image *im, const char *command)
{
	return luks_image_run("qemu-io --object secret,id=s,data=%s --image-opts "
			      "driver=qcow2,encrypt.format=luks,encrypt.key-secret=s,"
			      "file.filename=%s -c '%s' >/dev/null",
			      LUKS_PASSPHRASE, im->path, command);
}

/* Of an allocated cluster. */
static inline uint64_t luks_image_offset(const struct luks_image *im, uint64_t guest_offset)
{
	uint64_t mask = 0x00fffffffffffe00ull, l1 = luks_image_number(im, 40, 8);
	uint64_t l2 = luks_image_number(im, l1, 8) & mask;
	uint64_t entry = luks_image_number(im, l2 + guest_offset / LUKS_IMAGE_CLUSTER * 8, 8);

	ASSERT((entry & mask) != 0);
	return (entry & mask) + guest_offset % LUKS_IMAGE_CLUSTER;
}

#endif
