/*
 * qcow2_snapshots [--seed N] [--only TEXT]: internal snapshots of qcow2 on real rings, with two
 * queues on two reactors and writes in flight, held against the oracle and against qemu-img where
 * there is one. Prints TAP.
 *
 * Every sector that is written says which write that was. So a snapshot is right when no write that
 * it lacks had ended before one that it has began. Power cuts: qcow2_cuts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "qcow2_cuts.h"
#include "storage/snapshot.h"
#include "tap.h"

#define BLOCK 4096u
#define SECTOR 512u
#define SECTORS_MAX (DISK_BYTES_MAX / SECTOR)
#define WRITES_MAX 60000u
#define DEPTH 8u

struct write_note {
	uint64_t offset;
	uint64_t begin, end; /* moments; end 0: not yet */
	bool is_gone;	     /* a snapshot was applied since */
};

struct shape {
	const char *name, *options, *data; /* data: %s is a file */
	uint64_t size_bytes;
	bool is_slow; /* ends of its requests are not seen by qcow2_cuts.h */
};

static const struct shape shapes[] = {
	{ "4K", "cluster_size: 4KiB", "{type: file, path: %s, create: true, size: 16MiB}", MIB(1),
	  false },
	{ "512", "cluster_size: 512\ncache: 64KiB",
	  "{type: file, path: %s, create: true, size: 16MiB}", KIB(256), false },
	{ "64K", "cluster_size: 64KiB",
	  "{type: delay, all: 100us, backend: {type: file, path: %s, create: true, size: 16MiB}}",
	  MIB(2), true },
	{ "subclusters", "cluster_size: 64KiB\nextended_l2: true",
	  "{type: file, path: %s, create: true, size: 16MiB}", MIB(2), false },
};

static struct rig rig;
static struct reactor home;
static const struct shape *shape;
static char path[600], folder[512];
static struct write_note written[WRITES_MAX];
static uint64_t write_nr, moment;
static uint64_t is[SECTORS_MAX]; /* the write that a sector has */
static bool is_busy[DISK_BYTES_MAX / BLOCK];
static uint64_t seed;
static bool has_qemu_img;

static uint64_t roll(uint64_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % below;
}

static uint64_t sector_nr(void)
{
	return shape->size_bytes / SECTOR;
}

/* ---- writes ---- */

static void write_done(struct rig_io *rio, void *arg)
{
	struct write_note *w = arg;

	EXPECT(rio->io.result == 0, "a write: %s", strerror(-rio->io.result));
	w->end = ++moment;
	is_busy[w->offset / BLOCK] = false;
	for (unsigned i = 0; i < BLOCK / SECTOR; i++)
		is[w->offset / SECTOR + i] = (uint64_t)(w - written);
}

static void begin_write(struct rig_io *rio)
{
	uint64_t block = roll(shape->size_bytes / BLOCK);
	struct write_note *w;
	uint64_t *words = rio->io.buf;

	if (is_busy[block] || write_nr == WRITES_MAX)
		return;
	is_busy[block] = true;
	w = &written[write_nr];
	*w = (struct write_note){ .offset = block * BLOCK, .begin = ++moment };
	for (unsigned i = 0; i < BLOCK / 8; i++)
		words[i] = write_nr;
	write_nr++;
	rio->io.op = BACKEND_WRITE;
	rio->io.flags = 0;
	rio->io.offset_bytes = w->offset;
	rio->io.length_bytes = BLOCK;
	rio->done = write_done;
	rio->arg = w;
	rig_submit(&rig, rio);
}

static void some_writes(void)
{
	for (unsigned q = 0; q < rig.queue_nr; q++)
		for (unsigned tag = 0; tag < rig.depth; tag++)
			if (!rig.queue[q].io[tag].out && roll(3) == 0)
				begin_write(&rig.queue[q].io[tag]);
}

static void turn(void)
{
	rig_turn(&rig);
	reactor_turn(&home, false);
}

static void write_about(unsigned nr)
{
	uint64_t end = write_nr + nr;

	while (write_nr < end && write_nr < WRITES_MAX) {
		some_writes();
		turn();
	}
}

