/*
 * What requests of a queue do while the server is away. Owns the pause between tries and the time
 * after which they fail. Reactor thread.
 *
 * Happy path: a GET fails -> a pause -> tried again -> an answer: all as before. Failure modes: no
 * answer within on_disconnect: what waits fails, and so does what comes, but for one request after
 * each pause, which shows whether the server is back.
 */
#include <errno.h>

#include "backends/http/web.h"
#include "base/util.h"

/* Doubled from the first to the longest, a quarter more or less. */
#define PAUSE_FIRST_NS (100 * NS_PER_MS)
#define PAUSE_MAX_NS (5 * NS_PER_SEC)

static void outage_set_away(struct web_queue *q, bool is_away)
{
	if (q->is_away != is_away)
		__atomic_store_n(&q->since_ns, q->queue->reactor->now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&q->is_away, is_away, __ATOMIC_RELAXED);
}

static void outage_give_up(struct web_queue *q)
{
	const struct web_device *d = q->d;

	q->gave_up = true;
	log_limited_by(&q->d->hold_limit, LOG_LEVEL_ERROR,
		       "requests fail until the server answers again",
		       "device=%s queue=%u server=%s", d->name, q->queue->idx, d->url.server);
	web_fail_waiting(q, -EIO);
}

static void outage_on_end(struct timer *timer)
{
	outage_give_up(container_of(timer, struct web_queue, outage));
}

static void outage_on_pause(struct timer *timer)
{
	web_gets_start(container_of(timer, struct web_queue, pause));
}

uint64_t web_pause_ns(struct prng *prng, unsigned tries, const struct net_outage_config *outage,
		      uint64_t retry_after_ns)
{
	unsigned doublings = MIN(tries, 16u);
	uint64_t ns = MIN(PAUSE_FIRST_NS << doublings, PAUSE_MAX_NS);

	ns = ns - ns / 4 + prng_below(prng, ns / 2);
	return MAX(ns, net_outage_grant_ns(outage, retry_after_ns));
}

void web_outage_note(struct web_queue *q, uint64_t retry_after_ns)
{
	const struct net_outage_config *outage = &q->d->config->outage;
	uint64_t limit_ns = outage->outage_timeout_ns;
	struct reactor *r = q->queue->reactor;

	if (!q->is_away && limit_ns != 0 && limit_ns != OPTION_FOREVER)
		reactor_timer_arm(r, &q->outage, r->now_ns + limit_ns);
	outage_set_away(q, true);
	/* Those that were sent together fail together. */
	if (!q->pause.armed)
		reactor_timer_arm(
			r, &q->pause,
			r->now_ns + web_pause_ns(&q->prng, q->tries++, outage, retry_after_ns));
	if (limit_ns == 0 && !q->gave_up)
		outage_give_up(q);
}

void web_outage_over(struct web_queue *q)
{
	struct reactor *r = q->queue->reactor;

	if (!q->is_away)
		return;
	outage_set_away(q, false);
	q->gave_up = false;
	q->tries = 0;
	reactor_timer_cancel(r, &q->outage);
	/* Where some requests fail, and others not, those that fail are not sent without a pause.
	 */
	if (q->pause.armed)
		reactor_timer_arm(r, &q->pause,
				  MIN(q->pause.deadline_ns, r->now_ns + PAUSE_FIRST_NS));
}

bool web_outage_pauses(const struct web_queue *q)
{
	return q->pause.armed;
}

bool web_outage_may_wait(const struct web_queue *q)
{
	return !q->gave_up || !q->pause.armed;
}

void web_outage_init(struct web_queue *q)
{
	timer_init(&q->pause, outage_on_pause);
	timer_init(&q->outage, outage_on_end);
	q->since_ns = q->queue->reactor->now_ns;
	prng_init(&q->prng, q->since_ns);
}

void web_outage_fini(struct web_queue *q)
{
	reactor_timer_cancel(q->queue->reactor, &q->pause);
	reactor_timer_cancel(q->queue->reactor, &q->outage);
}
