/* Of point.c, for attach.c and tests. Main thread. */
#ifndef TRACE_POINT_INTERNAL_H
#define TRACE_POINT_INTERNAL_H

#include "trace/machine.h"
#include "trace/machine_path.h"
#include "trace/point.h"
#include "trace/symbols.h"

/* What was found for p, which is no USDT; NULL without memory. Valid until the next call. */
const struct symbol *point_symbol(const struct point *p);

/* Forgets what was read, for a module that was loaded since, or another root. */
void point_forget(void);

#endif
