/* Judges answers; owns nothing. Pure. */
#include "backends/http/web_judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/printable.h"
#include "base/util.h"

struct web_words {
	char *text;
	size_t bytes;
};

__attribute__((format(printf, 3, 4))) static enum web_verdict
judge_say(const struct web_words *w, enum web_verdict verdict, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->text, w->bytes, fmt, ap);
	va_end(ap);
	return verdict;
}

/* RFC 9110, 15.4: those that name another place for the same object. */
static bool status_is_redirect(unsigned status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* What passes by itself: RFC 9110, 15.5.9 and 15.6; RFC 6585, 4; RFC 8470, 5.2. */
static bool status_is_temporary(unsigned status)
{
	return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
	       status == 503 || status == 504;
}

static enum web_verdict judge_status(const struct http_answer *a, const struct web_words *w)
{
	unsigned status = a->status;

	if (status == 206)
		return WEB_GOOD;
	if (status_is_redirect(status))
		return WEB_MOVED;
	if (status_is_temporary(status))
		return judge_say(w, WEB_AGAIN, "it answers %u", status);
	if (status == 200)
		return judge_say(w, WEB_BROKEN,
				 "it sends the whole object where a range was asked for");
	if (status == 401 || status == 403)
		return judge_say(
			w, WEB_REFUSED,
			"it does not let us read the object (%u): see user, password_file and "
			"token_file",
			status);
	if (status == 404 || status == 410)
		return judge_say(w, WEB_REFUSED, "it has no such object (%u)", status);
	return judge_say(w, WEB_REFUSED, "it answers %u", status);
}

static enum web_verdict judge_range(const struct http_answer *a, uint64_t first_bytes,
				    uint64_t length_bytes, const struct web_words *w)
{
	if (a->is_encoded)
		return judge_say(w, WEB_BROKEN, "it sends the object compressed");
	if (!a->has_range)
		return judge_say(w, WEB_BROKEN, "it does not say which range it sends");
	if (a->first != first_bytes || a->last != first_bytes + length_bytes - 1)
		return judge_say(w, WEB_BROKEN, "it sends bytes %llu to %llu, not %llu to %llu",
				 (unsigned long long)a->first, (unsigned long long)a->last,
				 (unsigned long long)first_bytes,
				 (unsigned long long)(first_bytes + length_bytes - 1));
	if (a->content_bytes != HTTP_UNKNOWN && a->content_bytes != length_bytes)
		return judge_say(w, WEB_BROKEN, "it sends %llu bytes, not %llu",
				 (unsigned long long)a->content_bytes,
				 (unsigned long long)length_bytes);
	return WEB_GOOD;
}

/* The words go behind "the object is not what it was: ". */
static enum web_verdict judge_version(const struct web_version *v, const struct http_answer *a,
				      const struct web_words *w)
{
	if (a->total != HTTP_UNKNOWN && a->total != v->size_bytes)
		return judge_say(w, WEB_CHANGED, "its size was %llu bytes, is %llu",
				 (unsigned long long)v->size_bytes, (unsigned long long)a->total);
	if (v->etag[0] && a->etag[0])
		return strcmp(v->etag, a->etag) == 0
			       ? WEB_GOOD
			       : judge_say(w, WEB_CHANGED, "its ETag was %.*s, is %.*s",
					   utf8_fit(v->etag, 80), v->etag, utf8_fit(a->etag, 80),
					   a->etag);
	if (v->last_modified[0] && a->last_modified[0])
		return strcmp(v->last_modified, a->last_modified) == 0
			       ? WEB_GOOD
			       : judge_say(w, WEB_CHANGED, "it was modified: %s, not %s",
					   a->last_modified, v->last_modified);
	if (v->etag[0] || v->last_modified[0])
		return judge_say(w, WEB_BROKEN, "it does not say which version it sends");
	return WEB_GOOD;
}

enum web_verdict web_judge(const struct web_version *version, const struct http_answer *answer,
			   uint64_t first_bytes, uint64_t length_bytes, char *words,
			   size_t words_bytes)
{
	const struct web_words w = { words, words_bytes };
	enum web_verdict verdict;

	words[0] = '\0';
	if (answer->status == 412)
		return judge_say(&w, WEB_CHANGED, "the server has another version (412)");
	if (answer->status == 416)
		return judge_say(&w, WEB_CHANGED, "it is smaller (416)");
	verdict = judge_status(answer, &w);
	if (verdict == WEB_GOOD)
		verdict = judge_version(version, answer, &w);
	if (verdict == WEB_GOOD)
		verdict = judge_range(answer, first_bytes, length_bytes, &w);
	return verdict;
}

enum web_verdict web_judge_first(const struct http_answer *answer, struct web_version *ret_version,
				 char *words, size_t words_bytes)
{
	const struct web_words w = { words, words_bytes };
	enum web_verdict verdict;

	words[0] = '\0';
	if (answer->status == 200)
		return judge_say(&w, WEB_REFUSED,
				 "it does not send ranges of the object, so no "
				 "block of it can be read alone");
	if (answer->status == 416)
		return judge_say(&w, WEB_REFUSED, "the object is empty");
	verdict = judge_status(answer, &w);
	if (verdict == WEB_GOOD)
		verdict = judge_range(answer, 0, 1, &w);
	if (verdict == WEB_GOOD && answer->total == HTTP_UNKNOWN)
		return judge_say(&w, WEB_REFUSED, "it does not say how large the object is");
	if (verdict != WEB_GOOD)
		return verdict;
	ret_version->size_bytes = answer->total;
	memcpy(ret_version->etag, answer->etag, sizeof(answer->etag));
	memcpy(ret_version->last_modified, answer->last_modified, sizeof(answer->last_modified));
	return WEB_GOOD;
}

void web_version_words(const struct web_version *version, char words[BACKEND_VERSION_BYTES])
{
	const char *said = version->etag[0] ? version->etag : version->last_modified;
	char shown[48], hash[24] = "";

	if (!said[0]) {
		backend_version_of_size(version->size_bytes, words);
		return;
	}
	printable(shown, sizeof(shown), said, strlen(said));
	/* What is not shown as it is, is told apart all the same. */
	if (strcmp(shown, said) != 0)
		snprintf(hash, sizeof(hash), " #%016llx",
			 (unsigned long long)hash_text(HASH_START, said));
	snprintf(words, BACKEND_VERSION_BYTES, "%s %s%s %llu", version->etag[0] ? "ETag" : "of",
		 shown, hash, (unsigned long long)version->size_bytes);
}

void web_excuse_begin(struct web_excuse *excuse)
{
	excuse->bytes = 0;
	excuse->text[0] = '\0';
}

bool web_excuse_take(struct web_excuse *excuse, const uint8_t *data, size_t bytes)
{
	if (excuse->bytes < WEB_EXCUSE_KEPT_BYTES - 1) {
		size_t n = MIN(bytes, WEB_EXCUSE_KEPT_BYTES - 1 - excuse->bytes);

		memcpy(excuse->text + excuse->bytes, data, n);
		excuse->text[excuse->bytes + n] = '\0';
	}
	excuse->bytes += MIN(bytes, WEB_EXCUSE_BYTES);
	return excuse->bytes <= WEB_EXCUSE_BYTES;
}
