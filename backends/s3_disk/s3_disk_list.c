/*
 * Lists keys. Owns a page and the query for the next one.
 *
 * Happy path: a query -> a page -> its token is the next query's -> ... -> the last page -> done.
 * Failure modes: no answer, a page that makes no sense: in words.
 */
#include "backends/s3_disk/s3_disk_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/s3_target.h"
#include "base/assert.h"
#include "base/util.h"

#define QUERY_BYTES (2 * HTTP_URL_BYTES + S3_DISK_TOKEN_BYTES)

static void list_ask(struct s3_disk_list *l);

/* One that returns the token it was asked with would be asked for ever. */
static int list_take(struct s3_disk_list *l, char *words, size_t words_bytes)
{
	char before[S3_DISK_TOKEN_BYTES];
	int ret;

	memcpy(before, l->page.token, sizeof(before));
	ret = s3_disk_page_read(&l->ask, (const char *)l->buf, l->call.got, &l->page, words,
				words_bytes);
	if (ret == 0 && before[0] && strcmp(before, l->page.token) == 0) {
		snprintf(words, words_bytes, "NextContinuationToken is the one before");
		return -EINVAL;
	}
	return ret;
}

static void list_on_page(struct s3_disk_call *call, int result)
{
	struct s3_disk_list *l = container_of(call, struct s3_disk_list, call);
	char words[HTTP_ERROR_BYTES];

	if (result < 0) {
		snprintf(l->words, sizeof(l->words), "the list of objects: %s", call->words);
		l->done(l, result);
		return;
	}
	result = list_take(l, words, sizeof(words));
	if (result < 0)
		snprintf(l->words, sizeof(l->words), "the list of objects makes no sense: %s",
			 words);
	if (result < 0 || l->page.is_last)
		l->done(l, result);
	else
		list_ask(l);
}

/* The parts of the query in ascending order, as signatures want them. */
static void list_query(struct s3_disk_list *l)
{
	const char *start = l->call.client->d->start, *token = l->page.token;
	char key[3 * S3_OBJECT_BYTES], prefix[S3_OBJECT_BYTES], escaped[3 * S3_OBJECT_BYTES];
	int bucket_bytes = (int)(strlen(start) - s3_key_escape(l->ask.prefix, key, sizeof(key)));
	int n = snprintf(prefix, sizeof(prefix), "%s/%s", l->ask.prefix, l->ask.under);

	/* A prefix has less than S3_DISK_PREFIX_BYTES. */
	ASSERT(s3_disk_escape(prefix, (size_t)n, escaped, sizeof(escaped)));
	n = snprintf(l->query, QUERY_BYTES,
		     "%.*s?%s%s%sencoding-type=url&list-type=2&max-keys=%u&prefix=%s", bucket_bytes,
		     start, token[0] ? "continuation-token=" : "", token, token[0] ? "&" : "",
		     S3_DISK_PAGE_KEYS, escaped);
	ASSERT(n < QUERY_BYTES);
}

static void list_ask(struct s3_disk_list *l)
{
	struct s3_disk_call *call = &l->call;

	list_query(l);
	s3_disk_call_reset(call);
	call->query = l->query;
	call->to = l->buf;
	call->to_bytes = S3_DISK_PAGE_BYTES;
	s3_disk_call_begin(call, list_on_page);
}

void s3_disk_list_begin(struct s3_disk_list *l, void (*done)(struct s3_disk_list *list, int result))
{
	l->done = done;
	l->page = (struct s3_disk_page){ 0 };
	list_ask(l);
}

int s3_disk_list_init(struct s3_disk_list *l, struct s3_disk_client *client)
{
	int ret = s3_disk_call_init(&l->call, client);

	if (ret < 0)
		return ret;
	l->query = malloc(QUERY_BYTES);
	l->buf = malloc(S3_DISK_PAGE_BYTES);
	return l->query && l->buf ? 0 : -ENOMEM;
}

void s3_disk_list_fini(struct s3_disk_list *l)
{
	s3_disk_call_fini(&l->call);
	free(l->query);
	free(l->buf);
	l->query = NULL;
	l->buf = NULL;
}
