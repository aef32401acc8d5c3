/* The end of a process that found a bug in itself: says where, dumps what it can, aborts. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void (*assert_hook)(void);

_Noreturn void assert_fail(const char *expr, const char *file, int line, const char *func)
{
	void (*hook)(void) = assert_hook;

	fprintf(stderr, "level=fatal msg=\"assertion failed\" expr=\"%s\" at=%s:%d func=%s\n", expr,
		file, line, func);
	/* The hook itself may assert: run it once. */
	assert_hook = NULL;
	if (hook)
		hook();
	abort();
}
