/*
 * The client of a reactor. Owns libcurl's multi handle, its timer, and copies of the settings.
 * Reactor thread.
 *
 * Happy path: a transfer is added -> libcurl wants a turn at once -> sockets are polled, libcurl is
 * told of what they are ready for -> it has ended a transfer, whose owner hears of it. Failure
 * modes: those of transfers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/util.h"
#include "net/http/http_client_internal.h"

static void client_reap(struct http_client *c)
{
	CURLMsg *msg;
	int left;

	while ((msg = c->curl->curl_multi_info_read(c->multi, &left))) {
		CURLcode code = msg->data.result;
		CURL *easy = msg->easy_handle;
		struct http_transfer *t = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		c->curl->curl_easy_getinfo(easy, CURLINFO_PRIVATE, &t);
		http_transfer_ended(t, code);
	}
}

void http_client_act(struct http_client *c, struct http_socket *socket, int events)
{
	int running;

	c->acting = socket;
	c->curl->curl_multi_socket_action(c->multi, socket ? socket->fd : CURL_SOCKET_TIMEOUT,
					  events, &running);
	c->acting = NULL;
	client_reap(c);
}

static void client_on_timer(struct timer *timer)
{
	http_client_act(container_of(timer, struct http_client, timer), NULL, 0);
}

static void client_on_task(struct task *task)
{
	http_client_act(container_of(task, struct http_client, task), NULL, 0);
}

/* As CURLMOPT_TIMERFUNCTION. */
static int client_set_timer(CURLM *multi, long timeout_ms, void *client)
{
	struct http_client *c = client;
	struct reactor *r = c->reactor;

	(void)multi;
	reactor_timer_cancel(r, &c->timer);
	if (timeout_ms == 0)
		reactor_defer(r, &c->task, client_on_task);
	else if (timeout_ms > 0)
		reactor_timer_arm(r, &c->timer, r->now_ns + (uint64_t)timeout_ms * NS_PER_MS);
	return 0;
}

/* ---- settings ---- */

static int client_copy(char **to, const char *from)
{
	if (!from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -ENOMEM;
}

static int client_add_header(const struct http_client *c, struct curl_slist **list,
			     const char *header)
{
	struct curl_slist *longer = c->curl->curl_slist_append(*list, header);

	if (!longer)
		return -ENOMEM;
	*list = longer;
	return 0;
}

/* Both lists have what every request has; an empty Accept-Encoding is no wish at all. */
static int client_add_headers(struct http_client *c, const struct http_settings *settings)
{
	static const char always[] = "Accept-Encoding: identity";
	int ret = client_add_header(c, &c->headers, always);

	if (ret == 0)
		ret = client_add_header(c, &c->secret_headers, always);
	for (unsigned i = 0; i < settings->header_nr && ret == 0; i++)
		ret = client_add_header(c, &c->secret_headers, settings->headers[i]);
	return ret;
}

static void client_free_secret(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

static void client_free_keys(struct http_keys *keys)
{
	client_free_secret(keys->user);
	client_free_secret(keys->password);
	client_free_secret(keys->session_header);
}

static int client_copy_session(char **to, const char *token)
{
	if (token && asprintf(to, "x-amz-security-token: %s", token) < 0) {
		*to = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Requests under way have copies of libcurl's. */
int http_client_set_keys(struct http_client *c, const char *user, const char *password,
			 const char *session_token)
{
	struct http_keys keys = { 0 }, old = c->keys;
	int ret = client_copy(&keys.user, user);

	if (ret == 0)
		ret = client_copy(&keys.password, password);
	if (ret == 0)
		ret = client_copy_session(&keys.session_header, session_token);
	if (ret == 0)
		c->keys = keys;
	client_free_keys(ret == 0 ? &old : &keys);
	return ret;
}

static int client_take_settings(struct http_client *c, const struct http_settings *settings)
{
	int ret = client_copy(&c->ca_file, settings->ca_file);

	c->timeout_ns = settings->timeout_ns;
	c->accepts_any_peer = settings->accepts_any_peer;
	c->keeps_dots = settings->keeps_dots;
	if (ret == 0)
		ret = http_client_set_keys(c, settings->user, settings->password,
					   settings->session_token);
	if (ret == 0)
		ret = client_copy(&c->token, settings->token);
	if (ret == 0 && settings->sign_region &&
	    asprintf(&c->signing, "aws:amz:%s:s3", settings->sign_region) < 0) {
		c->signing = NULL;
		ret = -ENOMEM;
	}
	return ret == 0 ? client_add_headers(c, settings) : ret;
}

/* ---- life ---- */

static int client_init_multi(struct http_client *c, unsigned connection_nr)
{
	const struct http_curl *curl = c->curl;

	c->multi = curl->curl_multi_init();
	if (!c->multi)
		return -ENOMEM;
	curl->curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, http_socket_want);
	curl->curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
	curl->curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, client_set_timer);
	curl->curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
	curl->curl_multi_setopt(c->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)connection_nr);
	curl->curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)connection_nr);
	return 0;
}

static void client_destroy(struct http_client *c)
{
	http_sockets_fini(c);
	c->curl->curl_slist_free_all(c->headers);
	c->curl->curl_slist_free_all(c->secret_headers);
	free(c->ca_file);
	client_free_keys(&c->keys);
	client_free_secret(c->token);
	free(c->signing);
	free(c);
}

int http_client_create(struct http_client **ret_client, struct reactor *reactor,
		       const struct http_settings *settings, char *error, size_t error_bytes)
{
	const struct http_curl *curl;
	struct http_client *c;
	int ret = http_curl_get(&curl, error, error_bytes);

	if (ret < 0)
		return ret;
	c = calloc(1, sizeof(*c));
	if (!c) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	c->curl = curl;
	c->reactor = reactor;
	timer_init(&c->timer, client_on_timer);
	ret = http_sockets_init(c, settings->connection_nr * HTTP_SOCKETS_PER_CONNECTION);
	if (ret == 0)
		ret = client_take_settings(c, settings);
	if (ret == 0)
		ret = client_init_multi(c, settings->connection_nr);
	if (ret < 0) {
		snprintf(error, error_bytes, "%s",
			 ret == -ENOMEM ? "out of memory" : "the reactor has no room");
		http_client_free(c);
		return ret;
	}
	*ret_client = c;
	return 0;
}

void http_client_left(struct http_client *c)
{
	struct reactor *r = c->reactor;

	if (!http_sockets_are_free(c))
		return;
	client_destroy(c);
	reactor_leave_end(r);
}

void http_client_free(struct http_client *c)
{
	if (!c)
		return;
	if (c->multi)
		c->curl->curl_multi_cleanup(c->multi);
	c->multi = NULL;
	http_sockets_forget(c);
	reactor_timer_cancel(c->reactor, &c->timer);
	task_cancel(&c->task);
	reactor_leave_begin(c->reactor);
	c->is_leaving = true;
	http_client_left(c);
}

struct reactor *http_client_reactor(const struct http_client *c)
{
	return c->reactor;
}

uint64_t http_client_connects(const struct http_client *c)
{
	return __atomic_load_n(&c->connects, __ATOMIC_RELAXED);
}
