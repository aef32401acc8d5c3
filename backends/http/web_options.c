/* What the user can say about an object of a web server. Main thread. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/http/web.h"
#include "base/util.h"
#include "config/refusal.h"
#include "storage/word.h"

#define WEB_TEXT(text_name, field, text_help)                                                      \
	{                                                                                          \
		.name = (text_name), .type = OPTION_STRING,                                        \
		.offset = offsetof(struct web_config, field), .min = 1, .max = PATH_MAX - 1,       \
		.help = (text_help)                                                                \
	}

const struct option web_options[] = {
	{ .name = "url",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct web_config, url),
	  .min = 1,
	  .max = HTTP_URL_BYTES - 1,
	  .flags = OPTION_REQUIRED,
	  .help = "The object: http://HOST[:PORT]/PATH or https://... The server must be able to "
		  "send ranges of it. Redirections are followed." },
	WEB_TEXT("user", user, "The user, for basic authentication."),
	WEB_TEXT(
		"password_file", password_file,
		"A file with nothing but the user's password. Only owner and group may have access "
		"to it."),
	WEB_TEXT("token_file", token_file,
		 "A file with nothing but a bearer token, instead of user and password. Only owner "
		 "and group may have access to it."),
	{ .name = "headers",
	  .type = OPTION_NODE,
	  .offset = offsetof(struct web_config, headers),
	  .help = "Headers of each request: {NAME: VALUE}. They, the password and the token go to "
		  "the host of url alone, also where that sends us to another one." },
	WEB_TEXT("ca_file", ca_file,
		 "File with the certificates (PEM) of those whom we trust to say who a server is. "
		 "Default: the certificate authorities of the system."),
	{ .name = "verify_peer",
	  .type = OPTION_BOOL,
	  .offset = offsetof(struct web_config, verify_peer),
	  .def = "true",
	  .help = "false: accept any certificate, so that any server can impersonate yours." },
	{ .name = "connections",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct web_config, connections),
	  .min = 1,
	  .max = WEB_CONNECTIONS_MAX,
	  .def = "8",
	  .help = "Requests to the server at a time, per queue. Each has a connection of its own "
		  "where the server does not speak HTTP/2." },
	{ .name = "request_max",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct web_config, request_max_bytes),
	  .min = WEB_REQUEST_BYTES_MIN,
	  .max = WEB_REQUEST_BYTES_MAX,
	  .flags = OPTION_POWER_OF_TWO,
	  .def = "1MiB",
	  .help = "Reads that wait and are next to each other are asked for together, up to so "
		  "much." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct web_config, outage),
	  .table = net_outage_options },
	OPTION_END,
};

static const char *const uri_schemes[] = { "http", "https", NULL };

const struct backend_uri web_backend_uri = { .option = &web_options[0], .schemes = uri_schemes };

static int judge_url(const struct web_config *c, struct config_refusal *r)
{
	char words[200];
	struct web_url url;
	size_t column = 0;

	if (!c->url)
		return 0; /* told already */
	if (web_url_parse(c->url, &url, &column, words, sizeof(words)) == 0)
		return 0;
	return column ? config_refuse(r, "url", "at its character %zu: %s", column, words)
		      : config_refuse(r, "url", "%s", words);
}

static int judge_secrets(const struct web_config *c, struct config_refusal *r)
{
	if (c->user && strchr(c->user, ':'))
		return config_refuse(r, "user", "a user's name has no colon (RFC 7617)");
	if (!c->user != !c->password_file)
		return config_refuse(r, c->user ? "user" : "password_file", "%s is missing",
				     c->user ? "password_file" : "user");
	if (c->user && c->token_file)
		return config_refuse(r, "token_file", "user is there too: say one of them");
	return 0;
}

/* RFC 9110, 5.6.2. */
static bool header_name_is_good(const char *name)
{
	static const char token[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "!#$%&'*+-.^_`|~";

	return *name && name[strspn(name, token)] == '\0';
}

/* What says which bytes are wanted, or how they come, is ours. */
static bool header_is_ours(const char *name)
{
	static const char *const ours[] = { "range",
					    "if-match",
					    "if-none-match",
					    "if-range",
					    "if-modified-since",
					    "if-unmodified-since",
					    "host",
					    "accept-encoding",
					    "connection",
					    "expect",
					    "content-length",
					    "transfer-encoding",
					    "te",
					    "upgrade" };

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (strcasecmp(name, ours[i]) == 0)
			return true;
	return false;
}

static int judge_headers(const struct yaml_node *headers, struct config_refusal *r)
{
	if (!headers)
		return 0;
	if (headers->kind != YAML_MAP)
		return config_refuse(r, "headers", "expected a map of headers: {NAME: VALUE}");
	if (headers->map.nr > WEB_HEADERS_MAX)
		return config_refuse(r, "headers", "at most %u", WEB_HEADERS_MAX);
	for (size_t i = 0; i < headers->map.nr; i++) {
		const struct yaml_pair *p = &headers->map.pairs[i];

		if (!header_name_is_good(p->key->text))
			return config_refuse(r, "headers", "%.64s: no name of a header",
					     p->key->text);
		if (header_is_ours(p->key->text))
			return config_refuse(r, "headers", "%.64s: ublkd sets this one by itself",
					     p->key->text);
		if (p->value->kind != YAML_SCALAR || strpbrk(p->value->text, "\r\n"))
			return config_refuse(r, "headers", "%.64s: expected a text of one line",
					     p->key->text);
	}
	return 0;
}

void web_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct web_config *c = config;
	struct config_refusal r;
	int ret = judge_url(c, &r);

	if (ret == 0)
		ret = judge_secrets(c, &r);
	if (ret == 0)
		ret = judge_headers(c->headers, &r);
	if (ret < 0)
		config_refusal_add(&r, map, e);
}