static void drain(void)
{
	while (rig_out_nr(&rig) > 0)
		turn();
}

static void flush_all(void)
{
	drain();
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
}

/* ---- changes ---- */

static bool change_ended;
static int change_ret;
static struct backend_snapshot_change change, other_change;

static void on_changed(struct backend_snapshot_change *c, int ret)
{
	(void)c;
	change_ended = true;
	change_ret = ret;
}

static int begin_change(enum backend_snapshot_op op, const char *name)
{
	struct backend_device *node =
		backend_snapshots_node(rig.device, NULL, change.words, sizeof(change.words));

	if (!node)
		return -ENODEV;
	change = (struct backend_snapshot_change){
		.op = op, .name = name, .reactor = &home, .done = on_changed
	};
	change_ended = false;
	return node->ops->snapshots->begin(node, &change);
}

/* 0, or how it failed; writes go on meanwhile, or not. */
static int make_change(enum backend_snapshot_op op, const char *name, bool with_writes)
{
	int ret = begin_change(op, name);

	if (ret < 0)
		return ret;
	while (!change_ended) {
		if (with_writes)
			some_writes();
		turn();
	}
	return change_ret;
}

static void expect_change(enum backend_snapshot_op op, const char *name, bool with_writes)
{
	int ret = make_change(op, name, with_writes);

	EXPECT(ret == 0, "%s: %s: %s", name, strerror(-ret), change.words);
}

static void expect_refusal(enum backend_snapshot_op op, const char *name, int err,
			   const char *words)
{
	int ret = make_change(op, name, false);

	EXPECT(ret == err && strstr(change.words, words), "\"%s\": %d, %s", name, ret,
	       change.words);
}

/* ---- what is on the disk ---- */

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
	ssize_t got = pread(*(int *)arg, buf, n, (off_t)offset);

	return got < 0 ? -errno : got;
}

