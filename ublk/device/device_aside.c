/*
 * Caches of a live device stand aside, one after the other, and come back
 * (storage/cache_control.h): for a change of snapshots below them, and before a stop. Main thread.
 *
 * Happy path: device_aside_begin -> each cache -> done; device_aside_end -> each comes back ->
 * ended. Failure modes: one cannot: done has its error, those before it stay aside until
 * device_aside_end; hurried: the same.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/util.h"

static int aside_ask(struct device *d, unsigned idx, enum backend_cache_op op,
		     void (*done)(struct backend_cache_job *job, int ret))
{
	struct aside *a = &d->aside;

	a->job = (struct backend_cache_job){ .op = op,
					     .reactor = d->host->ctl->reactor,
					     .done = done };
	return a->cache[idx]->ops->cache_ops->begin(a->cache[idx], &a->job);
}

static void is_aside(struct backend_cache_job *job, int ret)
{
	struct device *d = container_of(job, struct device, aside.job);
	struct aside *a = &d->aside;

	a->nr += ret == 0;
	if (ret == 0 && a->nr < a->cache_nr) {
		ret = -ECANCELED;
		if (a->is_hurried)
			snprintf(job->words, sizeof(job->words), "the device is being stopped");
		else
			ret = aside_ask(d, a->nr, a->op, is_aside);
		if (ret == 0)
			return;
	}
	a->done(d, ret);
}

int device_aside_begin(struct device *d, enum backend_cache_op op,
		       void (*done)(struct device *d, int ret))
{
	struct aside *a = &d->aside;

	a->op = op;
	a->nr = 0;
	a->is_hurried = false;
	a->done = done;
	return aside_ask(d, 0, op, is_aside);
}

const char *device_aside_words(const struct device *d)
{
	return d->aside.job.words;
}

void device_aside_hurry(struct device *d)
{
	d->aside.is_hurried = true;
	backend_cache_cancel(&d->aside.job);
}

static void is_back(struct backend_cache_job *job, int ret)
{
	struct device *d = container_of(job, struct device, aside.job);

	(void)ret;
	device_aside_end(d, d->aside.ended);
}

/* One that cannot be asked has no queue, and is as before when it has one. */
void device_aside_end(struct device *d, void (*ended)(struct device *d))
{
	struct aside *a = &d->aside;

	a->ended = ended;
	while (a->nr > 0)
		if (aside_ask(d, --a->nr, BACKEND_CACHE_BACK, is_back) == 0)
			return;
	ended(d);
}
