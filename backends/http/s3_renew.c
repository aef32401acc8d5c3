/*
 * Reads the file of the keys: at open, and again when they are refused. Owns the helpers of its
 * client, and a copy of the keys. See s3_renew.h.
 */
#include "backends/http/s3_renew.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/http/web.h"
#include "base/log.h"
#include "base/util.h"
#include "net/secret_file.h"

/* A helper's until done or drop, then the reactor's. */
struct s3_reading {
	struct helper_job job;
	struct s3_renew *renew; /* the reactor's; gone when the job is dropped */
	char *path, *profile;
	struct s3_keys keys;
	int ret;
	char words[300];
};

/* ---- the file ---- */

/* What the file holds is in text, which is terminated. */
static int credentials_parse(const char *path, const char *profile, const char *text, size_t bytes,
			     struct s3_keys *ret_keys, char *error, size_t error_bytes)
{
	char words[200] = "is no text";
	int ret = -EINVAL;

	if (strlen(text) == bytes)
		ret = s3_keys_parse(text, profile ? profile : "default", ret_keys, words,
				    sizeof(words));
	if (ret < 0)
		snprintf(error, error_bytes, "%s: %s", path, words);
	return ret;
}

int s3_credentials_read(const char *path, const char *profile, struct s3_keys *ret_keys,
			char *error, size_t error_bytes)
{
	size_t bytes;
	int fd = secret_file_open(path, FILE_SECRET, &bytes, error, error_bytes), ret;
	char *text;
	ssize_t n;

	if (fd < 0)
		return fd;
	text = calloc(1, S3_CREDENTIALS_BYTES);
	ret = text ? -EINVAL : -ENOMEM;
	n = text && bytes < S3_CREDENTIALS_BYTES ? read(fd, text, S3_CREDENTIALS_BYTES - 1) : -1;
	close(fd);
	if (n >= 0)
		ret = credentials_parse(path, profile, text, (size_t)n, ret_keys, error,
					error_bytes);
	else
		snprintf(error, error_bytes, "%s: cannot be read, or is larger than 64 KiB", path);
	if (text)
		explicit_bzero(text, S3_CREDENTIALS_BYTES);
	free(text);
	return ret;
}

/* ---- a reading ---- */

static void reading_free(struct s3_reading *reading)
{
	free(reading->path);
	free(reading->profile);
	explicit_bzero(reading, sizeof(*reading));
	free(reading);
}

static struct s3_reading *reading_of(struct helper_job *job)
{
	return container_of(job, struct s3_reading, job);
}

static void reading_work(struct helper_job *job)
{
	struct s3_reading *reading = reading_of(job);

	reading->ret = s3_credentials_read(reading->path, reading->profile, &reading->keys,
					   reading->words, sizeof(reading->words));
}

static void reading_drop(struct helper_job *job)
{
	reading_free(reading_of(job));
}

static bool keys_are_same(const struct s3_keys *a, const struct s3_keys *b)
{
	return strcmp(a->access, b->access) == 0 && strcmp(a->secret, b->secret) == 0 &&
	       strcmp(a->session_token, b->session_token) == 0;
}

static int renew_use(struct s3_renew *r, const struct s3_keys *keys)
{
	int ret = http_client_set_keys(r->client, keys->access, keys->secret,
				       keys->session_token[0] ? keys->session_token : NULL);

	if (ret == 0)
		r->keys = *keys;
	return ret;
}

static void reading_judge(struct s3_renew *r, const struct s3_reading *reading)
{
	if (reading->ret < 0)
		log_limited(LOG_LEVEL_ERROR, "new keys cannot be read", "device=%s why=\"%s\"",
			    r->name, reading->words);
	else if (keys_are_same(&r->keys, &reading->keys))
		log_limited(LOG_LEVEL_WARN,
			    "the server refuses the keys, and their file has no others",
			    "device=%s file=\"%s\"", r->name, reading->path);
	else if (renew_use(r, &reading->keys) == 0)
		log_info("new keys are used", "device=%s file=\"%s\"", r->name, reading->path);
}

static void reading_done(struct helper_job *job)
{
	struct s3_reading *reading = reading_of(job);
	struct s3_renew *r = reading->renew;

	r->reading = NULL;
	reading_judge(r, reading);
	reading_free(reading);
}

static struct s3_reading *reading_new(struct s3_renew *r)
{
	struct s3_reading *reading = calloc(1, sizeof(*reading));

	if (!reading)
		return NULL;
	reading->job = (struct helper_job){ .work = reading_work,
					    .done = reading_done,
					    .drop = reading_drop };
	reading->renew = r;
	reading->path = strdup(r->config->credentials_file);
	reading->profile = r->config->profile ? strdup(r->config->profile) : NULL;
	if (reading->path && (reading->profile || !r->config->profile))
		return reading;
	reading_free(reading);
	return NULL;
}

/* ---- life ---- */

int s3_renew_init(struct s3_renew *r, const struct s3_server_config *config, const char *name,
		  struct http_client *client, const struct s3_keys *keys)
{
	*r = (struct s3_renew){ .name = name, .client = client };
	if (!config || !config->credentials_file)
		return 0;
	r->config = config;
	r->keys = *keys;
	return helpers_create(&r->helpers, http_client_reactor(client));
}

void s3_renew_fini(struct s3_renew *r)
{
	helpers_close(r->helpers);
	explicit_bzero(r, sizeof(*r));
}

bool s3_renew_ask(struct s3_renew *r)
{
	if (!r->config || r->reading)
		return r->config;
	r->reading = reading_new(r);
	if (r->reading && helper_start(r->helpers, &r->reading->job) < 0) {
		reading_free(r->reading);
		r->reading = NULL;
	}
	return true;
}
