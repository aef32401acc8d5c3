/*
 * Writes records to a block device and notes which of them were promised to last; later looks into
 * the file behind the device for all that was promised. powercut.sh cuts the power in between.
 *
 *   powercut write DEVICE FOLDER SEED SYNC     until killed; SYNC: flush, fua or both
 *   powercut check FILE FOLDER SEED SYNC       exit code 1 and words when a promise was broken
 *
 * Each thread has places of its own (place % THREADS_NR) and counts its writes. Where its write
 * number n goes, how long it is and what is in it follows from (seed, thread, n), so that the notes
 * need only numbers: FOLDER/T has a line "flush N" after an fdatasync that began when all writes up
 * to N were done, and "fua N" after write N itself was done with RWF_DSYNC. FOLDER lies on the
 * host.
 *
 * The check replays each thread's numbers up to the last that can have been sent. A sector must
 * hold a write that is not older than the last one promised for it, whole; where nothing was
 * promised, any write or zeroes.
 *
 * Failure modes: an I/O error ends the writer with words; notes that cannot be read, the checker.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/prng.h"
#include "base/util.h"

#define THREADS_NR 4
#define PLACES_NR 256 /* per thread; few enough to be written again */
#define PLACE_SECTORS 16
#define SECTOR_BYTES 512
#define PLACE_BYTES (PLACE_SECTORS * SECTOR_BYTES)
#define FLUSH_EVERY 24 /* writes, at most: so many can be sent and not be promised */
#define SECTORS_NR (THREADS_NR * PLACES_NR * PLACE_SECTORS)
#define WORDS_NR (SECTOR_BYTES / sizeof(uint64_t))

enum sync_kind { SYNC_FLUSH, SYNC_FUA, SYNC_BOTH };

struct record {
	uint64_t number; /* from 1 on */
	unsigned first_sector, sectors_nr;
	bool fua, flush_after;
};

struct writer {
	pthread_t thread;
	unsigned idx;
	int device, notes;
	uint64_t seed;
	enum sync_kind sync;
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "powercut: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	exit(2);
}

static enum sync_kind sync_parse(const char *text)
{
	static const char *const names[] = { "flush", "fua", "both" };

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(text, names[i]) == 0)
			return (enum sync_kind)i;
	die("SYNC is flush, fua or both, not %s", text);
}

/* --- what follows from a number ------------------------------------------------------------- */

static struct record record_of(uint64_t seed, unsigned thread, uint64_t number, enum sync_kind sync)
{
	struct record r = { .number = number };
	unsigned place, skip;
	struct prng p;

	prng_init(&p, seed * 1000003 + number * THREADS_NR + thread);
	prng_next(&p);
	place = (unsigned)prng_below(&p, PLACES_NR) * THREADS_NR + thread;
	skip = (unsigned)prng_below(&p, PLACE_SECTORS);
	r.first_sector = place * PLACE_SECTORS + skip;
	r.sectors_nr = 1 + (unsigned)prng_below(&p, PLACE_SECTORS - skip);
	r.fua = sync != SYNC_FLUSH && prng_one_in(&p, 4);
	r.flush_after = sync != SYNC_FUA && (prng_one_in(&p, 12) || number % FLUSH_EVERY == 0);
	return r;
}

/* Every word of a sector says whose it is: a sector that is torn is none. */
static void sector_fill(uint64_t *words, uint64_t seed, uint64_t number, unsigned sector)
{
	struct prng p;

	words[0] = number;
	prng_init(&p, seed ^ number * 0x100000001b3ull ^ (uint64_t)sector << 40);
	for (unsigned i = 1; i < WORDS_NR; i++)
		words[i] = prng_next(&p);
}

/* --- writing -------------------------------------------------------------------------------- */

/* Through virtiofs to the host's file, before it returns. */
static void note(const struct writer *w, const char *what, uint64_t number)
{
	char line[64];
	int bytes = snprintf(line, sizeof(line), "%s %llu\n", what, (unsigned long long)number);

	if (write(w->notes, line, (size_t)bytes) != bytes)
		die("notes: %s", strerror(errno));
}

static void record_write(const struct writer *w, const struct record *r, void *buf)
{
	struct iovec iov = { .iov_base = buf, .iov_len = (size_t)r->sectors_nr * SECTOR_BYTES };
	off_t offset = (off_t)r->first_sector * SECTOR_BYTES;
	ssize_t done;

	for (unsigned i = 0; i < r->sectors_nr; i++)
		sector_fill((uint64_t *)buf + i * WORDS_NR, w->seed, r->number,
			    r->first_sector + i);
	done = pwritev2(w->device, &iov, 1, offset, r->fua ? RWF_DSYNC : 0);
	if (done != (ssize_t)iov.iov_len)
		die("write of %zu bytes at %lld: %s", iov.iov_len, (long long)offset,
		    done < 0 ? strerror(errno) : "short");
	if (r->fua)
		note(w, "fua", r->number);
}

static void *writer_run(void *arg)
{
	const struct writer *w = arg;
	void *buf = aligned_alloc(4096, PLACE_BYTES);

	if (!buf)
		die("out of memory");
	for (uint64_t number = 1;; number++) {
		struct record r = record_of(w->seed, w->idx, number, w->sync);

		record_write(w, &r, buf);
		if (!r.flush_after)
			continue;
		if (fdatasync(w->device))
			die("fdatasync: %s", strerror(errno));
		note(w, "flush", number);
	}
	return NULL;
}

static int open_notes(const char *folder, unsigned thread, int flags)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%u", folder, thread);
	fd = open(path, flags | O_CLOEXEC, 0644);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	return fd;
}

