/*
 * Opening an object: what the server says of it becomes the device's limits. Owns the secrets, and
 * the question to the server. web_begin, web_add_header: helper; the rest: control thread.
 *
 * Happy path: the backend's own open reads files; web_open_async asks for the first byte, follows
 * redirections, and takes size and version from the answer. Failure modes: each in words.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/web.h"
#include "base/hash.h"
#include "base/util.h"
#include "net/http/http_client.h"
#include "storage/version.h"
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
	struct web_excuse excuse;
	char words[HTTP_ERROR_BYTES];
	struct task task;
};

int web_begin(struct backend_device *device)
{
	struct web_device *d = device->priv;

	d->config = device->config;
	d->device = device;
	d->name = device->name;
	return web_url_parse(d->start, &d->url, NULL, device->error, sizeof(device->error));
}

int web_add_header(struct backend_device *device, const char *name, const char *value)
{
	struct web_device *d = device->priv;

	/* libcurl: a header without a value ends with a semicolon. */
	if (asprintf(&d->header[d->header_nr], *value ? "%s: %s" : "%s;", name, value) < 0)
		return backend_fail(device, -ENOMEM, "out of memory");
	d->header_nr++;
	return 0;
}

void web_close(struct backend_device *device)
{
	struct web_device *d = device->priv;

	for (unsigned i = 0; i < d->header_nr; i++) {
		explicit_bzero(d->header[i], strlen(d->header[i]));
		free(d->header[i]);
	}
	d->header_nr = 0;
	explicit_bzero(&d->keys, sizeof(d->keys));
	explicit_bzero(d->password, sizeof(d->password));
	explicit_bzero(d->token, sizeof(d->token));
}

void web_settings(const struct web_device *d, struct http_settings *ret_settings)
{
	const struct web_config *c = d->config;

	*ret_settings = d->who;
	ret_settings->ca_file = c->ca_file;
	ret_settings->accepts_any_peer = !c->verify_peer;
	ret_settings->timeout_ns = c->outage.timeout_ns;
	ret_settings->connection_nr = (unsigned)c->connections;
	ret_settings->headers = (const char *const *)d->header;
	ret_settings->header_nr = d->header_nr;
}

void web_explain(const struct web_device *d, const struct http_answer *answer,
		 enum web_verdict *verdict, const struct web_excuse *excuse, char *words,
		 size_t words_bytes)
{
	bool is_error = answer->is_whole && answer->status >= 300 && answer->status != 416;

	if (d->explain && is_error &&
	    (*verdict == WEB_REFUSED || *verdict == WEB_AGAIN || *verdict == WEB_MOVED))
		*verdict = d->explain(d, answer, *verdict, excuse->text, words, words_bytes);
}

/* ---- the question: control thread ---- */

/* RFC 9110, 13.1.1: a weak validator never matches. */
static void version_make_condition(struct web_device *d)
{
	const struct web_version *v = &d->version;

	if (http_etag_is_strong(v->etag))
		snprintf(d->condition, sizeof(d->condition), "If-Match: %s", v->etag);
	else if (v->last_modified[0] && !http_validator_is_hash(v->last_modified))
		snprintf(d->condition, sizeof(d->condition), "If-Unmodified-Since: %s",
			 v->last_modified);
	if (!v->etag[0] && !v->last_modified[0])
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
	web_excuse_begin(&question->excuse);
	return true;
}

static bool web_question_body(struct http_transfer *t, const uint8_t *data, size_t bytes)
{
	struct web_question *question = container_of(t, struct web_question, transfer);

	return web_excuse_take(&question->excuse, data, bytes) &&
	       (question->verdict != WEB_GOOD || question->excuse.bytes <= 1);
}

/* Returns 0: it has been asked again, at the other place. */
static int web_question_follow(struct web_question *question)
{
	int ret = web_place_move(&question->place, question->d, &question->transfer,
				 question->words, sizeof(question->words));

	return ret < 0 ? ret : web_question_ask(question);
}

static void web_question_done(struct http_transfer *t, const struct http_end *end)
{
	struct web_question *question = container_of(t, struct web_question, transfer);

	web_explain(question->d, &t->answer, &question->verdict, &question->excuse, question->words,
		    sizeof(question->words));
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
	visit->ends_ns = ring_clock_ns() + d->config->outage.timeout_ns;
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

/* Nobody writes it through us. */
static void web_version_found(const struct backend_device *device, struct backend_version *ret)
{
	const struct web_device *d = device->priv;

	ret->kind = BACKEND_VERSION_LASTING;
	web_version_words(&d->version, ret->found);
}

const struct backend_version_ops web_version_ops = { .found = web_version_found };

/* The object and its version: another one is not adopted. */
void web_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct web_device *d = device->priv;
	uint64_t h = hash_text(HASH_START, d->start);

	h = hash_text(h, d->version.etag);
	h = hash_text(h, d->version.last_modified);
	snprintf(text, BACKEND_IDENTITY_BYTES, "http %016llx %llu %.40s", (unsigned long long)h,
		 (unsigned long long)d->version.size_bytes, d->url.server);
}
