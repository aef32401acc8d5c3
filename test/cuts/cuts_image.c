/* See cuts_image.h. Files are in a folder of their own, for as long as one image is made. */
#include "test/cuts/cuts_image.h"

#include <endian.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_create.h"
#include "base/assert.h"
#include "base/big_endian.h"
#include "test/cuts/cuts_luks.h"

#define CONTENT_RUN 8u /* sectors */

bool image_can_convert(void)
{
	return system("qemu-img --version >/dev/null 2>&1") == 0;
}

uint32_t image_value(const struct image_shape *shape, uint64_t sector)
{
	if (shape->kind > IMAGE_NONE && sector / CONTENT_RUN % 2 == 0)
		return VALUE_IMAGE;
	if (shape->kind > IMAGE_NONE)
		return VALUE_ZERO;
	return sector * SECTOR_BYTES < shape->backing ? VALUE_BACKING : VALUE_ZERO;
}

static void put_empty(const struct image_shape *shape, struct disk *d)
{
	const struct qcow2_create c = {
		.size_bytes = shape->bytes,
		.cluster_bytes = 1ull << shape->cluster_bits,
		.refcount_bits = 1u << shape->refcount_order,
		.version = shape->version,
		.extended_l2 = shape->with_subclusters,
		.data_file_name = d->beside ? "data" : NULL,
	};
	static const uint8_t zeroes[SECTOR_BYTES];
	char words[QCOW2_WORDS_BYTES];
	uint64_t bytes;
	uint8_t *buf;

	ASSERT(qcow2_create_check(&c, &bytes, words) == 0 && bytes <= d->capacity);
	buf = malloc(bytes);
	qcow2_create_fill(&c, 0, buf, bytes);
	disk_put(d, 0, buf, bytes);
	if (shape->is_encrypted)
		cuts_luks_put(d, shape->cluster_bits);
	/* A data file is as long as the disk from the beginning on. */
	if (d->beside)
		disk_put(d->beside, d->beside->capacity - SECTOR_BYTES, zeroes, SECTOR_BYTES);
	free(buf);
}

/* ---- qemu-img ---- */

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	ASSERT(vsnprintf(command, sizeof(command), format, args) < (int)sizeof(command));
	va_end(args);
	return system(command) == 0;
}

static void write_content(const struct image_shape *shape, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint8_t bytes[SECTOR_BYTES];

	ASSERT(fd >= 0 && ftruncate(fd, (off_t)shape->bytes) == 0);
	for (uint64_t i = 0; i < shape->bytes / SECTOR_BYTES; i++) {
		if (image_value(shape, i) == VALUE_ZERO)
			continue;
		content_fill(bytes, image_value(shape, i), i);
		ASSERT(pwrite(fd, bytes, sizeof(bytes), (off_t)(i * SECTOR_BYTES)) ==
		       (ssize_t)sizeof(bytes));
	}
	close(fd);
}

static bool convert(const struct image_shape *shape, const char *folder)
{
	char options[200];

	snprintf(options, sizeof(options), "cluster_size=%u,compat=%s%s%s",
		 1u << shape->cluster_bits, shape->version == 2 ? "0.10" : "1.1",
		 shape->with_subclusters ? ",extended_l2=on" : "",
		 shape->is_zstd ? ",compression_type=zstd" : "");
	if (shape->version > 2)
		snprintf(options + strlen(options), sizeof(options) - strlen(options),
			 ",refcount_bits=%u", 1u << shape->refcount_order);
	return run("cd %s && qemu-img convert -q -f raw -O qcow2 %s -o %s raw qcow2", folder,
		   shape->kind == IMAGE_PACKED ? "-c" : "", options) &&
	       (shape->kind != IMAGE_SNAPSHOTS ||
		run("cd %s && qemu-img snapshot -c a qcow2 && qemu-img snapshot -c b qcow2",
		    folder));
}

static void put_file(const char *path, struct disk *d)
{
	int fd = open(path, O_RDONLY);
	uint8_t buf[SECTOR_BYTES];
	uint64_t at = 0;
	ssize_t nr;

	ASSERT(fd >= 0);
	while ((nr = read(fd, buf, sizeof(buf))) > 0) {
		disk_put(d, at, buf, (size_t)nr);
		at += (uint64_t)nr;
	}
	close(fd);
	/* Of a block device, the length of a file is whole blocks. */
	d->size = d->durable_size = round_up(d->size, SECTOR_BYTES);
}

/* As a program with lazy reference counts leaves it that has died. */
static void make_dirty(const struct image_shape *shape, struct disk *d)
{
	uint64_t table = be_get64(d->now + QCOW2_AT_REFTABLE_OFFSET),
		 bytes = 1ull << shape->cluster_bits;
	uint64_t features =
		htobe64(be_get64(d->now + QCOW2_AT_INCOMPATIBLE) | QCOW2_INCOMPAT_DIRTY);
	void *zeroes = calloc(1, bytes);

	disk_put(d, QCOW2_AT_INCOMPATIBLE, &features, sizeof(features));
	for (uint64_t at = table; at < table + bytes && be_get64(d->now + at); at += 8)
		disk_put(d, be_get64(d->now + at), zeroes, bytes);
	free(zeroes);
}

static bool put_converted(const struct image_shape *shape, struct disk *d)
{
	char folder[] = "/tmp/qcow2_cuts.XXXXXX", path[sizeof(folder) + 16];
	bool is_made;

	ASSERT(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/raw", folder);
	write_content(shape, path);
	is_made = convert(shape, folder);
	snprintf(path, sizeof(path), "%s/qcow2", folder);
	if (is_made)
		put_file(path, d);
	if (is_made && shape->is_dirty)
		make_dirty(shape, d);
	run("rm -rf %s", folder);
	return is_made;
}

bool image_check(const struct disk *d)
{
	char path[] = "/tmp/qcow2_cuts.XXXXXX", command[100];
	int fd = mkstemp(path), status;

	ASSERT(fd >= 0 && write(fd, d->now, d->size) == (ssize_t)d->size);
	close(fd);
	snprintf(command, sizeof(command), "qemu-img check -q -f qcow2 %s >/dev/null 2>&1", path);
	status = system(command);
	unlink(path);
	/* 3: leaks alone. */
	return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
}

bool image_put(const struct image_shape *shape, struct disk *d, struct model *m)
{
	static const uint8_t zeroes[CUTS_IO_BYTES];

	model_init(m, shape->bytes);
	for (uint64_t i = 0; i < m->sector_nr; i++)
		model_set(m, i, image_value(shape, i));
	if (shape->kind > IMAGE_NONE)
		return put_converted(shape, d);
	if (shape->kind == IMAGE_EMPTY)
		put_empty(shape, d);
	else
		disk_put(d, 0, zeroes, d->grows ? SECTOR_BYTES : sizeof(zeroes));
	return true;
}
