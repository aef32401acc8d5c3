/*
 * The file backend SQE by SQE, against a kernel that answers as each case says: short transfers,
 * interruptions, missing features, a full SQ. Prints TAP. The file is real but never read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backends/file/file.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "rig.h"
#include "ring_script.h"
#include "tap.h"

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define ZERO_RANGE (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE)

static char path[512];
static struct rig rig;

/* The answers of the case, one per SQE; after the last one everything succeeds. */
static const int *answers;
static unsigned answer_nr, answered_nr;

#define ANYTHING INT32_MIN /* success, of the whole length */

static int success_of(const struct io_uring_sqe *sqe)
{
	bool moves = sqe->opcode == IORING_OP_READ || sqe->opcode == IORING_OP_WRITE;

	return moves ? (int)sqe->len : 0;
}

static int answer(const struct io_uring_sqe *sqe)
{
	int res = answered_nr < answer_nr ? answers[answered_nr] : ANYTHING;

	answered_nr++;
	return res == ANYTHING ? success_of(sqe) : res;
}

static void set_answers(const int *list, unsigned nr)
{
	answers = list;
	answer_nr = nr;
	answered_nr = 0;
	ring_script.log_nr = 0;
	ring_script.step_ns = 0;
}

#define ANSWERS(...)                                                                               \
	set_answers((const int[]){ __VA_ARGS__ }, ARRAY_SIZE(((const int[]){ __VA_ARGS__ })))

static const struct io_uring_sqe *sent(unsigned idx)
{
	return &ring_script.log[idx];
}

static void expect_rw(unsigned idx, int opcode, uint64_t offset, uint32_t len, uint32_t done)
{
	const struct io_uring_sqe *sqe = sent(idx);
	uint64_t addr = (uint64_t)(uintptr_t)rig.queue[0].io[0].io.buf + done;

	EXPECT(idx < ring_script.log_nr, "only %u SQEs", ring_script.log_nr);
	EXPECT(sqe->opcode == opcode && sqe->off == offset && sqe->len == len,
	       "SQE %u: opcode=%u off=%llu len=%u", idx, sqe->opcode, (unsigned long long)sqe->off,
	       sqe->len);
	EXPECT(sqe->addr == addr, "SQE %u: wrong address", idx);
}

static void expect_fallocate(unsigned idx, int mode, uint64_t offset, uint64_t len)
{
	const struct io_uring_sqe *sqe = sent(idx);

	EXPECT(idx < ring_script.log_nr, "only %u SQEs", ring_script.log_nr);
	EXPECT(sqe->opcode == IORING_OP_FALLOCATE && sqe->len == (uint32_t)mode &&
		       sqe->off == offset && sqe->addr == len,
	       "SQE %u: opcode=%u mode=0x%x off=%llu len=%llu", idx, sqe->opcode, sqe->len,
	       (unsigned long long)sqe->off, (unsigned long long)sqe->addr);
}

static void expect_sync(unsigned idx)
{
	const struct io_uring_sqe *sqe = sent(idx);

	EXPECT(idx < ring_script.log_nr, "only %u SQEs", ring_script.log_nr);
	EXPECT(sqe->opcode == IORING_OP_FSYNC && sqe->fsync_flags == IORING_FSYNC_DATASYNC,
	       "SQE %u: opcode=%u flags=0x%x", idx, sqe->opcode, sqe->fsync_flags);
}

static void expect_sent(unsigned nr)
{
	EXPECT(ring_script.log_nr == nr, "%u SQEs, not %u", ring_script.log_nr, nr);
}

static void expect_result(int result, int want)
{
	EXPECT(result == want, "%d (%s), not %d", result, errname(result), want);
}

static void case_addressing(void)
{
	const struct io_uring_sqe *sqe = sent(0);

	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE, 0, 8192, 4096, NULL), 0);
	expect_rw(0, IORING_OP_WRITE, 8192, 4096, 0);
	EXPECT(sqe->flags & IOSQE_FIXED_FILE, "not a fixed file");
	EXPECT(sqe->rw_flags == 0, "flags 0x%x", sqe->rw_flags);
	EXPECT(user_data_kind(sqe->user_data) == OP_KIND_BACKEND, "kind");
	EXPECT(user_data_tag(sqe->user_data) == 0, "tag");
	expect_sent(1);
}

static void case_short_read(void)
{
	ANSWERS(512, 1000, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_READ, 0, 4096, 65536, NULL), 0);
	expect_rw(0, IORING_OP_READ, 4096, 65536, 0);
	expect_rw(1, IORING_OP_READ, 4096 + 512, 65536 - 512, 512);
	expect_rw(2, IORING_OP_READ, 4096 + 1512, 65536 - 1512, 1512);
	expect_sent(3);
}

