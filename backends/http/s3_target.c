/* Splits s3:// and makes URLs; owns nothing. Pure. */
#include "backends/http/s3_target.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "net/uri.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define LABEL_BYTES_MAX 63u

int s3_target_set(const char *bucket, const char *key, struct s3_target *ret_target, char *error,
		  size_t error_bytes)
{
	size_t bytes = strlen(bucket);

	if (bytes == 0 || bytes >= S3_BUCKET_BYTES ||
	    strspn(bucket, LETTERS CAPITALS DIGITS "._-") != bytes || bucket[0] == '.') {
		snprintf(error, error_bytes,
			 "a bucket's name has letters, digits and . _ -, at most %d",
			 S3_BUCKET_BYTES - 1);
		return -EINVAL;
	}
	if (!*key || strlen(key) >= S3_OBJECT_BYTES) {
		snprintf(error, error_bytes, "the key is %s: expected 1 to %d bytes",
			 *key ? "too long" : "missing", S3_OBJECT_BYTES - 1);
		return -EINVAL;
	}
	snprintf(ret_target->bucket, sizeof(ret_target->bucket), "%s", bucket);
	snprintf(ret_target->key, sizeof(ret_target->key), "%s", key);
	return 0;
}

int s3_target_parse(const char *uri, struct s3_target *ret_target, char *error, size_t error_bytes)
{
	static const char scheme[] = "s3://";
	const char *at = uri + sizeof(scheme) - 1, *slash;
	char bucket[S3_BUCKET_BYTES + 1];

	if (strncasecmp(uri, scheme, sizeof(scheme) - 1) != 0) {
		snprintf(error, error_bytes, "expected s3://BUCKET/KEY");
		return -EINVAL;
	}
	slash = strchrnul(at, '/');
	/* One that is too long stays so. */
	snprintf(bucket, sizeof(bucket), "%.*s", (int)(slash - at), at);
	return s3_target_set(bucket, *slash ? slash + 1 : "", ret_target, error, error_bytes);
}

/* It stands in a host's name, and between colons in what libcurl is told. */
int s3_region_judge(const char *region, char *error, size_t error_bytes)
{
	size_t bytes = strlen(region);

	if (bytes > 0 && bytes < S3_REGION_BYTES &&
	    strspn(region, LETTERS CAPITALS DIGITS "_-") == bytes)
		return 0;
	snprintf(error, error_bytes, "expected a name such as us-east-1");
	return -EINVAL;
}

int s3_endpoint_parse(const char *text, struct web_url *ret_url, char *error, size_t error_bytes)
{
	const char *rest;
	int ret = web_url_parse(text, ret_url, NULL, error, error_bytes);

	if (ret < 0)
		return ret;
	rest = strstr(text, "://") + 3;
	rest += strcspn(rest, "/?");
	if (strcmp(rest, "") == 0 || strcmp(rest, "/") == 0)
		return 0;
	snprintf(error, error_bytes, "expected http[s]://HOST[:PORT] and nothing behind it");
	return -EINVAL;
}

/* https://docs.aws.amazon.com/general/latest/gr/s3.html: China has a domain of its own. */
void s3_endpoint_of(const char *region, char *text, size_t text_bytes)
{
	snprintf(text, text_bytes, "https://s3.%s.amazonaws.com%s", region,
		 strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}

/* One with a dot is not covered by a certificate for *.HOST. */
bool s3_bucket_is_label(const char *bucket)
{
	size_t bytes = strlen(bucket);

	return bytes > 0 && bytes <= LABEL_BYTES_MAX &&
	       strspn(bucket, LETTERS DIGITS "-") == bytes && bucket[0] != '-' &&
	       bucket[bytes - 1] != '-';
}

bool s3_endpoint_has_name(const struct web_url *endpoint)
{
	struct in6_addr address;
	const char *host = endpoint->host.host;

	return !strchr(host, ':') && inet_pton(AF_INET, host, &address) != 1;
}

size_t s3_key_escape(const char *key, char *to, size_t to_bytes)
{
	int n = uri_escape(key, strlen(key), "-._~/", to, to_bytes);

	ASSERT(n >= 0);
	return (size_t)n;
}

int s3_target_url(const struct s3_target *t, const struct web_url *endpoint, bool is_path,
		  char *url, size_t url_bytes)
{
	char key[3 * S3_OBJECT_BYTES + 4];
	const char *host = strstr(endpoint->server, "://") + 3;
	int scheme_bytes = (int)(host - endpoint->server), n;

	s3_key_escape(t->key, key, sizeof(key));
	n = is_path ? snprintf(url, url_bytes, "%s/%s/%s", endpoint->server, t->bucket, key)
		    : snprintf(url, url_bytes, "%.*s%s.%s/%s", scheme_bytes, endpoint->server,
			       t->bucket, host, key);
	return n < 0 || (size_t)n >= url_bytes ? -ENAMETOOLONG : 0;
}
