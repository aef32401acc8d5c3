/* What a program logs, for a test to read. */
#ifndef TEST_RIG_LOG_CATCH_H
#define TEST_RIG_LOG_CATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static int log_fd = -1, log_saved_fd;

/* cmocka's own words must not come meanwhile. */
static inline void log_catch(void)
{
	fflush(stderr);
	log_fd = memfd_create("log", MFD_CLOEXEC);
	log_saved_fd = dup(STDERR_FILENO);
	assert_true(log_fd >= 0 && dup2(log_fd, STDERR_FILENO) >= 0);
}

/* What has been logged since; valid until the next call. */
static inline const char *log_end(void)
{
	static char text[1 << 16];
	ssize_t bytes = pread(log_fd, text, sizeof(text) - 1, 0);

	dup2(log_saved_fd, STDERR_FILENO);
	close(log_saved_fd);
	close(log_fd);
	text[bytes > 0 ? bytes : 0] = '\0';
	return text;
}

#endif
