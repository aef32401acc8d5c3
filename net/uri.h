/*
 * Reads a URI (RFC 3986) from left to right, for backends whose servers are named by one:
 *
 *	uri_begin -> uri_read_scheme -> uri_split and uri_decode_server -> uri_split, uri_decode for
 *	the path -> uri_next_pair until it says 0 -> uri_end
 *
 * Parts are split first and decoded then, as section 2.4 wants it: %2F is no separator. What fails
 * returns -EINVAL, with words for the user and the column that they are about; the first error ends
 * the reading. `what` begins such words: "export name". Pure, any thread.
 */
#ifndef NET_URI_H
#define NET_URI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/address.h"

/* The caller keeps what it points to until the last call. */
struct uri_reader {
	const char *text;
	const char *at;	    /* what comes next */
	size_t *ret_column; /* from 1: where in the text the error is; untouched without one */
	char *error;
	size_t error_bytes;
	uint32_t seen; /* bits of the query's keys so far */
};

/* A range of the text, not decoded. */
struct uri_part {
	const char *at, *end;
};

/* Refuses a text of more than bytes_max bytes. */
int uri_begin(struct uri_reader *r, const char *text, unsigned bytes_max, size_t *ret_column,
	      char *error, size_t error_bytes);

/* Words about what stands at `at`. Always returns -EINVAL. */
__attribute__((format(printf, 3, 4))) int uri_fail(const struct uri_reader *r, const char *at,
						   const char *fmt, ...);

/* What stands before the first of `stops`, or before the text's end; r->at moves there. */
struct uri_part uri_split(struct uri_reader *r, const char *stops);

/* Where the first c is, or NULL. */
const char *uri_find(struct uri_part part, char c);

/*
 * Percent-decodes into buf, terminated. White space and control characters have to be escaped, a
 * NUL has no place. Refuses what is longer than buf_bytes - 1.
 */
int uri_decode(const struct uri_reader *r, struct uri_part from, const char *what, char *buf,
	       size_t buf_bytes);

/* The same into server's path, that of a unix socket, which begins with a NUL if abstract. */
int uri_decode_socket(const struct uri_reader *r, struct uri_part from, const char *what,
		      struct net_host *server);

/*
 * The other way: all but ASCII letters, digits and the bytes of plain becomes %XX. Returns how many
 * bytes stand in `to`, which is terminated, or -ENAMETOOLONG: an escape may need 4 bytes and one to
 * spare.
 */
int uri_escape(const char *from, size_t bytes, const char *plain, char *to, size_t to_bytes);

/* The scheme and "://". Words where there is none: "expected a URI such as `example`". */
int uri_read_scheme(struct uri_reader *r, const char *example, struct uri_part *ret_scheme);

/* Section 3.1: in any case. */
bool uri_is_scheme(struct uri_part scheme, const char *name);

/*
 * HOST[:PORT] of an authority: a name, IPv4 or [IPv6] (with a zone: RFC 6874), or the cid of
 * NET_VSOCK; server->kind says which. The port stays what it was where there is none. `missing`:
 * the words where there is no host.
 */
int uri_decode_server(const struct uri_reader *r, struct uri_part authority, const char *missing,
		      struct net_host *server);

struct uri_query {
	const char *const *keys;
	unsigned keys_nr;   /* at most 32 */
	bool values_unsaid; /* KEY is as good as KEY= */
};

struct uri_pair {
	unsigned key;	/* index in the query's keys */
	const char *at; /* KEY=VALUE */
	struct uri_part value;
};

/* Returns 1, or 0 behind the last. Refuses a key that is not known or given twice. */
int uri_next_pair(struct uri_reader *r, const struct uri_query *query, struct uri_pair *ret_pair);

/* Refuses what is left, which is a fragment. */
int uri_end(const struct uri_reader *r);

#endif
