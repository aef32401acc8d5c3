/*
 * Sends a request again and again. Owns what a client counts; memory is of who has the call.
 *
 * Happy path: begin -> the answer's status is what is wanted -> done. Failure modes: no answer, a
 * broken one, or one that asks to come later: a pause, then again; the time is over: -EIO; refused:
 * -EIO with S3's words; what a condition or a missing object means is the caller's to decide.
 */
#include "backends/s3_disk/s3_disk_call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/http/s3_refusal.h"
#include "base/counter.h"
#include "base/util.h"

static void call_send(struct s3_disk_call *call);

bool s3_disk_client_is_away(const struct s3_disk_client *c)
{
	return __atomic_load_n(&c->away_since_ns, __ATOMIC_RELAXED);
}

static void client_set_away(struct s3_disk_client *c, uint64_t since_ns)
{
	if (!since_ns != !c->away_since_ns)
		__atomic_store_n(&c->since_ns, c->reactor->now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&c->away_since_ns, since_ns, __ATOMIC_RELAXED);
}

static void call_end(struct s3_disk_call *call, int result)
{
	call->is_under_way = false;
	call->done(call, result);
}

/* ---- no answer ---- */

static void call_on_pause(struct timer *timer)
{
	call_send(container_of(timer, struct s3_disk_call, pause));
}

static void call_count_loss(struct s3_disk_call *call, enum net_end end)
{
	struct s3_disk_client *c = call->client;

	counter_add(&c->lost, 1);
	counter_add(&c->ends[end], 1);
	__atomic_store_n(&c->last_end, (int)end, __ATOMIC_RELAXED);
	log_limited_by(&c->d->lost_limit[end], LOG_LEVEL_WARN, "a request was not answered",
		       "device=%s server=%s object=%s why=\"%s\"", c->d->name, c->d->url.server,
		       call->path, call->words);
}

static void call_on_loss(struct s3_disk_call *call, enum net_end end)
{
	struct s3_disk_client *c = call->client;
	const struct net_outage_config *outage = &c->d->config->outage;
	uint64_t limit_ns = outage->outage_timeout_ns, now_ns = c->reactor->now_ns;
	uint64_t pause_ns = web_pause_ns(&c->prng, call->tries - 1, outage,
					 call->transfer.answer.retry_after_ns);

	if (call->pause_ns_max)
		pause_ns = MIN(pause_ns, call->pause_ns_max);
	call_count_loss(call, end);
	if (!s3_disk_client_is_away(c))
		client_set_away(c, now_ns);
	if (limit_ns != OPTION_FOREVER && now_ns - c->away_since_ns + pause_ns > limit_ns) {
		call_end(call, -EIO);
		return;
	}
	reactor_timer_arm(c->reactor, &call->pause, now_ns + pause_ns);
}

/* ---- answers ---- */

static bool call_is_good(const struct s3_disk_call *call)
{
	unsigned status = call->transfer.answer.status;

	if (call->method == HTTP_GET)
		return status == (call->length_bytes ? 206 : 200);
	return status == 200 || status == 201 || status == 204;
}

static struct s3_disk_call *call_of(struct http_transfer *t)
{
	return container_of(t, struct s3_disk_call, transfer);
}

static bool call_answered(struct http_transfer *t)
{
	struct s3_disk_call *call = call_of(t);

	call->got = 0;
	call->is_too_long = false;
	web_excuse_begin(&call->excuse);
	return true;
}

static bool call_body(struct http_transfer *t, const uint8_t *data, size_t bytes)
{
	struct s3_disk_call *call = call_of(t);

	if (!call_is_good(call) || call->method != HTTP_GET)
		return web_excuse_take(&call->excuse, data, bytes);
	if (bytes > call->to_bytes - call->got) {
		call->is_too_long = true;
		return false;
	}
	if (call->to)
		memcpy(call->to + call->got, data, bytes);
	call->got += bytes;
	counter_add(&call->client->received_bytes, bytes);
	return true;
}

