/*
 * Snapshots of a live device are changed, while it goes on serving. Main thread, but for the look
 * at its users, which may block: a helper does it.
 *
 * Happy path: who has it open (apply without force) -> caches above the node stand aside, one after
 * the other (storage/cache_control.h) -> the node begins -> its end -> they come back -> the event.
 * The queues stay open until then: a stop waits for it at its end, as for a resize, but for caches
 * that do not stand aside yet.
 *
 * Failure modes: it is not live, being resized, or changed already, or a node above that of the
 * snapshots has a state that the change does not fit (storage/snapshot.h): refused; somebody has it
 * open: the event says who; the node refuses or fails: its words.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublk/openers.h"

static void snapshot_end(struct device *d, int err)
{
	struct snapshot_work *w = &d->snapshot;

	w->busy = false;
	w->err = err;
	if (w->in_call)
		return;
	device_event(d, DEVICE_EVENT_SNAPSHOT);
	if (d->stop_wanted || d->failed)
		device_go_down(d);
	else
		device_follow_again(d);
}

/* ---- the change, while caches stand aside ---- */

static void caches_are_back(struct device *d)
{
	snapshot_end(d, d->snapshot.ret);
}

static void snapshot_leave(struct device *d, int ret)
{
	d->snapshot.ret = ret;
	device_aside_end(d, caches_are_back);
}

static void snapshot_changed(struct backend_snapshot_change *change, int ret)
{
	snapshot_leave(container_of(change, struct device, snapshot.change), ret);
}

static int snapshot_change(struct device *d)
{
	struct snapshot_work *w = &d->snapshot;

	return w->node->ops->snapshots->begin(w->node, &w->change);
}

static void note_why_not_aside(struct device *d)
{
	snprintf(d->snapshot.change.words, sizeof(d->snapshot.change.words), "%s",
		 device_aside_words(d));
}

static void caches_are_aside(struct device *d, int ret)
{
	if (ret < 0)
		note_why_not_aside(d);
	else
		ret = snapshot_change(d);
	if (ret < 0)
		snapshot_leave(d, ret);
}

/* For one that is not there no cache forgets anything: the node refuses. */
static bool wants_caches_aside(const struct snapshot_work *w)
{
	const struct backend_snapshots *ops = w->node->ops->snapshots;
	struct backend_snapshot s;

	for (unsigned i = 0; w->change.op == BACKEND_SNAPSHOT_APPLY && i < ops->nr(w->node); i++) {
		ops->get(w->node, i, &s);
		if (strcmp(s.id, w->name) == 0 || strcmp(s.name, w->name) == 0)
			return true;
	}
	return w->change.op == BACKEND_SNAPSHOT_CREATE;
}

static int snapshot_begin(struct device *d)
{
	struct snapshot_work *w = &d->snapshot;
	struct aside *a = &d->aside;
	bool applies = w->change.op == BACKEND_SNAPSHOT_APPLY;
	int ret;

	a->nr = a->cache_nr = 0;
	if (wants_caches_aside(w))
		a->cache_nr = backend_caches_above(d->backend, w->node, a->cache);
	if (a->cache_nr == 0)
		return snapshot_change(d);
	ret = device_aside_begin(d, applies ? BACKEND_CACHE_EMPTY : BACKEND_CACHE_YIELD,
				 caches_are_aside);
	if (ret < 0)
		note_why_not_aside(d);
	return ret;
}

void device_snapshot_hurry(struct device *d)
{
	if (d->snapshot.busy)
		device_aside_hurry(d);
}

/* ---- who has it open ---- */

/* By a helper. */
static void look_for_users(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);
	char names[DEVICE_ERROR_BYTES / 4], words[BACKEND_ERROR_BYTES - 40];
	enum block_users found = openers_find((int)d->info.dev_id, names, sizeof(names));

	if (found < BLOCK_USERS_UNKNOWN)
		return;
	openers_words(found, names, words, sizeof(words));
	snprintf(d->snapshot.change.words, sizeof(d->snapshot.change.words),
		 "%s (--force applies it all the same)", words);
	d->snapshot.err = -EBUSY;
}

/* While they were looked for, the device may have begun to stop. */
static void looked_for_users(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);
	struct snapshot_work *w = &d->snapshot;
	int ret = w->err;

	if (ret == 0 && (d->state != DEVICE_LIVE || d->stop_wanted)) {
		ret = -EBUSY;
		snprintf(w->change.words, sizeof(w->change.words), "the device is not live: %s",
			 device_state_name(d->state));
	}
	if (ret == 0)
		ret = snapshot_begin(d);
	if (ret < 0)
		snapshot_end(d, ret);
}

static int snapshot_check_live(const struct device *d, char *error, size_t error_bytes)
{
	if (d->state != DEVICE_LIVE || d->stop_wanted || ctl_cmd_busy(&d->cmd))
		snprintf(error, error_bytes, "the device is not live: %s",
			 device_state_name(d->state));
	else if (d->resize.busy)
		snprintf(error, error_bytes, "the device is being resized");
	else if (d->flush.busy)
		snprintf(error, error_bytes, "a stop of the device is being given up: try again");
	else if (d->snapshot.busy)
		snprintf(error, error_bytes, "a snapshot of the device is being changed already");
	else
		return 0;
	return -EBUSY;
}

static int refuse_long_name(struct snapshot_work *w, size_t bytes)
{
	snprintf(w->change.words, sizeof(w->change.words),
		 "the name has %zu bytes: at most %zu are possible", bytes, sizeof(w->name) - 1);
	return -ENAMETOOLONG;
}

int device_snapshot(struct device *d, const struct device_snapshot_wish *wish, char *error,
		    size_t error_bytes)
{
	struct snapshot_work *w = &d->snapshot;
	int ret = snapshot_check_live(d, error, error_bytes);

	if (ret < 0)
		return ret;
	memset(w, 0, sizeof(*w));
	w->node = backend_snapshots_node(d->backend, wish->node, error, error_bytes);
	if (!w->node)
		return -EOPNOTSUPP;
	ret = backend_above_ask(d->backend, w->node, wish->op, error, error_bytes);
	if (ret < 0)
		return ret;
	snprintf(w->name, sizeof(w->name), "%s", wish->name);
	w->change = (struct backend_snapshot_change){ .op = wish->op,
						      .name = w->name,
						      .reactor = d->host->ctl->reactor,
						      .done = snapshot_changed };
	/* Without helpers what is refused is known at once. */
	w->busy = true;
	w->in_call = !d->host->helpers;
	if (strlen(wish->name) >= sizeof(w->name))
		ret = refuse_long_name(w, strlen(wish->name));
	else if (wish->op == BACKEND_SNAPSHOT_APPLY && !wish->force)
		ret = device_help(d, look_for_users, looked_for_users);
	else
		ret = snapshot_begin(d);
	w->in_call = false;
	if (ret == 0 && !w->busy)
		ret = w->err;
	if (ret < 0)
		w->busy = false;
	if (ret < 0)
		snprintf(error, error_bytes, "%s",
			 w->change.words[0] ? w->change.words : errname(ret));
	return ret;
}

void device_snapshot_look(const struct device *d, struct device_snapshot_look *ret_look)
{
	const struct snapshot_work *w = &d->snapshot;

	*ret_look = (struct device_snapshot_look){
		.busy = w->busy,
		.op = w->change.op,
		.name = w->name,
		.done_permille = __atomic_load_n(&w->change.done_permille, __ATOMIC_RELAXED),
		.err = w->err,
		.words = w->change.words,
	};
}
