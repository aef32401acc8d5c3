/*
 * What mem promises about memory: reading costs none, discarding gives it back, having none is an
 * errno. Looks into the backend's private area for its memfd. One thread.
 */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/mem/mem.h"
#include "backends/mem/mem_available.h"
#include "base/errname.h"
#include "base/util.h"
#include "rig.h"
#include "tap.h"

#define SIZE_BYTES MIB(16)

static struct mem_device *mem_of(const struct rig *rig)
{
	return rig->device->priv;
}

static bool open_mem(struct rig *rig)
{
	struct rig_params params = {
		.ops = backend_find("mem"),
		.name = "disk",
		.yaml = "size: 16MiB",
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = 2,
	};
	int ret = rig_open(rig, &params);

	EXPECT(ret == 0, "%s", rig->error);
	return ret == 0;
}

static uint64_t allocated_bytes(const struct rig *rig)
{
	struct stat st;

	return fstat(mem_of(rig)->fd, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_blocks * 512;
}

static int fill(struct rig *rig, uint8_t byte)
{
	int ret = 0;

	for (uint64_t pos = 0; ret == 0 && pos < SIZE_BYTES; pos += MIB(1)) {
		memset(rig->queue[0].io[0].io.buf, byte, MIB(1));
		ret = rig_do(rig, BACKEND_WRITE, 0, pos, MIB(1), NULL);
	}
	return ret;
}

static void read_all(struct rig *rig)
{
	for (uint64_t pos = 0; pos < SIZE_BYTES; pos += MIB(1))
		EXPECT(rig_do(rig, BACKEND_READ, 0, pos, MIB(1), NULL) == 0, "read");
}

static void case_reading_is_free(void)
{
	struct rig rig;

	if (!open_mem(&rig))
		return;
	read_all(&rig);
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, 0, SIZE_BYTES, NULL) == 0, "zeroes");
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, SIZE_BYTES, NULL) == 0,
	       "zeroes that keep what is there");
	EXPECT(allocated_bytes(&rig) == 0, "%llu", (unsigned long long)allocated_bytes(&rig));
	rig_close(&rig);
}

static void case_memory_is_given_back(void)
{
	static const struct {
		enum backend_op op;
		unsigned flags;
		uint64_t left_bytes;
	} step[] = {
		{ BACKEND_DISCARD, 0, 0 },
		{ BACKEND_WRITE_ZEROES, 0, 0 },
		{ BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, SIZE_BYTES },
	};
	struct rig rig;

	if (!open_mem(&rig))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(step); i++) {
		EXPECT(fill(&rig, 1) == 0, "write");
		EXPECT(allocated_bytes(&rig) == SIZE_BYTES, "not allocated");
		EXPECT(rig_do(&rig, step[i].op, step[i].flags, 0, SIZE_BYTES, NULL) == 0, "%u", i);
		read_all(&rig); /* which must not take it again */
		EXPECT(allocated_bytes(&rig) == step[i].left_bytes, "step %u: %llu", i,
		       (unsigned long long)allocated_bytes(&rig));
	}
	/* Edges that are no whole pages stay, what is between them goes. */
	EXPECT(rig_do(&rig, BACKEND_DISCARD, 0, 512, KIB(128), NULL) == 0, "edges");
	EXPECT(allocated_bytes(&rig) == SIZE_BYTES - KIB(128) + KIB(4), "%llu",
	       (unsigned long long)allocated_bytes(&rig));
	rig_close(&rig);
}