static void case_short_write_fua(void)
{
	ANSWERS(4095, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE, BACKEND_FUA, 0, 8192, NULL), 0);
	expect_rw(1, IORING_OP_WRITE, 4095, 8192 - 4095, 4095);
	EXPECT(sent(0)->rw_flags == RWF_DSYNC && sent(1)->rw_flags == RWF_DSYNC, "not durable");
	expect_sent(2);
}

static void case_nothing_moves(void)
{
	ANSWERS(0);
	expect_result(rig_do(&rig, BACKEND_READ, 0, 0, 4096, NULL), -EIO);
	ANSWERS(512, 0);
	expect_result(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL), -EIO);
	expect_sent(2);
}

static void case_interrupted(void)
{
	ANSWERS(-EINTR, -EAGAIN, 512, -EINTR, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_READ, 0, 0, 4096, NULL), 0);
	expect_rw(2, IORING_OP_READ, 0, 4096, 0);
	expect_rw(4, IORING_OP_READ, 512, 4096 - 512, 512);
	ANSWERS(-EINTR, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL), 0);
	expect_sent(2);
	ANSWERS(-EAGAIN, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 0, 4096, NULL), 0);
	expect_sent(2);
}

static int always_eagain(const struct io_uring_sqe *sqe)
{
	(void)sqe;
	return -EAGAIN;
}

/* Ten seconds of it are enough; the log holds 64 tries at half a second each. */
static void case_interrupted_for_ever(void)
{
	ANSWERS(ANYTHING);
	ring_script.answer = always_eagain;
	ring_script.step_ns = NS_PER_SEC / 2;
	expect_result(rig_do(&rig, BACKEND_READ, 0, 0, 4096, NULL), -EIO);
	EXPECT(ring_script.log_nr > 10 && ring_script.log_nr < 30, "%u tries", ring_script.log_nr);
	ring_script.answer = answer;
}

/* What has moved on between two interruptions has its ten seconds anew. */
static void case_interrupted_and_moving(void)
{
	int list[32];

	for (unsigned i = 0; i < ARRAY_SIZE(list); i++)
		list[i] = i == 15 ? 1024 : i == 31 ? ANYTHING : -EAGAIN;
	set_answers(list, ARRAY_SIZE(list));
	ring_script.step_ns = NS_PER_SEC / 2;
	expect_result(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL), 0);
	expect_sent(32);
	expect_rw(31, IORING_OP_WRITE, 1024, 3072, 1024);
}

static void case_errors(void)
{
	static const int result[][2] = {
		{ -ENOSPC, -ENOSPC }, { -EDQUOT, -ENOSPC },	  { -EIO, -EIO },
		{ -EFBIG, -EIO },     { -ECANCELED, -EIO },	  { -ENOMEM, -ENOMEM },
		{ -EINVAL, -EIO },    { -EREMOTEIO, -EREMOTEIO },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(result); i++) {
		set_answers(&result[i][0], 1);
		expect_result(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL), result[i][1]);
		expect_sent(1);
	}
	ANSWERS(-EIO);
	expect_result(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL), -EIO);
	expect_sync(0);
	ANSWERS(-ENOSPC);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, 4096, NULL), -ENOSPC);
	expect_sent(1);
}

static void case_zeroes(void)
{
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, 512, MIB(2), NULL), 0);
	expect_fallocate(0, PUNCH, 512, MIB(2));
	expect_sent(1);
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, 512, NULL), 0);
	expect_fallocate(0, ZERO_RANGE, 0, 512);
	expect_sent(1);
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_FUA, 0, 512, NULL), 0);
	expect_fallocate(0, PUNCH, 0, 512);
	expect_sync(1);
	expect_sent(2);
	/* The zeroes are there but not durable: the answer is that of the sync. */
	ANSWERS(ANYTHING, -EIO);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_FUA, 0, 512, NULL), -EIO);
}

static void expect_zero_write(unsigned idx, uint64_t offset, uint32_t len)
{
	const struct io_uring_sqe *sqe = sent(idx);
	const uint8_t *bytes = (const uint8_t *)(uintptr_t)sqe->addr;

	EXPECT(sqe->opcode == IORING_OP_WRITE && sqe->off == offset && sqe->len == len,
	       "SQE %u: opcode=%u off=%llu len=%u", idx, sqe->opcode, (unsigned long long)sqe->off,
	       sqe->len);
	EXPECT(bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0, "not zeroes");
}

