/*
 * qcow2_snapshots [--seed N] [--only TEXT]: internal snapshots of qcow2 on real rings, with two
 * queues on two reactors and writes in flight, held against the oracle and against qemu-img where
 * there is one. Prints TAP. Power cuts: qcow2_cuts.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "qcow2_snapshot_rig.h"

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
	/* From now on, whatever is under way. */
	peek_stamps(0, a);
	write_about(200);
	flush_all();
	expect_stamps(0, a);
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

/* Of one sector: a longer one may lie in several places, and be with the file for a part only. */
static void a_slow_request(enum backend_op op)
{
	struct rig_io *rio = &rig.queue[1].io[0];

	cuts_hold_next();
	rio->io.op = op;
	rio->io.flags = 0;
	rio->io.offset_bytes = 0;
	rio->io.length_bytes = SECTOR;
	memset(rio->io.buf, 0xff, SECTOR);
	rio->done = NULL;
	rig_submit(&rig, rio);
	EXPECT(cuts_holds_one(), "it is in place");
}

/* Far longer than all of it takes. */
static void turn_for(uint64_t ms)
{
	uint64_t end_ns = ring_clock_ns() + ms * 1000000;

	while (ring_clock_ns() < end_ns)
		turn();
}

static bool waits_for_snapshot(struct rig_io *rio)
{
	struct backend_wait wait = { 0 };

	if (!rio->out)
		return false;
	backend_io_where(&rio->io, &wait);
	return wait.words && strcmp(wait.words, "waiting for a snapshot") == 0;
}

static void read_first(struct rig_io *rio)
{
	rio->io.op = BACKEND_READ;
	rio->io.flags = 0;
	rio->io.offset_bytes = 0;
	rio->io.length_bytes = BLOCK;
	rio->done = NULL;
	rig_submit(&rig, rio);
}

/* An apply that waits: from some time on a read, even of what is in place, waits for it. */
static void expect_reads_to_wait(void)
{
	struct rig_io *rio = &rig.queue[0].io[0];

	while (!waits_for_snapshot(rio)) {
		if (!rio->out)
			read_first(rio);
		turn();
	}
}

/* Other changes let it go. */
static void expect_reads_to_go(void)
{
	struct rig_io *rio = &rig.queue[0].io[0];

	read_first(rio);
	while (rio->out)
		turn();
}

/* It has looked up before: where it goes must not become a snapshot's, or be taken away. */
static void expect_to_wait(enum backend_snapshot_op op, const char *name)
{
	EXPECT(begin_change(op, name) == 0, "%s", change.words);
	turn_for(300);
	if (op == BACKEND_SNAPSHOT_APPLY)
		expect_reads_to_wait();
	else
		expect_reads_to_go();
	EXPECT(!change_ended, "%s has not waited", name);
	cuts_let_go();
	while (!change_ended)
		turn();
	EXPECT(change_ret == 0, "%s", change.words);
	drain();
}

static void requests_in_place_are_waited_for(void)
{
	static uint64_t a[SECTORS_MAX];

	if (!begin_case("requests in place are waited for"))
		return;
	/* So that the first block is there. */
	while (is[0] == 0) {
		write_about(20);
		drain();
	}
	a_slow_request(BACKEND_WRITE);
	expect_to_wait(BACKEND_SNAPSHOT_CREATE, "a");
	flush_all();
	read_stamps(0, a);
	EXPECT(a[0] == UINT64_MAX, "the write is in it");
	expect_stamps(QCOW2_ORACLE_ACTIVE, a);
	a_slow_request(BACKEND_READ);
	expect_to_wait(BACKEND_SNAPSHOT_APPLY, "a");
	end_case();
}

/* The header is neither written nor restored: what the disk has is not known. */
static void an_apply_that_nobody_knows_of(void)
{
	if (!begin_case("an apply that nobody knows of"))
		return;
	write_about(60);
	flush_all();
	expect_change(BACKEND_SNAPSHOT_CREATE, "a", false);
	write_about(20);
	flush_all();
	cuts_fail_headers(true);
	expect_refusal(BACKEND_SNAPSHOT_APPLY, "a", -EIO, "not known");
	cuts_fail_headers(false);
	EXPECT(backend_failure(rig.device, NULL) != NULL, "the device goes on");
	for (unsigned i = 0; i < 2; i++) {
		EXPECT(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL) == -EIO, "a flush succeeds");
		EXPECT(rig_do(&rig, BACKEND_READ, 0, 0, BLOCK, NULL) == -EIO, "a read succeeds");
	}
	rig_close(&rig);
	tap_end();
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
		       const uint64_t *then, unsigned snapshot_nr)
{
	flush_all();
	expected->size_bytes = shape->size_bytes;
	expected->now = is;
	expected->then = then;
	cuts_begin(rig.device, path, expected);
	expect_change(op, name, false);
	cuts_end(snapshot_nr);
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
	cut_change(&expected, BACKEND_SNAPSHOT_CREATE, "a", NULL, 1);
	write_about(60);
	drain();
	memcpy(b, is, sizeof(b));
	expected.snapshot[1] = b;
	cut_change(&expected, BACKEND_SNAPSHOT_CREATE, "b", NULL, 2);
	write_about(60);
	drain();
	cut_change(&expected, BACKEND_SNAPSHOT_APPLY, "a", a, 2);
	memcpy(is, a, sizeof(is));
	write_about(60);
	drain();
	expected.is_deleting = true;
	cut_change(&expected, BACKEND_SNAPSHOT_DELETE, "a", NULL, 1);
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
		requests_in_place_are_waited_for();
		an_apply_that_nobody_knows_of();
		space_comes_back();
		power_is_cut();
	}
	shape = &shapes[0];
	cases_of_other_images();
	reactor_fini(&home);
	if (shell("rm -rf %s", folder) != 0)
		perror(folder);
	return tap_finish();
}