/* Nothing is there to be given back; the parts of pages before and behind it are zeroed. */
static void case_zeroes_around_a_hole(void)
{
	struct rig rig;
	uint8_t *buf;

	if (!open_mem(&rig))
		return;
	buf = rig.queue[0].io[0].io.buf;
	memset(buf, 1, KIB(4));
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, KIB(4), NULL) == 0, "the page before it");
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, KIB(256), KIB(4), NULL) == 0, "the page behind it");
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, 512, KIB(256), NULL) == 0, "zeroes");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, 0, KIB(4), NULL) == 0, "read");
	EXPECT(buf[511] == 1 && buf[512] == 0 && buf[4095] == 0, "before it");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(256), KIB(4), NULL) == 0, "read");
	EXPECT(buf[0] == 0 && buf[511] == 0 && buf[512] == 1, "behind it");
	rig_close(&rig);
}

/* The system has no page left: said by fallocate, here of a file that has no such thing. */
static void case_out_of_memory(void)
{
	struct rig rig;
	int memfd, null;
	int ret;

	if (!open_mem(&rig))
		return;
	memset(rig.queue[0].io[0].io.buf, 7, 4096);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "write");
	memfd = dup(mem_of(&rig)->fd);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, mem_of(&rig)->fd);
	ret = rig_do(&rig, BACKEND_WRITE, 0, KIB(8), 4096, NULL);
	EXPECT(ret == -ENOSPC, "write: %s", errname(ret));
	/* Zeroes need no page, neither where one is nor where none is. */
	ret = rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, SIZE_BYTES, NULL);
	EXPECT(ret == 0, "NOUNMAP: %s", errname(ret));
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 512, 512, NULL) == 0, "a page that is there");
	dup2(memfd, mem_of(&rig)->fd);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, KIB(8), 4096, NULL) == 0, "lives on");
	close(memfd);
	close(null);
	rig_close(&rig);
}

/* A machine with no memory left, in a folder of the test's own. */
static bool make_poor(char root[static 32])
{
	char path[64];
	FILE *file;

	snprintf(root, 32, "/tmp/mem_cases.XXXXXX");
	if (!mkdtemp(root))
		return false;
	snprintf(path, sizeof(path), "%s/proc", root);
	if (mkdir(path, 0700) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	file = fopen(path, "w");
	if (!file)
		return false;
	fputs("MemTotal: 1048576 kB\nMemAvailable: 65536 kB\n", file);
	return fclose(file) == 0;
}

static void remove_poor(const char *root)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	unlink(path);
	snprintf(path, sizeof(path), "%s/proc", root);
	rmdir(path);
	rmdir(root);
}

/* Said before the kernel is asked, which would kill somebody. */
static void case_no_memory_left(void)
{
	struct rig rig;
	char root[32];
	int ret;

	if (!open_mem(&rig))
		return;
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "write");
	EXPECT(make_poor(root), "%s", root);
	memory_set_root(root);
	ret = rig_do(&rig, BACKEND_WRITE, 0, KIB(4), 4096, NULL);
	EXPECT(ret == -ENOSPC, "a new page: %s", errname(ret));
	ret = rig_do(&rig, BACKEND_WRITE, 0, 512, KIB(4), NULL);
	EXPECT(ret == -ENOSPC, "a new page behind one that is there: %s", errname(ret));
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "a page that is there");
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, SIZE_BYTES, NULL) == 0,
	       "zeroes");
	EXPECT(allocated_bytes(&rig) == KIB(4), "%llu", (unsigned long long)allocated_bytes(&rig));
	memory_set_root("");
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, KIB(4), 4096, NULL) == 0, "there is some again");
	remove_poor(root);
	rig_close(&rig);
}

