/*
 * Reads NBD URIs. Pure functions, any thread.
 *
 * Happy path: scheme -> authority (user, host, port) -> path, which is the export's name -> query
 * -> what the parts say together. Failure modes: those of net/uri.h.
 */
#include "backends/nbd/nbd_uri.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "net/uri.h"

static const struct scheme {
	const char *name;
	enum net_kind kind;
	bool tls;
} schemes[] = {
	{ "nbd", NET_TCP, false },	   { "nbds", NET_TCP, true },
	{ "nbd+unix", NET_UNIX, false },   { "nbds+unix", NET_UNIX, true },
	{ "nbd+vsock", NET_VSOCK, false }, { "nbds+vsock", NET_VSOCK, true },
};

static int nbd_uri_scheme(struct uri_reader *r, struct nbd_uri *uri)
{
	struct uri_part part;

	if (uri_read_scheme(r, "nbd://host/export or nbd+unix:///export?socket=/path", &part) < 0)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (uri_is_scheme(part, schemes[i].name)) {
			uri->server.kind = schemes[i].kind;
			uri->tls = schemes[i].tls;
			return 0;
		}
	return uri_fail(r, part.at,
			"unknown scheme; known are nbd, nbds, and both with +unix, +vsock");
}

/* ---- authority: [userinfo@][host][:port] ---- */

static int nbd_uri_user(const struct uri_reader *r, struct uri_part *authority, struct nbd_uri *uri)
{
	const char *sign = uri_find(*authority, '@');
	struct uri_part user = { .at = authority->at, .end = sign };

	if (!sign)
		return 0;
	authority->at = sign + 1;
	uri->said |= 1u << NBD_URI_TLS_USERNAME;
	if (uri_find(user, ':'))
		return uri_fail(r, user.at,
				"a password has no place in an NBD URI: use tls-psk-file");
	return uri_decode(r, user, "user name", uri->username, sizeof(uri->username));
}

