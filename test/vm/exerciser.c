/*
 * Does to a file or block device what fsx(8) does, in random order and at random places, and
 * compares each byte that it reads with a copy in memory: pread, pwrite, reads and writes of a
 * mapping, zeroes and holes, fsync, dropped caches, closing and opening again; of a regular file
 * its size, too.
 *
 *   exerciser [--seed N] [--ops N] [--size BYTES] [--direct] [--dump FILE] PATH
 *
 * Before its first operation it writes all of PATH, but for the bytes with --keep: these it reads.
 * The same seed does the same operations. --dump: the copy in memory, in the end.
 *
 * Prints one line; exit code 1 and the last operations on a byte when that is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "base/util.h"

#define LENGTH_MAX (256u << 10)
#define HISTORY_NR 100000u
#define SHOWN_NR 20u
#define PAGE_BYTES 4096u

enum what { READ, WRITE, MAP_READ, MAP_WRITE, ZERO, HOLE, SYNC, DROP, REOPEN, SIZE, WHAT_NR };

static const char *const name_of[] = { "read", "write", "mapped read", "mapped write", "zero",
				       "hole", "sync",	"drop caches", "reopen",       "size" };

static struct exerciser {
	const char *path, *dump;
	uint64_t seed, ops, size_bytes;
	bool is_direct, is_device, keeps;
	uint32_t align;
	int fd;
	struct prng prng;
	uint8_t *model, *buf;
	struct operation {
		enum what what;
		uint64_t offset;
		uint32_t length;
	} * history;
	uint64_t op_nr;
} e = { .seed = 1, .ops = 2000, .size_bytes = MIB(16), .fd = -1, .align = 1 };

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "exerciser: operation %llu, seed %llu: ", (unsigned long long)e.op_nr,
		(unsigned long long)e.seed);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* ---- the judge ---- */

static void show_history(uint64_t at)
{
	uint64_t from = e.op_nr > HISTORY_NR ? e.op_nr - HISTORY_NR : 0;
	unsigned shown = 0;

	for (uint64_t nr = e.op_nr + 1; nr-- > from && shown < SHOWN_NR;) {
		const struct operation *o = &e.history[nr % HISTORY_NR];
		bool touches = o->offset <= at && at < o->offset + o->length;

		if (!touches && o->what < SYNC)
			continue;
		fprintf(stderr, "  %llu: %s offset=%llu length=%u\n", (unsigned long long)nr,
			name_of[o->what], (unsigned long long)o->offset, o->length);
		shown++;
	}
}

static void judge(const uint8_t *bytes, uint64_t offset, uint32_t length)
{
	const uint8_t *model = e.model + offset;
	uint32_t i = 0;

	if (memcmp(bytes, model, length) == 0)
		return;
	while (bytes[i] == model[i])
		i++;
	fprintf(stderr, "the last operations on byte %llu, and on all:\n",
		(unsigned long long)(offset + i));
	show_history(offset + i);
	die("byte %llu is 0x%02x, not 0x%02x", (unsigned long long)(offset + i), bytes[i],
	    model[i]);
}

/* ---- operations ---- */

static void open_again(void)
{
	struct stat st;

	if (e.fd >= 0)
		close(e.fd);
	e.fd = open(e.path, O_RDWR | O_CLOEXEC | (e.is_direct ? O_DIRECT : 0));
	if (e.fd < 0 || fstat(e.fd, &st) < 0)
		die("%s: %s", e.path, strerror(errno));
	e.is_device = S_ISBLK(st.st_mode);
}

static void do_read(uint64_t offset, uint32_t length)
{
	ssize_t n = pread(e.fd, e.buf, length, (off_t)offset);

	if (n != (ssize_t)length)
		die("read of %u at %llu: %zd %s", length, (unsigned long long)offset, n,
		    strerror(errno));
	judge(e.buf, offset, length);
}

static void fill(uint8_t *bytes, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(prng_next(&e.prng) >> 24);
}

static void do_write(uint64_t offset, uint32_t length)
{
	ssize_t n;

	fill(e.model + offset, length);
	memcpy(e.buf, e.model + offset, length);
	n = pwrite(e.fd, e.buf, length, (off_t)offset);
	if (n != (ssize_t)length)
		die("write of %u at %llu: %zd %s", length, (unsigned long long)offset, n,
		    strerror(errno));
}

/* A mapping and direct I/O of the same file see each other when it is written back between. */
static void do_mapped(uint64_t offset, uint32_t length, bool writes)
{
	uint64_t start = round_down(offset, (uint64_t)PAGE_BYTES);
	size_t bytes = offset + length - start;
	uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e.fd, (off_t)start);

	if (map == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	if (writes) {
		fill(e.model + offset, length);
		memcpy(map + (offset - start), e.model + offset, length);
		if (msync(map, bytes, MS_SYNC) < 0)
			die("msync: %s", strerror(errno));
	} else {
		judge(map + (offset - start), offset, length);
	}
	munmap(map, bytes);
}

static void do_zero(uint64_t offset, uint32_t length, bool punches)
{
	int mode = FALLOC_FL_KEEP_SIZE | (punches ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);

	if (fallocate(e.fd, mode, (off_t)offset, length) < 0)
		die("fallocate of %u at %llu: %s", length, (unsigned long long)offset,
		    strerror(errno));
	memset(e.model + offset, 0, length);
}

static void do_sync(void)
{
	if ((prng_one_in(&e.prng, 2) ? fsync(e.fd) : fdatasync(e.fd)) < 0)
		die("sync: %s", strerror(errno));
}

static void do_drop(void)
{
	do_sync();
	posix_fadvise(e.fd, 0, 0, POSIX_FADV_DONTNEED);
	if (e.is_device && ioctl(e.fd, BLKFLSBUF) < 0)
		die("BLKFLSBUF: %s", strerror(errno));
}