/* The ring's file slot leads to something that cannot punch: nothing may be lost. */
static void case_punch_fails(void)
{
	struct rig rig;
	struct mem_queue *q;
	uint8_t *buf;
	int null, ret;

	if (!open_mem(&rig))
		return;
	q = rig.queue[0].queue->priv;
	buf = rig.queue[0].io[0].io.buf;
	EXPECT(fill(&rig, 9) == 0, "write");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	ring_file_set(&rig.queue[0].reactor.ring, (unsigned)q->file_slot, null);
	ret = rig_do(&rig, BACKEND_DISCARD, 0, KIB(4), KIB(512), NULL);
	EXPECT(ret < 0, "answered %d", ret);
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(64), 4096, NULL) == 0, "read");
	EXPECT(buf[0] == 9 && buf[4095] == 9, "data lost by a discard that failed");
	ring_file_set(&rig.queue[0].reactor.ring, (unsigned)q->file_slot, mem_of(&rig)->fd);
	EXPECT(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, KIB(4), KIB(512), NULL) == 0, "zeroes");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, KIB(64), 4096, NULL) == 0, "read");
	EXPECT(buf[0] == 0 && buf[4095] == 0, "not zeroed");
	close(null);
	rig_close(&rig);
}

static void case_no_huge_pages(void)
{
	struct rig_params params = {
		.ops = backend_find("mem"),
		.name = "disk",
		.yaml = "size: 1TiB\nhuge_pages: true",
		.block_bytes = 512,
	};
	unsigned fds = rig_count_fds();
	struct rig rig;
	int ret = rig_open(&rig, &params);

	EXPECT(ret == -ENOMEM || ret == -ENOSPC, "%d", ret);
	EXPECT(strstr(rig.error, "vm.nr_hugepages"), "%s", rig.error);
	EXPECT(rig_count_fds() == fds, "descriptors left open");
}

/* Opened again with the memory of a device that was closed, which fd is. */
static int reopen(struct rig *rig, int fd, const char *yaml)
{
	struct rig_params params = {
		.ops = backend_find("mem"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = 2,
		.stored_fds = { fd },
	};

	return rig_open(rig, &params);
}

/* The memory of a device with one page of 7 at 1 MiB, one of zeroes at 2 MiB, else holes; or -1. */
static int leave_memory(char identity[BACKEND_IDENTITY_BYTES])
{
	struct rig rig;
	int fd;

	if (!open_mem(&rig))
		return -1;
	memset(rig.queue[0].io[0].io.buf, 7, 4096);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(1), 4096, NULL) == 0, "write");
	memset(rig.queue[0].io[0].io.buf, 0, 4096);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(2), 4096, NULL) == 0, "zero");
	EXPECT(allocated_bytes(&rig) == 8192, "%llu", (unsigned long long)allocated_bytes(&rig));
	backend_identity(rig.device, identity);
	fd = dup(backend_stored_fd(rig.device, 0));
	rig_close(&rig);
	return fd;
}

static void case_taken_over(void)
{
	char before[BACKEND_IDENTITY_BYTES], after[BACKEND_IDENTITY_BYTES];
	int fd = leave_memory(before);
	struct rig rig;
	uint8_t *buf;

	REQUIRE(fd >= 0 && reopen(&rig, fd, "size: 16MiB") == 0, "%s", rig.error);
	close(fd);
	buf = rig.queue[0].io[0].io.buf;
	backend_identity(rig.device, after);
	EXPECT(strcmp(before, after) == 0, "%s, %s", before, after);
	read_all(&rig);
	EXPECT(allocated_bytes(&rig) == 8192, "reading filled holes: %llu",
	       (unsigned long long)allocated_bytes(&rig));
	EXPECT(rig_do(&rig, BACKEND_READ, 0, MIB(1), 8192, NULL) == 0, "read");
	EXPECT(buf[0] == 7 && buf[4095] == 7 && buf[4096] == 0 && buf[8191] == 0, "content");
	EXPECT(rig_do(&rig, BACKEND_DISCARD, 0, 0, SIZE_BYTES, NULL) == 0, "discard");
	EXPECT(allocated_bytes(&rig) == 0, "%llu", (unsigned long long)allocated_bytes(&rig));
	EXPECT(fill(&rig, 3) == 0, "write");
	rig_close(&rig);
}

