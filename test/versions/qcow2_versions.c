/*
 * Which version an image in a file says it has (storage/version.h), from one opening to the next:
 * by our own writes, those of other programs, after a kill. Prints TAP. One thread, a folder of its
 * own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_header.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/registry.h"
#include "storage/snapshot.h"
#include "storage/version.h"
#include "test/conformance/rig.h"
#include "test/conformance/tap.h"

#define IO_BYTES 4096u

static char folder[] = "/tmp/ublkd-versions.XXXXXX";
static char path[64], base_path[64];
static bool has_base;
static struct rig rig;
static struct reactor home;
static int left[RIG_STORED_MAX];

static bool open_next(bool read_only, struct backend_version *ret)
{
	static char yaml[512], base[128];
	struct rig_params params = {
		.ops = backend_find("qcow2"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = 512,
		.read_only = read_only,
		.queue_nr = 1,
		.depth = 4,
	};

	snprintf(base, sizeof(base), "backing: {type: file, path: %s}\n", base_path);
	snprintf(yaml, sizeof(yaml),
		 "type: qcow2\ncreate: true\nsize: 8MiB\n%sdata: {type: file, path: %s, "
		 "create: true}\n",
		 has_base ? base : "", path);
	memcpy(params.stored_fds, left, sizeof(left));
	if (rig_open(&rig, &params) < 0) {
		EXPECT(false, "%s", rig.error);
		return false;
	}
	backend_version(rig.device, ret);
	return true;
}

static void write_block(int byte)
{
	memset(rig.queue[0].io[0].io.buf, byte, IO_BYTES);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, IO_BYTES, NULL) == 0, "write");
}

/* What is to be found next. */
static void close_saying(const char *words)
{
	char now[BACKEND_VERSION_BYTES] = "";

	EXPECT(backend_version_now(rig.device, now) == 0, "it does not say which it is now");
	EXPECT(strcmp(now, words) == 0, "it says \"%s\", not \"%s\"", now, words);
	rig_close(&rig);
}

/* An opening that writes, or not; what it found. */
static struct backend_version pass(bool writes)
{
	struct backend_version v = { .kind = BACKEND_VERSION_NONE };
	bool is_first;

	if (!open_next(false, &v))
		return v;
	EXPECT(v.kind == BACKEND_VERSION_LASTING && v.ours[0] && v.is_known_now, "kind %d", v.kind);
	EXPECT(!v.lasting[0], "as if it could not be written");
	is_first = strstr(v.found, "without a mark") != NULL;
	if (writes)
		write_block(0x42);
	close_saying(writes || is_first ? v.ours : v.found);
	return v;
}

static bool has_moved(const struct backend_version *noted, const struct backend_version *is)
{
	struct backend_version_note note;

	memcpy(note.found, noted->found, sizeof(note.found));
	memcpy(note.ours, noted->ours, sizeof(note.ours));
	return backend_version_has_moved(&note, is);
}

static void put_header(const void *bytes, size_t nr, off_t at)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	EXPECT(pwrite(fd, bytes, nr, at) == (ssize_t)nr, "pwrite");
	close(fd);
}

/* As by the format each program does that opens an image to write. */
static void another_opens(void)
{
	put_header((const uint8_t[8]){ 0 }, 8, QCOW2_AT_AUTOCLEAR);
}

/* ---- cases ---- */

static void case_ours(void)
{
	struct backend_version made = pass(false), one = pass(false), two = pass(true),
			       three = pass(false), four = pass(true);

	EXPECT(!has_moved(&made, &one), "found at first: \"%s\"", one.found);
	EXPECT(strcmp(one.found, two.found) == 0 && strcmp(one.ours, two.ours) != 0,
	       "nothing was written: \"%s\"", two.found);
	EXPECT(strcmp(three.found, two.ours) == 0, "written: \"%s\"", three.found);
	EXPECT(strcmp(four.found, three.found) == 0, "read: \"%s\"", four.found);
	EXPECT(has_moved(&one, &three), "another opening has written");
	EXPECT(has_moved(&two, &made), "it was made anew");
}

static void case_others(void)
{
	struct backend_version noted = pass(true), is;

	for (unsigned i = 0; i < 3; i++) {
		another_opens();
		is = pass(i & 1);
		EXPECT(has_moved(&noted, &is), "another program has written: \"%s\"", is.found);
		noted = is;
	}
	is = pass(false);
	EXPECT(!has_moved(&noted, &is), "no other program has: \"%s\"", is.found);
}

