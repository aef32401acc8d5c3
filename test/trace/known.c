/*
 * Does io_uring work of which it knows all, and tells it as JSON: what a trace of it must say, to
 * be compared by csv_check.py. One thread.
 *
 *   known [--repeat N] -o FILE
 *
 * Happy path: each case runs on its ring and is noted; then all notes are written. Failure mode: a
 * result that the case does not want ends the program.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "test/trace/ring.h"

/* of headers newer than the machine's */
enum { NEW_SETUP_NO_SQARRAY = 1 << 16, NEW_TIMEOUT_MULTISHOT = 1 << 6 };

#define COMM "kn\"ow,n" /* a CSV must quote it */
#define FILE_BYTES (1u << 20)
#define AUX_USER_DATA 0xabcdef0123456789u
#define RINGS 6
#define WORKERS_MAX 64u

static struct ring rings[RINGS];
static unsigned ring_nr;
static int file;
static int workers[WORKERS_MAX];
static unsigned worker_nr;
static char buffer[8][4096] __attribute__((aligned(4096)));

/* ---- helpers ---- */

static void want(const struct ring *r, const struct io_uring_sqe *sqe, int32_t res)
{
	int32_t got = ring_result(r, sqe->user_data);

	if (got != res)
		die("%s: %llx has result %d, not %d", r->name, (unsigned long long)sqe->user_data,
		    got, res);
}

static struct io_uring_sqe *nop(struct ring *r, unsigned flags)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_nop(sqe);
	sqe->flags = (uint8_t)flags;
	return sqe;
}

static struct io_uring_sqe *read_at(struct ring *r, int fd, unsigned len, uint64_t offset)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_read(sqe, fd, buffer[0], len, offset);
	return sqe;
}

static void note_worker(int tid)
{
	for (unsigned i = 0; i < worker_nr; i++)
		if (workers[i] == tid)
			return;
	if (worker_nr == WORKERS_MAX)
		die("too many threads of io-wq");
	workers[worker_nr++] = tid;
}

/* The threads of io-wq, which stay for some seconds when there is no more work. */
static void note_workers(void)
{
	DIR *dir = opendir("/proc/self/task");
	char path[300], comm[32];
	struct dirent *d;
	FILE *f;

	if (!dir)
		die("/proc/self/task: %s", strerror(errno));
	while ((d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = d->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && !strncmp(comm, "iou-wrk-", 8))
			note_worker(atoi(d->d_name));
		fclose(f);
	}
	closedir(dir);
}

static void registers(const struct ring *r, unsigned what, const void *arg, unsigned nr)
{
	if (syscall(__NR_io_uring_register, r->fd, what, arg, nr) < 0)
		die("%s: io_uring_register %u: %s", r->name, what, strerror(errno));
}

/* ---- cases ---- */

static void reads_and_writes(struct ring *r)
{
	static struct iovec two[] = { { buffer[4], 512 }, { buffer[5], 1024 } };
	struct io_uring_sqe *sqe[6];

	sqe[0] = ring_sqe(r);
	io_uring_prep_write(sqe[0], file, buffer[1], 4096, 8192);
	sqe[1] = read_at(r, file, 512, 4096);
	sqe[2] = read_at(r, file, 4096, FILE_BYTES - 100); /* short */
	sqe[3] = read_at(r, file, 1, 1ull << 40);	   /* behind the end */
	sqe[4] = ring_sqe(r);
	io_uring_prep_readv(sqe[4], file, two, 2, 0);
	sqe[5] = ring_sqe(r);
	io_uring_prep_writev(sqe[5], file, two, 2, 12288);
	ring_run(r);
	want(r, sqe[0], 4096);
	want(r, sqe[1], 512);
	want(r, sqe[2], 100);
	want(r, sqe[3], 0);
	want(r, sqe[4], 1536);
	want(r, sqe[5], 1536);
	sqe[0] = ring_sqe(r);
	io_uring_prep_fsync(sqe[0], file, IORING_FSYNC_DATASYNC);
	ring_run(r); /* the kernel always gives it to io-wq */
	note_workers();
	want(r, sqe[0], 0);
}

static void forced_async(struct ring *r)
{
	struct io_uring_sqe *sqe[4];

	for (unsigned i = 0; i < 3; i++) {
		sqe[i] = read_at(r, file, 512 * (i + 1), 4096 * i);
		sqe[i]->flags = IOSQE_ASYNC;
	}
	sqe[3] = nop(r, IOSQE_ASYNC);
	ring_run(r);
	note_workers();
	for (unsigned i = 0; i < 3; i++)
		want(r, sqe[i], (int32_t)(512 * (i + 1)));
	want(r, sqe[3], 0);
}