static void case_fallback(void)
{
	ANSWERS(-EOPNOTSUPP, -EOPNOTSUPP, ANYTHING, 4096);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_FUA, 512, MIB(2) + KIB(8), NULL),
		      0);
	expect_fallocate(0, PUNCH, 512, MIB(2) + KIB(8));
	expect_fallocate(1, ZERO_RANGE, 512, MIB(2) + KIB(8));
	expect_zero_write(2, 512, MIB(1));
	expect_zero_write(3, 512 + MIB(1), MIB(1));
	expect_zero_write(4, 512 + MIB(1) + 4096, MIB(1));
	expect_zero_write(5, 512 + MIB(2) + 4096, 4096);
	expect_sync(6);
	expect_sent(7);
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, 0, 4096, NULL), 0);
	expect_zero_write(0, 0, 4096);
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, BACKEND_NOUNMAP, 0, 4096, NULL), 0);
	expect_zero_write(0, 0, 4096);
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 0, 4096, NULL), -EOPNOTSUPP);
	expect_sent(0);
}

static void case_discard_unsupported(void)
{
	ANSWERS(-EOPNOTSUPP);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 4096, 4096, NULL), -EOPNOTSUPP);
	expect_fallocate(0, PUNCH, 4096, 4096);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 4096, 4096, NULL), -EOPNOTSUPP);
	expect_sent(1);
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_WRITE_ZEROES, 0, 0, 4096, NULL), 0);
	expect_fallocate(0, ZERO_RANGE, 0, 4096);
}

static void expect_discard(unsigned idx, uint64_t offset, uint64_t len)
{
	const struct io_uring_sqe *sqe = sent(idx);

	EXPECT(sqe->opcode == IORING_OP_URING_CMD && sqe->cmd_op == _IO(0x12, 0) &&
		       sqe->addr == offset && sqe->addr3 == len && sqe->len == 0,
	       "SQE %u: opcode=%u", idx, sqe->opcode);
	EXPECT(sqe->flags & IOSQE_ASYNC, "the kernel may read a reused SQE");
}

/* As if the file were a block device. */
static void case_block_discard(void)
{
	struct file_device *file = rig.device->priv;

	file->is_block = true;
	ANSWERS(ANYTHING);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 4096, 8192, NULL), 0);
	expect_discard(0, 4096, 8192);
	ANSWERS(-EIO);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 4096, 8192, NULL), -EIO);
	expect_sent(1);
	ANSWERS(-EBUSY, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 4096, 8192, NULL), 0);
	expect_discard(0, 4096, 8192);
	expect_fallocate(1, PUNCH, 4096, 8192);
	ANSWERS(-EOPNOTSUPP, ANYTHING);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 4096, 8192, NULL), 0);
	expect_discard(0, 4096, 8192);
	expect_fallocate(1, PUNCH, 4096, 8192);
	ANSWERS(-EOPNOTSUPP);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 0, 512, NULL), -EOPNOTSUPP);
	expect_fallocate(0, PUNCH, 0, 512);
	expect_sent(1);
	/* EBUSY without a hole to punch: a discard may do nothing. */
	atomic_store(&file->no_discard, false);
	ANSWERS(-EBUSY);
	expect_result(rig_do(&rig, BACKEND_DISCARD, 0, 0, 512, NULL), 0);
	expect_sent(1);
}

static void expect_drop(unsigned idx)
{
	const struct io_uring_sqe *sqe = sent(idx);

	EXPECT(idx < ring_script.log_nr, "only %u SQEs", ring_script.log_nr);
	EXPECT(sqe->opcode == IORING_OP_FADVISE && sqe->fadvise_advice == POSIX_FADV_DONTNEED &&
		       sqe->off == 0 && sqe->len == 0 && (sqe->flags & IOSQE_FIXED_FILE),
	       "SQE %u: opcode=%u advice=%u", idx, sqe->opcode, sqe->fadvise_advice);
}

static void expect_flush(int want)
{
	expect_result(rig_do(&rig, BACKEND_FLUSH, 0, 0, 0, NULL), want);
}

