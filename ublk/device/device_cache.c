/*
 * Commands to a cache of a live device, while it goes on serving (storage/cache_control.h). Main
 * thread.
 *
 * Happy path: the node begins -> its end -> the event. The queues stay open until then: a stop
 * cancels it when all requests have ended, and waits for its end, which is soon.
 *
 * Failure modes: the device is not live, or has one under way already, or the node refuses: words;
 * it fails later: the event.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static void cache_job_done(struct backend_cache_job *job, int ret)
{
	struct device *d = container_of(job, struct device, cache.job);

	d->cache.busy = false;
	d->cache.err = ret;
	device_event(d, DEVICE_EVENT_CACHE);
	if (d->stop_wanted || d->failed)
		device_go_down(d);
}

static int cache_check_live(const struct device *d, char *error, size_t error_bytes)
{
	if (d->state != DEVICE_LIVE || d->stop_wanted || ctl_cmd_busy(&d->cmd))
		snprintf(error, error_bytes,
			 "the device is not live (%s): try again when ublkctl list says that it is",
			 device_state_name(d->state));
	else if (d->cache.busy)
		snprintf(error, error_bytes,
			 "a cache of the device is being %s already: wait for its end, or end that "
			 "command",
			 d->cache.job.op == BACKEND_CACHE_WARM ? "warmed" : "dropped");
	else
		return 0;
	return -EBUSY;
}

int device_cache_command(struct device *d, const struct device_cache_wish *wish, char *error,
			 size_t error_bytes)
{
	int ret = cache_check_live(d, error, error_bytes);
	struct backend_device *node;

	if (ret < 0)
		return ret;
	node = backend_cache_node(d->backend, wish->node, error, error_bytes);
	if (!node)
		return -EOPNOTSUPP;
	d->cache = (struct cache_work){ .node = node,
					.job = { .op = wish->op,
						 .offset_bytes = wish->offset_bytes,
						 .length_bytes = wish->length_bytes,
						 .reactor = d->host->ctl->reactor,
						 .done = cache_job_done } };
	ret = node->ops->cache_ops->begin(node, &d->cache.job);
	d->cache.busy = ret == 0;
	if (ret < 0)
		snprintf(error, error_bytes, "%s", d->cache.job.words);
	return ret;
}

void device_cache_cancel(struct device *d)
{
	if (d->cache.busy)
		backend_cache_cancel(&d->cache.job);
}

void device_cache_look(const struct device *d, struct device_cache_look *ret_look)
{
	*ret_look = (struct device_cache_look){ .busy = d->cache.busy,
						.node = d->cache.node ? d->cache.node->name : "",
						.job = &d->cache.job,
						.err = d->cache.err };
}
