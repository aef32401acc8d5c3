/*
 * The daemon as a whole: from the first privilege to the last device. Main thread.
 * No configuration header here: its struct option is not getopt's.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

struct daemon_params {
	const char *config_path;
	bool config_optional; /* the default of a user: it may be missing */
	int log_level;	      /* from the command line, or -1: the file decides */
	char **argv;	      /* of this process, for the one that follows it */
};

/* Reads the configuration and serves until a signal ends it. */
enum exit_code daemon_run(const struct daemon_params *params);

/* Reads the configuration and says on stdout or stderr what is to be said about it. */
enum exit_code daemon_check(const struct daemon_params *params);

#endif