/* The page cache goes before the answer, and the loss is known before the page cache goes. */
static void case_sync_fails(void)
{
	struct rig_io *rio = &rig.queue[0].io[0];

	((struct file_device *)rig.device->priv)->direct = false;
	ANSWERS(-EIO, SCRIPT_LATER);
	rio->done = NULL;
	rio->io.op = BACKEND_FLUSH;
	rio->io.flags = 0;
	rio->io.offset_bytes = rio->io.length_bytes = 0;
	rig_submit(&rig, rio);
	while (ring_script.log_nr < 2)
		rig_turn(&rig);
	expect_sync(0);
	expect_drop(1);
	EXPECT(rio->out, "answered too early");
	EXPECT(backend_losses(rig.device) == 1, "%u losses", backend_losses(rig.device));
	ring_script_post(sent(1)->user_data, 0, 0);
	rig_drain(&rig);
	expect_result(rio->io.result, -EIO);
	EXPECT(backend_losses(rig.device) == 1, "counted twice");
	expect_flush(0);
	/* A kernel that does not know it. */
	ANSWERS(-EIO, -EINVAL);
	expect_flush(-EIO);
	expect_sent(2);
	expect_flush(0);
	/* There is none to drop. */
	((struct file_device *)rig.device->priv)->direct = true;
	ANSWERS(-EIO);
	expect_flush(-EIO);
	expect_sent(1);
	expect_flush(0);
	/* It says nothing of the storage. */
	ANSWERS(-ECANCELED);
	expect_flush(-EIO);
	expect_sent(1);
	EXPECT(!backend_is_owed(rig.device), "owed");
}

static void fua_fails(enum backend_op op, const int *list, unsigned nr)
{
	set_answers(list, nr);
	expect_result(rig_do(&rig, op, BACKEND_FUA, 0, 4096, NULL), -EIO);
	expect_drop(nr);
	expect_sent(nr + 1);
	expect_flush(-EIO);
	expect_flush(0);
}

/* The kernel has told it what the next FLUSH was to hear. */
static void case_fua_fails(void)
{
	static const int at_once[] = { -EIO }, then_sync[] = { ANYTHING, -EIO };

	((struct file_device *)rig.device->priv)->direct = false;
	fua_fails(BACKEND_WRITE, at_once, ARRAY_SIZE(at_once));
	fua_fails(BACKEND_WRITE_ZEROES, then_sync, ARRAY_SIZE(then_sync));
	/* A WRITE alone has synced nothing. */
	ANSWERS(-EIO);
	expect_result(rig_do(&rig, BACKEND_WRITE, 0, 0, 4096, NULL), -EIO);
	expect_sent(1);
	expect_flush(0);
}

/* More I/Os than SQEs, and a kernel that takes none for a while: all are parked, none is lost. */
static void case_sq_full(void)
{
	struct rig_queue *q = &rig.queue[0];

	ANSWERS(ANYTHING);
	ring_script.refuse_nr = 12;
	for (unsigned tag = 0; tag < rig.depth; tag++) {
		q->io[tag].done = NULL;
		q->io[tag].io.op = BACKEND_READ;
		q->io[tag].io.offset_bytes = tag * 4096;
		q->io[tag].io.length_bytes = 4096;
		rig_submit(&rig, &q->io[tag]);
	}
	EXPECT(q->reactor.stats.sq_full > 0, "never full: the case shows nothing");
	EXPECT(rig_out_nr(&rig) == rig.depth, "%u out", rig_out_nr(&rig));
	rig_drain(&rig);
	expect_sent(rig.depth);
	for (unsigned tag = 0; tag < rig.depth; tag++)
		expect_result(q->io[tag].io.result, 0);
}

static void run_case(const char *name, void (*run)(void))
{
	char yaml[700];
	struct rig_params params = {
		.ops = backend_find("file"),
		.name = "disk",
		.yaml = yaml,
		.block_bytes = 512,
		.queue_nr = 1,
		.depth = 16,
	};

	if (!tap_begin("file steps: %s", name))
		return;
	snprintf(yaml, sizeof(yaml), "path: %s\nsize: 4MiB\ncreate: true", path);
	ring_script = (struct ring_script){ .answer = answer, .now_ns = NS_PER_SEC };
	if (rig_open(&rig, &params) == 0) {
		run();
		rig_close(&rig);
	} else {
		EXPECT(false, "%s", rig.error);
	}
	tap_end();
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	snprintf(path, sizeof(path), "%s/ublkd-file-steps.XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	log_init(LOG_LEVEL_ERROR);
	alarm(300);
	tap_init(argv[0], argc == 3 ? argv[2] : NULL, 0);
	run_case("addressing", case_addressing);
	run_case("short read", case_short_read);
	run_case("short write, FUA", case_short_write_fua);
	run_case("nothing moves", case_nothing_moves);
	run_case("interrupted", case_interrupted);
	run_case("interrupted for ever", case_interrupted_for_ever);
	run_case("interrupted again and again, and moving", case_interrupted_and_moving);
	run_case("errors", case_errors);
	run_case("zeroes", case_zeroes);
	run_case("no fallocate", case_fallback);
	run_case("no hole punching", case_discard_unsupported);
	run_case("discard of a block device", case_block_discard);
	run_case("a sync fails", case_sync_fails);
	run_case("FUA fails", case_fua_fails);
	run_case("SQ full", case_sq_full);
	unlink(path);
	return tap_finish();
}
