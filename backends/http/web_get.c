/*
 * Reads become GETs of ranges. Owns the GETs of a queue. Reactor thread.
 *
 * Happy path: the oldest read that waits, and those next to it -> a GET -> its headers are judged
 * -> bytes go where they belong, a read is complete with its last one -> the next GET. Failure
 * modes: web_judge.c names them; what a GET did not bring waits again or fails, by web_outage.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/web.h"
#include "base/counter.h"
#include "base/util.h"

static uint64_t io_end_bytes(const struct backend_io *io)
{
	return io->offset_bytes + io->length_bytes;
}

static struct web_io *get_first_io(const struct web_get *g)
{
	return list_empty(&g->ios) ? NULL : list_entry(g->ios.next, struct web_io, node);
}

/* ---- bytes ---- */

/* Behind the end of the object, which need not be a whole block. */
static void io_zero_tail(const struct web_io *w, uint64_t object_bytes)
{
	const struct backend_io *io = w->io;
	uint64_t have = object_bytes - io->offset_bytes;

	if (have < io->length_bytes)
		memset((uint8_t *)io->buf + have, 0, io->length_bytes - have);
}

static void get_complete_io(struct web_get *g, struct web_io *w)
{
	struct web_queue *q = g->q;

	io_zero_tail(w, q->d->version.size_bytes);
	list_remove(&w->node);
	counter_add(&q->answered, 1);
	histogram_record(&q->answer, q->queue->reactor->now_ns - g->sent_ns);
	web_io_end(w, 0);
}

/* Bytes that nobody wants any more, as their read was cancelled, are passed over. */
static void get_deliver(struct web_get *g, const uint8_t *data, size_t bytes)
{
	uint64_t object_bytes = g->q->d->version.size_bytes;
	struct web_io *w;

	while (bytes > 0 && (w = get_first_io(g))) {
		uint64_t from = w->io->offset_bytes, to = MIN(io_end_bytes(w->io), object_bytes);
		size_t n;

		if (g->at_bytes < from) {
			n = MIN(bytes, from - g->at_bytes);
		} else {
			n = MIN(bytes, to - g->at_bytes);
			memcpy((uint8_t *)w->io->buf + (g->at_bytes - from), data, n);
		}
		g->at_bytes += n;
		data += n;
		bytes -= n;
		if (g->at_bytes == to)
			get_complete_io(g, w);
	}
	g->at_bytes += bytes;
}

static struct web_get *get_of(struct http_transfer *t)
{
	return container_of(t, struct web_get, transfer);
}

static bool get_answered(struct http_transfer *t)
{
	struct web_get *g = get_of(t);

	g->verdict = web_judge(&g->q->d->version, &t->answer, g->first_bytes, g->length_bytes,
			       g->words, sizeof(g->words));
	web_excuse_begin(&g->excuse);
	return true;
}

static bool get_body(struct http_transfer *t, const uint8_t *data, size_t bytes)
{
	struct web_get *g = get_of(t);

	if (g->verdict != WEB_GOOD)
		return web_excuse_take(&g->excuse, data, bytes);
	if (bytes > g->first_bytes + g->length_bytes - g->at_bytes) {
		g->verdict = WEB_BROKEN;
		snprintf(g->words, sizeof(g->words), "it sends more than it has announced");
		return false;
	}
	counter_add(&g->q->received_bytes, bytes);
	get_deliver(g, data, bytes);
	return true;
}

/* ---- ends ---- */

static void get_fail_ios(struct web_get *g, int result)
{
	struct web_io *w;

	while ((w = get_first_io(g))) {
		list_remove(&w->node);
		web_io_end(w, result);
	}
}

static bool io_is_too_old(const struct web_queue *q, const struct web_io *w)
{
	uint64_t limit_ns = q->d->config->outage.outage_timeout_ns;

	return limit_ns != OPTION_FOREVER && q->queue->reactor->now_ns - w->came_ns >= limit_ns;
}

/* What it did not bring is sent again, before what came later. held: not at once. */
static void get_put_back(struct web_get *g, bool held)
{
	struct web_queue *q = g->q;
	struct list_node all = LIST_INIT(all);
	struct web_io *w;

	while ((w = get_first_io(g))) {
		list_remove(&w->node);
		if (held && (!web_outage_may_wait(q) || io_is_too_old(q, w))) {
			web_io_end(w, -EIO);
			continue;
		}
		w->get = NULL;
		web_io_set_state(w, held ? WEB_IO_HELD : WEB_IO_WAITS);
		list_push_back(&all, &w->node);
	}
	list_splice(&all, &q->waiting);
	list_splice(&q->waiting, &all);
}