static int write_main(const char *device, const char *folder, uint64_t seed, enum sync_kind sync)
{
	static struct writer writers[THREADS_NR];

	for (unsigned i = 0; i < THREADS_NR; i++) {
		struct writer *w = &writers[i];

		*w = (struct writer){ .idx = i, .seed = seed, .sync = sync };
		w->device = open(device, O_WRONLY | O_DIRECT | O_CLOEXEC);
		if (w->device < 0)
			die("%s: %s", device, strerror(errno));
		w->notes = open_notes(folder, i, O_WRONLY | O_CREAT | O_TRUNC);
		if (pthread_create(&w->thread, NULL, writer_run, w))
			die("no thread");
	}
	pthread_join(writers[0].thread, NULL); /* never: somebody kills this process */
	return 0;
}

/* --- checking ------------------------------------------------------------------------------- */

struct promises {
	uint64_t flushed, *fua, fua_nr, last;
};

static void promises_read(struct promises *p, const char *folder, unsigned thread)
{
	FILE *file = fdopen(open_notes(folder, thread, O_RDONLY), "r");
	unsigned long long number;
	char what[16];

	*p = (struct promises){ 0 };
	/* the last line may be cut, and is then no promise */
	for (char line[64]; file && fgets(line, sizeof(line), file) && strchr(line, '\n');) {
		if (sscanf(line, "%15s %llu", what, &number) != 2)
			die("notes of thread %u: strange line %s", thread, line);
		p->last = MAX(p->last, number);
		if (strcmp(what, "flush") == 0) {
			p->flushed = number;
			continue;
		}
		p->fua = reallocarray(p->fua, p->fua_nr + 1, sizeof(*p->fua));
		if (!p->fua)
			die("out of memory");
		p->fua[p->fua_nr++] = number;
	}
	if (file)
		fclose(file);
}

/* For each sector: the last number promised for it. */
static uint64_t promised[SECTORS_NR];

static void promise(const struct record *r)
{
	for (unsigned i = 0; i < r->sectors_nr; i++)
		promised[r->first_sector + i] = MAX(promised[r->first_sector + i], r->number);
}

static void promise_all(const struct promises *p, uint64_t seed, unsigned thread,
			enum sync_kind sync)
{
	for (uint64_t n = 1; n <= p->flushed; n++) {
		struct record r = record_of(seed, thread, n, sync);

		promise(&r);
	}
	for (uint64_t i = 0; i < p->fua_nr; i++) {
		struct record r = record_of(seed, thread, p->fua[i], sync);

		promise(&r);
	}
}

static bool is_zero(const uint64_t *words)
{
	for (unsigned i = 0; i < WORDS_NR; i++)
		if (words[i])
			return false;
	return true;
}

/* NULL when the sector is right, else what is wrong with it. */
static const char *sector_fault(const uint64_t *words, uint64_t seed, enum sync_kind sync,
				unsigned sector)
{
	unsigned thread = sector / PLACE_SECTORS % THREADS_NR;
	uint64_t expected[WORDS_NR];
	struct record r;

	if (is_zero(words))
		return promised[sector] ? "holds zeroes" : NULL;
	r = record_of(seed, thread, words[0], sync);
	if (sector < r.first_sector || sector >= r.first_sector + r.sectors_nr)
		return "holds a write that never went there";
	if (words[0] < promised[sector])
		return "holds an older write";
	sector_fill(expected, seed, words[0], sector);
	return memcmp(words, expected, sizeof(expected)) ? "is torn" : NULL;
}

static int check_main(const char *path, const char *folder, uint64_t seed, enum sync_kind sync)
{
	unsigned wrong_nr = 0, promised_nr = 0, newer_nr = 0;
	uint64_t words[WORDS_NR], writes_nr = 0;
	FILE *file = fopen(path, "r");

	if (!file)
		die("%s: %s", path, strerror(errno));
	for (unsigned i = 0; i < THREADS_NR; i++) {
		struct promises p;

		promises_read(&p, folder, i);
		promise_all(&p, seed, i, sync);
		writes_nr += p.last;
		free(p.fua);
	}
	for (unsigned s = 0; s < SECTORS_NR; s++) {
		const char *fault;

		if (fread(words, SECTOR_BYTES, 1, file) != 1)
			memset(words, 0, sizeof(words)); /* it never grew so far */
		fault = sector_fault(words, seed, sync, s);
		promised_nr += promised[s] > 0;
		newer_nr += words[0] > promised[s];
		if (fault && wrong_nr++ < 10)
			printf("sector %u %s: number %llu, promised %llu\n", s, fault,
			       (unsigned long long)words[0], (unsigned long long)promised[s]);
	}
	fclose(file);
	printf("%llu writes, %u sectors promised, %u newer than promised, %u wrong\n",
	       (unsigned long long)writes_nr, promised_nr, newer_nr, wrong_nr);
	if (promised_nr == 0)
		die("nothing was promised: nothing is shown");
	return wrong_nr > 0;
}

int main(int argc, char **argv)
{
	if (argc == 6) {
		uint64_t seed = strtoull(argv[4], NULL, 10);
		enum sync_kind sync = sync_parse(argv[5]);

		if (strcmp(argv[1], "write") == 0)
			return write_main(argv[2], argv[3], seed, sync);
		if (strcmp(argv[1], "check") == 0)
			return check_main(argv[2], argv[3], seed, sync);
	}
	fprintf(stderr, "usage: powercut write|check DEVICE|FILE FOLDER SEED flush|fua|both\n");
	return 2;
}
