/* Keys of S3 in the format of AWS's credentials files. Pure; any thread. */
#ifndef BACKENDS_HTTP_S3_KEYS_H
#define BACKENDS_HTTP_S3_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* AWS's access keys have 20 characters, its secret keys 40; its session tokens are below 2 KiB. */
#define S3_KEY_BYTES 256
#define S3_TOKEN_BYTES 4096

struct s3_keys {
	char access[S3_KEY_BYTES]; /* "": anonymous */
	char secret[S3_KEY_BYTES];
	char session_token[S3_TOKEN_BYTES]; /* "": none */
};

/*
 * Takes those of a profile from a terminated text:
 *
 *	[default]
 *	aws_access_key_id = ...
 *	aws_secret_access_key = ...
 *	aws_session_token = ...
 *
 * Other names are passed over. Returns 0, or -EINVAL with words that hold nothing of the text.
 */
int s3_keys_parse(const char *text, const char *profile, struct s3_keys *ret_keys, char *error,
		  size_t error_bytes);

/*
 * The same from values that may be NULL, as the environment has them. All NULL: anonymous.
 */
int s3_keys_from(const char *access, const char *secret, const char *session_token,
		 struct s3_keys *ret_keys, char *error, size_t error_bytes);

#endif
