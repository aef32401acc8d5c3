/*
 * Snapshots of images that qemu-img has made, and of some that somebody has broken on purpose.
 * Without qemu-img skipped.
 */
#include "qcow2_snapshot_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

/* In the header, and in an entry of the table: qcow2.rst. */
#define AT_SNAPSHOT_NR 60
#define AT_SNAPSHOTS 64
#define ENTRY_L1_OFFSET 0
#define ENTRY_L1_ENTRIES 8
#define ENTRY_ID_BYTES 12
#define ENTRY_EXTRA_BYTES 36

static bool image_case(const char *what, const char *options)
{
	int ret;

	if (!tap_begin("an image of qemu-img: %s", what))
		return false;
	if (!has_qemu_img) {
		tap_skip("no qemu-img");
		tap_end();
		return false;
	}
	ret = shell("rm -f %s; qemu-img create -q -f qcow2 %s %s 1M", path, options, path);
	EXPECT(ret == 0, "%s", options);
	return true;
}

static uint64_t table_at(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t at = 0;

	EXPECT(pread(fd, &at, 8, AT_SNAPSHOTS) == 8, "the header");
	close(fd);
	return be64toh(at);
}

static void put_be(uint64_t at, uint64_t value, unsigned bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	value = htobe64(value << (64 - 8 * bytes));
	EXPECT(pwrite(fd, &value, bytes, (off_t)at) == (ssize_t)bytes, "the image");
	close(fd);
}

static bool is_opened(const char *more)
{
	int ret = open_image(more, false);

	EXPECT(ret == 0, "%s", rig.error);
	return ret == 0;
}

static void expect_unopened(const char *more, const char *words)
{
	int ret = open_image(more, false);

	EXPECT(ret < 0 && strstr(rig.error, words), "%d, %s", ret, rig.error);
	if (ret == 0)
		rig_close(&rig);
}

/* ---- images ---- */

static void begin_stamps(void)
{
	write_nr = 1;
	memset(is, 0, sizeof(is));
}

static void counts_are_narrow(void)
{
	if (image_case("reference counts of 1 bit", "-o refcount_bits=1") && is_opened("")) {
		begin_stamps();
		write_about(20);
		expect_refusal(BACKEND_SNAPSHOT_CREATE, "a", -EOVERFLOW, "1 bit");
		end_case();
	}
	if (image_case("reference counts of 2 bits", "-o refcount_bits=2") && is_opened("")) {
		begin_stamps();
		write_about(20);
		flush_all();
		expect_change(BACKEND_SNAPSHOT_CREATE, "a", false);
		expect_change(BACKEND_SNAPSHOT_CREATE, "b", false);
		expect_refusal(BACKEND_SNAPSHOT_CREATE, "c", -EOVERFLOW, "2 bits");
		write_about(20);
		flush_all();
		expect_stamps(QCOW2_ORACLE_ACTIVE, is);
		expect_change(BACKEND_SNAPSHOT_DELETE, "a", false);
		end_case();
	}
}

/* Compressed clusters share clusters of the image. */
static void clusters_are_compressed(void)
{
	static uint64_t before[SECTORS_MAX];
	int ret;

	if (!image_case("compressed", ""))
		return;
	ret = shell("head -c 1048576 /dev/zero | tr '\\0' x >%s/raw && "
		    "qemu-img convert -c -O qcow2 -o cluster_size=4096 %s/raw %s",
		    folder, folder, path);
	EXPECT(ret == 0, "qemu-img convert");
	if (!is_opened(""))
		return;
	read_stamps(QCOW2_ORACLE_ACTIVE, before);
	expect_change(BACKEND_SNAPSHOT_CREATE, "packed", false);
	write_nr = 1;
	memcpy(is, before, sizeof(is));
	write_about(100);
	flush_all();
	expect_stamps(0, before);
	expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	expect_qemu_reads("packed", before);
	expect_change(BACKEND_SNAPSHOT_CREATE, "b", false);
	expect_change(BACKEND_SNAPSHOT_DELETE, "packed", false);
	expect_change(BACKEND_SNAPSHOT_APPLY, "b", false);
	flush_all();
	expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	end_case();
}

