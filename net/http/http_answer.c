/* Reads header lines; owns nothing. Pure. */
#include "net/http/http_answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/hash.h"
#include "base/util.h"

/* Larger numbers are this one: who waits has a bound of its own (net_outage_grant_ns). */
#define RETRY_AFTER_S_MAX 3600u

void http_answer_begin(struct http_answer *a)
{
	*a = (struct http_answer){ .content_bytes = HTTP_UNKNOWN, .total = HTTP_UNKNOWN };
}

/* Digits alone: no sign, no spaces, nothing beyond 63 bits. Moves *at behind them. */
static bool answer_number(const char **at, const char *end, uint64_t *ret_number)
{
	const char *p = *at;
	uint64_t n = 0;

	for (; p < end && *p >= '0' && *p <= '9'; p++) {
		if (n > (INT64_MAX - 9) / 10)
			return false;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	if (p == *at)
		return false;
	*at = p;
	*ret_number = n;
	return true;
}

static bool answer_char(const char **at, const char *end, char c)
{
	if (*at == end || **at != c)
		return false;
	++*at;
	return true;
}

static int answer_length(struct http_answer *a, const char *at, const char *end)
{
	return answer_number(&at, end, &a->content_bytes) && at == end ? 0 : -EPROTO;
}

/* RFC 9110, 14.4; of a 416 the range is "*". */
static int answer_range(struct http_answer *a, const char *at, const char *end)
{
	static const char unit[] = "bytes ";

	if ((size_t)(end - at) < sizeof(unit) - 1 || strncasecmp(at, unit, sizeof(unit) - 1) != 0)
		return -EPROTO;
	at += sizeof(unit) - 1;
	if (answer_char(&at, end, '*'))
		return 0;
	if (!answer_number(&at, end, &a->first) || !answer_char(&at, end, '-') ||
	    !answer_number(&at, end, &a->last) || !answer_char(&at, end, '/'))
		return -EPROTO;
	if (!answer_char(&at, end, '*') && !answer_number(&at, end, &a->total))
		return -EPROTO;
	if (at != end || a->last < a->first || (a->total != HTTP_UNKNOWN && a->last >= a->total))
		return -EPROTO;
	a->has_range = true;
	return 0;
}

static int answer_text(char *to, size_t to_bytes, const char *at, const char *end)
{
	size_t bytes = (size_t)(end - at);

	to[0] = '\0';
	if (bytes < to_bytes && !memchr(at, '\0', bytes)) {
		memcpy(to, at, bytes);
		to[bytes] = '\0';
	}
	return 0;
}

/* One that does not fit tells versions apart all the same. */
static int answer_validator(char *to, size_t to_bytes, const char *at, const char *end)
{
	size_t bytes = (size_t)(end - at);

	answer_text(to, to_bytes, at, end);
	if (to[0] || bytes == 0)
		return 0;
	snprintf(to, to_bytes, "#%016llx of %zu bytes",
		 (unsigned long long)hash_bytes(HASH_START, at, bytes), bytes);
	return 0;
}

static int answer_etag(struct http_answer *a, const char *at, const char *end)
{
	return answer_validator(a->etag, sizeof(a->etag), at, end);
}

static int answer_modified(struct http_answer *a, const char *at, const char *end)
{
	return answer_validator(a->last_modified, sizeof(a->last_modified), at, end);
}

static int answer_bucket_region(struct http_answer *a, const char *at, const char *end)
{
	return answer_text(a->bucket_region, sizeof(a->bucket_region), at, end);
}

static int answer_encoding(struct http_answer *a, const char *at, const char *end)
{
	static const char identity[] = "identity";
	size_t bytes = (size_t)(end - at);

	a->is_encoded = bytes > 0 &&
			(bytes != sizeof(identity) - 1 || strncasecmp(at, identity, bytes) != 0);
	return 0;
}

/* RFC 9110, 5.6.7, in the form that is written today. False: it is none. */
static bool answer_date(const char *at, const char *end, int64_t *ret_s)
{
	char text[HTTP_DATE_BYTES];
	struct tm tm = { 0 };
	const char *rest;

	answer_text(text, sizeof(text), at, end);
	rest = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
	if (!rest || *rest)
		return false;
	*ret_s = timegm(&tm);
	return true;
}

/* Seconds, or a date (RFC 9110, 10.2.3). What is neither is as if it were not there. */
static void answer_retry(struct http_answer *a, const char *at, const char *end, int64_t now_s)
{
	uint64_t seconds;
	int64_t date_s;

	if (!answer_number(&at, end, &seconds)) {
		if (!answer_date(at, end, &date_s) || date_s <= now_s)
			return;
		seconds = (uint64_t)(date_s - now_s);
	}
	a->retry_after_ns = MIN(seconds, RETRY_AFTER_S_MAX) * NS_PER_SEC;
}

static void answer_clock(struct http_answer *a, const char *at, const char *end, int64_t now_s)
{
	int64_t date_s;

	a->has_date = answer_date(at, end, &date_s);
	if (a->has_date)
		a->ahead_s = now_s - date_s;
}

static bool is_field(const char *name, size_t name_bytes, const char *known)
{
	return strlen(known) == name_bytes && strncasecmp(known, name, name_bytes) == 0;
}

static int answer_field(struct http_answer *a, const char *name, size_t name_bytes, const char *at,
			const char *end, int64_t now_s)
{
	static const struct {
		const char *name;
		int (*take)(struct http_answer *a, const char *at, const char *end);
	} field[] = {
		{ "content-length", answer_length },
		{ "content-range", answer_range },
		{ "etag", answer_etag },
		{ "last-modified", answer_modified },
		{ "content-encoding", answer_encoding },
		{ "x-amz-bucket-region", answer_bucket_region },
	};

	for (size_t i = 0; i < ARRAY_SIZE(field); i++)
		if (is_field(name, name_bytes, field[i].name))
			return field[i].take(a, at, end);
	if (is_field(name, name_bytes, "retry-after"))
		answer_retry(a, at, end, now_s);
	else if (is_field(name, name_bytes, "date"))
		answer_clock(a, at, end, now_s);
	return 0;
}

/* "HTTP/1.1 206 Partial Content", "HTTP/2 206". */
static int answer_status(struct http_answer *a, const char *line, const char *end)
{
	const char *at = memchr(line, ' ', (size_t)(end - line));
	uint64_t status;

	http_answer_begin(a);
	if (!at)
		return -EPROTO;
	at++;
	if (!answer_number(&at, end, &status) || status < 100 || status > 999 ||
	    (at < end && *at != ' '))
		return -EPROTO;
	a->status = (unsigned)status;
	return 0;
}

int http_answer_line(struct http_answer *a, const char *line, size_t bytes, int64_t now_s)
{
	static const char protocol[] = "HTTP/";
	const char *end = line + bytes, *colon, *at;

	while (end > line && strchr(" \t\r\n", end[-1]) && end[-1])
		end--;
	if (end == line) {
		a->is_whole = a->status >= 200;
		return 0;
	}
	if ((size_t)(end - line) >= sizeof(protocol) - 1 &&
	    strncmp(line, protocol, sizeof(protocol) - 1) == 0)
		return answer_status(a, line, end);
	colon = memchr(line, ':', (size_t)(end - line));
	if (!colon)
		return 0;
	at = colon + 1;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	return answer_field(a, line, (size_t)(colon - line), at, end, now_s);
}

bool http_validator_is_hash(const char *validator)
{
	return validator[0] == '#';
}

bool http_etag_is_strong(const char *etag)
{
	size_t bytes = strlen(etag);

	return bytes >= 2 && etag[0] == '"' && etag[bytes - 1] == '"';
}
