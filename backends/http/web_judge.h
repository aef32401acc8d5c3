/*
 * Whether an answer brings bytes of the object that the device was opened with (RFC 9110: 13 and
 * 14). Pure; any thread.
 */
#ifndef BACKENDS_HTTP_WEB_JUDGE_H
#define BACKENDS_HTTP_WEB_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/http/http_answer.h"
#include "storage/version.h"

/* What an object was when the device was opened. */
struct web_version {
	uint64_t size_bytes;
	char etag[HTTP_ETAG_BYTES];	     /* "": none */
	char last_modified[HTTP_DATE_BYTES]; /* "": none */
};

/*
 * The version in printable words. Of a server that says neither ETag nor date it is the size.
 */
void web_version_words(const struct web_version *version, char words[BACKEND_VERSION_BYTES]);

/*
 * An answer that is not good may say so at some length, which is read for the connection to be used
 * again; what is longer ends it.
 */
#define WEB_EXCUSE_BYTES 65536u
#define WEB_EXCUSE_KEPT_BYTES 1024u

struct web_excuse {
	size_t bytes;			  /* so far */
	char text[WEB_EXCUSE_KEPT_BYTES]; /* its beginning, terminated */
};

void web_excuse_begin(struct web_excuse *excuse);
/* False: it is too long. */
bool web_excuse_take(struct web_excuse *excuse, const uint8_t *data, size_t bytes);

enum web_verdict {
	WEB_GOOD,    /* its body is what was asked for */
	WEB_MOVED,   /* a redirection */
	WEB_AGAIN,   /* not now: asked again later */
	WEB_BROKEN,  /* it makes no sense: asked again too, another server may answer then */
	WEB_KEYS,    /* the keys are not good any more: with others asked again, else refused */
	WEB_CLOCK,   /* this machine's clock is wrong: asked again later, when it may be set */
	WEB_REFUSED, /* the request fails; asking again does not help */
	WEB_CHANGED, /* the object is another one */
};

/* The answer to the GET of these bytes. Words for all but WEB_GOOD and WEB_MOVED. */
enum web_verdict web_judge(const struct web_version *version, const struct http_answer *answer,
			   uint64_t first_bytes, uint64_t length_bytes, char *words,
			   size_t words_bytes);

/*
 * The answer to the first GET, of the byte 0, at open: WEB_GOOD fills *ret_version. Never
 * WEB_CHANGED.
 */
enum web_verdict web_judge_first(const struct http_answer *answer, struct web_version *ret_version,
				 char *words, size_t words_bytes);

#endif