static void get_count_loss(struct web_queue *q, enum net_end end)
{
	counter_add(&q->lost, 1);
	counter_add(&q->ends[end], 1);
	__atomic_store_n(&q->last_end, (int)end, __ATOMIC_RELAXED);
}

static void get_on_loss(struct web_get *g, enum net_end end, const char *words)
{
	struct web_queue *q = g->q;

	get_count_loss(q, end);
	log_limited_by(&q->d->lost_limit[end], LOG_LEVEL_WARN, "a request was not answered",
		       "device=%s queue=%u server=%s first=%llu bytes=%llu why=\"%s\"", q->d->name,
		       q->queue->idx, q->d->url.server, (unsigned long long)g->first_bytes,
		       (unsigned long long)g->length_bytes, words);
	web_outage_note(q, g->transfer.answer.retry_after_ns);
	get_put_back(g, true);
}

static void get_on_refusal(struct web_get *g)
{
	struct web_queue *q = g->q;

	get_count_loss(q, NET_END_REFUSED);
	log_limited_by(&q->d->refused_limit, LOG_LEVEL_ERROR, "the server refuses a request",
		       "device=%s queue=%u server=%s why=\"%s\"", q->d->name, q->queue->idx,
		       q->d->url.server, g->words);
	web_outage_over(q);
	get_fail_ios(g, -EIO);
}

static void get_on_redirection(struct web_get *g)
{
	struct web_queue *q = g->q;

	/* Else another one has followed it already. */
	if (g->place_nr == q->place.nr &&
	    web_place_move(&q->place, q->d, &g->transfer, g->words, sizeof(g->words)) < 0) {
		web_place_begin(&q->place, q->d);
		get_on_refusal(g);
		return;
	}
	get_put_back(g, false);
}

/* A place that a server has named may be good for a while only. */
static bool get_starts_over(struct web_get *g)
{
	struct web_queue *q = g->q;

	if (g->place_nr == q->place.nr) {
		if (q->place.is_start)
			return false;
		web_place_begin(&q->place, q->d);
	}
	get_put_back(g, false);
	return true;
}

static void get_on_change(struct web_get *g)
{
	struct web_queue *q = g->q;

	get_count_loss(q, NET_END_CHANGED);
	net_changed_note(&q->d->changed, "the object", g->words, q->d->name, q->d->url.server);
	get_fail_ios(g, -EIO);
	web_fail_waiting(q, -EIO);
}

static void get_judge_end(struct web_get *g, const struct http_end *end)
{
	bool is_answered = g->transfer.answer.is_whole;

	if (is_answered && g->verdict == WEB_GOOD && end->result == 0 &&
	    g->at_bytes < g->first_bytes + g->length_bytes) {
		g->verdict = WEB_BROKEN;
		snprintf(g->words, sizeof(g->words), "it sends less than it has announced");
	}
	if (!is_answered || (g->verdict == WEB_GOOD && end->result < 0))
		get_on_loss(g, end->end, end->words);
	else if (g->verdict == WEB_AGAIN || g->verdict == WEB_CLOCK)
		get_on_loss(g, NET_END_REFUSED, g->words);
	else if (g->verdict == WEB_BROKEN)
		get_on_loss(g, NET_END_PROTOCOL, g->words);
	else if (g->verdict == WEB_MOVED)
		get_on_redirection(g);
	else if (g->verdict == WEB_CHANGED)
		get_on_change(g);
	else if (g->verdict == WEB_KEYS && s3_renew_ask(&g->q->renew))
		get_on_loss(g, NET_END_REFUSED, g->words);
	else if ((g->verdict == WEB_REFUSED || g->verdict == WEB_KEYS) && !get_starts_over(g))
		get_on_refusal(g);
	else if (g->verdict == WEB_GOOD) {
		g->q->place.hops = 0;
		web_outage_over(g->q);
	}
}

static void get_done(struct http_transfer *t, const struct http_end *end)
{
	struct web_get *g = get_of(t);
	struct web_queue *q = g->q;

	web_explain(q->d, &t->answer, &g->verdict, &g->excuse, g->words, sizeof(g->words));
	get_judge_end(g, end);
	list_push_back(&q->free_gets, &g->node);
	web_gets_start(q);
}

static const struct http_transfer_ops get_ops = {
	.answered = get_answered,
	.body = get_body,
	.done = get_done,
};

/* Those whose reads have all been cancelled. */
static void gets_stop_unwanted(struct web_queue *q)
{
	q->has_unwanted = false;
	for (unsigned i = 0; i < q->d->config->connections; i++) {
		struct web_get *g = &q->get[i];

		if (!g->transfer.is_under_way || !list_empty(&g->ios))
			continue;
		http_transfer_stop(&g->transfer);
		list_push_back(&q->free_gets, &g->node);
	}
}

