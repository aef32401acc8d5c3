/* Of point.c, for attach.c and tests. Main thread. */
#ifndef UBLKTRACE_KERNEL_POINT_INTERNAL_H
#define UBLKTRACE_KERNEL_POINT_INTERNAL_H

#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/machine_path.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/elf/symbols.h"

/* What was found for p, which is no USDT; NULL without memory. Valid until the next call. */
const struct symbol *point_symbol(const struct point *p);

/* Forgets what was read, for a module that was loaded since, or another root. */
void point_forget(void);

#endif