/* What QEMU keeps in an entry stays, and its snapshots are those of others. */
static void snapshots_are_of_qemu(void)
{
	char before[100], list[700];
	int ret;

	if (!image_case("with snapshots", "-o cluster_size=4096"))
		return;
	ret = shell("qemu-img snapshot -c first %s && qemu-img snapshot -c second %s", path, path);
	EXPECT(ret == 0, "qemu-img snapshot");
	if (!is_opened(""))
		return;
	begin_stamps();
	write_about(50);
	expect_change(BACKEND_SNAPSHOT_DELETE, "first", false);
	expect_change(BACKEND_SNAPSHOT_CREATE, "third", false);
	write_about(50);
	drain();
	rig_close(&rig);
	snprintf(list, sizeof(list), "qemu-img snapshot -l %s | awk 'NR > 2 { print $1, $2 }'",
		 path);
	FILE *pipe = popen(list, "r");
	size_t nr = fread(before, 1, sizeof(before) - 1, pipe);

	before[nr] = '\0';
	pclose(pipe);
	EXPECT(strcmp(before, "2 second\n3 third\n") == 0, "%s", before);
	ret = shell("qemu-img snapshot -d second %s && qemu-img snapshot -a third %s", path, path);
	EXPECT(ret == 0, "qemu-img snapshot");
	if (is_opened(""))
		end_case();
}

/* ---- broken ones ---- */

static void with_one_snapshot(void)
{
	int ret = shell("rm -f %s; qemu-img create -q -f qcow2 -o cluster_size=4096 %s 1M && "
			"qemu-img snapshot -c a %s && truncate -s 16M %s",
			path, path, path, path);

	EXPECT(ret == 0, "qemu-img");
}

static void tables_are_hostile(void)
{
	if (!image_case("hostile tables of snapshots", ""))
		return;
	with_one_snapshot();
	put_be(AT_SNAPSHOT_NR, 60000, 4);
	expect_unopened("", "snapshot");
	with_one_snapshot();
	put_be(table_at() + ENTRY_ID_BYTES, 60000, 2);
	expect_unopened("", "an internal snapshot has an ID of 60000 bytes");
	with_one_snapshot();
	put_be(table_at() + ENTRY_EXTRA_BYTES, UINT32_MAX, 4);
	expect_unopened("", "extra data");
	with_one_snapshot();
	put_be(table_at() + ENTRY_L1_OFFSET, 4097, 8);
	expect_unopened("", "border of a cluster");
	with_one_snapshot();
	put_be(table_at() + ENTRY_L1_OFFSET, 1ull << 40, 8);
	expect_unopened("snapshot: a", "outside of the image");
	with_one_snapshot();
	put_be(table_at() + ENTRY_L1_ENTRIES, UINT32_MAX, 4);
	expect_unopened("", "larger than can be");
	tap_end();
}

/* Nothing of them is given up, or the disk would lose its own tables. */
static void l1_tables_are_hostile(void)
{
	uint64_t l1 = 0;
	int fd;

	if (!image_case("hostile L1 tables of snapshots", ""))
		return;
	with_one_snapshot();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	EXPECT(pread(fd, &l1, 8, 40) == 8, "the header");
	close(fd);
	put_be(table_at() + ENTRY_L1_OFFSET, be64toh(l1), 8);
	if (is_opened("")) {
		expect_refusal(BACKEND_SNAPSHOT_DELETE, "a", -EINVAL, "another table");
		expect_refusal(BACKEND_SNAPSHOT_APPLY, "a", -EINVAL, "another table");
		rig_close(&rig);
	}
	with_one_snapshot();
	put_be(table_at() + ENTRY_L1_OFFSET, 1ull << 40, 8);
	if (is_opened("")) {
		expect_refusal(BACKEND_SNAPSHOT_DELETE, "a", -EINVAL, "outside");
		rig_close(&rig);
	}
	with_one_snapshot();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	EXPECT(pread(fd, &l1, 8, (off_t)table_at()) == 8, "the table");
	close(fd);
	put_be(be64toh(l1), 0x1001, 8);
	if (is_opened("")) {
		expect_refusal(BACKEND_SNAPSHOT_DELETE, "a", -EIO, "makes no sense");
		expect_refusal(BACKEND_SNAPSHOT_APPLY, "a", -EIO, "makes no sense");
		EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL) == 0, "it serves");
		rig_close(&rig);
	}
	tap_end();
}

void cases_of_other_images(void)
{
	counts_are_narrow();
	clusters_are_compressed();
	snapshots_are_of_qemu();
	tables_are_hostile();
	l1_tables_are_hostile();
}