/* What is behind the end reads as zeroes when the file is longer again. */
static void do_size(void)
{
	uint64_t bytes = MAX(round_down(prng_below(&e.prng, e.size_bytes), (uint64_t)e.align),
			     e.size_bytes / 2);

	if (e.is_device)
		return;
	if (ftruncate(e.fd, (off_t)bytes) < 0 || ftruncate(e.fd, (off_t)e.size_bytes) < 0)
		die("ftruncate: %s", strerror(errno));
	memset(e.model + bytes, 0, e.size_bytes - bytes);
}

static void run(const struct operation *o)
{
	switch (o->what) {
	case READ:
		do_read(o->offset, o->length);
		break;
	case WRITE:
		do_write(o->offset, o->length);
		break;
	case MAP_READ:
	case MAP_WRITE:
		do_mapped(o->offset, o->length, o->what == MAP_WRITE);
		break;
	case ZERO:
	case HOLE:
		do_zero(o->offset, o->length, o->what == HOLE);
		break;
	case SYNC:
		do_sync();
		break;
	case DROP:
		do_drop();
		break;
	case REOPEN:
		open_again();
		break;
	default:
		do_size();
	}
}

/* Reads and writes mostly; what concerns all now and then. Small ones mostly, some large. */
static void draw(struct operation *o)
{
	static const uint8_t of[] = { READ,  READ, READ,     READ,	WRITE,	   WRITE, WRITE,
				      WRITE, READ, MAP_READ, MAP_WRITE, MAP_WRITE, ZERO,  HOLE };
	uint32_t align, length;

	if (prng_one_in(&e.prng, 12))
		o->what = SYNC + (enum what)prng_below(&e.prng, WHAT_NR - SYNC);
	else
		o->what = of[prng_below(&e.prng, sizeof(of))];
	/* A block device is zeroed by whole blocks. */
	align = (o->what == ZERO || o->what == HOLE) && e.is_device ? MAX(e.align, 512u) : e.align;
	if (o->what == MAP_READ || o->what == MAP_WRITE)
		align = 1;
	length = (uint32_t)prng_below(&e.prng, prng_one_in(&e.prng, 4) ? LENGTH_MAX : 16384) + 1;
	length = MAX(round_down(length, align), align);
	o->offset = round_down(prng_below(&e.prng, e.size_bytes - length + 1), (uint64_t)align);
	o->length = length;
}

static void exercise(void)
{
	for (e.op_nr = 0; e.op_nr < e.ops; e.op_nr++) {
		struct operation *o = &e.history[e.op_nr % HISTORY_NR];

		draw(o);
		run(o);
	}
	do_drop();
	for (uint64_t at = 0; at < e.size_bytes; at += LENGTH_MAX)
		do_read(at, (uint32_t)MIN((uint64_t)LENGTH_MAX, e.size_bytes - at));
	do_sync();
}

/* ---- the beginning and the end ---- */

static void prepare(void)
{
	int logical = 512;

	open_again();
	if (!e.is_device && ftruncate(e.fd, (off_t)e.size_bytes) < 0)
		die("%s: %s", e.path, strerror(errno));
	if (e.is_device)
		ioctl(e.fd, BLKSSZGET, &logical);
	if (e.is_direct)
		e.align = e.is_device ? (uint32_t)logical : PAGE_BYTES;
	e.model = malloc(e.size_bytes);
	e.history = calloc(HISTORY_NR, sizeof(*e.history));
	if (!e.model || !e.history || posix_memalign((void **)&e.buf, PAGE_BYTES, LENGTH_MAX) != 0)
		die("out of memory");
	for (uint64_t at = 0; at < e.size_bytes; at += LENGTH_MAX) {
		uint32_t length = (uint32_t)MIN((uint64_t)LENGTH_MAX, e.size_bytes - at);

		if (!e.keeps)
			do_write(at, length);
		else if (pread(e.fd, e.buf, length, (off_t)at) != (ssize_t)length)
			die("%s: %s", e.path, strerror(errno));
		else
			memcpy(e.model + at, e.buf, length);
	}
}

static void dump(void)
{
	FILE *f = fopen(e.dump, "we");

	if (!f || fwrite(e.model, 1, e.size_bytes, f) != e.size_bytes || fclose(f) != 0)
		die("%s: %s", e.dump, strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", 1, NULL, 's' },   { "ops", 1, NULL, 'n' },  { "size", 1, NULL, 'z' },
		{ "direct", 0, NULL, 'd' }, { "keep", 0, NULL, 'k' }, { "dump", 1, NULL, 'o' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 's')
			e.seed = strtoull(optarg, NULL, 0);
		else if (c == 'n')
			e.ops = strtoull(optarg, NULL, 0);
		else if (c == 'z')
			e.size_bytes = strtoull(optarg, NULL, 0);
		else if (c == 'd')
			e.is_direct = true;
		else if (c == 'k')
			e.keeps = true;
		else if (c == 'o')
			e.dump = optarg;
		else
			return 2;
	}
	if (optind + 1 != argc || e.size_bytes < LENGTH_MAX || e.size_bytes % PAGE_BYTES) {
		fprintf(stderr,
			"usage: exerciser [--seed N] [--ops N] [--size BYTES] [--direct] [--keep] "
			"[--dump FILE] PATH\n");
		return 2;
	}
	e.path = argv[optind];
	prng_init(&e.prng, e.seed);
	prepare();
	exercise();
	if (e.dump)
		dump();
	printf("exerciser: %llu operations, seed %llu: all bytes are right\n",
	       (unsigned long long)e.ops, (unsigned long long)e.seed);
	return 0;
}
