/*
 * A tree of backends, opened from YAML as the daemon would, does what a script says; in the spirit
 * of qemu-io. All that is known of its bytes is kept in a model, and every read is compared.
 *
 *   node_io [--queues N] [--depth N] [--block BYTES] [--read-only] [--seconds N] [--rss MIB] SCRIPT
 * TREE...
 *
 * Each TREE is a file of YAML whose root has children; SCRIPT is a file, or - for the standard
 * input. Of several trees each gets a process of its own, and a line says how it ended. Exit codes:
 * 0, 1 something was wrong, 3 the tree was not opened (its words are printed). --seconds: a process
 * that takes longer is ended; --rss: one that took more memory has failed.
 *
 * Lines of a script; numbers may end with k, M or G. Requests of one line after the other are in
 * flight together, on all queues in turn, but for those that overlap.
 *   zeroes                     the model: all reads as zeroes (it begins with nothing known)
 *   load FILE                  the model: all is as in this file
 *   write OFF LEN SEED [fua]   bytes of a generator
 *   zero OFF LEN [nounmap]     WRITE_ZEROES
 *   discard OFF LEN, flush
 *   read OFF LEN               what is known must be read
 *   fails OFF LEN [write]      a READ, or a WRITE, must end with an error
 *   verify                     reads all
 *   random SEED N              N random requests, many in flight, and all is read
 *   dump FILE                  all that the tree has, as a file
 *   probe                      reads, whatever comes of it: the first 64 MiB, and other places
 *   scribble SEED N            N requests of all kinds, whatever comes of them
 *   close, crash, open         with or without last words, and again
 *   snapshot create|delete|apply NAME [SEED N]   N writes meanwhile: what is there already to the
 *                              first half, bytes of a generator to the second (all of which
 *                              must be known: dump)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/registry.h"
#include "storage/snapshot.h"
#include "test/conformance/model.h"

#define YAML_BYTES 8192u
#define WORDS_MAX 6
#define PROBE_BYTES MIB(64)
/* As a seed: what the model has. */
#define SAME_BYTES UINT64_MAX

static struct rig_params params = { .name = "node", .block_bytes = 512, .queue_nr = 2, .depth = 8 };
static char yaml[YAML_BYTES];
static struct rig rig;
static struct model model;
static bool is_open, has_model;
static unsigned next_io, line_nr;
/* What a request that failed means: an error of the run, or what was to be seen. */
static enum { MUST_SUCCEED, MUST_FAIL, MAY_FAIL } judgement;
static unsigned failed_nr, done_nr;

static void end_with(int code)
{
	fflush(stdout);
	_exit(code);
}

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	printf("line %u: ", line_nr);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	end_with(1);
	__builtin_unreachable();
}

/* ---- the tree ---- */

static const struct backend *root_of(const char *text)
{
	const char *type = strstr(text, "type:");
	char name[32] = "";

	if (type)
		sscanf(type, "type: %31[a-z0-9_-]", name);
	return backend_find(name);
}

static void tree_open(void)
{
	int ret;

	params.yaml = yaml;
	params.ops = root_of(yaml);
	if (!params.ops || !params.ops->children)
		die("the root of the tree has no children");
	ret = rig_open(&rig, &params);
	if (ret < 0) {
		printf("refused: %s (%s)\n", rig.error, errname(ret));
		end_with(rig.error[0] ? 3 : 1);
	}
	is_open = true;
	if (!has_model && rig.device->limits.size_bytes <= GIB(1)) {
		model_init(&model, &rig, MODEL_UNKNOWN);
		has_model = true;
	}
}

static void tree_close(bool crash)
{
	if (!is_open)
		return;
	rig_drain(&rig);
	if (crash)
		rig_crash(&rig);
	else
		rig_close(&rig);
	is_open = false;
}

/* ---- requests ---- */

static void on_done(struct rig_io *rio, void *arg)
{
	struct backend_io *io = &rio->io;
	int64_t wrong;

	(void)arg;
	done_nr++;
	if (io->result < 0) {
		failed_nr++;
		if (judgement == MUST_SUCCEED)
			die("%s %llu %u: %s", backend_op_name(io->op),
			    (unsigned long long)io->offset_bytes, io->length_bytes,
			    errname(io->result));
		return;
	}
	if (judgement == MUST_FAIL)
		die("a %s of %llu did not fail", backend_op_name(io->op),
		    (unsigned long long)io->offset_bytes);
	if (judgement == MAY_FAIL || !has_model)
		return;
	wrong = io->op == BACKEND_READ ? model_compare(&model, io) : -1;
	if (wrong >= 0)
		die("wrong byte at %lld: 0x%02x, not 0x%02x", (long long)wrong,
		    ((uint8_t *)io->buf)[(uint64_t)wrong - io->offset_bytes], model.bytes[wrong]);
	if (io->op != BACKEND_READ && io->op != BACKEND_FLUSH)
		model_apply(&model, io);
}