/* Whether it brings what was asked for; words if not. */
static bool call_is_whole(struct s3_disk_call *call)
{
	const struct http_answer *a = &call->transfer.answer;
	uint64_t last = call->first_bytes + call->length_bytes - 1;

	if (call->method != HTTP_GET)
		return true;
	if (!a->is_encoded && call->length_bytes == 0)
		return true;
	if (!a->is_encoded && a->has_range && a->first == call->first_bytes && a->last == last &&
	    call->got == call->length_bytes)
		return true;
	snprintf(call->words, sizeof(call->words), "it sends other bytes than asked for");
	return false;
}

static void call_on_good(struct s3_disk_call *call)
{
	struct s3_disk_client *c = call->client;

	if (!call_is_whole(call)) {
		call_on_loss(call, NET_END_PROTOCOL);
		return;
	}
	client_set_away(c, 0);
	counter_add(&c->answered, 1);
	counter_add(&c->sent_bytes, call->body_bytes);
	histogram_record(&c->answer, c->reactor->now_ns - call->sent_ns);
	memcpy(call->etag, call->transfer.answer.etag, sizeof(call->etag));
	/* It is to be sent back. */
	if (http_validator_is_hash(call->etag))
		call->etag[0] = '\0';
	call_end(call, 0);
}

static void call_on_refusal(struct s3_disk_call *call)
{
	const struct http_answer *a = &call->transfer.answer;
	bool is_later = a->status >= 500 || a->status == 429 || a->status == 409;
	enum web_verdict verdict = is_later ? WEB_AGAIN : WEB_REFUSED;
	struct s3_renew *renew = &call->client->renew;

	snprintf(call->words, sizeof(call->words), "it answers %u", a->status);
	web_explain(call->client->d, a, &verdict, &call->excuse, call->words, sizeof(call->words));
	if (verdict == WEB_AGAIN || (verdict == WEB_KEYS && s3_renew_ask(renew)) ||
	    (verdict == WEB_CLOCK && renew->client)) {
		call_on_loss(call, NET_END_REFUSED);
		return;
	}
	client_set_away(call->client, 0);
	if (a->status == 412)
		call_end(call, -ESTALE);
	else if (a->status == 404 && !s3_refusal_is(call->excuse.text, "NoSuchBucket"))
		call_end(call, -ENOENT);
	else
		call_end(call, -EIO);
}

static void call_done(struct http_transfer *t, const struct http_end *end)
{
	struct s3_disk_call *call = call_of(t);

	if (call->is_too_long) {
		snprintf(call->words, sizeof(call->words), "the object is too long");
		call_end(call, -EMSGSIZE);
	} else if (!t->answer.is_whole || (call_is_good(call) && end->result < 0)) {
		snprintf(call->words, sizeof(call->words), "%s", end->words);
		call_on_loss(call, end->end);
	} else if (call_is_good(call)) {
		call_on_good(call);
	} else {
		call_on_refusal(call);
	}
}

static const struct http_transfer_ops call_ops = {
	.answered = call_answered,
	.body = call_body,
	.done = call_done,
};

/* ---- requests ---- */

static int call_url(const struct s3_disk_call *call, char url[HTTP_URL_BYTES])
{
	const char *start = call->client->d->start;
	int n = call->query ? snprintf(url, HTTP_URL_BYTES, "%s", call->query)
			    : snprintf(url, HTTP_URL_BYTES, "%s/%s", start, call->path);

	return n >= HTTP_URL_BYTES ? -ENAMETOOLONG : 0;
}

