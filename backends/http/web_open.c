/*
 * Opening an object: what the server says of it becomes the device's limits. Owns the secrets, and
 * the question to the server. web_open: helper; the rest: control thread.
 *
 * Happy path: web_open reads files; web_open_async asks for the first byte, follows redirections,
 * and takes size and version from the answer. Failure modes: each in words.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/http/web.h"
#include "base/hash.h"
#include "base/util.h"
#include "net/http/http_client.h"
#include "net/secret_file.h"
#include "storage/visit.h"

#define WEB_BLOCK_BYTES 512u

/* While the server is asked what the object is. */
struct web_question {
	struct backend_visit *visit;
	struct web_device *d;
	struct http_client *client;
	struct http_transfer transfer;
	struct web_place place;
	enum web_verdict verdict;
	int result;
	size_t body_bytes;
	char words[HTTP_ERROR_BYTES];
	struct task task;
};

/* ---- helper ---- */

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

static int headers_take(struct backend_device *device)
{
	struct web_device *d = device->priv;
	const struct yaml_node *headers = d->config->headers;

	for (size_t i = 0; headers && i < headers->map.nr; i++) {
		const struct yaml_pair *p = &headers->map.pairs[i];
		const char *value = p->value->text;

		/* libcurl: a header without a value ends with a semicolon. */
		if (asprintf(&d->header[i], *value ? "%s: %s" : "%s;", p->key->text, value) < 0) {
			d->header[i] = NULL;
			return backend_fail(device, -ENOMEM, "out of memory");
		}
		d->header_nr++;
	}
	return 0;
}

int web_open(struct backend_device *device)
{
	struct web_device *d = device->priv;
	int ret;

	d->config = device->config;
	d->device = device;
	d->name = device->name;
	ret = web_url_parse(d->config->url, &d->url, NULL, device->error, sizeof(device->error));
	if (ret == 0)
		ret = secret_read(device, d->config->password_file, d->password);
	if (ret == 0)
		ret = secret_read(device, d->config->token_file, d->token);
	if (ret == 0)
		ret = headers_take(device);
	return ret;
}

void web_close(struct backend_device *device)
{
	struct web_device *d = device->priv;

	for (unsigned i = 0; i < d->header_nr; i++)
		free(d->header[i]);
	d->header_nr = 0;
	explicit_bzero(d->password, sizeof(d->password));
	explicit_bzero(d->token, sizeof(d->token));
}

void web_settings(const struct web_device *d, struct http_settings *ret_settings)
{
	const struct web_config *c = d->config;

	*ret_settings = (struct http_settings){
		.ca_file = c->ca_file,
		.accepts_any_peer = !c->verify_peer,
		.timeout_ns = c->outage.timeout_ns,
		.connection_nr = (unsigned)c->connections,
		.user = c->user,
		.password = c->user ? d->password : NULL,
		.token = c->token_file ? d->token : NULL,
		.headers = (const char *const *)d->header,
		.header_nr = d->header_nr,
		.condition = d->condition[0] ? d->condition : NULL,
	};
}

/* ---- the question: control thread ---- */

/* RFC 9110, 13.1.1: a weak validator never matches. */
static void version_make_condition(struct web_device *d)
{
	const struct web_version *v = &d->version;

	if (http_etag_is_strong(v->etag))
		snprintf(d->condition, sizeof(d->condition), "If-Match: %s", v->etag);
	else if (v->last_modified[0])
		snprintf(d->condition, sizeof(d->condition), "If-Unmodified-Since: %s",
			 v->last_modified);
	else
		log_warn("the server says no version of the object: that it changes can be seen by "
			 "its size alone",
			 "device=%s server=%s", d->name, d->url.server);
}

static void limits_fill(struct backend_device *device)
{
	const struct web_device *d = device->priv;
	uint32_t block_bytes = MAX(device->open_params.logical_block_bytes, WEB_BLOCK_BYTES);

	device->limits = (struct backend_limits){
		.size_bytes = round_up(d->version.size_bytes, block_bytes),
		.caps = BACKEND_CAP_READ_ONLY,
		.max_io_bytes = (uint32_t)d->config->request_max_bytes,
	};
}

static void web_question_free(struct web_question *question)
{
	struct web_device *d = question->d;

	task_cancel(&question->task);
	http_transfer_stop(&question->transfer);
	http_transfer_fini(&question->transfer);
	http_client_free(question->client);
	free(question);
	d->question = NULL;
}

