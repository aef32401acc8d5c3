/* `ublkctl doctor`: is this machine fit to run ublkd, and if not, what to do about it. */
#ifndef UBLKCTL_DOCTOR_H
#define UBLKCTL_DOCTOR_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

/* Prints a line per check. EXIT_REFUSED when one is FAIL. */
enum exit_code doctor_run(bool json);

#endif
