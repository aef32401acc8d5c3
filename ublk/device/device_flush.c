/*
 * Before a polite stop: what the device has acknowledged reaches its storage, while it is live and
 * can stay so. Nobody has it open, so nothing of its user is left to tell him that it did not. Main
 * thread.
 *
 * Happy path: FLUSHING -> caches write what only they have, and stand aside -> a FLUSH -> the stop
 * goes on (device_stop.c). Failure modes: a cache cannot, or the FLUSH fails: the caches come back,
 * the stop is refused in words, the device stays live, and its next FLUSH fails too
 * (storage/owed.h); the FLUSH of a stop before has failed, and none of the user's has succeeded
 * since: refused at once, as a FLUSH that succeeds now proves nothing about what the failed one
 * stood for; it takes long: told at the deadline, and it goes on; a stop by force meanwhile: it is
 * hurried, and nobody asks how it ended.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/counter.h"
#include "base/errname.h"
#include "base/util.h"
#include "storage/cache_control.h"
#include "storage/owed.h"
#include "ublk/openers.h"

static bool flush_matters(const struct device *d)
{
	return d->stop_wanted && !d->stop_force && !d->failed && d->drained_nr == 0;
}

/* ---- whether there is anything to write ---- */

/*
 * Since the last good FLUSH of its user, as far as that can be told: each queue knows of its own
 * FLUSHes alone. One that was adopted has been written to by the process before.
 */
static bool was_written(const struct device *d)
{
	bool was = d->was_adopted;

#ifndef UBLKD_INSTRUMENTS
	return true; /* nothing counts writes */
#endif
	for (unsigned i = 0; was && i < d->attach_nr; i++) {
		const struct queue_op_stats *s = &d->queues[i].stats.op[BACKEND_FLUSH];

		was = counter_read(&s->done) == counter_read(&s->failed);
	}
	for (unsigned i = 0; !was && i < d->attach_nr; i++)
		was = queue_writes(&d->queues[i]) != counter_read(&d->queues[i].writes_flushed);
	return was || backend_is_owed(d->backend);
}

/* The driver will say so, too, but what the caches write before that would be in vain. */
static bool refuses_for_users(struct device *d)
{
	char names[DEVICE_ERROR_BYTES / 4];
	enum block_users found = openers_find((int)d->info.dev_id, names, sizeof(names));

	if (found > BLOCK_USERS_UNKNOWN)
		openers_words(found, names, d->flush.words, sizeof(d->flush.words));
	return found > BLOCK_USERS_UNKNOWN;
}

/* ---- the end ---- */

static void flush_refuse(struct device *d)
{
	struct flush_work *w = &d->flush;
	char words[DEVICE_ERROR_BYTES];

	w->busy = false;
	snprintf(words, sizeof(words), "%s%s", w->words,
		 w->has_failed ? "; write it again and fsync until that succeeds" : "");
	if (flush_matters(d))
		device_refuse_stop(d, words);
	else
		device_go_down(d);
}

static void flush_end(struct device *d, int ret)
{
	d->flush.is_good = ret == 0;
	if (ret < 0 && flush_matters(d)) {
		device_aside_end(d, flush_refuse);
		return;
	}
	d->flush.busy = false;
	device_go_down(d);
}

void device_queue_flushed(struct queue *q, int result)
{
	struct device *d = q->setup.owner;
	struct flush_work *w = &d->flush;

	w->has_failed = result < 0 && result != -ECANCELED;
	if (w->has_failed)
		w->failed_losses = backend_losses(d->backend);
	snprintf(w->words, sizeof(w->words),
		 "what was written to the device may not be in its storage: a FLUSH failed (%s)",
		 errname(result));
	flush_end(d, result);
}

/*
 * Since the FLUSH of a stop has failed, stops send none until the user's FLUSH is good: whatever
 * has settled the loss is the user's.
 */
static bool still_fails(struct device *d)
{
	struct flush_work *w = &d->flush;

	w->has_failed = w->has_failed && !backend_is_settled(d->backend, w->failed_losses);
	return w->has_failed;
}

static void flush_below(struct device *d, int ret)
{
	if (ret == 0 && flush_matters(d)) {
		queue_flush(&d->queues[0]);
		return;
	}
	if (ret < 0)
		snprintf(d->flush.words, sizeof(d->flush.words), "%s: %s",
			 d->aside.cache[d->aside.nr]->name, device_aside_words(d));
	flush_end(d, ret);
}

/* From the loop: whoever asked for the stop must not hear of its end before its call returns. */
static void flush_begin(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, flush.soon);
	int ret = 0;

	d->aside.nr = 0;
	d->aside.cache_nr = backend_caches(d->backend, d->aside.cache);
	if (!flush_matters(d))
		flush_end(d, 0);
	else if (still_fails(d))
		flush_refuse(d);
	else if (d->aside.cache_nr > 0 && refuses_for_users(d))
		flush_refuse(d);
	else if (d->aside.cache_nr > 0)
		ret = device_aside_begin(d, BACKEND_CACHE_YIELD, flush_below);
	else if (was_written(d))
		queue_flush(&d->queues[0]);
	else
		flush_end(d, 0);
	if (ret < 0)
		flush_below(d, ret);
}

bool device_flush_first(struct device *d)
{
	struct flush_work *w = &d->flush;

	if (!flush_matters(d) || w->is_good ||
	    (d->state != DEVICE_LIVE && d->state != DEVICE_FLUSHING))
		return false;
	if (d->state == DEVICE_LIVE)
		device_set_state(d, DEVICE_FLUSHING);
	/* Each comes back to device_go_down. */
	device_cache_cancel(d);
	device_snapshot_hurry(d);
	if (w->busy || d->cache.busy || d->snapshot.busy)
		return true;
	w->busy = true;
	timer_init(&w->soon, flush_begin);
	reactor_timer_arm(d->host->ctl->reactor, &w->soon, d->host->ctl->reactor->now_ns);
	return true;
}

void device_flush_hurry(struct device *d)
{
	if (d->flush.busy)
		device_aside_hurry(d);
}

bool device_drains(const struct device *d)
{
	return d->state == DEVICE_FLUSHING && d->flush.busy && d->aside.cache_nr > d->aside.nr;
}

const char *device_loss(const struct device *d)
{
	return d->flush.has_failed ? d->flush.words : "";
}

void device_flush_note_loss(struct device *d)
{
	if (!d->backend || still_fails(d) || !backend_is_owed(d->backend))
		return;
	d->flush.has_failed = true;
	snprintf(d->flush.words, sizeof(d->flush.words),
		 "a FLUSH had failed, or its storage had lost writes");
}

/* The stop is refused for another reason. */
static void flush_undone(struct device *d)
{
	d->flush.busy = false;
	if (d->stop_wanted || d->failed)
		device_go_down(d);
}

void device_flush_undo(struct device *d)
{
	d->flush.is_good = false;
	if (d->flush.busy || d->aside.nr == 0)
		return;
	d->flush.busy = true;
	device_aside_end(d, flush_undone);
}
