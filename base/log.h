/*
 * Logs: one line of key=value per event on stderr, one write(2) per line, so that lines of several
 * threads never mix. Under journald lines carry the <N> priority prefix (sd-daemon(3)).
 * Never one line per I/O: use log_limited for what a client or a peer can cause.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Reads JOURNAL_STREAM; call once at start. Lines above max_level are dropped. */
void log_init(enum log_level max_level);

/*
 * fmt makes the rest of the line as key=value pairs and may be "". What a %s brings is escaped as
 * in JSON, so that no text from outside ends its quotes or its line or moves a cursor
 * (printable.h), and is put into quotes where it needs them and the format has none. Never waits: a
 * line that stderr does not take is lost, counted.
 */
void log_line(enum log_level level, const char *msg, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * At most burst lines per interval; what was dropped is told by the next line. One for each thing
 * that may fill the log and each who may cause it: what one peer does must not silence another.
 */
struct log_limit {
	_Atomic uint64_t window_start_ns;
	_Atomic uint32_t used;
	_Atomic uint32_t dropped;
};

#define LOG_LIMIT_BURST 5
#define LOG_LIMIT_INTERVAL_NS 10000000000ull

/*
 * 1 when the line may be written, burst of them in each interval; *ret_dropped lines were swallowed
 * since the last one.
 */
int log_limit_pass_each(struct log_limit *limit, uint32_t burst, uint32_t *ret_dropped);

static inline int log_limit_pass(struct log_limit *limit, uint32_t *ret_dropped)
{
	return log_limit_pass_each(limit, LOG_LIMIT_BURST, ret_dropped);
}

#define log_error(msg, ...) log_line(LOG_LEVEL_ERROR, msg, __VA_ARGS__)
#define log_warn(msg, ...) log_line(LOG_LEVEL_WARN, msg, __VA_ARGS__)
#define log_info(msg, ...) log_line(LOG_LEVEL_INFO, msg, __VA_ARGS__)
#define log_debug(msg, ...) log_line(LOG_LEVEL_DEBUG, msg, __VA_ARGS__)

#define log_limited_by(limit, level, msg, fmt, ...)                                                \
	do {                                                                                       \
		uint32_t dropped_;                                                                 \
		if (log_limit_pass(limit, &dropped_))                                              \
			log_line(level, msg, fmt " dropped=%u", ##__VA_ARGS__, dropped_);          \
	} while (0)

/* One limit for all that the call site says. */
#define log_limited(level, msg, fmt, ...)                                                          \
	do {                                                                                       \
		static struct log_limit limit_;                                                    \
		log_limited_by(&limit_, level, msg, fmt, ##__VA_ARGS__);                           \
	} while (0)

#endif
