/* The command line of `ublktrace record`: what each option means, and what is told of a wrong one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "ublktrace/record/record_options.h"

#define WORDS_MAX 20

static struct record_options options;
static char said[1024]; /* on stderr, of the last parse */

/* Parses "-p 1 -o x"; words are split at blanks. They stay for the test: options point to them. */
static int parse(const char *line)
{
	static char text[512];
	static char *words[WORDS_MAX + 1];
	int nr = 0, saved = dup(STDERR_FILENO), ret;
	FILE *file = tmpfile();
	size_t bytes;

	assert_non_null(file);
	snprintf(text, sizeof(text), "record %s", line);
	for (char *word = strtok(text, " "); word && nr < WORDS_MAX; word = strtok(NULL, " "))
		words[nr++] = word;
	words[nr] = NULL;
	fflush(stderr);
	dup2(fileno(file), STDERR_FILENO);
	ret = record_options_parse(nr, words, &options);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(file);
	bytes = fread(said, 1, sizeof(said) - 1, file);
	said[bytes] = '\0';
	fclose(file);
	return ret;
}

static void good(const char *line)
{
	int ret = parse(line);

	if (ret)
		fail_msg("'%s' is refused: %s", line, said);
}

/* It is refused as a wrong command line, and told so in these words. */
static void bad(const char *line, const char *words)
{
	int ret = parse(line);

	if (ret != 2 || !strstr(said, words))
		fail_msg("'%s' gives %d and says '%s', not '%s'", line, ret, said, words);
}

static void an_option_left_out_has_its_default(void **state)
{
	(void)state;
	good("--all -o a.csv");
	assert_true(options.target.all);
	assert_int_equal(options.target.sample, 1);
	assert_int_equal(options.target.buffer_bytes, 32 << 20);
	assert_int_equal(options.target.ring_nr, 0);
	assert_true(options.target.seconds == 0);
	assert_false(options.from_boot);
	assert_int_equal(options.target.pid, 0);
	assert_null(options.target.command);
	assert_string_equal(said, "");
}

static void each_option_is_read(void **state)
{
	char line[128];

	(void)state;
	snprintf(line, sizeof(line),
		 "-p %d --duration 1.5 --sample 1/64 --from-boot -o a.fxt -o b.csv", (int)getpid());
	good(line);
	assert_int_equal(options.target.pid, getpid());
	assert_true(options.target.seconds == 1.5);
	assert_int_equal(options.target.sample, 64);
	assert_true(options.from_boot);
	assert_int_equal(options.file_nr, 2);
	assert_string_equal(options.files[0], "a.fxt");
	assert_string_equal(options.files[1], "b.csv");
}

static void rings_are_a_list(void **state)
{
	(void)state;
	good("--all --rings 5,7,0 -o a.csv");
	assert_int_equal(options.target.ring_nr, 3);
	assert_int_equal(options.target.ring_fds[0], 5);
	assert_int_equal(options.target.ring_fds[1], 7);
	assert_int_equal(options.target.ring_fds[2], 0);
	bad("--all --rings 5,x", "--rings needs file descriptors, such as 5,7");
	bad("--all --rings ,", "--rings needs file descriptors, such as 5,7");
	bad("--all --rings -1", "--rings needs file descriptors, such as 5,7");
	bad("--all --rings 2147483648", "--rings needs file descriptors, such as 5,7");
}

static void more_rings_than_there_is_room_for_are_refused(void **state)
{
	char line[400] = "--all --rings 1";

	(void)state;
	for (unsigned i = 1; i < TARGET_RINGS_MAX; i++)
		strcat(line, ",1");
	good(line);
	assert_int_equal(options.target.ring_nr, TARGET_RINGS_MAX);
	strcat(line, ",1");
	bad(line, "--rings needs file descriptors");
}

static void the_buffer_is_a_power_of_two_of_pages(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {
		{ "1", 4096 },	      { "4096", 4096 },		{ "4097", 8192 },
		{ "64M", 64u << 20 }, { "65M", 128u << 20 },	{ "5K", 8192 },
		{ "1G", 1u << 30 },   { "1048576K", 1u << 30 },
	};
	char line[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(line, sizeof(line), "--all --buffer %s", sizes[i].text);
		good(line);
		assert_int_equal(options.target.buffer_bytes, sizes[i].bytes);
	}
}