static bool overlaps_any(uint64_t at, uint64_t bytes)
{
	for (unsigned i = 0; i < rig.queue_nr * rig.depth; i++) {
		const struct rig_io *rio = &rig.queue[i % rig.queue_nr].io[i / rig.queue_nr];

		if (rio->out && at < rio->io.offset_bytes + rio->io.length_bytes &&
		    rio->io.offset_bytes < at + bytes)
			return true;
	}
	return false;
}

/* The next one, of the queues in turn, when it is free. */
static struct rig_io *get_io(void)
{
	unsigned i = next_io++ % (rig.queue_nr * rig.depth);
	struct rig_io *rio = &rig.queue[i % rig.queue_nr].io[i / rig.queue_nr];

	while (rio->out)
		rig_turn(&rig);
	return rio;
}

static void start(enum backend_op op, unsigned flags, uint64_t at, uint64_t bytes, uint64_t seed)
{
	struct rig_io *rio = get_io();
	struct prng prng;

	while (overlaps_any(at, bytes))
		rig_turn(&rig);
	rio->done = on_done;
	rio->io.op = op;
	rio->io.flags = (uint8_t)flags;
	rio->io.offset_bytes = at;
	rio->io.length_bytes = (uint32_t)bytes;
	prng_init(&prng, seed ^ at);
	if (op == BACKEND_WRITE && seed == SAME_BYTES)
		memcpy(rio->io.buf, model.bytes + at, bytes);
	else if (op == BACKEND_WRITE)
		for (uint64_t i = 0; i < bytes / 8; i++)
			((uint64_t *)rio->io.buf)[i] = prng_next(&prng);
	else if (op == BACKEND_READ)
		memset(rio->io.buf, 0xa5, bytes);
	rig_submit(&rig, rio);
}

/* Cut to what one request may have. */
static void start_all(enum backend_op op, unsigned flags, uint64_t at, uint64_t bytes,
		      uint64_t seed)
{
	uint64_t size = rig.device->limits.size_bytes;
	uint32_t max = rig.device->limits.max_io_bytes;

	max = max ? MIN(max, RIG_IO_BYTES) : RIG_IO_BYTES;
	if (at > size || bytes > size - at)
		die("beyond the end, which is %llu", (unsigned long long)size);
	for (uint64_t done = 0; done < bytes; done += max)
		start(op, flags, at + done, MIN(bytes - done, (uint64_t)max), seed);
}

/* ---- what a script says ---- */

static uint64_t number(const char *text)
{
	static const char suffixes[] = "kMG";
	char *end;
	uint64_t n = text ? strtoull(text, &end, 0) : 0;
	const char *suffix = text && *end ? strchr(suffixes, *end) : NULL;

	if (!text || end == text || (*end && !suffix))
		die("\"%s\" is no number", text ? text : "");
	return suffix ? n << 10 * (suffix - suffixes + 1) : n;
}

static void do_write(char *const *word)
{
	start_all(BACKEND_WRITE, word[4] ? BACKEND_FUA : 0, number(word[1]), number(word[2]),
		  number(word[3]));
}

static void do_zero(char *const *word)
{
	start_all(BACKEND_WRITE_ZEROES, word[3] ? BACKEND_NOUNMAP : 0, number(word[1]),
		  number(word[2]), 0);
}

static void do_discard(char *const *word)
{
	start_all(BACKEND_DISCARD, 0, number(word[1]), number(word[2]), 0);
}

static void do_flush(char *const *word)
{
	(void)word;
	rig_drain(&rig);
	start(BACKEND_FLUSH, 0, 0, 0, 0);
	rig_drain(&rig);
}

static void do_read(char *const *word)
{
	start_all(BACKEND_READ, 0, number(word[1]), number(word[2]), 0);
}

static void do_fails(char *const *word)
{
	rig_drain(&rig);
	judgement = MUST_FAIL;
	start_all(word[3] ? BACKEND_WRITE : BACKEND_READ, 0, number(word[1]), number(word[2]), 1);
	rig_drain(&rig);
	judgement = MUST_SUCCEED;
}

static void do_verify(char *const *word)
{
	(void)word;
	start_all(BACKEND_READ, 0, 0, rig.device->limits.size_bytes, 0);
	rig_drain(&rig);
}

static void do_zeroes(char *const *word)
{
	(void)word;
	model_fini(&model);
	model_init(&model, &rig, MODEL_ZEROES);
}

