/*
 * The words behind `ublktrace record`. Pure but for getopt's state and stderr; main thread.
 *
 * Happy path: every option is read into struct record_options, target_check has the last word.
 * Failure mode: usage_error for the first that is wrong.
 */
#include "ublktrace/record/record_options.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ublktrace/command.h"

#define BUFFER_DEFAULT (32ull << 20)

static const struct option long_options[] = {
	{ "pid", required_argument, NULL, 'p' },    { "command", no_argument, NULL, 'c' },
	{ "all", no_argument, NULL, 'a' },	    { "duration", required_argument, NULL, 'd' },
	{ "sample", required_argument, NULL, 's' }, { "rings", required_argument, NULL, 'r' },
	{ "from-boot", no_argument, NULL, 'B' },    { "buffer", required_argument, NULL, 'b' },
	{ "output", required_argument, NULL, 'o' }, { 0 },
};

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	char *end;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || number < min || number > max)
		return false;
	*ret_number = number;
	return true;
}

static bool parse_seconds(const char *text, double *ret_seconds)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds > 0 && seconds < 1e9))
		return false;
	*ret_seconds = seconds;
	return true;
}

/* "1/N" */
static bool parse_sample(const char *text, uint32_t *ret_sample)
{
	uint64_t number;

	if (strncmp(text, "1/", 2) != 0 || !parse_number(text + 2, 1, UINT32_MAX, &number))
		return false;
	*ret_sample = (uint32_t)number;
	return true;
}

/* "FD,FD" */
static bool parse_rings(char *text, struct target *t)
{
	uint64_t number;

	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (t->ring_nr == TARGET_RINGS_MAX || !parse_number(word, 0, INT32_MAX, &number))
			return false;
		t->ring_fds[t->ring_nr++] = (int)number;
	}
	return t->ring_nr > 0;
}

/* "64M" -> a power of two, at least one page. */
static bool parse_bytes(const char *text, uint64_t *ret_bytes)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10), bytes = 4096;
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || *text == '-' || (shift ? end[1] : end[0]) || number == 0 ||
	    number > (1ull << 30) >> shift)
		return false;
	while (bytes < number << shift)
		bytes <<= 1;
	*ret_bytes = bytes;
	return true;
}

static int parse_option(struct record_options *r, int option, char *value)
{
	struct target *t = &r->target;
	uint64_t number;

	switch (option) {
	case 'p':
		if (!parse_number(value, 1, INT32_MAX, &number))
			return usage_error("record", "-p needs a process id, not '%s'", value);
		t->pid = (pid_t)number;
		return 0;
	case 'a':
		t->all = true;
		return 0;
	case 'd':
		return parse_seconds(value, &t->seconds)
			       ? 0
			       : usage_error("record",
					     "--duration needs a number of seconds, not '%s'",
					     value);
	case 's':
		return parse_sample(value, &t->sample)
			       ? 0
			       : usage_error("record", "--sample needs 1/N, not '%s'", value);
	case 'r':
		return parse_rings(value, t)
			       ? 0
			       : usage_error("record",
					     "--rings needs file descriptors, such as 5,7");
	case 'o':
		if (r->file_nr == RECORD_FILES_MAX)
			return usage_error("record", "at most %u files", RECORD_FILES_MAX);
		for (unsigned i = 0; i < r->file_nr; i++)
			if (!strcmp(r->files[i], value))
				return usage_error("record", "%s is given twice", value);
		r->files[r->file_nr++] = value;
		return 0;
	case 'B':
		r->from_boot = true;
		return 0;
	case 'b':
		return parse_bytes(value, &t->buffer_bytes)
			       ? 0
			       : usage_error(
					 "record",
					 "--buffer needs a size up to 1G, such as 64M, not '%s'",
					 value);
	default:
		return usage_error("record", "unknown option -%c", option);
	}
}

/* Records may be counted only; who behind -c says where to keep them has not said it to us. */
static void say_files(const struct record_options *r)
{
	if (r->file_nr)
		return;
	fprintf(stderr, "ublktrace: no -o FILE%s: records are counted but not written\n",
		r->target.command ? " before -c (all words after -c belong to the command)" : "");
}

int record_options_parse(int argc, char **argv, struct record_options *ret_options)
{
	struct record_options *r = ret_options;
	int option, ret;

	*r = (struct record_options){
		.target = { .sample = 1, .buffer_bytes = BUFFER_DEFAULT },
	};
	optind = 0; /* anew, also in the middle of a word */
	opterr = 0;
	while ((option = getopt_long(argc, argv, "+p:co:", long_options, NULL)) != -1) {
		if (option == 'c') {
			r->target.command = argv + optind;
			break;
		}
		if (option == '?')
			return usage_error("record",
					   "'%s' is not an option, or its value is missing",
					   argv[optind - 1]);
		ret = parse_option(r, option, optarg);
		if (ret)
			return ret;
	}
	if (!r->target.command && optind < argc)
		return usage_error("record", "'%s' is not an option; a command must follow -c",
				   argv[optind]);
	if (!target_check(&r->target))
		return 2;
	say_files(r);
	return 0;
}