static void a_wrong_value_is_told_with_what_is_wanted(void **state)
{
	static const char *const pids[] = { "0",  "-5",		"x",
					    "7x", "2147483648", "99999999999999999999" };
	static const char *const seconds[] = { "0", "-1", "x", "1s", "nan", "inf", "1e9" };
	static const char *const samples[] = { "64",   "2/64",	       "1/",  "1/0",
					       "1/-1", "1/4294967296", "1/8x" };
	static const char *const sizes[] = { "0",     "-1",   "x",
					     "M",     "64MB", "2G",
					     "1025M", "64m",  "99999999999999999999" };
	char line[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
		snprintf(line, sizeof(line), "-p %s", pids[i]);
		bad(line, "-p needs a process id");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(seconds); i++) {
		snprintf(line, sizeof(line), "--all --duration %s", seconds[i]);
		bad(line, "--duration needs a number of seconds");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(samples); i++) {
		snprintf(line, sizeof(line), "--all --sample %s", samples[i]);
		bad(line, "--sample needs 1/N");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(line, sizeof(line), "--all --buffer %s", sizes[i]);
		bad(line, "--buffer needs a size up to 1G, such as 64M");
	}
}

static void too_many_files_are_refused(void **state)
{
	(void)state;
	good("--all -o 1 -o 2 -o 3 -o 4 -o 5 -o 6 -o 7 -o 8");
	assert_int_equal(options.file_nr, RECORD_FILES_MAX);
	bad("--all -o 1 -o 2 -o 3 -o 4 -o 5 -o 6 -o 7 -o 8 -o 9", "at most 8 files");
}

static void an_option_that_is_none_is_named(void **state)
{
	(void)state;
	bad("--all --nonsense", "'--nonsense' is not an option, or its value is missing");
	bad("--all -o", "'-o' is not an option, or its value is missing");
	bad("--all -x", "'-x' is not an option");
	bad("fio --all", "'fio' is not an option; a command must follow -c");
}

static void there_is_one_target(void **state)
{
	(void)state;
	bad("", "the target is missing: -p PID, -c COMMAND... or --all");
	bad("-o a.csv", "the target is missing");
	bad("-p 1 --all", "only one of -p PID, -c COMMAND... and --all");
	bad("--all -c true", "only one of");
	bad("-c", "-c needs a command");
}

static void words_behind_c_are_the_commands(void **state)
{
	(void)state;
	good("--duration 2 -o a.csv -c fio --all -o b.csv");
	assert_false(options.target.all);
	assert_int_equal(options.file_nr, 1);
	assert_string_equal(options.files[0], "a.csv");
	assert_string_equal(options.target.command[0], "fio");
	assert_string_equal(options.target.command[1], "--all");
	assert_string_equal(options.target.command[3], "b.csv");
	assert_null(options.target.command[4]);
	assert_string_equal(said, "");
}

static void no_file_is_told_with_its_cure(void **state)
{
	(void)state;
	good("--all");
	assert_string_equal(said, "ublktrace: no -o FILE: records are counted but not written\n");
	good("-c fio -o a.csv");
	assert_int_equal(options.file_nr, 0);
	assert_string_equal(said,
			    "ublktrace: no -o FILE before -c (all words after -c belong to the "
			    "command): records are counted but not written\n");
}

/* The parser of options keeps a place; a second command line begins anew. */
static void a_second_command_line_is_read_from_its_begin(void **state)
{
	(void)state;
	bad("--all --sample 1/4 --nonsense", "is not an option");
	good("--all -o a.csv");
	assert_int_equal(options.target.sample, 1);
	assert_int_equal(options.file_nr, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_option_left_out_has_its_default),
		cmocka_unit_test(each_option_is_read),
		cmocka_unit_test(rings_are_a_list),
		cmocka_unit_test(more_rings_than_there_is_room_for_are_refused),
		cmocka_unit_test(the_buffer_is_a_power_of_two_of_pages),
		cmocka_unit_test(a_wrong_value_is_told_with_what_is_wanted),
		cmocka_unit_test(too_many_files_are_refused),
		cmocka_unit_test(an_option_that_is_none_is_named),
		cmocka_unit_test(there_is_one_target),
		cmocka_unit_test(words_behind_c_are_the_commands),
		cmocka_unit_test(no_file_is_told_with_its_cure),
		cmocka_unit_test(a_second_command_line_is_read_from_its_begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
