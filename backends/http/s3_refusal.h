/*
 * What S3 says of a request that it does not serve: a status and a document of XML with a code and
 * a message. Pure; any thread.
 */
#ifndef BACKENDS_HTTP_S3_REFUSAL_H
#define BACKENDS_HTTP_S3_REFUSAL_H

#include "backends/http/web_judge.h"

/* Who has asked. */
struct s3_asker {
	const char *region;
	bool is_anonymous;
};

/*
 * The answer was judged so; document: the beginning of its body, which nobody has looked at yet.
 * Fills words (at least HTTP_ERROR_BYTES), in which nothing of the server is but printable
 * characters, and returns the verdict. A redirection is a refusal: S3 sends those there that it
 * does not expect here.
 */
enum web_verdict s3_refusal_judge(const struct s3_asker *asker, const struct http_answer *answer,
				  enum web_verdict verdict, const char *document, char *words,
				  size_t words_bytes);

/* Whether the document has this code, "NoSuchBucket". */
bool s3_refusal_is(const char *document, const char *code);

#endif
