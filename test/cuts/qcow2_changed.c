/*
 * An image in a file whose process dies, and which another program changes before the next process
 * has it: what is found, what is not to be found, and that the file is locked meanwhile. Prints
 * TAP. One thread, a folder of its own.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_header.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"

#define CLUSTER 65536ull
#define IO_BYTES 4096u
#define IMAGE_BYTES_MAX MIB(4)
/* What was written, flushed and not. */
#define FLUSHED_AT MIB(1)
#define WRITTEN_AT MIB(3)

static char folder[] = "/tmp/ublkd-changed.XXXXXX";
static char path[64];
static struct rig rig;
static int left[RIG_STORED_MAX]; /* what the fd store would have */

/* ---- a process ---- */

static int open_next(void)
{
	static char yaml[256];

	snprintf(yaml, sizeof(yaml),
		 "type: qcow2\ncreate: true\nsize: 8MiB\ndata: {type: file, path: %s, create: "
		 "true}\n",
		 path);
	return rig_open_disk(&rig, "qcow2", yaml, left);
}

static void write_at(uint64_t at, int byte)
{
	void *buf = rig.queue[0].io[0].io.buf;

	memset(buf, byte, IO_BYTES);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, at, IO_BYTES, NULL) == 0, "write");
}

static void expect_at(uint64_t at, int byte)
{
	uint8_t *buf = rig.queue[0].io[0].io.buf;

	memset(buf, 0, IO_BYTES);
	EXPECT(rig_do(&rig, BACKEND_READ, 0, at, IO_BYTES, NULL) == 0, "read");
	EXPECT(buf[0] == byte && buf[IO_BYTES - 1] == byte, "it reads %d at %llu", buf[0],
	       (unsigned long long)at);
}

/* Killed; or in an upgrade, where the next one is told. */
static void die(bool is_handed)
{
	rig_stored_dup(&rig, left);
	if (is_handed)
		rig.device->ops->abandon(rig.device);
	rig_crash(&rig);
}

static void live_and_die(bool is_handed)
{
	REQUIRE(open_next() == 0, "%s", rig.error);
	write_at(FLUSHED_AT, 0x42);
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "flush");
	write_at(WRITTEN_AT, 0x43);
	die(is_handed);
}

static void let_go(void)
{
	rig_stored_close(left);
	memset(left, 0, sizeof(left));
}

static void expect_taken_over(void)
{
	REQUIRE(open_next() == 0, "%s", rig.error);
	expect_at(FLUSHED_AT, 0x42);
	expect_at(WRITTEN_AT, 0x43);
	rig_close(&rig);
	let_go();
}

static void expect_refused(const char *words)
{
	int ret = open_next();

	if (ret == 0)
		rig_close(&rig);
	EXPECT(ret == -EINVAL, "%s", errname(ret));
	EXPECT(strstr(rig.error, words), "no \"%s\" in: %s", words, rig.error);
}

/* ---- another program ---- */

static uint8_t image[IMAGE_BYTES_MAX];
static size_t image_bytes;
static struct qcow2_header header;

static void load(void)
{
	char words[QCOW2_WORDS_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = read(fd, image, sizeof(image));

	close(fd);
	REQUIRE(bytes > 0, "%s", errname(-errno));
	image_bytes = (size_t)bytes;
	REQUIRE(qcow2_header_parse(&header, image, MIN(image_bytes, 65536u), image_bytes, words) ==
			0,
		"%s", words);
}

static void store(void)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	REQUIRE(write(fd, image, image_bytes) == (ssize_t)image_bytes, "%s", errname(-errno));
	close(fd);
}

static uint64_t *words_at(uint64_t offset)
{
	return (uint64_t *)(image + offset);
}

static uint64_t first_of(uint64_t table)
{
	return be64toh(*words_at(table)) & QCOW2_OFFSET_MASK;
}

static void take_mark(void)
{
	memset(image + QCOW2_AT_AUTOCLEAR, 0, 8);
}

static void change_name(void)
{
	image[600] ^= 1;
}

/* A cluster far away is taken: for a block of data, for a table. */
static void take_cluster(void)
{
	image[first_of(header.reftable_offset) + 2ull * 200 + 1] = 1;
}

static void enter_cluster(void)
{
	words_at(first_of(header.l1_offset))[100] = htobe64((200 * CLUSTER) | QCOW2_COPIED);
}

