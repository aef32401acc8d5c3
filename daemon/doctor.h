/* `ublkctl doctor`: is this machine fit to run ublkd, and if not, what to do about it. */
#ifndef DAEMON_DOCTOR_H
#define DAEMON_DOCTOR_H

#include <stdbool.h>

#include "daemon/exit_code.h"

/* Prints a line per check. EXIT_REFUSED when one is FAIL. */
enum exit_code doctor_run(bool json);

#endif
