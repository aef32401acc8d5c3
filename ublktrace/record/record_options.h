/*
 * The command line of `ublktrace record`. Main thread.
 */
#ifndef UBLKTRACE_RECORD_RECORD_OPTIONS_H
#define UBLKTRACE_RECORD_RECORD_OPTIONS_H

#include <stdbool.h>

#include "ublktrace/target.h"

#define RECORD_FILES_MAX 8u

struct record_options {
	struct target target;
	const char *files[RECORD_FILES_MAX];
	unsigned file_nr;
	bool from_boot;
};

/* Returns 0, or 2 for a wrong command line, which it says on stderr; there it also says when there
 * is no file. */
int record_options_parse(int argc, char **argv, struct record_options *ret_options);

#endif