static void enter_table(void)
{
	*words_at(header.l1_offset) ^= htobe64(QCOW2_COPIED);
}

static void enter_block(void)
{
	words_at(header.reftable_offset)[1] = htobe64(201 * CLUSTER);
}

static void cut_short(void)
{
	image_bytes = CLUSTER;
}

static const struct {
	const char *name;
	void (*change)(void);
} changes[] = {
	{ "opened to be written", take_mark },	  { "another header", change_name },
	{ "a cluster is counted", take_cluster }, { "a cluster is entered", enter_cluster },
	{ "another L2 table", enter_table },	  { "another block of counts", enter_block },
	{ "the file is shorter", cut_short },
};

static void run_change(void (*change)(void))
{
	static uint8_t before[IMAGE_BYTES_MAX];
	size_t before_bytes;

	live_and_die(false);
	load();
	memcpy(before, image, image_bytes);
	before_bytes = image_bytes;
	change();
	store();
	expect_refused("another program has changed the image");
	expect_refused("ublkctl del --force");
	/* It is put back: nothing of what was kept is lost. */
	memcpy(image, before, before_bytes);
	image_bytes = before_bytes;
	store();
	expect_taken_over();
}

/* ---- cases ---- */

static bool is_marked(void)
{
	load();
	return header.autoclear & QCOW2_AUTOCLEAR_MARK;
}

static void case_nobody(void)
{
	uint64_t mark;

	live_and_die(false);
	EXPECT(is_marked(), "no mark");
	mark = header.autoclear;
	/* It dies again, and then the one after it, which has done nothing. */
	REQUIRE(open_next() == 0, "%s", rig.error);
	expect_at(WRITTEN_AT, 0x43);
	let_go();
	die(false);
	REQUIRE(open_next() == 0, "%s", rig.error);
	EXPECT(is_marked() && header.autoclear == mark, "another mark");
	let_go();
	die(false);
	expect_taken_over();
	EXPECT(is_marked() && header.autoclear == mark, "closed, another mark");
	REQUIRE(open_next() == 0, "%s", rig.error);
	EXPECT(is_marked() && header.autoclear != mark, "the same mark");
	rig_close(&rig);
	EXPECT(is_marked() && header.autoclear == mark, "nothing was written, and another mark");
}

/* Its memory is lost: it is as after a power cut. */
static void case_memory_is_lost(void)
{
	uint64_t mark;

	live_and_die(false);
	let_go();
	load();
	mark = header.autoclear;
	take_cluster();
	store();
	REQUIRE(open_next() == 0, "%s", rig.error);
	/* A memory of before must not fit any more. */
	EXPECT(is_marked() && header.autoclear != mark, "the same mark");
	expect_at(FLUSHED_AT, 0x42);
	rig_close(&rig);
}

/* In an upgrade the header alone is looked at: the next process is there at once. */
static void case_handed_over(void)
{
	live_and_die(true);
	load();
	take_cluster();
	store();
	expect_taken_over();
	live_and_die(true);
	load();
	take_mark();
	store();
	expect_refused("another program has changed the image");
	let_go();
}

static bool is_locked(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 201, .l_len = 1 };
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int ret = fcntl(fd, F_OFD_GETLK, &lock);

	close(fd);
	return ret == 0 && lock.l_type != F_UNLCK;
}

static void case_locked(void)
{
	live_and_die(false);
	EXPECT(is_locked(), "it is not locked while it waits");
	load();
	take_mark();
	store();
	expect_refused("another program has changed the image");
	EXPECT(is_locked(), "it is not locked when it was refused");
	let_go();
	EXPECT(!is_locked(), "it is locked when it was given up");
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} cases[] = {
		{ "changed: by nobody", case_nobody },
		{ "changed: the memory is lost", case_memory_is_lost },
		{ "changed: handed over", case_handed_over },
		{ "changed: locked meanwhile", case_locked },
	};

	log_init(LOG_LEVEL_ERROR);
	tap_init("qcow2_changed", NULL, 0);
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/image", folder);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		tap_begin("%s", cases[i].name);
		cases[i].fn();
		tap_end();
		unlink(path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		tap_begin("changed: %s", changes[i].name);
		run_change(changes[i].change);
		tap_end();
		unlink(path);
	}
	rmdir(folder);
	return tap_finish();
}
