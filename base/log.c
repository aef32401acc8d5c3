/*
 * One line of key=value per event. A line is built on the stack and written with one write(2):
 * any thread may log, nobody waits for a lock. A line too long is cut, never split.
 *
 * Logging does not wait for the reader of stderr: reactors log, and the reader may itself wait for
 * a device of ours. A pipe, a socket or a terminal that is full loses the line, and the next one
 * that gets through says how many were `lost`. Only a regular file is written to as files are.
 *
 * Text that comes from outside (a path, a peer's words) cannot end its quotes or forge a line: what
 * %s brings is escaped, and quoted where the format does not.
 */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/printable.h"

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

static _Atomic uint32_t lost_nr;

/* ---- building a line ---- */

struct line {
	size_t len;
	char text[LINE_BYTES_MAX + 1]; /* room for the newline */
};

static void put_char(struct line *l, char c)
{
	if (l->len < LINE_BYTES_MAX - 1)
		l->text[l->len++] = c;
}

static void log_put_text(struct line *l, const char *text)
{
	while (*text)
		put_char(l, *text++);
}

/* As JSON escapes them; what is no UTF-8, which JSON has no escape for, as printable.h does. */
static void put_escape(struct line *l, unsigned char c, const char *escape)
{
	if (c == '"' || c == '\\') {
		put_char(l, '\\');
		put_char(l, (char)c);
	} else if (c == '\n' || c == '\t' || c == '\r') {
		put_char(l, '\\');
		put_char(l, c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
	} else if (c < 0x80) {
		log_put_text(l, "\\u00");
		log_put_text(l, escape + 2);
	} else {
		log_put_text(l, escape);
	}
}

static void put_escaped(struct line *l, const char *text, size_t max)
{
	char escape[PRINTABLE_ESCAPE_BYTES];

	max = strnlen(text, max);
	while (max > 0) {
		size_t nr = printable_next(text, max, escape);

		if (escape[0] || *text == '"' || *text == '\\')
			put_escape(l, (unsigned char)*text, escape);
		else
			for (size_t i = 0; i < nr; i++)
				put_char(l, text[i]);
		text += nr;
		max -= nr;
	}
}

/* Empty, or with what would end or split an unquoted value. */
static bool wants_quotes(const char *text, size_t max)
{
	char escape[PRINTABLE_ESCAPE_BYTES] = "";
	bool wants = *text == '\0' || max == 0;

	max = strnlen(text, max);
	for (size_t nr; max > 0 && !wants; text += nr, max -= nr) {
		nr = printable_next(text, max, escape);
		wants = escape[0] || strchr(" \"=\\", *text);
	}
	return wants;
}

/* A value that begins here stands alone behind its '='. */
static void log_put_string(struct line *l, const char *text, size_t max)
{
	bool quote = l->len > 0 && l->text[l->len - 1] == '=';

	if (!text)
		text = "(null)";
	quote = quote && wants_quotes(text, max);
	if (quote)
		put_char(l, '"');
	put_escaped(l, text, max);
	if (quote)
		put_char(l, '"');
}

/* One conversion of printf(3) that is none of a string: by its own printf. */
static void put_number(struct line *l, const char *spec, char type, int longs, va_list *ap)
{
	char text[64];

	if (strchr("diuxXo", type) && longs > 0)
		/* long and long long are as long on each architecture with ublk */
		snprintf(text, sizeof(text), spec, va_arg(*ap, long));
	else if (type == 'f' || type == 'g' || type == 'e')
		snprintf(text, sizeof(text), spec, va_arg(*ap, double));
	else if (type == 'p')
		snprintf(text, sizeof(text), spec, va_arg(*ap, void *));
	else
		snprintf(text, sizeof(text), spec, va_arg(*ap, int));
	log_put_text(l, text);
}

/* fmt stands on a '%'; returns what follows the conversion. Of widths only "%.*s" may be a star. */
static const char *put_conversion(struct line *l, const char *fmt, va_list *ap)
{
	size_t len = 1 + strspn(fmt + 1, "-+ #0123456789.*"), max = SIZE_MAX;
	size_t longs = strspn(fmt + len, "lzjt");
	char type = fmt[len + longs], spec[32];

	if (type == '\0')
		return fmt + len + longs;
	if (type == '%') {
		put_char(l, '%');
	} else if (type == 's') {
		if (memchr(fmt, '*', len))
			max = (size_t)va_arg(*ap, int);
		log_put_string(l, va_arg(*ap, const char *), max);
	} else {
		snprintf(spec, sizeof(spec), "%.*s", (int)(len + longs + 1), fmt);
		put_number(l, spec, type, (int)longs, ap);
	}
	return fmt + len + longs + 1;
}

static void put_format(struct line *l, const char *fmt, va_list *ap)
{
	while (*fmt) {
		if (*fmt == '%')
			fmt = put_conversion(l, fmt, ap);
		else
			put_char(l, *fmt++);
	}
}

static void putf(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void putf(struct line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put_format(l, fmt, &ap);
	va_end(ap);
}

/* journald stamps lines itself; a person at a terminal wants the time. */
static void put_prefix(struct line *l, enum log_level level)
{
	struct timespec ts;
	struct tm tm;
	char stamp[32];

	if (to_journal) {
		putf(l, "<%d>", level_priority[level]);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	putf(l, "time=%s.%03ldZ ", stamp, ts.tv_nsec / 1000000);
}

/* ---- writing it ---- */

/* For what knows no RWF_NOWAIT. A pipe or terminal that can be written to takes a line at once. */
static ssize_t write_if_ready(const char *text, size_t len)
{
	struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };

	if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT))
		return write(STDERR_FILENO, text, len);
	errno = EAGAIN;
	return -1;
}