static void links(struct ring *r)
{
	struct io_uring_sqe *sqe[8];

	sqe[0] = nop(r, IOSQE_IO_LINK);
	sqe[1] = read_at(r, file, 100, 0);
	sqe[1]->flags = IOSQE_IO_LINK;
	sqe[2] = nop(r, 0);
	/* the first of a chain fails: the others are cancelled */
	sqe[3] = read_at(r, 9999, 16, 5);
	sqe[3]->flags = IOSQE_IO_LINK;
	sqe[4] = nop(r, IOSQE_IO_LINK);
	sqe[5] = nop(r, 0);
	/* a hard link goes on */
	sqe[6] = read_at(r, -1, 16, 5);
	sqe[6]->flags = IOSQE_IO_HARDLINK;
	sqe[7] = nop(r, 0);
	ring_run(r);
	want(r, sqe[1], 100);
	want(r, sqe[2], 0);
	want(r, sqe[3], -EBADF);
	want(r, sqe[4], -ECANCELED);
	want(r, sqe[5], -ECANCELED);
	want(r, sqe[6], -EBADF);
	want(r, sqe[7], 0);
	nop(r, 0);
	nop(r, IOSQE_IO_DRAIN);
	ring_run(r);
}

/* The kernel refuses what it does not understand before there is a request. Each is the last of its
 * call: the kernel takes no more behind it. */
static void refused(struct ring *r)
{
	struct io_uring_sqe *sqe;

	nop(r, 0);
	sqe = ring_sqe(r);
	sqe->opcode = 250;
	sqe->fd = 77;
	r->sqe[r->sqe_nr - 1].init_fails = true;
	ring_run(r);
	want(r, sqe, -EINVAL);
	sqe = nop(r, 0);
	sqe->personality = 4711;
	r->sqe[r->sqe_nr - 1].init_fails = true;
	ring_run(r);
	want(r, sqe, -EINVAL);
	sqe = read_at(r, file, 1, 0);
	sqe->ioprio = 0xe000; /* of a class that is none: 7 */
	r->sqe[r->sqe_nr - 1].init_fails = true;
	ring_run(r);
	want(r, sqe, -EINVAL);
}

static void quiet(struct ring *r)
{
	nop(r, IOSQE_CQE_SKIP_SUCCESS);
	ring_expect(r, 0);
	nop(r, 0);
	ring_run(r);
}

static void set_up_tables(struct ring *r)
{
	struct iovec buffers[] = { { buffer[2], 4096 }, { buffer[3], 4096 } };
	int files[] = { -1, -1, file };

	registers(r, IORING_REGISTER_BUFFERS, buffers, 2);
	registers(r, IORING_REGISTER_FILES, files, 3);
}

static void fixed(struct ring *r)
{
	struct io_uring_sqe *sqe[4];

	sqe[0] = ring_sqe(r);
	io_uring_prep_read_fixed(sqe[0], file, buffer[3], 1000, 3000, 1);
	sqe[1] = ring_sqe(r);
	io_uring_prep_write_fixed(sqe[1], 2, buffer[2], 2000, 16384, 0);
	sqe[1]->flags = IOSQE_FIXED_FILE;
	sqe[2] = read_at(r, 2, 300, 7);
	sqe[2]->flags = IOSQE_FIXED_FILE | IOSQE_ASYNC;
	sqe[3] = read_at(r, 1, 300, 7); /* an empty slot */
	sqe[3]->flags = IOSQE_FIXED_FILE;
	ring_run(r);
	note_workers();
	want(r, sqe[0], 1000);
	want(r, sqe[1], 2000);
	want(r, sqe[2], 300);
	want(r, sqe[3], -EBADF);
}

static void selected_buffer(struct ring *r)
{
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_provide_buffers(sqe, buffer[6], 256, 2, 5, 10);
	ring_run(r);
	sqe = ring_sqe(r);
	io_uring_prep_read(sqe, file, NULL, 128, 64);
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->buf_group = 5;
	ring_run(r);
	want(r, sqe, 128);
	sqe = ring_sqe(r);
	io_uring_prep_remove_buffers(sqe, 1, 5);
	ring_run(r);
	want(r, sqe, 1);
}

static void who_and_how(struct ring *r)
{
	struct io_uring_sqe *sqe[2];
	long personality =
		syscall(__NR_io_uring_register, r->fd, IORING_REGISTER_PERSONALITY, NULL, 0);

	if (personality < 1)
		die("%s: personality: %s", r->name, strerror(errno));
	sqe[0] = read_at(r, file, 10, 20);
	sqe[0]->personality = (uint16_t)personality;
	sqe[1] = read_at(r, file, 11, 21);
	sqe[1]->ioprio = 2 << 13 | 4; /* best effort, 4 */
	ring_run(r);
	want(r, sqe[0], 10);
	want(r, sqe[1], 11);
}

static void timeouts(struct ring *r)
{
	struct __kernel_timespec ms = { .tv_nsec = 1000000 };
	struct io_uring_sqe *sqe = ring_sqe(r);

	io_uring_prep_timeout(sqe, &ms, 0, 0);
	ring_run(r);
	want(r, sqe, -ETIME);
	sqe = ring_sqe(r);
	io_uring_prep_timeout(sqe, &ms, 3, NEW_TIMEOUT_MULTISHOT);
	ring_expect(r, 3);
	ring_run(r);
	want(r, sqe, -ETIME);
}

