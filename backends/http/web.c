/*
 * http and s3: a read-only device on an object of a web server. This file is their tables: queues
 * and requests as the core sees them. Reactor thread, but for web_wait and web_look.
 *
 * Failure modes: the server is away: on_disconnect decides, for each queue by itself; the object is
 * another one than before: everything fails.
 */
#include "backends/http/web.h"

#include <errno.h>

#include "base/counter.h"
#include "base/util.h"
#include "storage/registry.h"

/* ---- requests ---- */

void web_io_end(struct web_io *w, int result)
{
	w->get = NULL;
	web_io_set_state(w, WEB_IO_IDLE);
	backend_io_complete(w->io, result);
}

void web_fail_waiting(struct web_queue *q, int result)
{
	struct list_node all = LIST_INIT(all), *node;

	list_splice(&all, &q->waiting);
	while ((node = list_pop_front(&all)))
		web_io_end(list_entry(node, struct web_io, node), result);
}

static enum backend_submit web_submit(struct backend_io *io)
{
	struct web_queue *q = io->queue->priv;
	struct web_io *w = io->priv;

	io->result = -EIO;
	if (net_has_changed(&q->d->changed) || !web_outage_may_wait(q))
		return BACKEND_DONE;
	w->came_ns = q->queue->reactor->now_ns;
	w->was_sent = false;
	web_io_set_state(w, q->is_away ? WEB_IO_HELD : WEB_IO_WAITS);
	list_push_back(&q->waiting, &w->node);
	web_gets_start(q);
	return BACKEND_QUEUED;
}

static void web_cancel(struct backend_io *io)
{
	struct web_io *w = io->priv;

	if (w->get)
		web_get_forget(w);
	else
		list_remove(&w->node);
	web_io_end(w, -ECANCELED);
}

static int web_io_init(struct backend_io *io)
{
	struct web_io *w = io->priv;

	w->io = io;
	list_init(&w->node);
	return 0;
}

/* ---- queues ---- */

static int web_queue_init(struct backend_queue *queue)
{
	struct web_queue *q = queue->priv;
	char error[HTTP_ERROR_BYTES];
	struct http_settings settings;
	int ret;

	q->d = queue->device->priv;
	q->queue = queue;
	q->last_end = -1;
	web_outage_init(q);
	web_place_begin(&q->place, q->d);
	web_settings(q->d, &settings);
	ret = http_client_create(&q->client, queue->reactor, &settings, error, sizeof(error));
	if (ret < 0)
		log_error("no client for a web server", "device=%s why=\"%s\"", q->d->name, error);
	if (ret == 0)
		ret = s3_renew_init(&q->renew, q->d->server, q->d->name, q->client, &q->d->keys);
	return ret < 0 ? ret : web_gets_init(q);
}

static void web_queue_fini(struct backend_queue *queue)
{
	struct web_queue *q = queue->priv;

	web_gets_fini(q);
	s3_renew_fini(&q->renew);
	http_client_free(q->client);
	web_outage_fini(q);
}

/* ---- for people ---- */

static struct backend_wait web_wait(const struct backend_io *io)
{
	static const char *const words[] = {
		[WEB_IO_IDLE] = NULL,
		[WEB_IO_WAITS] = "waiting for one of the connections to be free",
		[WEB_IO_HELD] = "waiting for the server to be back",
		[WEB_IO_SENT] = "the server",
	};
	const struct web_io *w = io->priv;

	return (struct backend_wait){ .words =
					      words[__atomic_load_n(&w->state, __ATOMIC_RELAXED)] };
}

static bool web_look(const struct backend_queue *queue, unsigned idx,
		     struct net_connection_look *ret_look)
{
	const struct web_queue *q = queue->priv;
	bool is_away = __atomic_load_n(&q->is_away, __ATOMIC_RELAXED);

	if (idx > 0)
		return false;
	*ret_look = (struct net_connection_look){
		.server = q->d->url.server,
		.state = is_away ? "waiting" : "connected",
		.since_ns = counter_read(&q->since_ns),
		.next_try_ns = is_away ? counter_read(&q->pause.deadline_ns) : 0,
		.connects = http_client_connects(q->client),
		.lost = counter_read(&q->lost),
		.last_end = __atomic_load_n(&q->last_end, __ATOMIC_RELAXED),
		.resent = counter_read(&q->resent),
		.answered = counter_read(&q->answered),
		.received_bytes = counter_read(&q->received_bytes),
		.wait = &q->wait,
		.answer = &q->answer,
	};
	for (int end = 0; end < NET_END_NR; end++)
		ret_look->ends[end] = counter_read(&q->ends[end]);
	return true;
}

static const char *web_failure(const struct backend_device *device)
{
	const struct web_device *d = device->priv;

	return net_changed_words(&d->changed);
}

/* What the rows of both have in common: all but what the user says. */
#define WEB_ROW                                                                                    \
	.device_bytes = sizeof(struct web_device), .queue_bytes = sizeof(struct web_queue),        \
	.io_bytes = sizeof(struct web_io), .batches = true, .open_async = web_open_async,          \
	.cancel_async = web_cancel_async, .close = web_close, .queue_init = web_queue_init,        \
	.queue_fini = web_queue_fini, .io_init = web_io_init, .submit = web_submit,                \
	.cancel = web_cancel, .wait = web_wait, .identity = web_identity, .failure = web_failure,  \
	.connection = web_look, .version = &web_version_ops

const struct backend backend_http = {
	.name = "http",
	.summary = "An object of a web server, read-only.",
	.options = web_http_options,
	.uri = &web_http_uri,
	.config_bytes = sizeof(struct web_http_config),
	.check = web_http_check,
	.open = web_http_open,
	WEB_ROW,
};

const struct backend backend_s3 = {
	.name = "s3",
	.summary = "An object of an S3 bucket, read-only.",
	.options = s3_options,
	.uri = &s3_backend_uri,
	.config_bytes = sizeof(struct s3_config),
	.check = s3_check,
	.open = s3_open,
	WEB_ROW,
};
