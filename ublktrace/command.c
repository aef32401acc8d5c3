/*
 * What all commands share: options that several have, how a wrong command line is told, the clock.
 * Main thread; no state but getopt's.
 *
 * Happy path: each option is read, then target_check has the last word. Failure mode: a wrong
 * option, value or word: one line that says what is wanted.
 */
#include "ublktrace/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int command_usage_error(const char *command, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "ublktrace %s: ", command);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nublktrace --help lists the options\n");
	return 2;
}

int command_check(const char *command, bool ok, const char *needs, const char *value)
{
	return ok ? 0 : command_usage_error(command, "%s, not '%s'", needs, value);
}

bool command_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
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

bool command_parse_seconds(const char *text, double *ret_seconds)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds > 0 && seconds < 1e9))
		return false;
	*ret_seconds = seconds;
	return true;
}

/* Returns 0, or 2 when it said what is wrong. */
static int command_line_option(struct command_line *line, const char *command, int option,
			       char *value)
{
	struct target *t = line->target;
	uint64_t number = 0;
	bool ok;

	switch (option) {
	case 'p':
		ok = command_parse_number(value, 1, INT32_MAX, &number);
		t->pid = (pid_t)number;
		return command_check(command, ok, "-p needs a process id", value);
	case COMMAND_ALL:
		t->all = true;
		return 0;
	case COMMAND_DURATION:
		return command_check(command, command_parse_seconds(value, &t->seconds),
				     "--duration needs a number of seconds", value);
	case 'j':
		line->json = true;
		return 0;
	default:
		return line->option(line->arg, option, value);
	}
}

bool command_line_parse(struct command_line *line, int argc, char **argv, int *ret_code)
{
	bool has_command = line->short_options[0] == '+';
	struct target *t = line->target;
	int option;

	*ret_code = 0;
	optind = 0; /* anew, also in the middle of a word */
	opterr = 0;
	while (!t->command && (option = getopt_long(argc, argv, line->short_options,
						    line->long_options, NULL)) != -1) {
		if (option == 'h') {
			puts(line->help);
			return false;
		}
		if (option == 'c')
			t->command = argv + optind;
		else if (option == '?')
			*ret_code = command_usage_error(
				argv[0], "'%s' is not an option, or its value is missing",
				argv[optind - 1]);
		else
			*ret_code = command_line_option(line, argv[0], option, optarg);
		if (*ret_code)
			return false;
	}
	if (!t->command && optind < argc)
		*ret_code = command_usage_error(argv[0],
						has_command ? "'%s' is not an option; a command "
							      "must follow -c"
							    : "unexpected argument '%s'",
						argv[optind]);
	else if (!has_command && !t->pid)
		t->all = true;
	else if (!target_check(t))
		*ret_code = 2;
	return *ret_code == 0;
}

uint64_t command_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}
