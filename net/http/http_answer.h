/*
 * The headers of an answer, of which a backend believes nothing that does not fit (RFC 9110). Pure;
 * any thread.
 */
#ifndef NET_HTTP_HTTP_ANSWER_H
#define NET_HTTP_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An ETag or date that is longer is kept as its hash: http_validator_is_hash. */
#define HTTP_ETAG_BYTES 200
#define HTTP_DATE_BYTES 40
#define HTTP_REGION_BYTES 64
#define HTTP_UNKNOWN UINT64_MAX

struct http_answer {
	unsigned status;	/* 0: no status line yet */
	bool is_whole;		/* all headers of a final answer are there */
	bool is_encoded;	/* Content-Encoding: the bytes are not the object's */
	uint64_t content_bytes; /* Content-Length, or HTTP_UNKNOWN */
	/* Content-Range: bytes first-last/total; total HTTP_UNKNOWN: "*". Valid with has_range. */
	bool has_range;
	uint64_t first, last, total;
	char etag[HTTP_ETAG_BYTES];	     /* with its quotes, and W/ of a weak one; "": none */
	char last_modified[HTTP_DATE_BYTES]; /* as it came; "": none */
	uint64_t retry_after_ns;	     /* from now on; 0: it does not say */
	/* By Date: so many seconds is time(2) here ahead of the server's clock. Valid with
	 * has_date. */
	bool has_date;
	int64_t ahead_s;
	char bucket_region[HTTP_REGION_BYTES]; /* S3: where the bucket is; "": it does not say */
};

void http_answer_begin(struct http_answer *a);

/*
 * One line of headers, with or without its end, the status line too. An answer of 1xx is followed
 * by another one. now_s: time(2). Returns 0, or -EPROTO: a number in it is none.
 */
int http_answer_line(struct http_answer *a, const char *line, size_t bytes, int64_t now_s);

/* A validator (an ETag or a date) that can be compared with another answer's, but not sent. */
bool http_validator_is_hash(const char *validator);

/* RFC 9110, 8.8.3.2: only a strong one may be asked for by If-Match. */
bool http_etag_is_strong(const char *etag);

#endif