static void do_load(char *const *word)
{
	FILE *f = fopen(word[1], "re");

	if (!f || !has_model)
		die("%s: cannot be loaded", word[1]);
	rig_drain(&rig);
	if (fread(model.bytes, 1, model.size_bytes, f) != model.size_bytes || fgetc(f) != EOF)
		die("%s has not the size of the disk, %llu", word[1],
		    (unsigned long long)model.size_bytes);
	memset(model.known, 1, model.size_bytes / model.block_bytes);
	fclose(f);
}

/* What was discarded counts as it was read, from now on. */
static void do_dump(char *const *word)
{
	FILE *f = fopen(word[1], "we");
	uint64_t size = rig.device->limits.size_bytes;

	if (!f)
		die("%s: %s", word[1], strerror(errno));
	rig_drain(&rig);
	for (uint64_t at = 0; at < size; at += RIG_IO_BYTES) {
		struct rig_io *rio = get_io();
		uint64_t bytes = MIN(size - at, (uint64_t)RIG_IO_BYTES);

		next_io--;
		start(BACKEND_READ, 0, at, bytes, 0);
		rig_drain(&rig);
		if (fwrite(rio->io.buf, 1, bytes, f) != bytes)
			die("%s: %s", word[1], strerror(errno));
		if (has_model)
			memcpy(model.bytes + at, rio->io.buf, bytes);
	}
	if (has_model)
		memset(model.known, 1, size / model.block_bytes);
	fclose(f);
}

static void do_random(char *const *word)
{
	struct model_stats stats;
	struct prng prng;

	rig_drain(&rig);
	prng_init(&prng, number(word[1]));
	model_run(&model, &rig, &prng, number(word[2]), &stats);
	if (stats.error_nr > 0)
		die("seed %s: %llu errors, the first: %s", word[1],
		    (unsigned long long)stats.error_nr, stats.first_error);
}

static void do_probe(char *const *word)
{
	uint64_t size = rig.device->limits.size_bytes, at;
	struct prng prng;

	(void)word;
	judgement = MAY_FAIL;
	prng_init(&prng, 1);
	for (at = 0; at < MIN(size, PROBE_BYTES); at += 65536)
		start(BACKEND_READ, 0, at, MIN(size - at, 65536ull), 0);
	for (unsigned i = 0; i < 256 && size > PROBE_BYTES; i++)
		start(BACKEND_READ, 0, prng_below(&prng, size / 4096) * 4096, 4096, 0);
	rig_drain(&rig);
	judgement = MUST_SUCCEED;
}

static void scribble(struct prng *prng, uint64_t blocks)
{
	static const enum backend_op ops[] = {
		BACKEND_WRITE,	 BACKEND_WRITE,	       BACKEND_WRITE,
		BACKEND_DISCARD, BACKEND_WRITE_ZEROES, BACKEND_READ
	};
	enum backend_op op = ops[prng_below(prng, ARRAY_SIZE(ops))];
	uint64_t at = prng_below(prng, blocks);
	uint64_t nr = 1 + prng_below(prng, MIN(blocks - at, 256ull));
	unsigned flags = op == BACKEND_WRITE_ZEROES && prng_one_in(prng, 2) ? BACKEND_NOUNMAP : 0;

	start(op, flags, at * params.block_bytes, nr * params.block_bytes, prng_next(prng));
	if (prng_one_in(prng, 20))
		start(BACKEND_FLUSH, 0, 0, 0, 0);
}

static void do_scribble(char *const *word)
{
	uint64_t blocks = MIN(rig.device->limits.size_bytes, PROBE_BYTES) / params.block_bytes;
	struct prng prng;

	judgement = MAY_FAIL;
	prng_init(&prng, number(word[1]));
	for (uint64_t nr = number(word[2]); nr > 0 && blocks > 0; nr--)
		scribble(&prng, blocks);
	rig_drain(&rig);
	judgement = MUST_SUCCEED;
}

#include "node_snapshot.h"

static void do_close(char *const *word)
{
	(void)word;
	tree_close(false);
}

static void do_crash(char *const *word)
{
	(void)word;
	tree_close(true);
}

static void do_open(char *const *word)
{
	(void)word;
	if (!is_open)
		tree_open();
}

static const struct {
	const char *name;
	void (*fn)(char *const *word);
} commands[] = {
	{ "zeroes", do_zeroes }, { "load", do_load },	      { "write", do_write },
	{ "zero", do_zero },	 { "discard", do_discard },   { "flush", do_flush },
	{ "read", do_read },	 { "fails", do_fails },	      { "verify", do_verify },
	{ "random", do_random }, { "dump", do_dump },	      { "probe", do_probe },
	{ "close", do_close },	 { "scribble", do_scribble }, { "crash", do_crash },
	{ "open", do_open },	 { "snapshot", do_snapshot },
};

