/*
 * Reads NVMe-oF URIs. Pure functions, any thread.
 *
 * Happy path: scheme -> authority (host, port) -> path (NQN, namespace) -> query. Failure modes:
 * the first error, in words, with its column. Parts are split first and decoded then, as RFC 3986
 * section 2.4 wants it: %2F is no separator.
 */
#include "backends/nvme/nvme_uri.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "base/printable.h"
#include "base/util.h"
#include "config/option.h"

#define SCHEME "nvme+tcp"

/* A range of the text. */
struct part {
	const char *at, *end;
};

struct nvme_uri_parser {
	const char *text;
	struct nvme_uri *uri;
	struct nvme_uri_error *e;
};

__attribute__((format(printf, 3, 4))) static int nvme_uri_fail(const struct nvme_uri_parser *p,
							       const char *at, const char *fmt, ...)
{
	va_list args;

	p->e->column = (size_t)(at - p->text) + 1;
	va_start(args, fmt);
	vsnprintf(p->e->text, sizeof(p->e->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

/* What stands before the first of `stops`, and *at moves there. */
static struct part nvme_uri_split(const char **at, const char *stops)
{
	struct part part = { .at = *at, .end = *at + strcspn(*at, stops) };

	*at = part.end;
	return part;
}

/* Percent-decodes into buf, terminated; no NUL, nothing that is no character. */
static int nvme_uri_decode(const struct nvme_uri_parser *p, struct part from, const char *what,
			   char *buf, size_t buf_bytes)
{
	size_t nr = 0;

	for (const char *at = from.at; at < from.end; at++) {
		char hex[3] = "";
		uint8_t c = (uint8_t)*at;

		if (c == '%') {
			if (from.end - at > 2)
				memcpy(hex, at + 1, 2);
			if (nvme_hex_parse(hex, &c, 1) < 0)
				return nvme_uri_fail(p, at,
						     "after %% come two hex digits; a %% is %%25");
			at += 2;
		} else if (c <= ' ' || c == 0x7f) {
			return nvme_uri_fail(p, at, "%s: write this character as %%%02X", what, c);
		}
		if (c == 0)
			return nvme_uri_fail(p, from.at, "%s: a NUL has no place in it", what);
		if (nr + 1 >= buf_bytes)
			return nvme_uri_fail(p, from.at, "%s: longer than %zu bytes", what,
					     buf_bytes - 1);
		buf[nr++] = (char)c;
	}
	buf[nr] = '\0';
	return 0;
}

static int nvme_uri_parse_nqn(const struct nvme_uri_parser *p, struct part from, const char *what,
			      char buf[static NVME_NQN_BYTES_MAX + 1])
{
	char words[100];

	if (nvme_uri_decode(p, from, what, buf, NVME_NQN_BYTES_MAX + 1) < 0)
		return -EINVAL;
	/* The boot specification shows it in capitals. */
	if (strcasecmp(buf, NVME_DISCOVERY_NQN) == 0)
		memcpy(buf, NVME_DISCOVERY_NQN, sizeof(NVME_DISCOVERY_NQN));
	if (nvme_nqn_check(buf, words, sizeof(words)) < 0)
		return nvme_uri_fail(p, from.at, "%s: %s", what, words);
	return 0;
}

/* ---- scheme, authority: [host][:port] ---- */

static int nvme_uri_parse_scheme(const struct nvme_uri_parser *p, const char **at)
{
	struct part part = nvme_uri_split(at, ":");
	size_t nr = (size_t)(part.end - part.at);

	if (strncmp(*at, "://", 3) != 0)
		return nvme_uri_fail(p, part.at,
				     "expected a URI such as " SCHEME
				     "://host/nqn.2024-01.com.example:disk");
	/* RFC 3986 section 3.1: in any case. */
	if (nr != strlen(SCHEME) || strncasecmp(part.at, SCHEME, nr) != 0)
		return nvme_uri_fail(p, part.at, "unknown scheme; known is " SCHEME);
	*at += 3;
	return 0;
}

/* [IPv6], RFC 6874: perhaps with a zone, fe80::1%25eth0. */
static int nvme_uri_parse_ipv6(const struct nvme_uri_parser *p, struct part in_brackets)
{
	char *host = p->uri->server.host, address[INET6_ADDRSTRLEN] = "";
	struct in6_addr binary;
	size_t nr;

	if (nvme_uri_decode(p, in_brackets, "host", host, sizeof(p->uri->server.host)) < 0)
		return -EINVAL;
	nr = strcspn(host, "%");
	if (nr < sizeof(address))
		memcpy(address, host, nr);
	if (inet_pton(AF_INET6, address, &binary) != 1)
		return nvme_uri_fail(p, in_brackets.at, "not an IPv6 address");
	return 0;
}

static int nvme_uri_parse_name(const struct nvme_uri_parser *p, struct part host)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789-._";
	char *name = p->uri->server.host;

	if (nvme_uri_decode(p, host, "host", name, sizeof(p->uri->server.host)) < 0)
		return -EINVAL;
	/* Internationalised names are for the resolver: they come as UTF-8. */
	for (; *name; name++)
		if (!strchr(letters, *name) && !((unsigned char)*name & 0x80))
			return nvme_uri_fail(p, host.at,
					     "host: not a name or an address (IPv6 stands in [])");
	return 0;
}

static int nvme_uri_parse_port(const struct nvme_uri_parser *p, struct part rest)
{
	uint32_t port = 0;

	if (rest.at == rest.end)
		return 0;
	if (*rest.at != ':')
		return nvme_uri_fail(p, rest.at, "expected :PORT or / behind the host");
	rest.at++;
	/* RFC 3986 section 3.2.3: an empty port is the default one. */
	if (rest.at == rest.end)
		return 0;
	for (const char *at = rest.at; at < rest.end; at++) {
		if (*at < '0' || *at > '9')
			return nvme_uri_fail(p, at, "port: expected a number");
		port = port * 10 + (unsigned)(*at - '0');
		if (port > UINT16_MAX)
			return nvme_uri_fail(p, rest.at, "port: at most %u", UINT16_MAX);
	}
	if (port == 0)
		return nvme_uri_fail(p, rest.at, "port: at least 1");
	p->uri->server.port = port;
	return 0;
}

static int nvme_uri_parse_authority(const struct nvme_uri_parser *p, const char **at)
{
	struct part authority = nvme_uri_split(at, "/?#"), host = authority;
	size_t bytes = (size_t)(authority.end - authority.at);
	const char *end;
	int err;

	p->uri->server.kind = NET_TCP;
	if (memchr(authority.at, '@', bytes))
		return nvme_uri_fail(p, authority.at,
				     "a user has no place in an NVMe URI: hosts are known by "
				     "hostnqn");
	if (bytes == 0 || *authority.at == ':')
		return nvme_uri_fail(p, authority.at, "the host is missing");
	if (*host.at == '[') {
		end = memchr(host.at, ']', bytes);
		if (!end)
			return nvme_uri_fail(p, host.at, "the ] of this [ is missing");
		err = nvme_uri_parse_ipv6(p, (struct part){ host.at + 1, end });
		authority.at = end + 1;
	} else {
		end = memchr(host.at, ':', bytes);
		host.end = end ? end : host.end;
		err = nvme_uri_parse_name(p, host);
		authority.at = host.end;
	}
	return err < 0 ? err : nvme_uri_parse_port(p, authority);
}

/* ---- path: subsystem NQN, namespace ---- */

/* The next segment that is not empty; libnvme passes over empty ones too. */
static struct part nvme_uri_segment(const char **at)
{
	while (**at == '/')
		++*at;
	return nvme_uri_split(at, "/?#");
}

static int nvme_uri_parse_path(const struct nvme_uri_parser *p, const char **at)
{
	struct nvme_uri *uri = p->uri;
	struct part nqn = nvme_uri_segment(at), namespace = nvme_uri_segment(at);
	struct part more = nvme_uri_segment(at);
	char text[64];

	if (more.at < more.end)
		return nvme_uri_fail(p, more.at,
				     "nothing comes behind the namespace; a / in an NQN is %%2F");
	memcpy(uri->subsystem_nqn, NVME_DISCOVERY_NQN, sizeof(NVME_DISCOVERY_NQN));
	if (nqn.at < nqn.end && nvme_uri_parse_nqn(p, nqn, "subsystem NQN", uri->subsystem_nqn) < 0)
		return -EINVAL;
	uri->discovery = nvme_nqn_is_discovery(uri->subsystem_nqn);
	if (uri->server.port == 0)
		uri->server.port = uri->discovery ? NVME_TCP_DISCOVERY_PORT : NVME_TCP_PORT;
	if (namespace.at == namespace.end)
		return 0;
	if (nvme_uri_decode(p, namespace, "namespace", text, sizeof(text)) < 0)
		return -EINVAL;
	if (nvme_want_parse(text, &uri->want) < 0)
		return nvme_uri_fail(p, namespace.at,
				     "namespace: expected a number, uuid.UUID, nguid.32 hex digits "
				     "or eui.16 hex digits");
	return 0;
}

/* ---- query ---- */

static const char *const keys[NVME_URI_KEY_NR] = {
	[NVME_URI_HOSTNQN] = "hostnqn",
	[NVME_URI_HOSTID] = "hostid",
	[NVME_URI_HDR_DIGEST] = "hdr_digest",
	[NVME_URI_DATA_DIGEST] = "data_digest",
	[NVME_URI_NSID] = "nsid",
	[NVME_URI_UUID] = "uuid",
	[NVME_URI_NGUID] = "nguid",
	[NVME_URI_EUI64] = "eui64",
};

const char *nvme_uri_key_name(enum nvme_uri_key key)
{
	return keys[key];
}

static int nvme_uri_find_key(const struct nvme_uri_parser *p, struct part part)
{
	char word[32], shown[32];
	const char *near;

	if (nvme_uri_decode(p, part, "query key", word, sizeof(word)) < 0)
		return -EINVAL;
	for (int i = 0; i < NVME_URI_KEY_NR; i++)
		if (strcmp(word, keys[i]) == 0)
			return i;
	near = option_nearest(word, keys, sizeof(keys[0]), NVME_URI_KEY_NR);
	printable(shown, sizeof(shown), word, strlen(word));
	return near ? nvme_uri_fail(p, part.at, "unknown key \"%s\": did you mean %s?", shown, near)
		    : nvme_uri_fail(p, part.at, "unknown key \"%s\"", shown);
}

/* Without a value too: hdr_digest alone is yes. */
static int nvme_uri_parse_bool(const struct nvme_uri_parser *p, struct part value, const char *what,
			       bool *ret)
{
	char word[8];

	if (nvme_uri_decode(p, value, what, word, sizeof(word)) < 0)
		return -EINVAL;
	if (strcmp(word, "1") == 0 || strcmp(word, "true") == 0 || word[0] == '\0')
		*ret = true;
	else if (strcmp(word, "0") == 0 || strcmp(word, "false") == 0)
		*ret = false;
	else
		return nvme_uri_fail(p, value.at, "%s: expected 1 or 0", what);
	return 0;
}

/* nsid, uuid, nguid, eui64 */
static int nvme_uri_parse_want(const struct nvme_uri_parser *p, enum nvme_uri_key key,
			       struct part value)
{
	struct nvme_want *want = &p->uri->want;
	char text[64];
	int err;

	if (want->by != NVME_WANT_ONLY)
		return nvme_uri_fail(p, value.at, "%s: the namespace was named already", keys[key]);
	if (nvme_uri_decode(p, value, keys[key], text, sizeof(text)) < 0)
		return -EINVAL;
	switch (key) {
	case NVME_URI_NSID:
		want->by = NVME_WANT_NSID;
		err = nvme_want_parse_nsid(text, &want->nsid);
		break;
	case NVME_URI_UUID:
		want->by = NVME_WANT_UUID;
		err = nvme_uuid_parse(text, want->id);
		break;
	case NVME_URI_NGUID:
		want->by = NVME_WANT_NGUID;
		err = nvme_hex_parse(text, want->id, 16);
		break;
	default:
		want->by = NVME_WANT_EUI64;
		err = nvme_hex_parse(text, want->id, 8);
	}
	if (err < 0)
		return nvme_uri_fail(p, value.at, "%s: expected %s", keys[key],
				     key == NVME_URI_NSID    ? "a number from 1 to 4294967294"
				     : key == NVME_URI_UUID  ? "hex digits in the form 8-4-4-4-12"
				     : key == NVME_URI_NGUID ? "32 hex digits"
							     : "16 hex digits");
	return 0;
}

static int nvme_uri_parse_value(const struct nvme_uri_parser *p, enum nvme_uri_key key,
				struct part value)
{
	char text[48];

	switch (key) {
	case NVME_URI_HOSTNQN:
		return nvme_uri_parse_nqn(p, value, "hostnqn", p->uri->host_nqn);
	case NVME_URI_HOSTID:
		if (nvme_uri_decode(p, value, "hostid", text, sizeof(text)) < 0)
			return -EINVAL;
		if (nvme_uuid_parse(text, p->uri->host_id) < 0)
			return nvme_uri_fail(p, value.at,
					     "hostid: expected a UUID of the form 8-4-4-4-12");
		return 0;
	case NVME_URI_HDR_DIGEST:
		return nvme_uri_parse_bool(p, value, keys[key], &p->uri->header_digest);
	case NVME_URI_DATA_DIGEST:
		return nvme_uri_parse_bool(p, value, keys[key], &p->uri->data_digest);
	default:
		return nvme_uri_parse_want(p, key, value);
	}
}

static int nvme_uri_parse_query(const struct nvme_uri_parser *p, const char **at)
{
	while (**at == '?' || **at == '&') {
		const char *start = ++*at;
		struct part pair = nvme_uri_split(at, "&#");
		const char *sign = memchr(start, '=', (size_t)(pair.end - start));
		int key;

		if (start == pair.end)
			continue;
		key = nvme_uri_find_key(p, (struct part){ start, sign ? sign : pair.end });
		if (key < 0)
			return key;
		if (p->uri->said & 1u << key)
			return nvme_uri_fail(p, start, "%s: given twice", keys[key]);
		p->uri->said |= 1u << key;
		if (nvme_uri_parse_value(p, (enum nvme_uri_key)key,
					 (struct part){ sign ? sign + 1 : pair.end, pair.end }) < 0)
			return -EINVAL;
	}
	return 0;
}

int nvme_uri_parse(const char *text, struct nvme_uri *ret_uri, struct nvme_uri_error *e)
{
	const struct nvme_uri_parser p = { .text = text, .uri = ret_uri, .e = e };
	const char *at = text;

	*ret_uri = (struct nvme_uri){ 0 };
	if (strnlen(text, NVME_URI_BYTES_MAX + 1) > NVME_URI_BYTES_MAX)
		return nvme_uri_fail(&p, text, "longer than %u bytes", NVME_URI_BYTES_MAX);
	if (nvme_uri_parse_scheme(&p, &at) < 0 || nvme_uri_parse_authority(&p, &at) < 0 ||
	    nvme_uri_parse_path(&p, &at) < 0 || nvme_uri_parse_query(&p, &at) < 0)
		return -EINVAL;
	if (*at)
		return nvme_uri_fail(&p, at,
				     "a fragment has no meaning here; a # in a name is %%23");
	if (ret_uri->discovery && ret_uri->want.by != NVME_WANT_ONLY)
		return nvme_uri_fail(&p, at,
				     "a discovery controller has no namespaces: write the "
				     "subsystem's NQN");
	return 0;
}
