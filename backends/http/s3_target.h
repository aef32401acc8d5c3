/* Which object of which bucket, and its URL. Pure; any thread. */
#ifndef BACKENDS_HTTP_S3_TARGET_H
#define BACKENDS_HTTP_S3_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/http/web_url.h"

/* AWS's have at most 63 characters; those of other stores, and AWS's oldest, 255. */
#define S3_BUCKET_BYTES 256
#define S3_OBJECT_BYTES 1025
#define S3_REGION_BYTES 64

struct s3_target {
	char bucket[S3_BUCKET_BYTES];
	char key[S3_OBJECT_BYTES]; /* as it is: not escaped */
};

/*
 * The functions with words return 0, or -EINVAL with words for the user.
 */

/* s3://BUCKET/KEY. Nothing in it is escaped, as AWS's tools want it. */
int s3_target_parse(const char *uri, struct s3_target *ret_target, char *error, size_t error_bytes);
int s3_target_set(const char *bucket, const char *key, struct s3_target *ret_target, char *error,
		  size_t error_bytes);
int s3_region_judge(const char *region, char *error, size_t error_bytes);

/* http://HOST[:PORT] or https://... without anything behind it. */
int s3_endpoint_parse(const char *text, struct web_url *ret_url, char *error, size_t error_bytes);
/* AWS's of a region, as a text for it. */
void s3_endpoint_of(const char *region, char *text, size_t text_bytes);

/* The bucket can be a part of a host's name, for which the certificate of the endpoint is valid. */
bool s3_bucket_is_label(const char *bucket);
/* The endpoint has a name that the bucket can be put before. */
bool s3_endpoint_has_name(const struct web_url *endpoint);

/*
 * As a part of an URL (RFC 3986, 2.3); slashes stay, as S3's signatures want it. There is room for
 * it (uri_escape). Returns the bytes of the text.
 */
size_t s3_key_escape(const char *key, char *to, size_t to_bytes);

/* Returns 0, or -ENAMETOOLONG. */
int s3_target_url(const struct s3_target *target, const struct web_url *endpoint, bool is_path,
		  char *url, size_t url_bytes);

#endif