/* Flushed, so the file is the image. Each sector's write, of the disk or of a snapshot. */
static void read_stamps(int snapshot, uint64_t *ret_stamp)
{
	static struct qcow2_oracle *oracle;
	static uint8_t buf[DISK_BYTES_MAX];
	char words[QCOW2_ORACLE_WORDS_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct qcow2_oracle_report report;
	struct stat st;

	REQUIRE(fd >= 0 && fstat(fd, &st) == 0, "the image");
	oracle = oracle ? oracle : qcow2_oracle_create();
	struct qcow2_oracle_file file = { read_fd, &fd, (uint64_t)st.st_size };

	EXPECT(qcow2_oracle_open(oracle, &file, NULL, words) == 0, "%s", words);
	EXPECT(qcow2_oracle_check(oracle, &report) == 0 && report.corruptions == 0, "%s",
	       report.words[0]);
	EXPECT(qcow2_oracle_read(oracle, NULL, snapshot, 0, buf, shape->size_bytes) == 0,
	       "snapshot %d", snapshot);
	for (uint64_t i = 0; i < sector_nr(); i++)
		memcpy(&ret_stamp[i], buf + i * SECTOR, 8);
	close(fd);
}

static void expect_stamps(int snapshot, const uint64_t *stamp)
{
	static uint64_t now[SECTORS_MAX];

	read_stamps(snapshot, now);
	for (uint64_t i = 0; i < sector_nr(); i++)
		if (now[i] != stamp[i]) {
			tap_fail(__FILE__, __LINE__,
				 "snapshot %d, sector %llu: is of write %llu, not %llu", snapshot,
				 (unsigned long long)i, (unsigned long long)now[i],
				 (unsigned long long)stamp[i]);
			return;
		}
}

/* begun: the moment at which the snapshot was asked for; ended: it was there. */
static void expect_order(const uint64_t *stamp, uint64_t begun, uint64_t ended)
{
	uint64_t last_in = 0, first_out = UINT64_MAX;

	for (uint64_t i = 1; i < write_nr; i++) {
		const struct write_note *w = &written[i];

		for (unsigned n = 0; !w->is_gone && n < BLOCK / SECTOR; n++) {
			uint64_t has = stamp[w->offset / SECTOR + n];

			if (has == i)
				last_in = MAX(last_in, w->begin);
			else if (has < i && w->end)
				first_out = MIN(first_out, w->end);
		}
	}
	EXPECT(last_in < first_out, "it has a write of %llu and lacks one that ended at %llu",
	       (unsigned long long)last_in, (unsigned long long)first_out);
	EXPECT(first_out > begun, "it lacks a write that ended before it was asked for");
	EXPECT(last_in <= ended, "it has a write of later");
}

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int shell(const char *format, ...)
{
	char line[2000];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return system(line);
}

/* What qemu-img reads of a snapshot. */
static void expect_qemu_reads(const char *name, const uint64_t *stamp)
{
	char out[700];
	int fd, ret;

	if (!has_qemu_img)
		return;
	snprintf(out, sizeof(out), "%s/out", folder);
	ret = shell("qemu-img convert -U -l %s -O raw %s %s", name, path, out);
	EXPECT(ret == 0, "%s", name);
	fd = open(out, O_RDONLY | O_CLOEXEC);
	for (uint64_t i = 0; i < sector_nr(); i++) {
		uint64_t has = 0;

		EXPECT(pread(fd, &has, 8, (off_t)(i * SECTOR)) == 8 && has == stamp[i],
		       "%s, sector %llu: %llu", name, (unsigned long long)i,
		       (unsigned long long)has);
		if (tap_failed())
			break;
	}
	close(fd);
	unlink(out);
}

/* ---- a device ---- */

static int open_image(const char *more, bool is_new)
{
	char yaml[1200], data[700];
	struct rig_params params = {
		.ops = backend_find("qcow2"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 2,
		.depth = DEPTH,
	};

	snprintf(data, sizeof(data), shape->data, path);
	snprintf(yaml, sizeof(yaml), "type: qcow2\ndata: %s\n%s\n", data, more);
	if (is_new)
		snprintf(yaml, sizeof(yaml),
			 "type: qcow2\ncreate: true\nsize: %llu\n%s\ndata: %s\n",
			 (unsigned long long)shape->size_bytes, shape->options, data);
	return rig_open(&rig, &params);
}

static bool begin_case(const char *what)
{
	int ret;

	if (!tap_begin("%s, %s", what, shape->name))
		return false;
	unlink(path);
	write_nr = 1;
	memset(is, 0, sizeof(is));
	ret = open_image("", true);
	EXPECT(ret == 0, "%s", rig.error);
	if (ret < 0)
		tap_end();
	return ret == 0;
}

static void end_case(void)
{
	int ret = 0;

	drain();
	rig_close(&rig);
	if (has_qemu_img)
		ret = shell("qemu-img check %s >&2", path);
	EXPECT(ret == 0, "qemu-img check");
	tap_end();
}

/* ---- cases ---- */

/* Of the writes meanwhile those that ended before the content changed are gone. */
static void expect_apply(const char *name, const uint64_t *then)
{
	static uint64_t now[SECTORS_MAX];
	uint64_t last_gone = 0, first_kept = UINT64_MAX, first = write_nr;

	expect_change(BACKEND_SNAPSHOT_APPLY, name, true);
	flush_all();
	read_stamps(QCOW2_ORACLE_ACTIVE, now);
	for (uint64_t i = 0; i < sector_nr(); i++)
		EXPECT(now[i] == then[i] || now[i] == is[i], "sector %llu", (unsigned long long)i);
	for (uint64_t i = 0; i < write_nr; i++) {
		struct write_note *w = &written[i];

		w->is_gone = true;
		/* One that was under way then may be there in part. */
		for (unsigned n = 0; n < BLOCK / SECTOR && i >= first; n++)
			w->is_gone &= now[w->offset / SECTOR + n] != i;
		if (i >= first && !w->is_gone)
			first_kept = MIN(first_kept, w->end);
		else if (i >= first && memcmp(&now[w->offset / SECTOR], &then[w->offset / SECTOR],
					      BLOCK / SECTOR * 8) == 0)
			last_gone = MAX(last_gone, w->end);
	}
	EXPECT(last_gone < first_kept, "of write %llu on they are kept",
	       (unsigned long long)first_kept);
	memcpy(is, now, sizeof(is));
}

static void a_snapshot_is_a_moment(void)
{
	static uint64_t a[SECTORS_MAX], b[SECTORS_MAX];
	uint64_t begun, ended;

	if (!begin_case("created, applied and deleted while the device is written"))
		return;
	write_about(200);
	begun = moment;
	expect_change(BACKEND_SNAPSHOT_CREATE, "a", true);
	ended = moment;
	write_about(200);
	flush_all();
	read_stamps(0, a);
	expect_order(a, begun, ended);
	begun = moment;
	write_about(50);
	expect_change(BACKEND_SNAPSHOT_CREATE, "b", true);
	ended = moment;
	write_about(300);
	flush_all();
	expect_stamps(0, a);
	read_stamps(1, b);
	expect_order(b, begun, ended);
	expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	expect_qemu_reads("a", a);
	expect_qemu_reads("b", b);
	expect_change(BACKEND_SNAPSHOT_DELETE, "a", true);
	write_about(100);
	flush_all();
	expect_stamps(0, b);
	expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	expect_apply("b", b);
	write_about(100);
	flush_all();
	expect_stamps(0, b);
	expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	expect_change(BACKEND_SNAPSHOT_DELETE, "2", true);
	write_about(50);
	flush_all();
	expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	end_case();
}

/* The bytes of a device opened by its snapshot. */
static void expect_reads(const uint64_t *stamp)
{
	uint8_t *buf = aligned_alloc(4096, RIG_IO_BYTES);

	for (uint64_t at = 0; at < shape->size_bytes; at += BLOCK) {
		EXPECT(rig_do(&rig, BACKEND_READ, 0, at, BLOCK, buf) == 0, "a read");
		for (unsigned i = 0; i < BLOCK / SECTOR; i++)
			EXPECT(memcmp(buf + i * SECTOR, &stamp[at / SECTOR + i], 8) == 0,
			       "offset %llu", (unsigned long long)at);
		if (tap_failed())
			break;
	}
	free(buf);
}

static void a_snapshot_is_opened(void)
{
	static uint64_t a[SECTORS_MAX];

	if (!begin_case("opened"))
		return;
	write_about(100);
	flush_all();
	memcpy(a, is, sizeof(a));
	expect_change(BACKEND_SNAPSHOT_CREATE, "before", false);
	write_about(200);
	drain();
	rig_close(&rig);
	EXPECT(open_image("snapshot: before", false) == 0, "%s", rig.error);
	expect_reads(a);
	EXPECT(rig_do(&rig, BACKEND_WRITE, 0, 0, BLOCK, NULL) < 0, "a write");
	expect_refusal(BACKEND_SNAPSHOT_CREATE, "c", -EROFS, "only read");
	rig_close(&rig);
	EXPECT(open_image("snapshot: 1", false) == 0, "by its ID: %s", rig.error);
	expect_reads(a);
	rig_close(&rig);
	EXPECT(open_image("snapshot: after", false) == -ENOENT && strstr(rig.error, "before"), "%s",
	       rig.error);
	EXPECT(open_image("", false) == 0, "%s", rig.error);
	expect_reads(is);
	end_case();
}

static void what_is_wrong_is_refused(void)
{
	struct backend_device *node;
	char name[300];

	if (!begin_case("refused"))
		return;
	memset(name, 'x', sizeof(name));
	name[299] = '\0';
	expect_refusal(BACKEND_SNAPSHOT_DELETE, "a", -ENOENT, "there is none");
	expect_refusal(BACKEND_SNAPSHOT_CREATE, "", -EINVAL, "255");
	expect_refusal(BACKEND_SNAPSHOT_CREATE, name, -EINVAL, "255");
	expect_refusal(BACKEND_SNAPSHOT_CREATE, "12", -EINVAL, "digits");
	expect_refusal(BACKEND_SNAPSHOT_CREATE, "a\n", -EINVAL, "control");
	expect_change(BACKEND_SNAPSHOT_CREATE, "a", false);
	expect_refusal(BACKEND_SNAPSHOT_CREATE, "a", -EEXIST, "already");
	expect_refusal(BACKEND_SNAPSHOT_APPLY, "b", -ENOENT, "there is a");
	EXPECT(begin_change(BACKEND_SNAPSHOT_CREATE, "c") == 0, "%s", change.words);
	node = backend_snapshots_node(rig.device, "disk", name, sizeof(name));
	other_change = (struct backend_snapshot_change){
		.op = BACKEND_SNAPSHOT_DELETE, .name = "a", .reactor = &home, .done = on_changed
	};
	EXPECT(node->ops->snapshots->begin(node, &other_change) == -EBUSY, "%s",
	       other_change.words);
	while (!change_ended)
		turn();
	EXPECT(change_ret == 0, "%s", change.words);
	end_case();
}

/* Many times, so that what is freed is taken again, tables too. */
static void space_comes_back(void)
{
	static uint64_t at_first[SECTORS_MAX];
	struct stat st;
	char name[20];

	if (!begin_case("space is taken again"))
		return;
	write_about(200);
	for (unsigned i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		expect_change(BACKEND_SNAPSHOT_CREATE, name, true);
		write_about(60);
		if (i == 0) {
			flush_all();
			read_stamps(0, at_first);
		}
		snprintf(name, sizeof(name), "s%u", i - 1);
		if (i > 1)
			expect_change(BACKEND_SNAPSHOT_DELETE, name, true);
		flush_all();
		expect_stamps(0, at_first);
		expect_stamps(QCOW2_ORACLE_ACTIVE, is);
	}
	EXPECT(stat(path, &st) == 0 &&
		       (uint64_t)st.st_blocks * 512 < 4 * shape->size_bytes + MIB(1),
	       "%llu blocks", (unsigned long long)st.st_blocks);
	end_case();
}

/* ---- power cuts ---- */

static void cut_change(struct cut_expected *expected, enum backend_snapshot_op op, const char *name,
		       const uint64_t *then)
{
	flush_all();
	expected->size_bytes = shape->size_bytes;
	expected->now = is;
	expected->then = then;
	cuts_begin(rig.device, path, expected);
	expect_change(op, name, false);
	cuts_end();
}

static void power_is_cut(void)
{
	static uint64_t a[SECTORS_MAX], b[SECTORS_MAX];
	struct cut_expected expected = { 0 };
	unsigned cuts_before = cuts_nr();

	if (shape->is_slow || !begin_case("the power is cut"))
		return;
	write_about(100);
	drain();
	memcpy(a, is, sizeof(a));
	expected.snapshot[0] = a;
	cut_change(&expected, BACKEND_SNAPSHOT_CREATE, "a", NULL);
	write_about(60);
	drain();
	memcpy(b, is, sizeof(b));
	expected.snapshot[1] = b;
	cut_change(&expected, BACKEND_SNAPSHOT_CREATE, "b", NULL);
	write_about(60);
	drain();
	cut_change(&expected, BACKEND_SNAPSHOT_APPLY, "a", a);
	memcpy(is, a, sizeof(is));
	write_about(60);
	drain();
	expected.is_deleting = true;
	cut_change(&expected, BACKEND_SNAPSHOT_DELETE, "a", NULL);
	EXPECT(cuts_nr() > cuts_before + 20, "%u power cuts", cuts_nr() - cuts_before);
	end_case();
}

int main(int argc, char **argv)
{
	const char *only = NULL, *tmp = getenv("TMPDIR");

	seed = (uint64_t)time(NULL);
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--only") == 0)
			only = argv[i + 1];
	}
	srand((unsigned)seed);
	snprintf(folder, sizeof(folder), "%s/qcow2-snapshots.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/image", folder);
	log_init(LOG_LEVEL_ERROR);
	alarm(1200);
	tap_init(argv[0], only, seed);
	has_qemu_img = shell("command -v qemu-img >/dev/null") == 0;
	reactor_init(&home, &(struct reactor_params){ .sq_entries = 32, .cq_entries = 128 });
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		shape = &shapes[i];
		a_snapshot_is_a_moment();
		a_snapshot_is_opened();
		what_is_wrong_is_refused();
		space_comes_back();
		power_is_cut();
	}
	reactor_fini(&home);
	if (shell("rm -rf %s", folder) != 0)
		perror(folder);
	return tap_finish();
}
