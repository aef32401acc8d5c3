/*
 * Reads NBD URIs. Pure functions, any thread.
 *
 * Happy path: scheme -> authority (user, host, port) -> path, which is the export's name -> query
 * -> what the parts say together. Failure modes: the first error, in words, with its column. Parts
 * are split first and decoded then, as RFC 3986 section 2.4 wants it: %2F is no separator.
 */
#include "backends/nbd/nbd_uri.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "base/util.h"
#include "config/option.h"
#include "base/printable.h"

/* A range of the text. */
struct part {
	const char *at, *end;
};

struct parser {
	const char *text;
	struct nbd_uri *uri;
	struct nbd_uri_error *e;
};

__attribute__((format(printf, 3, 4))) static int uri_fail(const struct parser *p, const char *at,
							  const char *fmt, ...)
{
	va_list args;

	p->e->column = (size_t)(at - p->text) + 1;
	va_start(args, fmt);
	vsnprintf(p->e->text, sizeof(p->e->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

/* What stands before the first of `stops`, and p->at moves there. */
static struct part uri_split(const char **at, const char *stops)
{
	struct part part = { .at = *at, .end = *at + strcspn(*at, stops) };

	*at = part.end;
	return part;
}

static int uri_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that %XX at `at` stands for, or -1. */
static int uri_decode_escape(const char *at, const char *end)
{
	int high = end - at > 2 ? uri_hex(at[1]) : -1;
	int low = end - at > 2 ? uri_hex(at[2]) : -1;

	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/*
 * Percent-decodes into buf, terminated. NUL is refused, but as the first byte where abstract says
 * so. Returns the number of bytes, or -EINVAL.
 */
static int uri_decode_bytes(const struct parser *p, struct part from, const char *what, char *buf,
			    size_t buf_bytes, bool abstract)
{
	size_t nr = 0;

	for (const char *at = from.at; at < from.end; at++) {
		int c = (unsigned char)*at;

		if (c == '%') {
			c = uri_decode_escape(at, from.end);
			if (c < 0)
				return uri_fail(p, at,
						"after %% come two hex digits; a %% is %%25");
			at += 2;
		} else if (c <= ' ' || c == 0x7f) {
			return uri_fail(p, at, "%s: write this character as %%%02X", what,
					(unsigned)c);
		}
		if (c == 0 && !(abstract && nr == 0))
			return uri_fail(p, from.at, "%s: a NUL has no place in it", what);
		if (nr + 1 >= buf_bytes)
			return uri_fail(p, from.at, "%s: longer than %zu bytes", what,
					buf_bytes - 1);
		buf[nr++] = (char)c;
	}
	buf[nr] = '\0';
	return (int)nr;
}

static int uri_decode(const struct parser *p, struct part from, const char *what, char *buf,
		      size_t buf_bytes)
{
	int nr = uri_decode_bytes(p, from, what, buf, buf_bytes, false);

	return MIN(nr, 0);
}

static int uri_parse_number(const struct parser *p, struct part from, const char *what,
			    uint32_t max, uint32_t *ret)
{
	uint64_t n = 0;

	for (const char *at = from.at; at < from.end; at++) {
		if (*at < '0' || *at > '9')
			return uri_fail(p, at, "%s: expected a number", what);
		n = n * 10 + (unsigned)(*at - '0');
		if (n > max)
			return uri_fail(p, from.at, "%s: at most %u", what, max);
	}
	*ret = (uint32_t)n;
	return 0;
}

/* ---- scheme ---- */

static const struct scheme {
	const char *name;
	enum net_kind kind;
	bool tls;
} schemes[] = {
	{ "nbd", NET_TCP, false },	   { "nbds", NET_TCP, true },
	{ "nbd+unix", NET_UNIX, false },   { "nbds+unix", NET_UNIX, true },
	{ "nbd+vsock", NET_VSOCK, false }, { "nbds+vsock", NET_VSOCK, true },
};

static int uri_parse_scheme(const struct parser *p, const char **at)
{
	struct part part = uri_split(at, ":");

	if (strncmp(*at, "://", 3) != 0)
		return uri_fail(p, part.at,
				"expected a URI such as nbd://host/export or "
				"nbd+unix:///export?socket=/path");
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		size_t nr = strlen(schemes[i].name);

		/* RFC 3986 section 3.1: in any case. */
		if (nr == (size_t)(part.end - part.at) &&
		    strncasecmp(part.at, schemes[i].name, nr) == 0) {
			p->uri->server.kind = schemes[i].kind;
			p->uri->tls = schemes[i].tls;
			*at += 3;
			return 0;
		}
	}
	return uri_fail(p, part.at,
			"unknown scheme; known are nbd, nbds, and both with +unix, +vsock");
}

/* ---- authority: [userinfo@][host][:port] ---- */

static int uri_parse_user(const struct parser *p, struct part *authority)
{
	const char *sign = memchr(authority->at, '@', (size_t)(authority->end - authority->at));
	struct part user = { .at = authority->at, .end = sign };

	if (!sign)
		return 0;
	authority->at = sign + 1;
	p->uri->said |= 1u << NBD_URI_TLS_USERNAME;
	if (memchr(user.at, ':', (size_t)(user.end - user.at)))
		return uri_fail(p, user.at,
				"a password has no place in an NBD URI: use tls-psk-file");
	return uri_decode(p, user, "user name", p->uri->username, sizeof(p->uri->username));
}

/* [IPv6], RFC 6874: perhaps with a zone, fe80::1%25eth0. */
static int uri_parse_ipv6(const struct parser *p, struct part in_brackets)
{
	char *host = p->uri->server.host, address[INET6_ADDRSTRLEN] = "";
	struct in6_addr binary;
	size_t nr;

	if (uri_decode(p, in_brackets, "host", host, sizeof(p->uri->server.host)) < 0)
		return -EINVAL;
	nr = strcspn(host, "%");
	if (nr < sizeof(address))
		memcpy(address, host, nr);
	if (inet_pton(AF_INET6, address, &binary) != 1)
		return uri_fail(p, in_brackets.at, "not an IPv6 address");
	return 0;
}

static int uri_parse_name(const struct parser *p, struct part host)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789-._";
	char *name = p->uri->server.host;

	if (uri_decode(p, host, "host", name, sizeof(p->uri->server.host)) < 0)
		return -EINVAL;
	/* Internationalised names are for the resolver: they come as UTF-8. */
	for (; *name; name++)
		if (!strchr(letters, *name) && !((unsigned char)*name & 0x80))
			return uri_fail(p, host.at,
					"host: not a name or an address (IPv6 stands in [])");
	return 0;
}

static int uri_parse_host(const struct parser *p, struct part *authority)
{
	struct part host = *authority;
	const char *end;

	if (host.at < host.end && *host.at == '[') {
		end = memchr(host.at, ']', (size_t)(host.end - host.at));
		if (!end)
			return uri_fail(p, host.at, "the ] of this [ is missing");
		authority->at = end + 1;
		return uri_parse_ipv6(p, (struct part){ host.at + 1, end });
	}
	end = memchr(host.at, ':', (size_t)(host.end - host.at));
	host.end = end ? end : host.end;
	authority->at = host.end;
	if (p->uri->server.kind == NET_VSOCK && host.at < host.end)
		return uri_parse_number(p, host, "vsock cid", UINT32_MAX, &p->uri->server.cid);
	return uri_parse_name(p, host);
}

static int uri_parse_port(const struct parser *p, struct part rest)
{
	uint32_t max = p->uri->server.kind == NET_VSOCK ? UINT32_MAX : UINT16_MAX;

	p->uri->server.port = NBD_PORT;
	if (rest.at == rest.end)
		return 0;
	if (*rest.at != ':')
		return uri_fail(p, rest.at, "expected :PORT or / behind the host");
	rest.at++;
	/* RFC 3986 section 3.2.3: an empty port is the default one. */
	if (rest.at == rest.end)
		return 0;
	if (uri_parse_number(p, rest, "port", max, &p->uri->server.port) < 0)
		return -EINVAL;
	return p->uri->server.port == 0 ? uri_fail(p, rest.at, "port: at least 1") : 0;
}

static int uri_parse_authority(const struct parser *p, const char **at)
{
	struct part authority = uri_split(at, "/?#");

	if (uri_parse_user(p, &authority) < 0)
		return -EINVAL;
	if (p->uri->server.kind == NET_UNIX)
		return authority.at == authority.end
			       ? 0
			       : uri_fail(
					 p, authority.at,
					 "a unix URI has no host: nbd+unix:///export?socket=/path");
	if (authority.at == authority.end || *authority.at == ':')
		return uri_fail(p, authority.at,
				p->uri->server.kind == NET_VSOCK
					? "the cid is missing: nbd+vsock://2/export"
					: "the host is missing: nbd://host/export");
	if (uri_parse_host(p, &authority) < 0)
		return -EINVAL;
	return uri_parse_port(p, authority);
}

/* ---- query ---- */

static const char *const keys[NBD_URI_KEY_NR] = {
	[NBD_URI_SOCKET] = "socket",
	[NBD_URI_TLS_TYPE] = "tls-type",
	[NBD_URI_TLS_HOSTNAME] = "tls-hostname",
	[NBD_URI_TLS_VERIFY_PEER] = "tls-verify-peer",
	[NBD_URI_TLS_CERTIFICATES] = "tls-certificates",
	[NBD_URI_TLS_PSK_FILE] = "tls-psk-file",
	[NBD_URI_TLS_USERNAME] = "tls-username",
};

const char *nbd_uri_key_name(enum nbd_uri_key key)
{
	return keys[key];
}

static int uri_find_key(const struct parser *p, struct part part)
{
	char word[32], shown[32];
	const char *near;

	if (uri_decode(p, part, "query key", word, sizeof(word)) < 0)
		return -EINVAL;
	for (int i = 0; i < NBD_URI_KEY_NR; i++)
		if (strcmp(word, keys[i]) == 0)
			return i;
	near = option_nearest(word, keys, sizeof(keys[0]), NBD_URI_KEY_NR);
	printable(shown, sizeof(shown), word, strlen(word));
	return near ? uri_fail(p, part.at, "unknown key \"%s\": did you mean %s?", shown, near)
		    : uri_fail(p, part.at, "unknown key \"%s\"", shown);
}

static int uri_parse_socket(const struct parser *p, struct part value)
{
	struct nbd_uri *uri = p->uri;
	int nr = uri_decode_bytes(p, value, "socket", uri->server.path, sizeof(uri->server.path),
				  true);

	if (nr < 0)
		return nr;
	uri->server.path_bytes = (size_t)nr;
	if (nr == 0 || (nr == 1 && uri->server.path[0] == '\0'))
		return uri_fail(p, value.at, "socket: a path is missing");
	return 0;
}

/* One of `words`, NULL at the end. */
static int uri_parse_word(const struct parser *p, struct part value, const char *what,
			  const char *const *words)
{
	char word[16];

	if (uri_decode(p, value, what, word, sizeof(word)) < 0)
		return -EINVAL;
	for (int i = 0; words[i]; i++)
		if (strcmp(word, words[i]) == 0)
			return i;
	return uri_fail(p, value.at, "%s: expected one of: %s, %s, ...", what, words[0], words[1]);
}

static int uri_parse_tls_type(const struct parser *p, struct part value)
{
	static const char *const words[] = { "anon", "x509", "psk", NULL };
	int type = uri_parse_word(p, value, "tls-type", words);

	if (type < 0)
		return type;
	p->uri->tls_type = (enum net_tls_type)(NET_TLS_ANON + type);
	return 0;
}

/* uri.md has 0 and 1, libnbd false and true. */
static int uri_parse_verify(const struct parser *p, struct part value)
{
	static const char *const words[] = { "0", "1", "false", "true", NULL };
	int word = uri_parse_word(p, value, "tls-verify-peer", words);

	if (word < 0)
		return word;
	p->uri->tls_no_verify = word % 2 == 0;
	return 0;
}

#define TEXT(field) keys[key], p->uri->field, sizeof(p->uri->field)

static int uri_parse_value(const struct parser *p, enum nbd_uri_key key, struct part value)
{
	switch (key) {
	case NBD_URI_SOCKET:
		return uri_parse_socket(p, value);
	case NBD_URI_TLS_TYPE:
		return uri_parse_tls_type(p, value);
	case NBD_URI_TLS_VERIFY_PEER:
		return uri_parse_verify(p, value);
	case NBD_URI_TLS_HOSTNAME:
		return uri_decode(p, value, TEXT(tls_hostname));
	case NBD_URI_TLS_CERTIFICATES:
		return uri_decode(p, value, TEXT(tls_certificates));
	case NBD_URI_TLS_PSK_FILE:
		return uri_decode(p, value, TEXT(tls_psk_file));
	default:
		if (p->uri->username[0])
			return uri_fail(p, value.at,
					"tls-username: the URI names a user before @ too");
		return uri_decode(p, value, TEXT(username));
	}
}

static int uri_check_key(const struct parser *p, enum nbd_uri_key key, const char *at)
{
	if (key == NBD_URI_SOCKET && p->uri->server.kind != NET_UNIX)
		return uri_fail(p, at, "socket is for nbd+unix and nbds+unix");
	if (key != NBD_URI_SOCKET && !p->uri->tls)
		return uri_fail(p, at, "%s needs TLS: the scheme nbds, nbds+unix or nbds+vsock",
				keys[key]);
	return 0;
}

static int uri_parse_query(const struct parser *p, const char **at)
{
	unsigned seen = 0;

	while (**at == '?' || **at == '&') {
		const char *start = ++*at;
		struct part pair = uri_split(at, "&#");
		const char *sign = memchr(start, '=', (size_t)(pair.end - start));
		int key;

		if (start == pair.end)
			continue;
		key = uri_find_key(p, (struct part){ start, sign ? sign : pair.end });
		if (key < 0)
			return key;
		if (!sign)
			return uri_fail(p, start, "%s: expected %s=VALUE", keys[key], keys[key]);
		if (seen & 1u << key)
			return uri_fail(p, start, "%s: given twice", keys[key]);
		seen |= 1u << key;
		if (uri_check_key(p, (enum nbd_uri_key)key, start) < 0 ||
		    uri_parse_value(p, (enum nbd_uri_key)key, (struct part){ sign + 1, pair.end }) <
			    0)
			return -EINVAL;
	}
	p->uri->said |= seen;
	return 0;
}

/* "NBD URI export name": the path without its first slash. */
static int uri_parse_export(const struct parser *p, const char **at)
{
	struct part path = uri_split(at, "?#");

	if (path.at < path.end)
		path.at++;
	return uri_decode(p, path, "export name", p->uri->export_name, sizeof(p->uri->export_name));
}

int nbd_uri_parse(const char *text, struct nbd_uri *ret_uri, struct nbd_uri_error *e)
{
	const struct parser p = { .text = text, .uri = ret_uri, .e = e };
	const char *at = text;

	*ret_uri = (struct nbd_uri){ 0 };
	if (strnlen(text, NBD_URI_BYTES_MAX + 1) > NBD_URI_BYTES_MAX)
		return uri_fail(&p, text, "longer than %u bytes", NBD_URI_BYTES_MAX);
	if (uri_parse_scheme(&p, &at) < 0 || uri_parse_authority(&p, &at) < 0 ||
	    uri_parse_export(&p, &at) < 0 || uri_parse_query(&p, &at) < 0)
		return -EINVAL;
	if (*at)
		return uri_fail(&p, at, "a fragment has no meaning here; a # in a name is %%23");
	if (ret_uri->server.kind == NET_UNIX && ret_uri->server.path_bytes == 0)
		return uri_fail(&p, at, "the socket is missing: nbd+unix:///export?socket=/path");
	return 0;
}
