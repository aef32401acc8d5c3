/*
 * The commands of ublktrace, and what their command lines have in common. Each command gets the
 * words behind its name (argv[0] is the name) and returns the exit code of the process: 0, 1 for a
 * failure it has told on stderr, 2 for a wrong command line. Main thread.
 */
#ifndef UBLKTRACE_COMMAND_H
#define UBLKTRACE_COMMAND_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "ublktrace/target.h"

int command_probes(int argc, char **argv);
int command_selftest(int argc, char **argv);
int command_record(int argc, char **argv);
int command_latency(int argc, char **argv);
int command_stacks(int argc, char **argv);
int command_control(int argc, char **argv);

/* Options that several commands have: command_line_parse reads them itself. -c takes all words that
 * follow. */
enum { COMMAND_DURATION = 256, COMMAND_ALL };
#define COMMAND_OPTION_PID                                                                         \
	{                                                                                          \
		"pid", required_argument, NULL, 'p'                                                \
	}
#define COMMAND_OPTION_COMMAND                                                                     \
	{                                                                                          \
		"command", no_argument, NULL, 'c'                                                  \
	}
#define COMMAND_OPTION_ALL                                                                         \
	{                                                                                          \
		"all", no_argument, NULL, COMMAND_ALL                                              \
	}
#define COMMAND_OPTION_DURATION                                                                    \
	{                                                                                          \
		"duration", required_argument, NULL, COMMAND_DURATION                              \
	}
#define COMMAND_OPTION_JSON                                                                        \
	{                                                                                          \
		"json", no_argument, NULL, 'j'                                                     \
	}
#define COMMAND_OPTION_HELP                                                                        \
	{                                                                                          \
		"help", no_argument, NULL, 'h'                                                     \
	}

struct command_line {
	const char *short_options; /* of getopt_long; begins with '+' when there is a -c */
	const struct option *long_options;
	const char *help; /* printed by --help; NULL: main.c prints the usage */
	/* Reads an option that is not one of those above. Returns 0, or 2 when it said what is
	 * wrong. NULL: there are no others. */
	int (*option)(void *arg, int option, char *value);
	void *arg;
	struct target *target;
	bool json;
};

/* Returns whether to go on; else *ret_code is the exit code, and all is said. Without a target: all
 * processes, but it is an error of a command that has -c. */
bool command_line_parse(struct command_line *line, int argc, char **argv, int *ret_code);

/* Says on stderr what is wrong with the command line, and where help is. Returns 2. */
int command_usage_error(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* "NEEDS, not 'VALUE'" unless ok. Returns 0 or 2. */
int command_check(const char *command, bool ok, const char *needs, const char *value);

/* Each returns whether text is one: a number from min to max; seconds above 0. */
bool command_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number);
bool command_parse_seconds(const char *text, double *ret_seconds);

uint64_t command_clock_ns(clockid_t clock);

#endif