/* lost: what the line tells of others; told again when it is lost itself. */
static void log_write_line(const struct line *l, uint32_t lost)
{
	struct iovec iov = { (void *)(uintptr_t)l->text, l->len };
	ssize_t ret = pwritev2(STDERR_FILENO, &iov, 1, -1, RWF_NOWAIT);

	if (ret < 0 && errno != EAGAIN)
		ret = write_if_ready(l->text, l->len);
	else if (ret < 0 && lseek(STDERR_FILENO, 0, SEEK_CUR) >= 0)
		/* A regular file, which would have to wait for room in the page cache. */
		ret = write(STDERR_FILENO, l->text, l->len);
	if (ret < 0)
		atomic_fetch_add(&lost_nr, lost + 1);
}

void log_line(enum log_level level, const char *msg, const char *fmt, ...)
{
	uint32_t lost;
	struct line l;
	va_list ap;

	if (level > level_max)
		return;
	l.len = 0;
	put_prefix(&l, level);
	putf(&l, "level=%s msg=\"%s\"", level_name[level], msg);
	lost = atomic_exchange(&lost_nr, 0);
	if (lost)
		putf(&l, " lost=%u", lost);
	if (fmt[0] != '\0') {
		put_char(&l, ' ');
		va_start(ap, fmt);
		put_format(&l, fmt, &ap);
		va_end(ap);
	}
	l.len = utf8_whole(l.text, l.len);
	l.text[l.len++] = '\n';
	log_write_line(&l, lost);
}

int log_limit_pass_each(struct log_limit *limit, uint32_t burst, uint32_t *ret_dropped)
{
	struct timespec ts;
	uint64_t now_ns;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now_ns = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	if (now_ns - limit->window_start_ns > LOG_LIMIT_INTERVAL_NS) {
		limit->window_start_ns = now_ns;
		limit->used = 0;
	}
	if (limit->used >= burst) {
		limit->dropped++;
		return 0;
	}
	limit->used++;
	*ret_dropped = limit->dropped;
	limit->dropped = 0;
	return 1;
}
