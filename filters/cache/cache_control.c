/*
 * Commands while the cache serves (storage/cache_control.h). The control thread begins and ends
 * one; in between it is the reactor's of the queue.
 *
 * Happy path: begin: what can be refused at once is -> mail -> steps (cache_warm.c, cache_drop.c,
 * cache_aside.c), each when something has ended that it may have waited for, or after a while ->
 * mail -> done.
 *
 * Failure modes: it is cancelled, the store fails, or the node comes to rest: it ends with what it
 * has done; fills that it has begun go on without it, as those that nobody waits for do.
 */
#include "filters/cache/cache.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/util.h"

/* Whether it was cancelled, and what others may have ended, is looked at so often. */
#define CACHE_CONTROL_LOOK_NS (5 * NS_PER_MS)

static bool cache_op_is_command(enum backend_cache_op op)
{
	return op == BACKEND_CACHE_WARM || op == BACKEND_CACHE_DROP;
}

static bool cache_op_stands_aside(enum backend_cache_op op)
{
	return op == BACKEND_CACHE_YIELD || op == BACKEND_CACHE_EMPTY;
}

/* ---- its end ---- */

static void cache_control_ended(struct mail *mail)
{
	struct cache_device *d = container_of(mail, struct cache_device, control.mail);
	struct backend_cache_job *job = d->control.job;

	d->control.job = NULL;
	d->control.is_aside = cache_op_stands_aside(job->op) && d->control.result == 0;
	job->done(job, d->control.result);
}

/* words NULL: the step has put them there. */
static void cache_control_end(struct cache_device *d, int result, const char *words)
{
	struct cache_control *c = &d->control;
	struct backend_cache_job *job = c->job;

	c->is_running = false;
	c->result = result;
	if (result < 0 && cache_op_stands_aside(job->op))
		cache_aside_end(d);
	reactor_timer_cancel(d->q->queue->reactor, &c->timer);
	for (unsigned i = 0; i < CACHE_OWN_NR; i++)
		d->q->own[i].is_warm = false;
	job->dirty_bytes = d->ix->dirty_units * CACHE_UNIT_BYTES;
	if (words)
		snprintf(job->words, sizeof(job->words), "%s", words);
	reactor_post(job->reactor, &c->mail, cache_control_ended);
}

void cache_control_stop(struct cache_device *d)
{
	if (d->control.is_running)
		cache_control_end(d, -ECANCELED, "ended early: the device is being stopped");
}

/* ---- its steps ---- */

static int cache_control_step(struct cache_device *d)
{
	struct backend_cache_job *job = d->control.job;

	if (!cache_op_is_command(job->op))
		return cache_aside_step(d);
	if (!d->is_off)
		return job->op == BACKEND_CACHE_WARM ? cache_warm_step(d) : cache_drop_step(d);
	snprintf(job->words, sizeof(job->words),
		 "the store has failed, and the cache is off until the device is started again");
	return -EIO;
}

void cache_control_go_on(struct cache_device *d)
{
	struct cache_control *c = &d->control;
	struct reactor *r;
	int ret;

	if (!c->is_running)
		return;
	if (c->job->op != BACKEND_CACHE_BACK &&
	    __atomic_load_n(&c->job->is_cancelled, __ATOMIC_RELAXED)) {
		cache_control_end(d, -ECANCELED, "ended early: it was cancelled");
		return;
	}
	ret = cache_control_step(d);
	r = d->q->queue->reactor;
	if (ret <= 0)
		cache_control_end(d, ret, NULL);
	else
		reactor_timer_arm(
			r, &c->timer,
			r->now_ns + (ret == CACHE_CONTROL_YIELDS ? 0 : CACHE_CONTROL_LOOK_NS));
}

static void cache_control_look(struct timer *timer)
{
	cache_control_go_on(container_of(timer, struct cache_device, control.timer));
}

static void cache_control_start(struct mail *mail)
{
	struct cache_device *d = container_of(mail, struct cache_device, control.mail);
	struct cache_control *c = &d->control;

	c->is_running = true;
	cache_rest_ends(d);
	cache_control_go_on(d);
}

/* ---- its beginning ---- */

__attribute__((format(printf, 3, 4))) static int
cache_control_refuse(struct backend_cache_job *job, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(job->words, sizeof(job->words), format, args);
	va_end(args);
	return err;
}

static int cache_control_check_range(const struct cache_device *d, struct backend_cache_job *job)
{
	uint64_t bytes = d->origin_bytes;

	if (job->offset_bytes >= bytes)
		return cache_control_refuse(job, -EINVAL,
					    "the range begins at byte %llu, and there are %llu: "
					    "give a smaller --offset",
					    (unsigned long long)job->offset_bytes,
					    (unsigned long long)bytes);
	if (job->length_bytes > bytes - job->offset_bytes)
		return cache_control_refuse(job, -EINVAL,
					    "from byte %llu on there are %llu bytes, not %llu: "
					    "give a smaller --length, "
					    "or none for all of them",
					    (unsigned long long)job->offset_bytes,
					    (unsigned long long)(bytes - job->offset_bytes),
					    (unsigned long long)job->length_bytes);
	return 0;
}

static int cache_control_check(const struct cache_device *d, struct backend_cache_job *job)
{
	const struct cache_control *c = &d->control;

	if (c->is_aside || (c->job && !cache_op_is_command(c->job->op)))
		return cache_control_refuse(
			job, -EBUSY,
			"a snapshot of what is below the cache is being changed: wait for its end");
	if (c->job)
		return cache_control_refuse(
			job, -EBUSY,
			"the cache is being %s already: wait for its end, or end that command",
			c->job->op == BACKEND_CACHE_WARM ? "warmed" : "dropped");
	if (!d->q)
		return cache_control_refuse(job, -EBUSY, "the device does not serve");
	if (cache_op_is_command(job->op) && __atomic_load_n(&d->is_off, __ATOMIC_RELAXED))
		return cache_control_refuse(
			job, -EIO,
			"the store of the cache has failed, and it keeps nothing: repair what "
			"`store` lies on, and start the device again");
	return job->op == BACKEND_CACHE_WARM ? cache_control_check_range(d, job) : 0;
}

static int cache_control_begin(struct backend_device *device, struct backend_cache_job *job)
{
	struct cache_device *d = device->priv;
	int ret;

	if (job->op == BACKEND_CACHE_BACK)
		d->control.is_aside = false;
	ret = cache_control_check(d, job);
	if (ret < 0)
		return ret;
	d->control.job = job;
	d->control.result = 0;
	timer_init(&d->control.timer, cache_control_look);
	if (job->op == BACKEND_CACHE_WARM)
		cache_warm_init(d);
	else
		cache_drop_init(d);
	reactor_post(d->q->queue->reactor, &d->control.mail, cache_control_start);
	return 0;
}

const struct backend_cache_ops cache_control_ops = { .begin = cache_control_begin };
