/* What the user can say about an object of a bucket. Main thread; s3_config_target: any. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "backends/http/s3_config.h"
#include "config/refusal.h"
#include "storage/word.h"

#define S3_TEXT(text_name, type_of, field, bytes_max, text_help)                                   \
	{                                                                                          \
		.name = (text_name), .type = OPTION_STRING, .offset = offsetof(type_of, field),    \
		.min = 1, .max = (bytes_max), .help = (text_help)                                  \
	}
#define S3_OBJECT_TEXT(name, field, max, help) S3_TEXT(name, struct s3_config, field, max, help)
#define S3_SERVER_TEXT(name, field, max, help)                                                     \
	S3_TEXT(name, struct s3_server_config, field, max, help)

static const char *const path_styles[] = { [S3_PATH_STYLE_AUTO] = "auto",
					   [S3_PATH_STYLE_ON] = "true",
					   [S3_PATH_STYLE_OFF] = "false",
					   NULL };

const struct option s3_server_options[] = {
	S3_SERVER_TEXT("endpoint", endpoint,
		       HTTP_URL_BYTES - S3_OBJECT_BYTES * 3 - S3_BUCKET_BYTES - 8,
		       "The server: http[s]://HOST[:PORT]. Default: AWS_ENDPOINT_URL of ublkd's "
		       "environment, "
		       "else AWS's of the region."),
	S3_SERVER_TEXT(
		"region", region, S3_REGION_BYTES - 1,
		"The region of the bucket. Default: AWS_REGION, or AWS_DEFAULT_REGION, of ublkd's "
		"environment, else us-east-1."),
	{ .name = "path_style",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct s3_server_config, path_style),
	  .values = path_styles,
	  .def = "auto",
	  .help = "true: the bucket is the first part of the path. false: it is the first part of "
		  "the host's name. auto: true with an endpoint, or where the bucket's name cannot "
		  "be part of a host's." },
	S3_SERVER_TEXT(
		"credentials_file", credentials_file, PATH_MAX - 1,
		"A file with keys in the format of AWS's ~/.aws/credentials. Only owner and group "
		"may "
		"have access to it. It is read again when the keys have expired. Default: "
		"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
		"AWS_SESSION_TOKEN of ublkd's environment; without them requests are anonymous."),
	S3_SERVER_TEXT("profile", profile, 255,
		       "The section of credentials_file. Default: default."),
	OPTION_END,
};

const struct option s3_options[] = {
	S3_OBJECT_TEXT(
		"uri", uri, S3_BUCKET_BYTES + S3_OBJECT_BYTES + 4,
		"The object: s3://BUCKET/KEY, nothing of it escaped. Instead of it: bucket and "
		"key."),
	S3_OBJECT_TEXT("bucket", bucket, S3_BUCKET_BYTES - 1, "The bucket of the object."),
	S3_OBJECT_TEXT("key", key, S3_OBJECT_BYTES - 1,
		       "The key of the object, as it is: not escaped."),
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct s3_config, server),
	  .table = s3_server_options },
	{ .type = OPTION_GROUP, .offset = offsetof(struct s3_config, web), .table = web_options },
	OPTION_END,
};

static const char *const s3_schemes[] = { "s3", NULL };

const struct backend_uri s3_backend_uri = { .option = &s3_options[0], .schemes = s3_schemes };

static int judge_target(const struct s3_config *c, struct s3_target *t, struct config_refusal *r)
{
	if (c->uri && (c->bucket || c->key))
		return config_refuse(r, "uri", "it says bucket and key: say them once");
	if (!c->uri && !c->bucket)
		return config_refuse(r, "bucket",
				     "the bucket is missing: say uri, or bucket and key");
	if (!c->uri && !c->key)
		return config_refuse(r, "key", "the key is missing");
	r->key = c->uri ? "uri" : "bucket";
	return s3_config_target(c, t, r->words, sizeof(r->words));
}

int s3_config_target(const struct s3_config *c, struct s3_target *ret_target, char *error,
		     size_t error_bytes)
{
	return c->uri ? s3_target_parse(c->uri, ret_target, error, error_bytes)
		      : s3_target_set(c->bucket, c->key, ret_target, error, error_bytes);
}

static int judge_profile(const struct s3_server_config *c, struct config_refusal *r)
{
	if (c->profile && !c->credentials_file)
		return config_refuse(r, "profile", "credentials_file is missing");
	return 0;
}

int s3_judge_server(const struct s3_server_config *c, struct config_refusal *r)
{
	struct web_url url;

	r->key = "region";
	if (c->region && s3_region_judge(c->region, r->words, sizeof(r->words)) < 0)
		return -EINVAL;
	r->key = "endpoint";
	if (c->endpoint && s3_endpoint_parse(c->endpoint, &url, r->words, sizeof(r->words)) < 0)
		return -EINVAL;
	return judge_profile(c, r);
}

void s3_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct s3_config *c = config;
	struct config_refusal r;
	struct s3_target target;
	int ret = judge_target(c, &target, &r);

	if (ret == 0)
		ret = s3_judge_server(&c->server, &r);
	if (ret < 0)
		config_refusal_add(&r, map, e);
}