static void call_send(struct s3_disk_call *call)
{
	struct s3_disk_client *c = call->client;
	char url[HTTP_URL_BYTES];
	const struct http_request request = {
		.url = url,
		.method = call->method,
		.condition = call->condition[0] ? call->condition : NULL,
		.body = call->body,
		.body_bytes = call->body_bytes,
		.first_bytes = call->first_bytes,
		.length_bytes = call->length_bytes,
		.is_secret = true,
	};
	int ret = call_url(call, url);

	call->sent_ns = c->reactor->now_ns;
	if (call->tries++ > 0)
		counter_add(&c->resent, 1);
	else
		histogram_record(&c->wait, call->sent_ns - call->began_ns);
	if (ret == 0)
		ret = http_transfer_begin(&call->transfer, &request);
	if (ret == 0)
		return;
	snprintf(call->words, sizeof(call->words), "out of memory");
	call_on_loss(call, NET_END_UNREACHABLE);
}

void s3_disk_call_begin(struct s3_disk_call *call, s3_disk_call_done_fn *done)
{
	call->done = done;
	call->is_under_way = true;
	call->tries = 0;
	call->got = 0;
	call->words[0] = '\0';
	call->began_ns = call->client->reactor->now_ns;
	/* From a turn: what cannot begin ends there, too. */
	reactor_timer_arm(call->client->reactor, &call->pause, call->began_ns);
}

void s3_disk_call_reset(struct s3_disk_call *call)
{
	call->method = HTTP_GET;
	call->path[0] = call->condition[0] = '\0';
	call->query = NULL;
	call->body = NULL;
	call->body_bytes = 0;
	call->first_bytes = call->length_bytes = 0;
	call->to = NULL;
	call->to_bytes = 0;
}

static void call_of_object(struct s3_disk_call *call, enum http_method method, const char *path)
{
	s3_disk_call_reset(call);
	call->method = method;
	snprintf(call->path, sizeof(call->path), "%s", path);
}

void s3_disk_call_get(struct s3_disk_call *call, const char *path, void *to, size_t to_bytes,
		      s3_disk_call_done_fn *done)
{
	call_of_object(call, HTTP_GET, path);
	call->to = to;
	call->to_bytes = to_bytes;
	s3_disk_call_begin(call, done);
}

void s3_disk_call_put(struct s3_disk_call *call, const char *path, const char *condition,
		      const void *body, size_t body_bytes, s3_disk_call_done_fn *done)
{
	call_of_object(call, HTTP_PUT, path);
	if (condition)
		snprintf(call->condition, sizeof(call->condition), "%s", condition);
	call->body = body;
	call->body_bytes = body_bytes;
	s3_disk_call_begin(call, done);
}

void s3_disk_call_delete(struct s3_disk_call *call, const char *path, s3_disk_call_done_fn *done)
{
	call_of_object(call, HTTP_DELETE, path);
	s3_disk_call_begin(call, done);
}

int s3_disk_call_init(struct s3_disk_call *call, struct s3_disk_client *client)
{
	*call = (struct s3_disk_call){ .client = client };
	timer_init(&call->pause, call_on_pause);
	return http_transfer_init(&call->transfer, client->http, &call_ops);
}

void s3_disk_call_fini(struct s3_disk_call *call)
{
	if (!call->client)
		return;
	reactor_timer_cancel(call->client->reactor, &call->pause);
	if (call->transfer.easy)
		http_transfer_stop(&call->transfer);
	http_transfer_fini(&call->transfer);
	call->client = NULL;
}

/* ---- the client ---- */

int s3_disk_client_init(struct s3_disk_client *client, struct web_device *d,
			struct reactor *reactor, char *error, size_t error_bytes)
{
	struct http_settings settings;

	*client = (struct s3_disk_client){ .d = d, .reactor = reactor, .last_end = -1 };
	client->since_ns = reactor->now_ns;
	prng_init(&client->prng, reactor->now_ns);
	web_settings(d, &settings);
	return http_client_create(&client->http, reactor, &settings, error, error_bytes);
}

void s3_disk_client_fini(struct s3_disk_client *client)
{
	s3_renew_fini(&client->renew);
	http_client_free(client->http);
	client->http = NULL;
}