/* ---- beginnings ---- */

static void get_take(struct web_get *g, struct web_io *w, bool at_front)
{
	list_remove(&w->node);
	if (at_front)
		list_insert_between(&w->node, &g->ios, g->ios.next);
	else
		list_push_back(&g->ios, &w->node);
	w->get = g;
	if (w->was_sent)
		counter_add(&g->q->resent, 1);
	else
		histogram_record(&g->q->wait, g->sent_ns - w->came_ns);
	w->was_sent = true;
	web_io_set_state(w, WEB_IO_SENT);
}

/* The first that waits, at one of its ends; true: there is one. */
static bool get_extend(struct web_get *g)
{
	uint64_t end = g->first_bytes + g->length_bytes;

	list_for_each (node, &g->q->waiting) {
		struct web_io *w = list_entry(node, struct web_io, node);
		const struct backend_io *io = w->io;
		bool is_before = io_end_bytes(io) == g->first_bytes;

		if (io->offset_bytes != end && !is_before)
			continue;
		if (g->length_bytes + io->length_bytes > g->q->d->config->request_max_bytes)
			continue;
		if (is_before)
			g->first_bytes = io->offset_bytes;
		g->length_bytes += io->length_bytes;
		get_take(g, w, is_before);
		return true;
	}
	return false;
}

static void get_gather(struct web_get *g)
{
	struct web_queue *q = g->q;
	struct web_io *w = list_entry(q->waiting.next, struct web_io, node);

	g->sent_ns = q->queue->reactor->now_ns;
	g->first_bytes = w->io->offset_bytes;
	g->length_bytes = w->io->length_bytes;
	get_take(g, w, false);
	while (get_extend(g))
		;
	g->at_bytes = g->first_bytes;
	g->length_bytes = MIN(g->length_bytes, q->d->version.size_bytes - g->first_bytes);
}

static void get_begin(struct web_get *g)
{
	struct web_queue *q = g->q;
	struct http_request request = {
		.url = q->place.url,
		.condition = q->d->condition[0] ? q->d->condition : NULL,
		.is_secret = q->place.is_home,
	};
	int ret;

	get_gather(g);
	g->place_nr = q->place.nr;
	g->words[0] = '\0';
	request.first_bytes = g->first_bytes;
	request.length_bytes = g->length_bytes;
	ret = http_transfer_begin(&g->transfer, &request);
	if (ret == 0)
		return;
	get_fail_ios(g, ret);
	list_push_back(&q->free_gets, &g->node);
}

static void gets_run(struct task *task)
{
	struct web_queue *q = container_of(task, struct web_queue, task);

	if (q->has_unwanted)
		gets_stop_unwanted(q);
	while (!list_empty(&q->waiting) && !web_outage_pauses(q)) {
		struct list_node *node = list_pop_front(&q->free_gets);

		if (!node)
			return;
		get_begin(list_entry(node, struct web_get, node));
	}
}

void web_gets_start(struct web_queue *q)
{
	if (!list_empty(&q->waiting))
		reactor_defer(q->queue->reactor, &q->task, gets_run);
}

/* Libcurl may be in the middle of it, or of another one: it is stopped later in this turn. */
void web_get_forget(struct web_io *w)
{
	struct web_get *g = w->get;
	struct web_queue *q = g->q;

	list_remove(&w->node);
	w->get = NULL;
	if (!list_empty(&g->ios))
		return;
	q->has_unwanted = true;
	reactor_defer(q->queue->reactor, &q->task, gets_run);
}

int web_gets_init(struct web_queue *q)
{
	unsigned nr = (unsigned)q->d->config->connections;

	list_init(&q->free_gets);
	list_init(&q->waiting);
	q->get = calloc(nr, sizeof(*q->get));
	if (!q->get)
		return -ENOMEM;
	for (unsigned i = 0; i < nr; i++) {
		struct web_get *g = &q->get[i];
		int ret = http_transfer_init(&g->transfer, q->client, &get_ops);

		if (ret < 0)
			return ret;
		g->q = q;
		list_init(&g->ios);
		list_push_back(&q->free_gets, &g->node);
	}
	return 0;
}

void web_gets_fini(struct web_queue *q)
{
	task_cancel(&q->task);
	for (unsigned i = 0; q->get && i < q->d->config->connections; i++) {
		http_transfer_stop(&q->get[i].transfer);
		http_transfer_fini(&q->get[i].transfer);
	}
	free(q->get);
}
