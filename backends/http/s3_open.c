/*
 * Opens an object of a bucket: what the configuration and the environment say becomes a URL and who
 * asks for it. The rest is web_open.c's. Owns nothing. Helper thread.
 *
 * Happy path: keys of the file, or of the environment; region, endpoint -> the URL. Failure modes:
 * each in words, in which no key stands.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/s3_config.h"
#include "backends/http/s3_refusal.h"

static const char *environment_of(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* ---- keys ---- */

static int keys_read(struct backend_device *device, const struct s3_config *c)
{
	struct web_device *d = device->priv;
	char words[200];
	int ret;

	if (c->server.credentials_file)
		return s3_credentials_read(c->server.credentials_file, c->server.profile, &d->keys,
					   device->error, sizeof(device->error));
	ret = s3_keys_from(environment_of("AWS_ACCESS_KEY_ID"),
			   environment_of("AWS_SECRET_ACCESS_KEY"),
			   environment_of("AWS_SESSION_TOKEN"), &d->keys, words, sizeof(words));
	return ret < 0 ? backend_fail(device, ret, "AWS_* of the environment: %s", words) : 0;
}

void s3_use_keys(struct web_device *d)
{
	if (!d->keys.access[0])
		return;
	d->who.user = d->keys.access;
	d->who.password = d->keys.secret;
	d->who.sign_region = d->region;
	d->who.session_token = d->keys.session_token[0] ? d->keys.session_token : NULL;
}

/* ---- the URL ---- */

static int region_choose(struct backend_device *device, const struct s3_config *c)
{
	struct web_device *d = device->priv;
	const char *region = c->server.region;
	char words[100];

	if (!region)
		region = environment_of("AWS_REGION");
	if (!region)
		region = environment_of("AWS_DEFAULT_REGION");
	if (!region)
		region = "us-east-1";
	if (s3_region_judge(region, words, sizeof(words)) < 0)
		return backend_fail(device, -EINVAL, "AWS_REGION of the environment: %s", words);
	snprintf(d->region, sizeof(d->region), "%s", region);
	return 0;
}

/* *ret_is_own: somebody has said it. */
static int endpoint_choose(struct backend_device *device, const struct s3_config *c,
			   struct web_url *ret_endpoint, bool *ret_is_own)
{
	const struct web_device *d = device->priv;
	const char *said =
		c->server.endpoint ? c->server.endpoint : environment_of("AWS_ENDPOINT_URL");
	char text[128], words[200];

	s3_endpoint_of(d->region, text, sizeof(text));
	*ret_is_own = said;
	if (s3_endpoint_parse(said ? said : text, ret_endpoint, words, sizeof(words)) < 0)
		return backend_fail(device, -EINVAL, "AWS_ENDPOINT_URL of the environment: %s",
				    words);
	return 0;
}

static int style_choose(struct backend_device *device, const struct s3_config *c, bool is_own,
			const struct s3_target *target, const struct web_url *endpoint,
			bool *ret_is_path)
{
	bool is_label = s3_bucket_is_label(target->bucket);

	*ret_is_path = c->server.path_style == S3_PATH_STYLE_ON ||
		       (c->server.path_style == S3_PATH_STYLE_AUTO && (is_own || !is_label));
	if (*ret_is_path || (is_label && s3_endpoint_has_name(endpoint)))
		return 0;
	return backend_fail(device, -EINVAL,
			    "path_style: the bucket %s cannot stand before the host %s: set it to "
			    "true",
			    target->bucket, endpoint->host.host);
}

static int url_make(struct backend_device *device, const struct s3_config *c)
{
	struct web_device *d = device->priv;
	struct web_url endpoint;
	struct s3_target target;
	bool is_own = false, is_path = false;
	int ret = s3_config_target(c, &target, device->error, sizeof(device->error));

	if (ret == 0)
		ret = region_choose(device, c);
	if (ret == 0)
		ret = endpoint_choose(device, c, &endpoint, &is_own);
	if (ret == 0)
		ret = style_choose(device, c, is_own, &target, &endpoint, &is_path);
	if (ret < 0)
		return ret;
	if (s3_target_url(&target, &endpoint, is_path, d->start, sizeof(d->start)) < 0)
		return backend_fail(device, -ENAMETOOLONG, "the URL is too long");
	return 0;
}

static enum web_verdict s3_explain(const struct web_device *d, const struct http_answer *answer,
				   enum web_verdict verdict, const char *excuse, char *words,
				   size_t words_bytes)
{
	const struct s3_asker asker = { .region = d->region, .is_anonymous = !d->who.user };

	return s3_refusal_judge(&asker, answer, verdict, excuse, words, words_bytes);
}

int s3_open(struct backend_device *device)
{
	const struct s3_config *c = device->config;
	struct web_device *d = device->priv;
	int ret = url_make(device, c);

	d->explain = s3_explain;
	d->server = &c->server;
	d->who.keeps_dots = true;
	if (ret == 0)
		ret = web_begin(device);
	if (ret == 0)
		ret = keys_read(device, c);
	s3_use_keys(d);
	return ret;
}
