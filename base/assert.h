/*
 * ASSERT: a bug of ours, checked in production too. A data path that went on with a broken
 * invariant could corrupt somebody's disk; stopping cannot (clients see an error or a pause).
 * Never for I/O errors, peers or configuration: those are answered, see docs/architecture.md.
 */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

#include <stdint.h>

/*
 * Called once before abort, so that the daemon can print what was in flight. It must not allocate
 * or lock. Set before threads start.
 */
extern void (*assert_hook)(void);

_Noreturn void assert_fail(const char *expr, const char *file, int line, const char *func);

#define ASSERT(expr)                                                                               \
	do {                                                                                       \
		if (__builtin_expect(!(expr), 0))                                                  \
			assert_fail(#expr, __FILE__, __LINE__, __func__);                          \
	} while (0)

#endif
