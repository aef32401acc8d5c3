/*
 * http: what the user can say about an object of a web server: main thread. And its open, which
 * reads files: helper.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backends/http/web.h"
#include "base/printable.h"
#include "base/util.h"
#include "config/refusal.h"
#include "net/secret_file.h"
#include "storage/word.h"

#define WEB_TEXT(text_name, field, text_help)                                                      \
	{                                                                                          \
		.name = (text_name), .type = OPTION_STRING,                                        \
		.offset = offsetof(struct web_http_config, field), .min = 1, .max = PATH_MAX - 1,  \
		.help = (text_help)                                                                \
	}

const struct option web_http_options[] = {
	{ .name = "url",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct web_http_config, url),
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
	  .offset = offsetof(struct web_http_config, headers),
	  .help = "Headers of each request: {NAME: VALUE}. They, the password and the token go to "
		  "the host of url alone, also where that sends us to another one." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct web_http_config, web),
	  .table = web_options },
	OPTION_END,
};

static const char *const uri_schemes[] = { "http", "https", NULL };

const struct backend_uri web_http_uri = { .option = &web_http_options[0], .schemes = uri_schemes };

static int judge_url(const struct web_http_config *c, struct config_refusal *r)
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

static int judge_secrets(const struct web_http_config *c, struct config_refusal *r)
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

/* NULL: it is a good one. */
static const char *header_fault(const struct yaml_pair *p)
{
	if (!header_name_is_good(p->key->text))
		return "no name of a header";
	if (header_is_ours(p->key->text))
		return "ublkd sets this one by itself";
	if (p->value->kind != YAML_SCALAR || strpbrk(p->value->text, "\r\n"))
		return "expected a text of one line";
	return NULL;
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
		const char *fault = header_fault(p);

		if (fault)
			return config_refuse(r, "headers", "%.*s: %s", utf8_fit(p->key->text, 64),
					     p->key->text, fault);
	}
	return 0;
}

void web_http_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct web_http_config *c = config;
	struct config_refusal r;
	int ret = judge_url(c, &r);

	if (ret == 0)
		ret = judge_secrets(c, &r);
	if (ret == 0)
		ret = judge_headers(c->headers, &r);
	if (ret < 0)
		config_refusal_add(&r, map, e);
}

/* ---- open: helper ---- */

/* A line's end behind the secret does not belong to it. */
static int secret_judge(struct backend_device *device, const char *path, char *text, size_t bytes)
{
	while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
		bytes--;
	text[bytes] = '\0';
	if (bytes == 0)
		return backend_fail(device, -EINVAL, "%s: is empty", path);
	if (strlen(text) != bytes || strpbrk(text, "\r\n"))
		return backend_fail(device, -EINVAL, "%s: expected nothing but one line", path);
	return 0;
}

static int secret_read(struct backend_device *device, const char *path, char *text)
{
	size_t bytes = 0;
	ssize_t n;
	int fd;

	if (!path)
		return 0;
	fd = secret_file_open(path, FILE_SECRET, &bytes, device->error, sizeof(device->error));
	if (fd < 0)
		return fd;
	n = read(fd, text, WEB_SECRET_BYTES - 1);
	close(fd);
	if (n < 0 || bytes >= WEB_SECRET_BYTES)
		return backend_fail(device, -EINVAL, "%s: is too large for a secret", path);
	return secret_judge(device, path, text, (size_t)n);
}

static int headers_take(struct backend_device *device, const struct yaml_node *headers)
{
	int ret = 0;

	for (size_t i = 0; headers && i < headers->map.nr && ret == 0; i++)
		ret = web_add_header(device, headers->map.pairs[i].key->text,
				     headers->map.pairs[i].value->text);
	return ret;
}

int web_http_open(struct backend_device *device)
{
	const struct web_http_config *c = device->config;
	struct web_device *d = device->priv;
	int ret;

	snprintf(d->start, sizeof(d->start), "%s", c->url);
	ret = web_begin(device);
	if (ret == 0)
		ret = secret_read(device, c->password_file, d->password);
	if (ret == 0)
		ret = secret_read(device, c->token_file, d->token);
	if (ret == 0)
		ret = headers_take(device, c->headers);
	d->who.user = c->user;
	d->who.password = c->user ? d->password : NULL;
	d->who.token = c->token_file ? d->token : NULL;
	return ret;
}