static int nbd_uri_authority(struct uri_reader *r, struct nbd_uri *uri)
{
	struct uri_part authority = uri_split(r, "/?#");

	if (nbd_uri_user(r, &authority, uri) < 0)
		return -EINVAL;
	if (uri->server.kind == NET_UNIX)
		return authority.at == authority.end
			       ? 0
			       : uri_fail(
					 r, authority.at,
					 "a unix URI has no host: nbd+unix:///export?socket=/path");
	uri->server.port = NBD_PORT;
	return uri_decode_server(r, authority,
				 uri->server.kind == NET_VSOCK
					 ? "the cid is missing: nbd+vsock://2/export"
					 : "the host is missing: nbd://host/export",
				 &uri->server);
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

/* One of `words`, NULL at the end. */
static int nbd_uri_word(const struct uri_reader *r, struct uri_part value, const char *what,
			const char *const *words)
{
	char word[16];

	if (uri_decode(r, value, what, word, sizeof(word)) < 0)
		return -EINVAL;
	for (int i = 0; words[i]; i++)
		if (strcmp(word, words[i]) == 0)
			return i;
	return uri_fail(r, value.at, "%s: expected one of: %s, %s, ...", what, words[0], words[1]);
}

static int nbd_uri_tls_type(const struct uri_reader *r, struct uri_part value, struct nbd_uri *uri)
{
	static const char *const words[] = { "anon", "x509", "psk", NULL };
	int type = nbd_uri_word(r, value, "tls-type", words);

	if (type < 0)
		return type;
	uri->tls_type = (enum net_tls_type)(NET_TLS_ANON + type);
	return 0;
}

/* uri.md has 0 and 1, libnbd false and true. */
static int nbd_uri_verify(const struct uri_reader *r, struct uri_part value, struct nbd_uri *uri)
{
	static const char *const words[] = { "0", "1", "false", "true", NULL };
	int word = nbd_uri_word(r, value, "tls-verify-peer", words);

	if (word < 0)
		return word;
	uri->tls_no_verify = word % 2 == 0;
	return 0;
}

#define TEXT(field) keys[pair->key], uri->field, sizeof(uri->field)

static int nbd_uri_value(const struct uri_reader *r, const struct uri_pair *pair,
			 struct nbd_uri *uri)
{
	switch (pair->key) {
	case NBD_URI_SOCKET:
		return uri_decode_socket(r, pair->value, "socket", &uri->server);
	case NBD_URI_TLS_TYPE:
		return nbd_uri_tls_type(r, pair->value, uri);
	case NBD_URI_TLS_VERIFY_PEER:
		return nbd_uri_verify(r, pair->value, uri);
	case NBD_URI_TLS_HOSTNAME:
		return uri_decode(r, pair->value, TEXT(tls_hostname));
	case NBD_URI_TLS_CERTIFICATES:
		return uri_decode(r, pair->value, TEXT(tls_certificates));
	case NBD_URI_TLS_PSK_FILE:
		return uri_decode(r, pair->value, TEXT(tls_psk_file));
	default:
		if (uri->username[0])
			return uri_fail(r, pair->value.at,
					"tls-username: the URI names a user before @ too");
		return uri_decode(r, pair->value, TEXT(username));
	}
}

static int nbd_uri_check_key(const struct uri_reader *r, const struct uri_pair *pair,
			     const struct nbd_uri *uri)
{
	if (pair->key == NBD_URI_SOCKET && uri->server.kind != NET_UNIX)
		return uri_fail(r, pair->at, "socket is for nbd+unix and nbds+unix");
	if (pair->key != NBD_URI_SOCKET && !uri->tls)
		return uri_fail(r, pair->at,
				"%s needs TLS: the scheme nbds, nbds+unix or nbds+vsock",
				keys[pair->key]);
	return 0;
}

static int nbd_uri_query(struct uri_reader *r, struct nbd_uri *uri)
{
	static const struct uri_query query = { .keys = keys, .keys_nr = NBD_URI_KEY_NR };
	struct uri_pair pair;
	int more;

	while ((more = uri_next_pair(r, &query, &pair)) > 0)
		if (nbd_uri_check_key(r, &pair, uri) < 0 || nbd_uri_value(r, &pair, uri) < 0)
			return -EINVAL;
	uri->said |= r->seen;
	return more;
}

/* "NBD URI export name": the path without its first slash. */
static int nbd_uri_export(struct uri_reader *r, struct nbd_uri *uri)
{
	struct uri_part path = uri_split(r, "?#");

	if (path.at < path.end)
		path.at++;
	return uri_decode(r, path, "export name", uri->export_name, sizeof(uri->export_name));
}

/* ---- QEMU's form ---- */

#define QEMU_SCHEME "nbd:"
#define QEMU_UNIX "unix:"
#define QEMU_EXPORT ":exportname="

static bool is_qemu(const char *text)
{
	size_t bytes = strlen(QEMU_SCHEME);

	return strncasecmp(text, QEMU_SCHEME, bytes) == 0 && strncmp(text + bytes, "//", 2) != 0;
}

/* As it is, terminated. */
static int nbd_uri_take(const struct uri_reader *r, struct uri_part from, const char *what,
			char *buf, size_t buf_bytes)
{
	size_t bytes = (size_t)(from.end - from.at);

	if (bytes >= buf_bytes)
		return uri_fail(r, from.at, "%s: longer than %zu bytes", what, buf_bytes - 1);
	memcpy(buf, from.at, bytes);
	buf[bytes] = '\0';
	return 0;
}

static int nbd_uri_qemu_unix(const struct uri_reader *r, struct uri_part path, struct nbd_uri *uri)
{
	uri->server.kind = NET_UNIX;
	uri->server.path_bytes = (size_t)(path.end - path.at);
	if (path.at == path.end)
		return uri_fail(r, path.at, "the path of the socket is missing: nbd:unix:PATH");
	return nbd_uri_take(r, path, "socket", uri->server.path, sizeof(uri->server.path));
}

static int nbd_uri_qemu_tcp(const struct uri_reader *r, struct uri_part server, struct nbd_uri *uri)
{
	static const char form[] = "expected nbd:HOST:PORT, nbd:unix:PATH or nbd://HOST/EXPORT";

	uri->server.kind = NET_TCP;
	if (uri_decode_server(r, server, form, &uri->server) < 0)
		return -EINVAL;
	return uri->server.port == 0 ? uri_fail(r, server.at, "%s", form) : 0;
}

static int nbd_uri_qemu(struct uri_reader *r, struct nbd_uri *uri)
{
	struct uri_part server = { .at = r->text + strlen(QEMU_SCHEME) };
	const char *sign = strstr(server.at, QEMU_EXPORT);
	struct uri_part name = { .at = sign ? sign + strlen(QEMU_EXPORT) : NULL };

	name.end = name.at ? name.at + strlen(name.at) : NULL;
	server.end = sign ? sign : server.at + strlen(server.at);
	if (name.at &&
	    nbd_uri_take(r, name, "export name", uri->export_name, sizeof(uri->export_name)) < 0)
		return -EINVAL;
	if ((size_t)(server.end - server.at) < strlen(QEMU_UNIX) ||
	    strncmp(server.at, QEMU_UNIX, strlen(QEMU_UNIX)) != 0)
		return nbd_uri_qemu_tcp(r, server, uri);
	server.at += strlen(QEMU_UNIX);
	return nbd_uri_qemu_unix(r, server, uri);
}

int nbd_uri_parse(const char *text, struct nbd_uri *ret_uri, struct nbd_uri_error *e)
{
	struct uri_reader r;

	*ret_uri = (struct nbd_uri){ 0 };
	if (uri_begin(&r, text, NBD_URI_BYTES_MAX, &e->column, e->text, sizeof(e->text)) < 0)
		return -EINVAL;
	if (is_qemu(text))
		return nbd_uri_qemu(&r, ret_uri);
	if (nbd_uri_scheme(&r, ret_uri) < 0 || nbd_uri_authority(&r, ret_uri) < 0 ||
	    nbd_uri_export(&r, ret_uri) < 0 || nbd_uri_query(&r, ret_uri) < 0 || uri_end(&r) < 0)
		return -EINVAL;
	if (ret_uri->server.kind == NET_UNIX && ret_uri->server.path_bytes == 0)
		return uri_fail(&r, r.at, "the socket is missing: nbd+unix:///export?socket=/path");
	return 0;
}
