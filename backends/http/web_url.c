/* Splits URLs (RFC 3986); owns nothing. Pure. */
#include "backends/http/web_url.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "net/http/http_client.h"
#include "net/uri.h"

#define HTTP_PORT 80u
#define HTTPS_PORT 443u

static int url_take_scheme(struct uri_reader *r, struct web_url *url)
{
	struct uri_part scheme;
	int ret = uri_read_scheme(r, "https://host/disk.img", &scheme);

	if (ret < 0)
		return ret;
	url->is_tls = uri_is_scheme(scheme, "https");
	if (!url->is_tls && !uri_is_scheme(scheme, "http"))
		return uri_fail(r, scheme.at, "the scheme must be http or https");
	return 0;
}

static int url_take_server(struct uri_reader *r, struct web_url *url)
{
	struct uri_part authority = uri_split(r, "/?#");
	const char *user = uri_find(authority, '@');

	if (user)
		return uri_fail(r, authority.at,
				"a user does not belong here, where it is shown: set user and "
				"password_file");
	url->host.kind = NET_TCP;
	url->host.port = url->is_tls ? HTTPS_PORT : HTTP_PORT;
	return uri_decode_server(r, authority, "the host is missing", &url->host);
}

int web_url_parse(const char *text, struct web_url *ret_url, size_t *ret_column, char *error,
		  size_t error_bytes)
{
	char server[290];
	size_t unasked;
	struct uri_reader r;
	int ret = uri_begin(&r, text, HTTP_URL_BYTES - 1, ret_column ? ret_column : &unasked, error,
			    error_bytes);

	*ret_url = (struct web_url){ 0 };
	if (ret == 0)
		ret = url_take_scheme(&r, ret_url);
	if (ret == 0)
		ret = url_take_server(&r, ret_url);
	if (ret < 0)
		return ret;
	for (const char *at = r.at; *at; at++) {
		if ((unsigned char)*at <= ' ' || *at == 0x7f)
			return uri_fail(&r, at,
					"spaces and control characters have to be escaped: %%20");
		if (*at == '#')
			return uri_fail(&r, at, "a fragment has no meaning here");
	}
	net_host_format(&ret_url->host, server, sizeof(server));
	snprintf(ret_url->server, sizeof(ret_url->server), "%s://%s",
		 ret_url->is_tls ? "https" : "http", server);
	return 0;
}

bool web_url_is_same_server(const struct web_url *a, const struct web_url *b)
{
	return a->is_tls == b->is_tls && a->host.port == b->host.port &&
	       strcasecmp(a->host.host, b->host.host) == 0;
}
