/*
 * Keys that are good for a while only (AWS: temporary security credentials), as those of a role
 * are: when the server says that they are not good any more, their file is read again, on a helper,
 * as somebody else keeps it fresh. One for each client. Reactor thread of the client.
 *
 *	s3_renew_init -> s3_renew_ask, whenever keys are refused -> ... -> s3_renew_fini
 *
 * Failure modes: the file cannot be read, or holds the keys that were refused: the client keeps
 * what it has, and the log says so; requests go on asking, as long as on_disconnect lets them.
 */
#ifndef BACKENDS_HTTP_S3_RENEW_H
#define BACKENDS_HTTP_S3_RENEW_H

#include "backends/http/s3_keys.h"
#include "net/http/http_client.h"
#include "reactor/helper.h"

#define S3_CREDENTIALS_BYTES 65536u

struct s3_server_config;
struct s3_reading;

struct s3_renew {
	const struct s3_server_config *config; /* NULL: there is no file */
	const char *name;		       /* of the device */
	struct http_client *client;
	struct helpers *helpers;
	struct s3_reading *reading; /* under way; NULL: none */
	struct s3_keys keys;	    /* that the client has */
};

/*
 * Any thread that may wait for files: the keys of a profile (NULL: "default"). Returns 0 or -errno
 * with words that name the file and hold nothing of it.
 */
int s3_credentials_read(const char *path, const char *profile, struct s3_keys *ret_keys,
			char *error, size_t error_bytes);

/*
 * config and name are borrowed, keys copied. A device without a file has nothing to ask: ask
 * answers false. Returns 0 or -ENOMEM.
 */
int s3_renew_init(struct s3_renew *r, const struct s3_server_config *config, const char *name,
		  struct http_client *client, const struct s3_keys *keys);
/* Accepts a zeroed one. A reading that is under way ends by itself. */
void s3_renew_fini(struct s3_renew *r);

/* The keys were refused. True: they are looked for, it is worth asking the server again later. */
bool s3_renew_ask(struct s3_renew *r);

#endif
