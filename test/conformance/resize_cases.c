/*
 * Backends that change their size while a queue is open: what is new reads as zeroes, what was
 * thrown away too, what is used is known, what is not the device's stays. Through a filter, so that
 * the whole stack must follow. One thread.
 */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/mem/mem.h"
#include "base/errname.h"
#include "base/util.h"
#include "rig.h"
#include "tap.h"
#include "variants.h"
#include "storage/resize.h"

static const char *const filters[] = { "throttle: {total_iops_sec: 1000000}", NULL };
static char path[600], error[BACKEND_ERROR_BYTES];

/* block_bytes: so that sizes need not be whole pages. */
static bool open_rig(struct rig *rig, const char *type, const char *yaml)
{
	struct rig_params params = {
		.ops = backend_find(type),
		.name = "disk",
		.yaml = yaml,
		.filters = filters,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = 2,
	};
	int ret = rig_open(rig, &params);

	EXPECT(ret == 0, "%s", rig->error);
	return ret == 0;
}

static bool open_mem(struct rig *rig, const char *yaml)
{
	return open_rig(rig, "mem", yaml);
}

static bool open_file(struct rig *rig, const char *more)
{
	char yaml[800];

	snprintf(yaml, sizeof(yaml), "path: %s\ncreate: true\n%s", path, more);
	return open_rig(rig, "file", yaml);
}

