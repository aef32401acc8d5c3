/*
 * One line of key=value per event. A line is built on the stack and written with one write(2):
 * any thread may log, nobody waits for a lock. A line too long is cut, never split.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES_MAX 2048

static enum log_level level_max = LOG_LEVEL_INFO;
static int to_journal;

static const char *const level_name[] = { "error", "warn", "info", "debug" };
/* syslog priorities, sd-daemon(3) */
static const int level_priority[] = { 3, 4, 6, 7 };

void log_init(enum log_level max_level)
{
	level_max = max_level;
	to_journal = getenv("JOURNAL_STREAM") != NULL;
}

static size_t put(char *line, size_t len, const char *fmt, va_list ap)
{
	int n = vsnprintf(line + len, LINE_BYTES_MAX - len, fmt, ap);

	if (n < 0)
		return len;
	return len + (size_t)n < LINE_BYTES_MAX ? len + (size_t)n : LINE_BYTES_MAX - 1;
}

static size_t putf(char *line, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static size_t putf(char *line, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	len = put(line, len, fmt, ap);
	va_end(ap);
	return len;
}

/* journald stamps lines itself; a person at a terminal wants the time. */
static size_t put_prefix(char *line, enum log_level level)
{
	struct timespec ts;
	struct tm tm;
	char stamp[32];

	if (to_journal)
		return putf(line, 0, "<%d>", level_priority[level]);
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	return putf(line, 0, "time=%s.%03ldZ ", stamp, ts.tv_nsec / 1000000);
}

void log_line(enum log_level level, const char *msg, const char *fmt, ...)
{
	char line[LINE_BYTES_MAX + 1];
	va_list ap;
	size_t len;

	if (level > level_max)
		return;
	len = put_prefix(line, level);
	len = putf(line, len, "level=%s msg=\"%s\"", level_name[level], msg);
	if (fmt[0] != '\0') {
		len = putf(line, len, " ");
		va_start(ap, fmt);
		len = put(line, len, fmt, ap);
		va_end(ap);
	}
	/* A newline inside (a path, a peer's text) would forge a second line. */
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < ' ')
			line[i] = '?';
	line[len++] = '\n';
	/* stderr gone or full: there is nobody left to tell. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

int log_limit_pass(struct log_limit *limit, uint32_t *ret_dropped)
{
	struct timespec ts;
	uint64_t now_ns;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now_ns = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	if (now_ns - limit->window_start_ns > LOG_LIMIT_INTERVAL_NS) {
		limit->window_start_ns = now_ns;
		limit->used = 0;
	}
	if (limit->used >= LOG_LIMIT_BURST) {
		limit->dropped++;
		return 0;
	}
	limit->used++;
	*ret_dropped = limit->dropped;
	limit->dropped = 0;
	return 1;
}