static void do_line(char *line)
{
	char *word[WORDS_MAX + 1] = { 0 }, *saved = NULL;
	unsigned nr = 0;

	line_nr++;
	for (char *w = strtok_r(line, " \t\n", &saved); w && nr < WORDS_MAX;
	     w = strtok_r(NULL, " \t\n", &saved))
		word[nr++] = w;
	if (nr == 0 || word[0][0] == '#')
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(word[0], commands[i].name) != 0)
			continue;
		if (!is_open && commands[i].fn != do_open)
			die("%s: the tree is closed", word[0]);
		commands[i].fn(word);
		return;
	}
	die("\"%s\" is no command", word[0]);
}

/* ---- processes ---- */

static void read_tree(const char *path)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(yaml, 1, sizeof(yaml) - 1, f) : 0;

	if (n == 0)
		die("%s: cannot be read", path);
	yaml[n] = '\0';
	fclose(f);
}

static int run(const char *path, FILE *script)
{
	char line[1024];

	read_tree(path);
	tree_open();
	while (fgets(line, sizeof(line), script))
		do_line(line);
	line_nr++;
	tree_close(false);
	if (has_model)
		model_fini(&model);
	printf("%u requests, %u failed\n", done_nr, failed_nr);
	return 0;
}

static bool ended_well(const char *path, int status, const struct rusage *usage, long rss_mib)
{
	long mib = usage->ru_maxrss / 1024;
	bool is_well = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);

	if (rss_mib && mib > rss_mib)
		is_well = false;
	printf("%s: %s, %s %d, %ld MiB\n", path, is_well ? "well" : "NOT WELL",
	       WIFEXITED(status) ? "code" : "signal",
	       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), mib);
	return is_well;
}

/* In a process of its own. */
static bool run_apart(const char *path, const char *script, unsigned seconds, long rss_mib)
{
	struct rusage usage;
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		FILE *f = fopen(script, "re");

		alarm(seconds);
		if (!f)
			die("%s: %s", script, strerror(errno));
		status = run(path, f);
		fclose(f);
		exit(status);
	}
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid)
		die("no process: %s", strerror(errno));
	return ended_well(path, status, &usage, rss_mib);
}

/* Returns how many of the words are options; -1: they make no sense. By hand: as in main.c. */
static int parse_args(int argc, char **argv, unsigned *ret_seconds, long *ret_rss_mib)
{
	int i = 1;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		if (strcmp(argv[i], "--read-only") == 0) {
			params.read_only = true;
			continue;
		}
		if (i + 1 == argc)
			return -1;
		if (strcmp(argv[i], "--queues") == 0)
			params.queue_nr = (unsigned)number(argv[i + 1]);
		else if (strcmp(argv[i], "--depth") == 0)
			params.depth = (unsigned)number(argv[i + 1]);
		else if (strcmp(argv[i], "--block") == 0)
			params.block_bytes = (uint32_t)number(argv[i + 1]);
		else if (strcmp(argv[i], "--seconds") == 0)
			*ret_seconds = (unsigned)number(argv[i + 1]);
		else if (strcmp(argv[i], "--rss") == 0)
			*ret_rss_mib = (long)number(argv[i + 1]);
		else
			return -1;
		i++;
	}
	if (params.queue_nr < 1 || params.queue_nr > RIG_QUEUES_MAX || params.depth < 1 ||
	    params.depth > RIG_DEPTH_MAX)
		return -1;
	return i;
}

int main(int argc, char **argv)
{
	unsigned seconds = 60;
	long rss_mib = 0;
	int first = parse_args(argc, argv, &seconds, &rss_mib), bad_nr = 0;
	bool is_stdin;

	if (first < 0 || argc - first < 2) {
		fprintf(stderr, "usage: %s [OPTIONS] SCRIPT|- TREE...\n", argv[0]);
		return 2;
	}
	log_init(LOG_LEVEL_ERROR);
	is_stdin = strcmp(argv[first], "-") == 0;
	if (argc - first == 2 && rss_mib == 0) {
		FILE *f = is_stdin ? stdin : fopen(argv[first], "re");

		alarm(seconds);
		if (!f)
			die("%s: %s", argv[first], strerror(errno));
		return run(argv[first + 1], f);
	}
	for (int i = first + 1; i < argc; i++)
		bad_nr += !run_apart(argv[i], argv[first], seconds, rss_mib);
	return bad_nr > 0;
}