/* Its memory is there, or lost: what it has written is its own. */
static void case_killed(void)
{
	struct backend_version noted, is;

	pass(true);
	for (unsigned i = 0; i < 2; i++) {
		if (!open_next(false, &noted))
			return;
		write_block(0x43);
		rig_stored_dup(&rig, left);
		rig_crash(&rig);
		if (i == 1) {
			rig_stored_close(left);
			memset(left, 0, sizeof(left));
		}
		if (!open_next(false, &is))
			return;
		EXPECT(!has_moved(&noted, &is), "\"%s\"", is.found);
		EXPECT(strcmp(is.found, noted.ours) == 0, "\"%s\"", is.found);
		close_saying(i == 1 ? is.found : is.ours);
		rig_stored_close(left);
		memset(left, 0, sizeof(left));
	}
}

static int change_ret; /* 1: it is under way */

static void on_changed(struct backend_snapshot_change *change, int ret)
{
	(void)change;
	change_ret = ret;
}

static void make_change(enum backend_snapshot_op op, const char *name)
{
	struct backend_snapshot_change change = {
		.op = op, .name = name, .reactor = &home, .done = on_changed
	};

	change_ret = 1;
	EXPECT(rig.device->ops->snapshots->begin(rig.device, &change) == 0, "%s", change.words);
	while (change_ret > 0) {
		rig_turn(&rig);
		reactor_turn(&home, false);
	}
	EXPECT(change_ret == 0, "%s", change.words);
}

/* Other bytes come without a request. */
static void case_snapshot(void)
{
	struct backend_version noted, is;

	pass(true);
	if (!open_next(false, &noted))
		return;
	make_change(BACKEND_SNAPSHOT_CREATE, "one");
	write_block(0x45);
	rig_close(&rig);
	for (unsigned i = 0; i < 2; i++) {
		if (!open_next(false, &is))
			return;
		EXPECT(has_moved(&noted, &is) == (i > 0), "%u: \"%s\"", i, is.found);
		make_change(BACKEND_SNAPSHOT_APPLY, "one");
		close_saying(is.ours);
	}
}

static void touch(const char *file)
{
	struct timespec before[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

	EXPECT(utimensat(AT_FDCWD, file, before, 0) == 0, "utimensat");
}

static void case_base(void)
{
	struct backend_version noted, is;
	int fd = open(base_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	EXPECT(ftruncate(fd, MIB(8)) == 0, "ftruncate");
	close(fd);
	has_base = true;
	noted = pass(true);
	is = pass(false);
	EXPECT(!has_moved(&noted, &is), "\"%s\"", is.found);
	touch(base_path);
	noted = is;
	is = pass(false);
	EXPECT(has_moved(&noted, &is), "\"%s\"", is.found);
	unlink(base_path);
}

/* Only read, it has what its file has; which our own writing leaves alone. */
static void case_read_only(void)
{
	struct backend_version noted, is;

	pass(true);
	if (!open_next(true, &noted))
		return;
	EXPECT(noted.kind == BACKEND_VERSION_NOW && noted.found[0], "kind %d", noted.kind);
	close_saying(noted.found);
	touch(path);
	if (!open_next(true, &is))
		return;
	EXPECT(has_moved(&noted, &is), "\"%s\"", is.found);
	rig_close(&rig);
}

/* It has no bits that another program would clear. */
static void case_old_format(void)
{
	struct backend_version v;

	pass(true);
	/* Behind its fields there are zeroes, which end the extensions. */
	put_header((const uint8_t[4]){ 0, 0, 0, 2 }, 4, 4);
	for (unsigned i = 0; i < 2; i++) {
		if (!open_next(false, &v))
			return;
		EXPECT(v.kind == BACKEND_VERSION_NONE && !v.found[0], "\"%s\"", v.found);
		write_block(0x44);
		rig_close(&rig);
	}
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} cases[] = {
		{ "versions: our own writes", case_ours },
		{ "versions: other programs", case_others },
		{ "versions: after a kill", case_killed },
		{ "versions: a snapshot is applied", case_snapshot },
		{ "versions: of a base", case_base },
		{ "versions: only read", case_read_only },
		{ "versions: an image of version 2", case_old_format },
	};

	log_init(LOG_LEVEL_ERROR);
	tap_init("qcow2_versions", NULL, 0);
	if (!mkdtemp(folder))
		return 1;
	reactor_init(&home, &(struct reactor_params){ .sq_entries = 32, .cq_entries = 128 });
	snprintf(path, sizeof(path), "%s/image", folder);
	snprintf(base_path, sizeof(base_path), "%s/base", folder);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		has_base = false;
		tap_begin("%s", cases[i].name);
		cases[i].fn();
		tap_end();
		unlink(path);
	}
	reactor_fini(&home);
	rmdir(folder);
	return tap_finish();
}