/* As a daemon leaves it that is killed between the two steps of a write. */
static void case_asked_but_not_written(void)
{
	char identity[BACKEND_IDENTITY_BYTES];
	int fd = leave_memory(identity);
	struct rig rig;
	uint8_t *buf;

	EXPECT(fallocate(fd, FALLOC_FL_KEEP_SIZE, MIB(3), 8192) == 0, "fallocate");
	REQUIRE(reopen(&rig, fd, "size: 16MiB") == 0, "%s", rig.error);
	close(fd);
	buf = rig.queue[0].io[0].io.buf;
	memset(buf, 5, 512);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, MIB(3) + 512, 512, NULL) == 0, "write");
	EXPECT(rig_do(&rig, BACKEND_READ, 0, MIB(3), 8192, NULL) == 0, "read");
	EXPECT(buf[0] == 0 && buf[512] == 5 && buf[1023] == 5 && buf[1024] == 0 && buf[8191] == 0,
	       "content");
	rig_close(&rig);
}

static void expect_refused(int fd, const char *yaml, const char *word, const char *cure)
{
	unsigned fds = rig_count_fds();
	struct rig rig;
	int ret = reopen(&rig, fd, yaml);

	EXPECT(ret < 0, "%s", yaml);
	if (ret == 0) {
		rig_close(&rig);
		return;
	}
	EXPECT(strstr(rig.error, word) && strstr(rig.error, cure), "no \"%s\" or \"%s\" in: %s",
	       word, cure, rig.error);
	EXPECT(rig_count_fds() == fds, "descriptors left open");
}

static void case_not_taken_over(void)
{
	char identity[BACKEND_IDENTITY_BYTES];
	int fd = leave_memory(identity), huge = memfd_create("huge", MFD_HUGETLB);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct stat before, after;

	EXPECT(fstat(fd, &before) == 0, "fstat");
	expect_refused(fd, "size: 8MiB", "16MiB", "size: 16MiB");
	expect_refused(fd, "size: 32MiB", "32MiB", "size: 16MiB");
	expect_refused(fd, "size: 16MiB\nhuge_pages: true", "huge_pages: false", "remove");
	expect_refused(huge, "size: 16MiB", "huge_pages: true", "remove");
	expect_refused(null, "size: 16MiB", "no memory", "add it again");
	EXPECT(fstat(fd, &after) == 0 && after.st_blocks == before.st_blocks &&
		       after.st_size == before.st_size,
	       "the memory changed");
	close(fd);
	close(huge);
	close(null);
}

/* Two devices at a time, and one after the other: none is the other. */
static void case_identity_is_its_own(void)
{
	char a[BACKEND_IDENTITY_BYTES], b[BACKEND_IDENTITY_BYTES];
	struct rig one, two;
	int kept;

	if (!open_mem(&one))
		return;
	backend_identity(one.device, a);
	kept = dup(backend_stored_fd(one.device, 0));
	rig_close(&one);
	if (!open_mem(&two))
		return;
	backend_identity(two.device, b);
	EXPECT(strcmp(a, b) != 0, "%s, %s", a, b);
	rig_close(&two);
	close(kept);
}

static void run_case(const char *name, void (*run)(void))
{
	if (!tap_begin("mem: %s", name))
		return;
	run();
	tap_end();
}

void mem_cases_run(void)
{
	run_case("reading costs no memory", case_reading_is_free);
	run_case("memory is given back", case_memory_is_given_back);
	run_case("zeroes around a hole", case_zeroes_around_a_hole);
	run_case("out of memory is ENOSPC", case_out_of_memory);
	run_case("memory that is not left is not taken", case_no_memory_left);
	run_case("a hole punch that fails loses nothing", case_punch_fails);
	run_case("taken over, its content is there and its holes are holes", case_taken_over);
	run_case("taken over amid a write", case_asked_but_not_written);
	run_case("what is not its memory is not taken over", case_not_taken_over);
	run_case("each has its own identity", case_identity_is_its_own);
	run_case("no huge pages: words and the cure", case_no_huge_pages);
}
