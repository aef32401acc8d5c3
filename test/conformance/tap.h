/* TAP of one program: checks run one after the other, each ends as ok, not ok or skipped. */
#ifndef TEST_TAP_H
#define TEST_TAP_H

#include <stdbool.h>

/* Only checks whose name contains it are run; NULL: all. seed is told when one fails. */
void tap_init(const char *program, const char *only, unsigned long long seed);

/* Whether a check of this name would be run. */
bool tap_is_wanted(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* False: this check is not wanted, do not run it. */
bool tap_begin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void tap_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void tap_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool tap_failed(void);
void tap_end(void);

/* The plan line; returns the exit code. */
int tap_finish(void);

/* Goes on after a failure. */
#define EXPECT(cond, ...)                                                                          \
	do {                                                                                       \
		if (!(cond))                                                                       \
			tap_fail(__FILE__, __LINE__, #cond ": " __VA_ARGS__);                      \
	} while (0)

/* Gives up this function. */
#define REQUIRE(cond, ...)                                                                         \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			tap_fail(__FILE__, __LINE__, #cond ": " __VA_ARGS__);                      \
			return;                                                                    \
		}                                                                                  \
	} while (0)

#endif
