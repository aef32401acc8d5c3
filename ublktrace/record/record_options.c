/*
 * The words behind `ublktrace record`. Main thread.
 *
 * Happy path: command_line_parse reads what other commands have too, record_option the rest.
 * Failure mode: a usage error for the first that is wrong.
 */
#include "ublktrace/record/record_options.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ublktrace/command.h"

#define BUFFER_DEFAULT (32ull << 20)

/* "1/N" */
static bool record_parse_sample(const char *text, uint32_t *ret_sample)
{
	uint64_t number;

	if (strncmp(text, "1/", 2) != 0 || !command_parse_number(text + 2, 1, UINT32_MAX, &number))
		return false;
	*ret_sample = (uint32_t)number;
	return true;
}

/* "FD,FD" */
static bool record_parse_rings(char *text, struct target *t)
{
	uint64_t number;

	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (t->ring_nr == TARGET_RINGS_MAX ||
		    !command_parse_number(word, 0, INT32_MAX, &number))
			return false;
		t->ring_fds[t->ring_nr++] = (int)number;
	}
	return t->ring_nr > 0;
}

/* "64M" -> a power of two, at least one page. */
static bool record_parse_bytes(const char *text, uint64_t *ret_bytes)
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

static int record_option(void *arg, int option, char *value)
{
	struct record_options *r = arg;
	struct target *t = &r->target;

	switch (option) {
	case 's':
		return command_check("record", record_parse_sample(value, &t->sample),
				     "--sample needs 1/N", value);
	case 'r':
		return record_parse_rings(value, t)
			       ? 0
			       : command_usage_error("record",
						     "--rings needs file descriptors, such as 5,7");
	case 'o':
		if (r->file_nr == RECORD_FILES_MAX)
			return command_usage_error("record", "at most %u files", RECORD_FILES_MAX);
		for (unsigned i = 0; i < r->file_nr; i++)
			if (!strcmp(r->files[i], value))
				return command_usage_error("record", "%s is given twice", value);
		r->files[r->file_nr++] = value;
		return 0;
	case 'B':
		r->from_boot = true;
		return 0;
	default:
		return command_check("record", record_parse_bytes(value, &t->buffer_bytes),
				     "--buffer needs a size up to 1G, such as 64M", value);
	}
}

int record_options_parse(int argc, char **argv, struct record_options *ret_options)
{
	static const struct option long_options[] = {
		COMMAND_OPTION_PID,
		COMMAND_OPTION_COMMAND,
		COMMAND_OPTION_ALL,
		COMMAND_OPTION_DURATION,
		{ "sample", required_argument, NULL, 's' },
		{ "rings", required_argument, NULL, 'r' },
		{ "from-boot", no_argument, NULL, 'B' },
		{ "buffer", required_argument, NULL, 'b' },
		{ "output", required_argument, NULL, 'o' },
		{ 0 },
	};
	struct record_options *r = ret_options;
	struct command_line line = {
		.short_options = "+p:co:",
		.long_options = long_options,
		.option = record_option,
		.arg = r,
		.target = &r->target,
	};
	int code;

	*r = (struct record_options){
		.target = { .sample = 1, .buffer_bytes = BUFFER_DEFAULT },
	};
	if (!command_line_parse(&line, argc, argv, &code))
		return code;
	/* Records may be counted only; a -o behind -c is the command's. */
	if (!r->file_nr)
		fprintf(stderr, "ublktrace: no -o FILE%s: records are counted but not written\n",
			r->target.command ? " before -c (all words after -c belong to the command)"
					  : "");
	return 0;
}
