/*
 * Documents made to hurt: each is refused, or read, in bounded CPU time and memory. The limit is a
 * multiple of the CPU time that this machine takes for a plain document of the same size, so that
 * neither a slow machine nor a busy one fails the test: the worst takes 2 times as long, a
 * quadratic one above 50 times. A document above the limit is measured again, both it and the plain
 * one: the machine may have changed its speed in between. The sizes are such that also a quadratic
 * one ends.
 */
#include "test/rig/config_check.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "base/util.h"

#define SLOWER_MAX 25
#define TRIES 3
#define REPETITION_BYTES KIB(128) /* of each of the many combinations */
#define FILLED_BYTES MIB(1)

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
/* Freed memory waits in quarantine. */
#define RSS_KIB_MAX (1024l << 10)
#else
#define RSS_KIB_MAX (128l << 10)
#endif

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static long rss_kib_max(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

/*
 * What a reader does with a document: each map by a table. A hostile document may have many maps,
 * and be the same map many times.
 */
struct thing {
	char *text;
	uint64_t size;
	struct option_cpus cpus;
};

static const struct option thing_options[] = {
	{ .name = "text", .type = OPTION_STRING, .offset = offsetof(struct thing, text) },
	{ .name = "size",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct thing, size),
	  .def = "1M" },
	{ .name = "cpus",
	  .type = OPTION_CPUS,
	  .offset = offsetof(struct thing, cpus),
	  .def = "auto" },
	OPTION_END,
};

static void read_options(const struct yaml_node *node, struct config_errors *e)
{
	struct thing thing;

	if (node->kind == YAML_LIST)
		for (size_t i = 0; i < node->list.nr; i++)
			read_options(node->list.items[i], e);
	if (node->kind != YAML_MAP)
		return;
	option_parse(thing_options, node, NULL, &thing, sizeof(thing), e);
	option_free(thing_options, &thing);
	for (size_t i = 0; i < node->map.nr; i++)
		read_options(node->map.pairs[i].value, e);
}

/* The whole way: to the text of the errors. Returns the CPU time. */
static uint64_t run_once(const char *name, const char *text, size_t bytes)
{
	uint64_t start_ns = cpu_ns(), took_ns;
	struct config_check c;
	char *errors;

	check_parse_bytes(&c, text, bytes);
	if (c.doc.root)
		read_options(c.doc.root, &c.errors);
	errors = config_errors_text(&c.errors);
	took_ns = cpu_ns() - start_ns;
	assert_non_null(errors);
	assert_in_range(strlen(errors), 0, 100000);
	free(errors);
	check_fini(&c);
	if (rss_kib_max() > RSS_KIB_MAX)
		fail_msg("%s: %ld KiB of memory", name, rss_kib_max());
	return took_ns;
}

/* What this machine takes now for a plain document of that size. */
static uint64_t plain_ns(size_t bytes)
{
	static const char line[] = "- {size: 4k, text: some words}\n";
	size_t used = 3;
	char *text = malloc(bytes + 3);
	uint64_t took_ns;

	assert_non_null(text);
	memcpy(text, "k:\n", 3);
	for (; used + sizeof(line) - 1 <= bytes; used += sizeof(line) - 1)
		memcpy(text + used, line, sizeof(line) - 1);
	took_ns = run_once("a plain document", text, used);
	free(text);
	return took_ns;
}

static void run(const char *name, const char *text, size_t bytes, size_t bytes_max)
{
	static uint64_t known_ns;
	static size_t known_bytes;
	uint64_t took_ns = run_once(name, text, bytes), limit_ns;

	if (known_bytes != bytes_max)
		known_ns = plain_ns(bytes_max);
	known_bytes = bytes_max;
	limit_ns = SLOWER_MAX * known_ns;
	/* how far the shapes are from the limit */
	if (getenv("YAML_HOSTILE_VERBOSE"))
		print_message("# %.1f %s\n", (double)took_ns / (double)known_ns, name);
	for (unsigned i = 1; i < TRIES && took_ns > limit_ns; i++) {
		took_ns = run_once(name, text, bytes);
		limit_ns = MAX(limit_ns, SLOWER_MAX * plain_ns(bytes_max));
	}
	if (took_ns > limit_ns)
		fail_msg("%s took %u ms, limit %u ms", name, (unsigned)(took_ns / NS_PER_MS),
			 (unsigned)(limit_ns / NS_PER_MS));
}

/* head, then unit as often as fits. */
static void run_filled_to(size_t bytes_max, const char *head, const char *unit)
{
	size_t head_bytes = strlen(head), unit_bytes = strlen(unit), bytes = head_bytes;
	char *text = malloc(bytes_max), name[128];

	assert_non_null(text);
	memcpy(text, head, head_bytes);
	for (; bytes + unit_bytes <= bytes_max; bytes += unit_bytes)
		memcpy(text + bytes, unit, unit_bytes);
	snprintf(name, sizeof(name), "\"%.20s\" and \"%.60s\" again and again", head, unit);
	run(name, text, bytes, bytes_max);
	free(text);
}

static void run_filled(const char *head, const char *unit)
{
	run_filled_to(FILLED_BYTES, head, unit);
}

