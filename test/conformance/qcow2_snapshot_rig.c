/* See qcow2_snapshot_rig.h. */
#include "qcow2_snapshot_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

struct rig rig;
struct reactor home;
const struct shape *shape;
char path[600], folder[512];
struct write_note written[WRITES_MAX];
uint64_t write_nr, moment;
uint64_t is[SECTORS_MAX]; /* the write that a sector has */
static bool is_busy[DISK_BYTES_MAX / BLOCK];
uint64_t seed;
bool has_qemu_img;

uint64_t roll(uint64_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % below;
}

uint64_t sector_nr(void)
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

void begin_write(struct rig_io *rio)
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

void some_writes(void)
{
	for (unsigned q = 0; q < rig.queue_nr; q++)
		for (unsigned tag = 0; tag < rig.depth; tag++)
			if (!rig.queue[q].io[tag].out && roll(3) == 0)
				begin_write(&rig.queue[q].io[tag]);
}

void turn(void)
{
	rig_turn(&rig);
	reactor_turn(&home, false);
}

void write_about(unsigned nr)
{
	uint64_t end = write_nr + nr;

	while (write_nr < end && write_nr < WRITES_MAX) {
		some_writes();
		turn();
	}
}

void drain(void)
{
	while (rig_out_nr(&rig) > 0)
		turn();
}

void flush_all(void)
{
	drain();
	EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == 0, "a flush");
}

/* ---- changes ---- */

bool change_ended;
int change_ret;
struct backend_snapshot_change change, other_change;

void on_changed(struct backend_snapshot_change *c, int ret)
{
	(void)c;
	change_ended = true;
	change_ret = ret;
}

int begin_change(enum backend_snapshot_op op, const char *name)
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
int make_change(enum backend_snapshot_op op, const char *name, bool with_writes)
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

void expect_change(enum backend_snapshot_op op, const char *name, bool with_writes)
{
	int ret = make_change(op, name, with_writes);

	EXPECT(ret == 0, "%s: %s: %s", name, strerror(-ret), change.words);
}

void expect_refusal(enum backend_snapshot_op op, const char *name, int err, const char *words)
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

static void read_file(int snapshot, bool is_clean, uint64_t *ret_stamp)
{
	static struct qcow2_oracle *oracle;
	static uint8_t buf[DISK_BYTES_MAX];
	char words[QCOW2_ORACLE_WORDS_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct qcow2_oracle_report report;
	struct stat st;

	REQUIRE(fd >= 0 && fstat(fd, &st) == 0, "the image");
	oracle = oracle ? oracle : qcow2_oracle_create();
	struct qcow2_oracle_file file = { .read = read_fd,
					  .arg = &fd,
					  .bytes = (uint64_t)st.st_size };

	EXPECT(qcow2_oracle_open(oracle, &file, NULL, words) == 0, "%s", words);
	EXPECT(!is_clean || (qcow2_oracle_check(oracle, &report) == 0 && report.corruptions == 0),
	       "%s", report.words[0]);
	EXPECT(qcow2_oracle_read(oracle, NULL, snapshot, 0, buf, shape->size_bytes) == 0,
	       "snapshot %d", snapshot);
	for (uint64_t i = 0; i < sector_nr(); i++)
		memcpy(&ret_stamp[i], buf + i * SECTOR, 8);
	close(fd);
}

void peek_stamps(int snapshot, uint64_t *ret_stamp)
{
	read_file(snapshot, false, ret_stamp);
}

void read_stamps(int snapshot, uint64_t *ret_stamp)
{
	read_file(snapshot, true, ret_stamp);
}

void expect_stamps(int snapshot, const uint64_t *stamp)
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
void expect_order(const uint64_t *stamp, uint64_t begun, uint64_t ended)
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

int shell(const char *format, ...)
{
	char line[2000];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return system(line);
}

/* What qemu-img reads of a snapshot. */
void expect_qemu_reads(const char *name, const uint64_t *stamp)
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

int open_image(const char *more, bool is_new)
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

bool begin_case(const char *what)
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

void end_case(void)
{
	int ret = 0;

	drain();
	rig_close(&rig);
	if (has_qemu_img)
		ret = shell("qemu-img check %s >&2", path);
	EXPECT(ret == 0, "qemu-img check");
	tap_end();
}