static uint64_t file_size(void)
{
	struct stat st;

	return stat(path, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
}

static int grow(struct rig *rig, uint64_t bytes)
{
	int ret = backend_grow(rig->device, bytes, error, sizeof(error));

	if (ret == 0)
		backend_set_size(rig->device, bytes);
	return ret;
}

static void shrink(struct rig *rig, uint64_t bytes)
{
	uint64_t old_bytes = backend_size(rig->device);

	backend_set_size(rig->device, bytes);
	backend_shrink(rig->device, bytes, old_bytes);
}

static int put(struct rig *rig, uint64_t offset_bytes, uint32_t length_bytes, uint8_t byte)
{
	memset(rig->queue[0].io[0].io.buf, byte, length_bytes);
	return rig_do(rig, BACKEND_WRITE, 0, offset_bytes, length_bytes, NULL);
}

static bool holds(struct rig *rig, uint64_t offset_bytes, uint32_t length_bytes, uint8_t byte)
{
	const uint8_t *buf = rig->queue[0].io[0].io.buf;

	memset(rig->queue[0].io[0].io.buf, 0xa5, length_bytes);
	return rig_do(rig, BACKEND_READ, 0, offset_bytes, length_bytes, NULL) == 0 &&
	       buf[0] == byte && memcmp(buf, buf + 1, length_bytes - 1) == 0;
}

/* Larger, smaller, larger again, at ends inside of pages. */
static void up_and_down(struct rig *rig)
{
	uint64_t first = backend_size(rig->device);

	EXPECT(put(rig, first - 512, 512, 1) == 0, "write");
	EXPECT(rig_do(rig, BACKEND_READ, 0, first, 512, NULL) == -EIO, "beyond the end");
	EXPECT(grow(rig, first + KIB(64) + 512) == 0, "%s", error);
	EXPECT(backend_size(rig->device->child) == first + KIB(64) + 512, "the child has not");
	EXPECT(holds(rig, first - 512, 512, 1), "old bytes");
	EXPECT(holds(rig, first, KIB(64) + 512, 0), "new bytes are not zeroes");
	EXPECT(put(rig, first, KIB(64) + 512, 2) == 0, "write");
	EXPECT(holds(rig, first, KIB(64) + 512, 2), "new bytes");
	shrink(rig, first + 512);
	EXPECT(rig_do(rig, BACKEND_READ, 0, first + 512, 512, NULL) == -EIO, "beyond the end");
	EXPECT(rig_do(rig, BACKEND_WRITE, 0, first, 1024, NULL) == -EIO, "across the end");
	EXPECT(holds(rig, first, 512, 2), "the last block");
	EXPECT(grow(rig, first + KIB(64) + 512) == 0, "%s", error);
	EXPECT(holds(rig, first, 512, 2), "the last block");
	EXPECT(holds(rig, first + 512, KIB(64), 0), "thrown away, but still there");
}

static void usage_is_known(struct rig *rig)
{
	uint64_t size = backend_size(rig->device), half = size / 2;

	EXPECT(backend_usage(rig->device, half, size) == BACKEND_UNUSED, "empty");
	EXPECT(put(rig, 0, 4096, 1) == 0, "write");
	EXPECT(backend_usage(rig->device, half, size) == BACKEND_UNUSED, "used before");
	EXPECT(put(rig, size - 4096, 4096, 1) == 0, "write");
	EXPECT(backend_usage(rig->device, half, size) == BACKEND_USED, "used");
	EXPECT(rig_do(rig, BACKEND_DISCARD, 0, size - KIB(128), KIB(128), NULL) == 0, "discard");
	EXPECT(backend_usage(rig->device, half, size) == BACKEND_UNUSED, "discarded");
}

static void case_mem(void)
{
	struct rig rig;

	if (!open_mem(&rig, "size: 1049088")) /* 1 MiB and a block */
		return;
	up_and_down(&rig);
	rig_close(&rig);
}

static void case_mem_usage(void)
{
	struct rig rig;

	if (!open_mem(&rig, "size: 16MiB"))
		return;
	usage_is_known(&rig);
	rig_close(&rig);
}

/* What is thrown away is memory of the machine again. */
static void case_mem_gives_back(void)
{
	const struct mem_device *mem;
	struct rig rig;
	struct stat st;

	if (!open_mem(&rig, "size: 2MiB"))
		return;
	mem = rig.device->child->priv;
	EXPECT(put(&rig, MIB(1), MIB(1), 1) == 0, "write");
	EXPECT(fstat(mem->fd, &st) == 0 && st.st_blocks * 512 == MIB(1), "allocated");
	shrink(&rig, MIB(1));
	EXPECT(fstat(mem->fd, &st) == 0 && st.st_blocks == 0, "%lld blocks are left",
	       (long long)st.st_blocks);
	rig_close(&rig);
}

static void case_mem_limit(void)
{
	uint64_t bytes;
	struct rig rig;

	if (!open_mem(&rig, "size: 2MiB"))
		return;
	EXPECT(grow(&rig, GIB(65)) == -ENOSPC, "grown beyond what is reserved");
	EXPECT(strstr(error, "64GiB") && strstr(error, "stop the device"), "%s", error);
	EXPECT(backend_size(&rig.device[0]) == MIB(2), "size");
	EXPECT(grow(&rig, GIB(64)) == 0, "%s", error);
	EXPECT(put(&rig, GIB(64) - 4096, 4096, 7) == 0, "write");
	EXPECT(holds(&rig, GIB(64) - 4096, 4096, 7), "read");
	EXPECT(backend_size_now(rig.device, &bytes, error, sizeof(error)) == -EOPNOTSUPP, "own");
	EXPECT(strstr(error, "give a size"), "%s", error);
	rig_close(&rig);
}

static void case_file(void)
{
	struct rig rig;

	if (!open_file(&rig, "size: 1049088"))
		return;
	up_and_down(&rig);
	shrink(&rig, KIB(512));
	EXPECT(file_size() == KIB(512), "%llu", (unsigned long long)file_size());
	rig_close(&rig);
}

static void case_file_usage(void)
{
	struct rig rig;

	if (!open_file(&rig, "size: 16MiB"))
		return;
	usage_is_known(&rig);
	rig_close(&rig);
}

/* What stands behind the device in its file is not its own. */
static void case_file_is_longer(void)
{
	char tail[512], seen[512];
	struct rig rig;
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	memset(tail, 9, sizeof(tail));
	EXPECT(pwrite(fd, tail, sizeof(tail), MIB(3)) == sizeof(tail), "pwrite");
	if (open_file(&rig, "size: 2MiB")) {
		EXPECT(put(&rig, MIB(1), MIB(1), 1) == 0, "write");
		shrink(&rig, MIB(1));
		EXPECT(file_size() == MIB(3) + 512, "the file was cut");
		EXPECT(grow(&rig, MIB(2)) == 0, "%s", error);
		EXPECT(holds(&rig, MIB(1), MIB(1), 0), "thrown away, but still there");
		rig_close(&rig);
	}
	EXPECT(pread(fd, seen, sizeof(seen), MIB(3)) == sizeof(seen) &&
		       memcmp(seen, tail, sizeof(tail)) == 0,
	       "what is behind the device has changed");
	close(fd);
}

static void case_file_has_grown(void)
{
	uint64_t bytes = 0;
	struct rig rig;

	if (!open_file(&rig, "size: 1MiB"))
		return;
	EXPECT(truncate(path, MIB(2) + 100) == 0, "truncate");
	EXPECT(backend_size_now(rig.device, &bytes, error, sizeof(error)) == 0 && bytes == MIB(2),
	       "%llu", (unsigned long long)bytes);
	EXPECT(grow(&rig, MIB(2)) == 0, "%s", error);
	EXPECT(file_size() == MIB(2) + 100, "the file was changed");
	EXPECT(put(&rig, MIB(1), MIB(1), 3) == 0 && holds(&rig, MIB(1), MIB(1), 3), "new bytes");
	EXPECT(grow(&rig, 1ull << 62) < 0, "no file is so long");
	EXPECT(strstr(error, path) && backend_size(rig.device) == MIB(2), "%s", error);
	rig_close(&rig);
}

static void case_cannot(void)
{
	struct rig rig;
	uint64_t bytes;

	if (!open_rig(&rig, "pattern", "size: 1MiB"))
		return;
	EXPECT(!backend_can_resize(rig.device), "can");
	EXPECT(grow(&rig, MIB(2)) == -EOPNOTSUPP && strstr(error, "pattern"), "%s", error);
	EXPECT(backend_size_now(rig.device, &bytes, error, sizeof(error)) == -EOPNOTSUPP, "own");
	rig_close(&rig);
}

static void run_case(const char *name, void (*run)(void))
{
	if (!tap_begin("resize: %s", name))
		return;
	snprintf(path, sizeof(path), "%s/resize.img", variant_dir);
	unlink(path);
	error[0] = '\0';
	run();
	unlink(path);
	tap_end();
}

void resize_cases_run(void)
{
	run_case("mem up and down", case_mem);
	run_case("mem knows what is used", case_mem_usage);
	run_case("mem gives memory back", case_mem_gives_back);
	run_case("mem and its address space", case_mem_limit);
	run_case("file up and down", case_file);
	run_case("file knows what is used", case_file_usage);
	run_case("a file that is longer than the device", case_file_is_longer);
	run_case("a file that has grown", case_file_has_grown);
	run_case("a backend that cannot", case_cannot);
}
