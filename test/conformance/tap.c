/* The Test Anything Protocol, for programs that are not cmocka's. One thread. */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A check that fails in a loop says so a few times only. */
#define MESSAGES_MAX 5

static struct {
	const char *program, *only;
	unsigned long long seed;
	char name[128];
	char skip[256];
	unsigned nr, failed_nr, message_nr;
} tap;

void tap_init(const char *program, const char *only, unsigned long long seed)
{
	tap.program = program;
	tap.only = only;
	tap.seed = seed;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("# seed %llu\n", seed);
}

static bool is_wanted(const char *name)
{
	if (!tap.only)
		return true;
	return tap.only[0] == '^' ? !strstr(name, tap.only + 1) : strstr(name, tap.only) != NULL;
}

bool tap_is_wanted(const char *fmt, ...)
{
	char name[sizeof(tap.name)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	return is_wanted(name);
}

bool tap_begin(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(tap.name, sizeof(tap.name), fmt, ap);
	va_end(ap);
	tap.message_nr = 0;
	tap.skip[0] = '\0';
	return is_wanted(tap.name);
}

void tap_fail(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	if (tap.message_nr++ >= MESSAGES_MAX)
		return;
	printf("# %s:%d: ", file, line);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

void tap_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(tap.skip, sizeof(tap.skip), fmt, ap);
	va_end(ap);
}

bool tap_failed(void)
{
	return tap.message_nr > 0;
}

void tap_end(void)
{
	tap.nr++;
	if (tap_failed()) {
		tap.failed_nr++;
		printf("not ok %u - %s\n", tap.nr, tap.name);
		printf("# again: %s --seed %llu --only '%s'\n", tap.program, tap.seed, tap.name);
	} else if (tap.skip[0] != '\0') {
		printf("ok %u - %s # SKIP %s\n", tap.nr, tap.name, tap.skip);
	} else {
		printf("ok %u - %s\n", tap.nr, tap.name);
	}
}

int tap_finish(void)
{
	printf("1..%u\n", tap.nr);
	return tap.failed_nr ? 1 : 0;
}