/* Every shape of YAML without an end, in every place. */
static void test_endless_repetition(void **state)
{
	static const char *const heads[] = { "", "k: ", "k: [", "k: {", "k: \"", "k: |\n " };
	static const char *const units[] = {
		"[",
		"{",
		"[{",
		"- ",
		"? ",
		"[?",
		"[,",
		"[],",
		"a,",
		"a: ",
		"? a,",
		"a:\n",
		"!",
		"&a ",
		"*a ",
		"#\n",
		"a\n",
		"a ",
		":",
		": ",
		"-",
		"\"",
		"'",
		"%",
		"...\n",
		"---\n",
		"<<: ",
		"|\n",
		">\n ",
		"\\",
		"\\n",
		"\xc3\xa9",
		"a\n\n",
		"\xe2\x80\xa8",
		"\xef\xbb\xbf",
		"!a ",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
		for (size_t j = 0; j < ARRAY_SIZE(units); j++)
			run_filled_to(REPETITION_BYTES, heads[i], units[j]);
}

static void fill(char **at, const char *unit, size_t nr)
{
	while (nr-- > 0)
		*at = stpcpy(*at, unit);
}

/* The largest texts, for the memory they take. */
static void test_largest(void **state)
{
	(void)state;
	run_filled_to(YAML_FILE_BYTES_MAX, "", "- a\n");
	run_filled_to(YAML_FILE_BYTES_MAX, "k: \"", "a ");
	run_filled_to(YAML_FILE_BYTES_MAX, "k: |\n ", "a\n ");
}

/*
 * libyaml clears its buffer of white space, as large as the longest run, at every word: runs of
 * white space that are just allowed, and one that is not.
 */
static void test_white_space_then_words(void **state)
{
	static const char *const quotes[] = { "", "'", "\"" };
	static const char *const breaks[] = { "\n", "\xe2\x80\xa8", " " };
	char *head = malloc(FILLED_BYTES), *at;

	(void)state;
	assert_non_null(head);
	for (size_t i = 0; i < ARRAY_SIZE(quotes); i++)
		for (size_t j = 0; j < ARRAY_SIZE(breaks); j++) {
			at = stpcpy(stpcpy(head, "k: "), quotes[i]);
			at = stpcpy(at, "a");
			fill(&at, breaks[j], 1000);
			run_filled(head, j == 0 ? " b\n" : " b");
		}
	at = stpcpy(head, "k: |\n a\n");
	fill(&at, "\n", 1000);
	run_filled(head, " b\n");
	/* refused: else each word would clear as much */
	at = stpcpy(head, "k: 'a");
	fill(&at, " ", FILLED_BYTES - 100);
	run_filled_to(YAML_FILE_BYTES_MAX, head, " b");
	free(head);
}

static void test_tag_prefixes(void **state)
{
	char *head = malloc(FILLED_BYTES), *at;

	(void)state;
	assert_non_null(head);
	at = stpcpy(head, "%TAG !a! tag:");
	fill(&at, "x", 400000);
	stpcpy(at, "\n---\n");
	run_filled(head, "- !a!b c\n");
	run_filled("", "%TAG !a! x\n");
	free(head);
}

static void test_aliases(void **state)
{
	char *head = malloc(FILLED_BYTES), *at;
	const char *billion_laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n"
				     "b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
				     "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
				     "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
				     "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
				     "f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";

	(void)state;
	assert_non_null(head);
	check_bad(billion_laughs, "f:6:8: too large: above 100000 values, each alias counted with "
				  "all it stands for\n");
	run_filled("k:\n- &a {}\n", "- *a\n");
	at = stpcpy(head, "s: &s ");
	fill(&at, "x", 400000);
	stpcpy(at, "\nk:\n");
	run_filled(head, "- {text: *s}\n");
	run_filled(head, "- {*s : 1}\n");
	at = stpcpy(head, "d: &d {");
	for (unsigned i = 0; i < 200; i++)
		at += sprintf(at, "k%u: 1, ", i);
	stpcpy(at, "}\nk:\n");
	run_filled(head, "- {<<: *d}\n");
	free(head);
}

/* format takes the number of the line. */
static void run_numbered(const char *head, const char *format, unsigned nr)
{
	char *text = malloc(YAML_FILE_BYTES_MAX), *at;

	assert_non_null(text);
	at = stpcpy(text, head);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	for (unsigned i = 0; i < nr; i++)
		at += sprintf(at, format, i);
#pragma GCC diagnostic pop
	assert_in_range(at - text, 0, YAML_FILE_BYTES_MAX);
	run(format, text, (size_t)(at - text), YAML_FILE_BYTES_MAX);
	free(text);
}

static void test_many_names(void **state)
{
	(void)state;
	run_numbered("k:\n", "- &a%u x\n", 90000);
	run_numbered("", "k%u: 1\n", 49000);
	run_numbered("", "zise%u: 1\n", 49000);
	run_numbered("", "size: %u\n", 49000);
	run_numbered("k:\n", "- {}\n", 90000);
	run_numbered("k:\n", "- {size: %uk, cpus: [1]}\n", 14000);
	run_numbered("k:\n", "- {cpus: 0-8191}\n", 3000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_endless_repetition),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_white_space_then_words),
		cmocka_unit_test(test_tag_prefixes),
		cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_many_names),
	};

	return cmocka_run_group_tests_name("yaml_hostile", tests, NULL, NULL);
}
