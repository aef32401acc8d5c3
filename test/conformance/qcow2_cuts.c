/*
 * Linked so that backend_child_submit and backend_io_complete of the whole program come here first.
 * One thread.
 */
#include "qcow2_cuts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"
#include "tap.h"

#define IMAGE_BYTES_MAX (32u << 20)
#define NOTES_MAX 4096u
#define SECTOR 512u
/* Of the moments, so many are looked at. */
#define ONE_IN 3u

struct cut_note {
	const struct backend_io *io; /* under way; NULL: ended */
	uint8_t op;
	uint64_t offset, bytes;
	uint8_t *data;	     /* NULL: zeroes */
	uint64_t begin, end; /* moments */
};

static struct {
	bool is_on;
	const struct backend_device *data;
	const struct cut_expected *expected;
	uint8_t *durable, *image;
	uint64_t bytes; /* of the image, as far as anything was written */
	struct cut_note note[NOTES_MAX];
	unsigned nr, looked_nr;
	uint64_t moment;
	struct qcow2_oracle *oracle;
} cuts;

unsigned cuts_nr(void)
{
	return cuts.looked_nr;
}

/* ---- an image after a power cut ---- */

static void put_sector(uint8_t *image, const struct cut_note *n, uint64_t at)
{
	uint64_t bytes = MIN(n->bytes - at, (uint64_t)SECTOR);

	if (n->data)
		memcpy(image + n->offset + at, n->data + at, bytes);
	else
		memset(image + n->offset + at, 0, bytes);
}

static bool is_kept(unsigned kind)
{
	return kind == 0 || (kind == 1 ? rand() % 2 : rand() % 8 == 0);
}

static void make_image(void)
{
	unsigned kind = (unsigned)rand() % 3;

	memcpy(cuts.image, cuts.durable, cuts.bytes);
	for (unsigned i = 0; i < cuts.nr; i++)
		for (uint64_t at = 0; cuts.note[i].op != BACKEND_FLUSH && at < cuts.note[i].bytes;
		     at += SECTOR)
			if (is_kept(kind))
				put_sector(cuts.image, &cuts.note[i], at);
}

static ssize_t read_image(void *arg, void *buf, size_t n, uint64_t offset)
{
	(void)arg;
	n = MIN(n, offset < cuts.bytes ? cuts.bytes - offset : 0);
	memcpy(buf, cuts.image + offset, n);
	return (ssize_t)n;
}

static bool reads_as(int snapshot, const uint64_t *stamp)
{
	static uint8_t buf[DISK_BYTES_MAX];

	if (!stamp ||
	    qcow2_oracle_read(cuts.oracle, NULL, snapshot, 0, buf, cuts.expected->size_bytes) != 0)
		return false;
	for (uint64_t i = 0; i < cuts.expected->size_bytes / SECTOR; i++)
		if (memcmp(buf + i * SECTOR, &stamp[i], 8) != 0)
			return false;
	return true;
}

static void check_snapshots(const struct cut_expected *e)
{
	unsigned nr = qcow2_oracle_info(cuts.oracle)->snapshot_nr;
	unsigned first = e->is_deleting && nr == 1;

	EXPECT(nr <= CUT_SNAPSHOTS_MAX, "%u snapshots", nr);
	for (unsigned i = 0; i < nr && i + first < CUT_SNAPSHOTS_MAX; i++)
		EXPECT(reads_as((int)i, e->snapshot[i + first]), "snapshot %u", i);
}

/* COPIED that does not fit a count costs a copy or space, and no data: qcow2_snapshot_change.h. */
static void check_image(void)
{
	const struct qcow2_oracle_file file = { .read = read_image, .bytes = cuts.bytes };
	char words[QCOW2_ORACLE_WORDS_BYTES];
	struct qcow2_oracle_report r;

	cuts.looked_nr++;
	REQUIRE(qcow2_oracle_open(cuts.oracle, &file, NULL, words) == 0, "%s", words);
	REQUIRE(qcow2_oracle_check(cuts.oracle, &r) == 0, "no memory");
	EXPECT(r.corruptions + r.repairable == r.nr[QCOW2_ORACLE_COPIED], "%s; %s; %s", r.words[0],
	       r.words[1], r.words[2]);
	EXPECT(reads_as(QCOW2_ORACLE_ACTIVE, cuts.expected->now) ||
		       reads_as(QCOW2_ORACLE_ACTIVE, cuts.expected->then),
	       "the disk is neither what it was nor what it becomes, moment %llu, %u snapshots",
	       (unsigned long long)cuts.moment, qcow2_oracle_info(cuts.oracle)->snapshot_nr);
	check_snapshots(cuts.expected);
}

static void maybe_cut(void)
{
	cuts.moment++;
	if (tap_failed() || rand() % ONE_IN != 0)
		return;
	make_image();
	check_image();
}

