/*
 * Runs a fuzz target without libFuzzer:
 *
 *	fuzz_x [ITERATIONS [SEED [FIRST]]]	mutations of the corpus, TAP
 *	fuzz_x FILE...				these inputs, as libFuzzer would
 *
 * Iteration i depends on the seed and i alone, so that the one that failed can be run by itself;
 * its number is printed when the process dies, or takes longer than a second for one input.
 */
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/prng.h"
#include "base/util.h"
#include "fuzz.h"

#define INPUT_BYTES_MAX 65536u
#define SEEDS_MAX 64

struct input {
	uint8_t *data;
	size_t bytes;
};

static struct input seeds[SEEDS_MAX];
static unsigned seeds_nr;

static const char *program;
static uint64_t seed = 1;
static uint64_t iteration;

/* In the sanitizers' runtime, when there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void say_again(void)
{
	fprintf(stderr, "# again: %s 1 %" PRIu64 " %" PRIu64 "\n", program, seed, iteration);
}

static void on_alarm(int signal)
{
	(void)signal;
	say_again();
	fprintf(stderr, "# more than a second of CPU time for one input\n");
	_exit(1);
}

/* CPU time: what else runs on the machine fails no test. */
static void set_alarm(unsigned seconds)
{
	const struct itimerval timer = { .it_value = { .tv_sec = seconds } };

	setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

static struct input read_input(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct input in = { .data = malloc(INPUT_BYTES_MAX) };

	if (!file || !in.data) {
		perror(path);
		exit(2);
	}
	in.bytes = fread(in.data, 1, INPUT_BYTES_MAX, file);
	fclose(file);
	return in;
}

static int not_hidden(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* In the order of names, which the numbers of iterations depend on. */
static void read_corpus(const char *dir)
{
	struct dirent **entries = NULL;
	int nr = scandir(dir, &entries, not_hidden, alphasort);

	if (nr <= 0) {
		fprintf(stderr, "no corpus in %s\n", dir);
		exit(2);
	}
	for (int i = 0; i < nr; i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		if (seeds_nr < SEEDS_MAX)
			seeds[seeds_nr++] = read_input(path);
		free(entries[i]);
	}
	free(entries);
}

/* ---- mutations: each keeps in->bytes at most INPUT_BYTES_MAX ---- */

static void insert(struct input *in, size_t at, const void *data, size_t bytes)
{
	if (bytes > INPUT_BYTES_MAX - in->bytes)
		return;
	memmove(in->data + at + bytes, in->data + at, in->bytes - at);
	memcpy(in->data + at, data, bytes);
	in->bytes += bytes;
}

static void flip_bit(struct prng *p, struct input *in)
{
	if (in->bytes != 0)
		in->data[prng_below(p, in->bytes)] ^= (uint8_t)(1u << prng_below(p, 8));
}

static void set_byte(struct prng *p, struct input *in)
{
	if (in->bytes != 0)
		in->data[prng_below(p, in->bytes)] = (uint8_t)prng_next(p);
}

static void insert_word(struct prng *p, struct input *in)
{
	size_t words_nr = 0, at = prng_below(p, in->bytes + 1);
	unsigned times = prng_one_in(p, 8) ? 1 + (unsigned)prng_below(p, 100) : 1;
	const char *word;

	while (fuzz_words[words_nr])
		words_nr++;
	word = fuzz_words[prng_below(p, words_nr)];
	while (times-- > 0)
		insert(in, at, word, strlen(word));
}

/* A range of src, which may be in itself, somewhere into in. */
static void copy_from(struct prng *p, struct input *in, const struct input *src)
{
	size_t from = prng_below(p, src->bytes + 1);
	size_t bytes = prng_below(p, MIN(src->bytes - from, 512u) + 1);
	uint8_t copy[512];

	memcpy(copy, src->data + from, bytes);
	insert(in, prng_below(p, in->bytes + 1), copy, bytes);
}

static void copy_own(struct prng *p, struct input *in)
{
	copy_from(p, in, in);
}

static void copy_other(struct prng *p, struct input *in)
{
	copy_from(p, in, &seeds[prng_below(p, seeds_nr)]);
}

static void remove_range(struct prng *p, struct input *in)
{
	size_t from = prng_below(p, in->bytes + 1);
	size_t bytes = prng_below(p, MIN(in->bytes - from, 64u) + 1);

	memmove(in->data + from, in->data + from + bytes, in->bytes - from - bytes);
	in->bytes -= bytes;
}

static void cut(struct prng *p, struct input *in)
{
	if (prng_one_in(p, 4))
		in->bytes = prng_below(p, in->bytes + 1);
}

static void mutate(struct prng *p, struct input *in)
{
	static void (*const mutations[])(struct prng *, struct input *) = {
		flip_bit, set_byte,   insert_word,  insert_word,
		copy_own, copy_other, remove_range, cut,
	};
	const struct input *from = &seeds[prng_below(p, seeds_nr)];

	memcpy(in->data, from->data, from->bytes);
	in->bytes = from->bytes;
	for (uint64_t left = 1 + prng_below(p, 6); left > 0; left--)
		mutations[prng_below(p, ARRAY_SIZE(mutations))](p, in);
}

/* At its exact size: ASan sees a read past the end. */
static void run_one(const struct input *in)
{
	uint8_t *exact = malloc(in->bytes ? in->bytes : 1);

	ASSERT(exact);
	memcpy(exact, in->data, in->bytes);
	set_alarm(1);
	LLVMFuzzerTestOneInput(exact, in->bytes);
	set_alarm(0);
	free(exact);
}

static void run_mutations(uint64_t first, uint64_t nr)
{
	struct input in = { .data = malloc(INPUT_BYTES_MAX) };

	ASSERT(in.data);
	for (iteration = first; iteration < first + nr; iteration++) {
		struct prng p;

		prng_init(&p, seed * 0x100000001b3ull + iteration);
		mutate(&p, &in);
		run_one(&in);
	}
	free(in.data);
}

static void watch(void)
{
	signal(SIGVTALRM, on_alarm);
	assert_hook = say_again;
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(say_again);
}

static int run_files(char **paths)
{
	for (; *paths; paths++) {
		struct input in = read_input(*paths);

		run_one(&in);
		free(in.data);
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t nr = FUZZ_ITERATIONS, first = 0;

	program = argv[0];
	if (argc > 1 && !isdigit((unsigned char)argv[1][0]))
		return run_files(argv + 1);
	nr = argc > 1 ? strtoull(argv[1], NULL, 10) : nr;
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
	first = argc > 3 ? strtoull(argv[3], NULL, 10) : first;
	setvbuf(stdout, NULL, _IOLBF, 0);
	read_corpus(FUZZ_CORPUS);
	watch();
	printf("1..2\n");
	for (unsigned i = 0; i < seeds_nr; i++)
		run_one(&seeds[i]);
	printf("ok 1 - %u inputs of the corpus\n", seeds_nr);
	run_mutations(first, nr);
	printf("ok 2 - %" PRIu64 " mutations from %" PRIu64 ", seed %" PRIu64 "\n", nr, first,
	       seed);
	for (unsigned i = 0; i < seeds_nr; i++)
		free(seeds[i].data);
	return 0;
}
