/*
 * Reads URIs part by part. Owns nothing, pure, any thread.
 *
 * Happy path: uri_split finds a part, uri_decode_* makes of it what it means. Failure modes: the
 * first error, in words, with its column.
 */
#include "net/uri.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/printable.h"
#include "base/util.h"
#include "config/option.h"

int uri_begin(struct uri_reader *r, const char *text, unsigned bytes_max, size_t *ret_column,
	      char *error, size_t error_bytes)
{
	*r = (struct uri_reader){ .text = text,
				  .at = text,
				  .ret_column = ret_column,
				  .error = error,
				  .error_bytes = error_bytes };
	if (strnlen(text, bytes_max + 1) > bytes_max)
		return uri_fail(r, text, "longer than %u bytes", bytes_max);
	return 0;
}

int uri_fail(const struct uri_reader *r, const char *at, const char *fmt, ...)
{
	va_list args;

	*r->ret_column = (size_t)(at - r->text) + 1;
	va_start(args, fmt);
	vsnprintf(r->error, r->error_bytes, fmt, args);
	va_end(args);
	return -EINVAL;
}

struct uri_part uri_split(struct uri_reader *r, const char *stops)
{
	struct uri_part part = { .at = r->at, .end = r->at + strcspn(r->at, stops) };

	r->at = part.end;
	return part;
}

const char *uri_find(struct uri_part part, char c)
{
	return memchr(part.at, c, (size_t)(part.end - part.at));
}

/* The byte that %XX at `at` stands for, or -1. */
static int uri_decode_escape(const char *at, const char *end)
{
	int high = end - at > 2 ? hex_value(at[1]) : -1;
	int low = end - at > 2 ? hex_value(at[2]) : -1;

	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* abstract: the first byte may be NUL. Returns the number of bytes, or -EINVAL. */
static int uri_decode_bytes(const struct uri_reader *r, struct uri_part from, const char *what,
			    char *buf, size_t buf_bytes, bool abstract)
{
	size_t nr = 0;

	for (const char *at = from.at; at < from.end; at++) {
		int c = (unsigned char)*at;

		if (c == '%') {
			c = uri_decode_escape(at, from.end);
			if (c < 0)
				return uri_fail(r, at,
						"after %% come two hex digits; a %% is %%25");
			at += 2;
		} else if (c <= ' ' || c == 0x7f) {
			return uri_fail(r, at, "%s: write this character as %%%02X", what,
					(unsigned)c);
		}
		if (c == 0 && !(abstract && nr == 0))
			return uri_fail(r, from.at, "%s: a NUL has no place in it", what);
		if (nr + 1 >= buf_bytes)
			return uri_fail(r, from.at, "%s: longer than %zu bytes", what,
					buf_bytes - 1);
		buf[nr++] = (char)c;
	}
	buf[nr] = '\0';
	return (int)nr;
}

int uri_decode(const struct uri_reader *r, struct uri_part from, const char *what, char *buf,
	       size_t buf_bytes)
{
	int nr = uri_decode_bytes(r, from, what, buf, buf_bytes, false);

	return MIN(nr, 0);
}

int uri_decode_socket(const struct uri_reader *r, struct uri_part from, const char *what,
		      struct net_host *server)
{
	int nr = uri_decode_bytes(r, from, what, server->path, sizeof(server->path), true);

	if (nr < 0)
		return nr;
	if (nr == 0 || (nr == 1 && server->path[0] == '\0'))
		return uri_fail(r, from.at, "%s: a path is missing", what);
	server->path_bytes = (size_t)nr;
	return 0;
}

int uri_escape(const char *from, size_t bytes, const char *plain, char *to, size_t to_bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)from[i];

		if (n + 4 >= to_bytes)
			return -ENAMETOOLONG;
		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    (c && strchr(plain, c)))
			to[n++] = (char)c;
		else
			n += (size_t)snprintf(to + n, 4, "%%%02X", c);
	}
	to[n] = '\0';
	return (int)n;
}

int uri_read_scheme(struct uri_reader *r, const char *example, struct uri_part *ret_scheme)
{
	*ret_scheme = uri_split(r, ":");
	if (strncmp(r->at, "://", 3) != 0)
		return uri_fail(r, ret_scheme->at, "expected a URI such as %s", example);
	r->at += 3;
	return 0;
}

bool uri_is_scheme(struct uri_part scheme, const char *name)
{
	size_t nr = strlen(name);

	return nr == (size_t)(scheme.end - scheme.at) && strncasecmp(scheme.at, name, nr) == 0;
}

static int uri_decode_number(const struct uri_reader *r, struct uri_part from, const char *what,
			     uint32_t max, uint32_t *ret)
{
	uint64_t n = 0;

	for (const char *at = from.at; at < from.end; at++) {
		if (*at < '0' || *at > '9')
			return uri_fail(r, at, "%s: expected a number", what);
		n = n * 10 + (unsigned)(*at - '0');
		if (n > max)
			return uri_fail(r, from.at, "%s: at most %u", what, max);
	}
	*ret = (uint32_t)n;
	return 0;
}