/* ---- requests ---- */

static void note_begin(const struct backend_io *io)
{
	struct cut_note *n = &cuts.note[cuts.nr];

	if (io->op == BACKEND_READ)
		return;
	ASSERT(cuts.nr < NOTES_MAX && io->offset_bytes + io->length_bytes <= IMAGE_BYTES_MAX);
	*n = (struct cut_note){ .io = io,
				.op = io->op,
				.offset = io->offset_bytes,
				.bytes = io->length_bytes,
				.begin = ++cuts.moment };
	if (io->op == BACKEND_WRITE) {
		n->data = malloc(n->bytes);
		memcpy(n->data, io->buf, n->bytes);
	}
	cuts.bytes = MAX(cuts.bytes, n->offset + n->bytes);
	cuts.nr++;
	maybe_cut();
}

/* What had ended when the flush began is durable. */
static void flushed(uint64_t begin)
{
	unsigned left = 0;

	for (unsigned i = 0; i < cuts.nr; i++) {
		struct cut_note *n = &cuts.note[i];

		if (n->io || n->end > begin) {
			cuts.note[left++] = *n;
			continue;
		}
		for (uint64_t at = 0; n->op != BACKEND_FLUSH && at < n->bytes; at += SECTOR)
			put_sector(cuts.durable, n, at);
		free(n->data);
	}
	cuts.nr = left;
}

static void note_end(const struct backend_io *io)
{
	for (unsigned i = 0; i < cuts.nr; i++) {
		struct cut_note *n = &cuts.note[i];

		if (n->io != io)
			continue;
		n->io = NULL;
		n->end = ++cuts.moment;
		if (n->op == BACKEND_FLUSH)
			flushed(n->begin);
		maybe_cut();
		return;
	}
}

static bool is_noted(const struct backend_io *io)
{
	return cuts.is_on && io->queue->device == cuts.data;
}

enum backend_submit __real_backend_child_submit(struct backend_io *child);
enum backend_submit __wrap_backend_child_submit(struct backend_io *child);
void __real_backend_io_complete(struct backend_io *io, int result);
void __wrap_backend_io_complete(struct backend_io *io, int result);

static struct backend_io *held;
static bool holds_next, fails_headers;

void cuts_hold_next(void)
{
	holds_next = true;
}

bool cuts_holds_one(void)
{
	return held;
}

void cuts_let_go(void)
{
	struct backend_io *child = held;

	held = NULL;
	if (child && __real_backend_child_submit(child) == BACKEND_DONE)
		child->queue->parent->device->ops->child_done(child);
}

void cuts_fail_headers(bool fail)
{
	fails_headers = fail;
}

enum backend_submit __wrap_backend_child_submit(struct backend_io *child)
{
	enum backend_submit submit;

	if (fails_headers && child->op == BACKEND_WRITE && child->offset_bytes == 0) {
		child->result = -EIO;
		return BACKEND_DONE;
	}
	if (holds_next && child->parent && child->op <= BACKEND_WRITE) {
		holds_next = false;
		held = child;
		return BACKEND_QUEUED;
	}
	if (is_noted(child))
		note_begin(child);
	submit = __real_backend_child_submit(child);
	if (submit == BACKEND_DONE && is_noted(child))
		note_end(child);
	return submit;
}

void __wrap_backend_io_complete(struct backend_io *io, int result)
{
	if (is_noted(io))
		note_end(io);
	__real_backend_io_complete(io, result);
}

/* ---- from when to when ---- */

void cuts_begin(const struct backend_device *qcow2, const char *path,
		const struct cut_expected *expected)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t nr;

	cuts.data = qcow2->child;
	cuts.expected = expected;
	cuts.durable = calloc(1, IMAGE_BYTES_MAX);
	cuts.image = calloc(1, IMAGE_BYTES_MAX);
	cuts.oracle = qcow2_oracle_create();
	nr = pread(fd, cuts.durable, IMAGE_BYTES_MAX, 0);
	ASSERT(nr > 0 && nr < IMAGE_BYTES_MAX);
	close(fd);
	cuts.bytes = (uint64_t)nr;
	cuts.is_on = true;
}

void cuts_end(unsigned snapshot_nr)
{
	cuts.is_on = false;
	memcpy(cuts.image, cuts.durable, cuts.bytes);
	check_image();
	EXPECT(qcow2_oracle_info(cuts.oracle)->snapshot_nr == snapshot_nr, "%u snapshots, not %u",
	       qcow2_oracle_info(cuts.oracle)->snapshot_nr, snapshot_nr);
	for (unsigned i = 0; i < cuts.nr; i++)
		free(cuts.note[i].data);
	cuts.nr = 0;
	free(cuts.durable);
	free(cuts.image);
	qcow2_oracle_destroy(cuts.oracle);
}