static void multishot_poll(struct ring *r)
{
	struct io_uring_sqe *sqe, *other;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		die("pipe: %s", strerror(errno));
	sqe = ring_sqe(r);
	io_uring_prep_poll_multishot(sqe, ends[0], POLLIN);
	ring_expect(r, 3);
	ring_submit(r);
	for (int i = 0; i < 2; i++) {
		if (write(ends[1], "x", 1) != 1)
			die("pipe: %s", strerror(errno));
		ring_wait(r, 1);
		want(r, sqe, POLLIN);
		if (read(ends[0], buffer[7], 1) != 1)
			die("pipe: %s", strerror(errno));
	}
	other = ring_sqe(r);
	io_uring_prep_poll_remove(other, sqe->user_data);
	ring_run(r);
	want(r, other, 0);
	want(r, sqe, -ECANCELED);
	close(ends[0]);
	close(ends[1]);
}

/* A request on one ring completes on another too, without a request there. */
static void message(struct ring *from, struct ring *to)
{
	struct io_uring_sqe *sqe = ring_sqe(from);

	io_uring_prep_msg_ring(sqe, to->fd, 4242, AUX_USER_DATA, 0);
	to->unseen++;
	ring_run(from);
	want(from, sqe, 0);
	ring_wait(to, 1);
	if (ring_result(to, AUX_USER_DATA) != 4242)
		die("the message has another length");
}

/* ---- rings ---- */

static struct ring *ring_new(const char *name, unsigned entries, unsigned flags)
{
	struct ring *r = &rings[ring_nr];

	if (!ring_init(r, name, entries, flags))
		return NULL;
	ring_nr++;
	return r;
}

static void small_work(struct ring *r)
{
	for (unsigned i = 0; i < 5; i++) {
		nop(r, 0);
		read_at(r, file, 64 + i, 1000 * i);
		nop(r, 0);
		ring_run(r);
	}
}

static void other_rings(struct ring *plain)
{
	struct ring *r;

	r = ring_new("wide", 8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	if (!r)
		die("no ring with SQE128");
	small_work(r);
	message(plain, r);
	r = ring_new("registered", 8, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	if (!r)
		die("no ring with DEFER_TASKRUN");
	ring_register_fd(r);
	small_work(r);
	forced_async(r);
	r = ring_new("no_sqarray", 8, NEW_SETUP_NO_SQARRAY);
	if (r)
		small_work(r);
	r = ring_new("wide_no_sqarray", 8, NEW_SETUP_NO_SQARRAY | IORING_SETUP_SQE128);
	if (r)
		small_work(r);
}

static void all_cases(unsigned repeat)
{
	struct ring *r = ring_new("plain", 32, 0);

	if (!r)
		die("no ring");
	set_up_tables(r);
	while (repeat--)
		reads_and_writes(r);
	forced_async(r);
	links(r);
	refused(r);
	quiet(r);
	fixed(r);
	selected_buffer(r);
	who_and_how(r);
	timeouts(r);
	multishot_poll(r);
	other_rings(r);
}

/* ---- what it knows ---- */

static void print_workers(FILE *out)
{
	for (unsigned i = 0; i < worker_nr; i++)
		fprintf(out, "%s%d", i ? "," : "", workers[i]);
}

static void print_all(const char *path, uint64_t begin_ns, int64_t wall_ns)
{
	FILE *out = fopen(path, "we");

	if (!out)
		die("%s: %s", path, strerror(errno));
	fprintf(out,
		"{\"pid\":%d,\"tid\":%d,\"comm\":\"kn\\\"ow,n\",\"begin_ns\":%llu,"
		"\"wall_offset_ns\":%lld,\"workers\":[",
		getpid(), (int)syscall(__NR_gettid), (unsigned long long)begin_ns,
		(long long)wall_ns);
	print_workers(out);
	fprintf(out, "],\"end_ns\":%llu,\"rings\":[\n", (unsigned long long)now_ns(CLOCK_BOOTTIME));
	for (unsigned i = 0; i < ring_nr; i++) {
		fputs(i ? ",\n" : "", out);
		ring_print(&rings[i], out);
	}
	fputs("]}\n", out);
	if (fclose(out))
		die("%s: %s", path, strerror(errno));
}

static void make_file(void)
{
	file = memfd_create("known", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, FILE_BYTES))
		die("memfd: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	uint64_t begin_ns = now_ns(CLOCK_BOOTTIME);
	int64_t wall_ns = (int64_t)(now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME));
	const char *path = NULL;
	unsigned repeat = 1;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--repeat"))
			repeat = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "-o"))
			path = argv[i + 1];
	}
	if (!path || argc % 2 == 0 || repeat < 1) {
		fputs("usage: known [--repeat N] -o FILE\n", stderr);
		return 2;
	}
	prctl(PR_SET_NAME, COMM);
	make_file();
	all_cases(repeat);
	print_all(path, begin_ns, wall_ns);
	return 0;
}