/* RFC 6874: perhaps with a zone, fe80::1%25eth0. */
static int uri_decode_ipv6(const struct uri_reader *r, struct uri_part in_brackets,
			   struct net_host *server)
{
	char address[INET6_ADDRSTRLEN] = "";
	struct in6_addr binary;
	size_t nr;

	if (uri_decode(r, in_brackets, "host", server->host, sizeof(server->host)) < 0)
		return -EINVAL;
	nr = strcspn(server->host, "%");
	if (nr < sizeof(address))
		memcpy(address, server->host, nr);
	if (inet_pton(AF_INET6, address, &binary) != 1)
		return uri_fail(r, in_brackets.at, "not an IPv6 address");
	return 0;
}

static int uri_decode_name(const struct uri_reader *r, struct uri_part from,
			   struct net_host *server)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789-._";

	if (uri_decode(r, from, "host", server->host, sizeof(server->host)) < 0)
		return -EINVAL;
	/* Internationalised names are for the resolver: they come as UTF-8. */
	for (const char *at = server->host; *at; at++)
		if (!strchr(letters, *at) && !((unsigned char)*at & 0x80))
			return uri_fail(r, from.at,
					"host: not a name or an address (IPv6 stands in [])");
	return 0;
}

static int uri_decode_port(const struct uri_reader *r, struct uri_part rest,
			   struct net_host *server)
{
	uint32_t max = server->kind == NET_VSOCK ? UINT32_MAX : UINT16_MAX;

	if (rest.at == rest.end)
		return 0;
	if (*rest.at != ':')
		return uri_fail(r, rest.at, "expected :PORT or / behind the host");
	rest.at++;
	/* RFC 3986 section 3.2.3: an empty port is the default one. */
	if (rest.at == rest.end)
		return 0;
	if (uri_decode_number(r, rest, "port", max, &server->port) < 0)
		return -EINVAL;
	return server->port == 0 ? uri_fail(r, rest.at, "port: at least 1") : 0;
}

int uri_decode_server(const struct uri_reader *r, struct uri_part authority, const char *missing,
		      struct net_host *server)
{
	struct uri_part host = authority;
	const char *end;
	int err;

	if (host.at == host.end || *host.at == ':')
		return uri_fail(r, host.at, "%s", missing);
	if (*host.at == '[') {
		end = uri_find(host, ']');
		if (!end)
			return uri_fail(r, host.at, "the ] of this [ is missing");
		err = uri_decode_ipv6(r, (struct uri_part){ host.at + 1, end }, server);
		authority.at = end + 1;
	} else {
		end = uri_find(host, ':');
		host.end = end ? end : host.end;
		err = server->kind == NET_VSOCK
			      ? uri_decode_number(r, host, "vsock cid", UINT32_MAX, &server->cid)
			      : uri_decode_name(r, host, server);
		authority.at = host.end;
	}
	return err < 0 ? err : uri_decode_port(r, authority, server);
}

static int uri_find_key(const struct uri_reader *r, const struct uri_query *query,
			struct uri_part part)
{
	char word[32], shown[32];
	const char *near;

	if (uri_decode(r, part, "query key", word, sizeof(word)) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < query->keys_nr; i++)
		if (strcmp(word, query->keys[i]) == 0)
			return (int)i;
	near = option_nearest(word, query->keys, sizeof(query->keys[0]), query->keys_nr);
	printable(shown, sizeof(shown), word, strlen(word));
	return near ? uri_fail(r, part.at, "unknown key \"%s\": did you mean %s?", shown, near)
		    : uri_fail(r, part.at, "unknown key \"%s\"", shown);
}

int uri_next_pair(struct uri_reader *r, const struct uri_query *query, struct uri_pair *ret_pair)
{
	struct uri_part pair;
	const char *sign, *name;
	int key;

	do {
		if (*r->at != '?' && *r->at != '&')
			return 0;
		r->at++;
		pair = uri_split(r, "&#");
	} while (pair.at == pair.end);
	sign = uri_find(pair, '=');
	key = uri_find_key(r, query, (struct uri_part){ pair.at, sign ? sign : pair.end });
	if (key < 0)
		return key;
	name = query->keys[key];
	if (!sign && !query->values_unsaid)
		return uri_fail(r, pair.at, "%s: expected %s=VALUE", name, name);
	if (r->seen & 1u << key)
		return uri_fail(r, pair.at, "%s: given twice", name);
	r->seen |= 1u << key;
	*ret_pair = (struct uri_pair){ .key = (unsigned)key,
				       .at = pair.at,
				       .value = { sign ? sign + 1 : pair.end, pair.end } };
	return 1;
}

int uri_end(const struct uri_reader *r)
{
	if (*r->at)
		return uri_fail(r, r->at, "a fragment has no meaning here; a # in a name is %%23");
	return 0;
}
