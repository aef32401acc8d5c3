/* What our programs exit with. */
#ifndef DAEMON_RUNTIME_EXIT_CODE_H
#define DAEMON_RUNTIME_EXIT_CODE_H

enum exit_code {
	EXIT_DONE = 0,
	EXIT_REFUSED = 1, /* with the reason on stderr */
	EXIT_USAGE = 2,
};

#endif