static void web_question_end(struct task *task)
{
	struct web_question *question = container_of(task, struct web_question, task);
	struct backend_visit *visit = question->visit;
	struct web_device *d = question->d;
	int ret = question->result;

	if (ret == 0) {
		version_make_condition(d);
		limits_fill(visit->device);
	} else {
		backend_fail(visit->device, ret, "%s: %s", d->url.server, question->words);
	}
	web_question_free(question);
	backend_visit_done(visit, ret);
}

static int web_question_ask(struct web_question *question)
{
	const struct http_request request = {
		.url = question->place.url,
		.length_bytes = 1,
		.is_secret = question->place.is_home,
	};

	question->verdict = WEB_BROKEN;
	return http_transfer_begin(&question->transfer, &request);
}

static bool web_question_answered(struct http_transfer *t)
{
	struct web_question *question = container_of(t, struct web_question, transfer);

	question->verdict = web_judge_first(&t->answer, &question->d->version, question->words,
					    sizeof(question->words));
	question->body_bytes = 0;
	return true;
}

static bool web_question_body(struct http_transfer *t, const uint8_t *data, size_t bytes)
{
	struct web_question *question = container_of(t, struct web_question, transfer);

	(void)data;
	question->body_bytes += MIN(bytes, WEB_EXCUSE_BYTES + 1);
	return question->body_bytes <= (question->verdict == WEB_GOOD ? 1 : WEB_EXCUSE_BYTES);
}

/* Returns 0: it has been asked again, at the other place. */
static int web_question_follow(struct web_question *question)
{
	int ret = web_place_move(&question->place, question->d,
				 http_transfer_location(&question->transfer), question->words,
				 sizeof(question->words));

	return ret < 0 ? ret : web_question_ask(question);
}

static void web_question_done(struct http_transfer *t, const struct http_end *end)
{
	struct web_question *question = container_of(t, struct web_question, transfer);

	if (!t->answer.is_whole || (question->verdict == WEB_GOOD && end->result < 0)) {
		question->result = -EIO;
		snprintf(question->words, sizeof(question->words), "%s", end->words);
	} else if (question->verdict == WEB_MOVED) {
		question->result = web_question_follow(question);
		if (question->result == 0)
			return;
	} else {
		question->result = question->verdict == WEB_GOOD ? 0 : -EIO;
	}
	/* The client is freed: not from inside of it. */
	reactor_defer(question->visit->reactor, &question->task, web_question_end);
}

static const struct http_transfer_ops web_question_ops = {
	.answered = web_question_answered,
	.body = web_question_body,
	.done = web_question_done,
};

static int web_question_begin(struct web_question *question)
{
	struct backend_visit *visit = question->visit;
	struct backend_device *device = visit->device;
	struct http_settings settings;
	int ret;

	web_settings(question->d, &settings);
	ret = http_client_create(&question->client, visit->reactor, &settings, device->error,
				 sizeof(device->error));
	if (ret < 0)
		return ret;
	web_place_begin(&question->place, question->d);
	ret = http_transfer_init(&question->transfer, question->client, &web_question_ops);
	if (ret == 0)
		ret = web_question_ask(question);
	return ret < 0 ? backend_fail(device, ret, "out of memory") : 0;
}

void web_open_async(struct backend_visit *visit)
{
	struct web_device *d = visit->device->priv;
	struct web_question *question = calloc(1, sizeof(*question));
	int ret;

	visit->doing = "asking its server";
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	if (!question) {
		backend_visit_done(visit, backend_fail(visit->device, -ENOMEM, "out of memory"));
		return;
	}
	question->visit = visit;
	question->d = d;
	d->question = question;
	ret = web_question_begin(question);
	if (ret == 0)
		return;
	web_question_free(question);
	backend_visit_done(visit, ret);
}

void web_cancel_async(struct backend_visit *visit)
{
	struct web_device *d = visit->device->priv;

	web_question_free(d->question);
	backend_visit_done(visit, -ECANCELED);
}

/* The object and its version: another one is not adopted. */
void web_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct web_device *d = device->priv;
	uint64_t h = hash_text(HASH_START, d->config->url);

	h = hash_text(h, d->version.etag);
	h = hash_text(h, d->version.last_modified);
	snprintf(text, BACKEND_IDENTITY_BYTES, "http %016llx %llu %.40s", (unsigned long long)h,
		 (unsigned long long)d->version.size_bytes, d->url.server);
}
