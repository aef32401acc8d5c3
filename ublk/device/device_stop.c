/*
 * The way down, from wherever the way up had come. Main thread.
 *
 *   FLUSHING  before a polite stop: what was acknowledged reaches its storage (device_flush.c)
 *   STOPPING  the driver finishes what is under way (the reactors go on serving), removes
 *             /dev/ublkbN, aborts every idle tag
 *   DRAINING  the reactors report that every tag is back, then give everything back
 *   DELETING  unmapped and closed (DEL_DEV waits for both), DEL_DEV
 *
 * Failure modes: somebody has the device open, or its storage fails (a polite stop is refused, in
 * words); a backend does not answer (at the deadline its I/Os are cancelled); a command hangs (told
 * at each deadline). A device that goes down without device_stop, because it failed or others
 * stopped it, has the deadline of its host.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "ublk/openers.h"

/* udev probes each new device; it lets go in far less. */
#define PROBE_RETRY_NS (50 * NS_PER_MS)
#define PROBE_OUTAGE_TIMEOUT_NS (3 * NS_PER_SEC)
/* A command that was interrupted or found no memory is sent again. */
#define CMD_RETRY_NS (100 * NS_PER_MS)
#define DEL_TRIES_MAX 100
#define DEL_TRIES_NOT_OURS 20
/* TRY_STOP_DEV tells at once when somebody has the device open, unless io-wq is slow. */
#define TRY_STOP_GRACE_NS (5 * NS_PER_SEC)

static bool polite(const struct device *d)
{
	return d->stop_wanted && !d->stop_force && !d->failed;
}

static void stop_late(struct timer *timer);

static void arm_deadline(struct device *d, uint64_t now_ns, uint64_t deadline_ns)
{
	d->stop_deadline_ns = deadline_ns;
	/* It may be armed: a polite stop becomes a forced one. timer_init would tear the heap. */
	d->deadline.fn = stop_late;
	reactor_timer_arm(d->host->ctl->reactor, &d->deadline, now_ns + deadline_ns);
}

/* Not by the reactor's clock: between two turns of the control loop it stands still. */
static void limit_stop(struct device *d, uint64_t deadline_ns)
{
	uint64_t now_ns = ring_clock_ns();

	d->retry_until_ns = now_ns + PROBE_OUTAGE_TIMEOUT_NS;
	arm_deadline(d, now_ns, deadline_ns);
}

/*
 * Nobody called device_stop, but it goes down: a step failed, or the driver aborts the tags of one
 * queue after another. Requests in flight may wait for ever, and the driver waits for them. Called
 * from a turn, so the reactor's clock is right.
 */
static void limit_unasked_stop(struct device *d)
{
	bool ends = d->failed || (d->state == DEVICE_LIVE && d->drained_nr > 0);

	if (ends && !d->stop_wanted && d->stop_deadline_ns == 0)
		arm_deadline(d, d->host->ctl->reactor->now_ns, d->host->stop_deadline_ns);
}

static void finish(struct device *d)
{
	struct reactor *home = d->host->ctl->reactor;

	/* First: a deadline that passes while the question is out would post to queues that are
	 * gone. */
	reactor_timer_cancel(home, &d->deadline);
	reactor_timer_cancel(home, &d->retry);
	d->finish_waits = ctl_cmd_busy(&d->ask) || device_shmem_busy(d);
	if (d->finish_waits)
		return;
	device_flush_note_loss(d);
	device_set_state(d, d->failed ? DEVICE_FAILED : DEVICE_GONE);
	device_event(d, d->failed ? DEVICE_EVENT_FAILED : DEVICE_EVENT_GONE);
}

void device_check_finish(struct device *d)
{
	if (d->finish_waits)
		finish(d);
}

static void del_done(struct ctl_cmd *cmd, int res);
static void del(struct device *d);

static void del_again(struct timer *timer)
{
	del(container_of(timer, struct device, retry));
}

static void del_later(struct device *d)
{
	struct reactor *home = d->host->ctl->reactor;

	timer_init(&d->retry, del_again);
	reactor_timer_arm(home, &d->retry, home->now_ns + CMD_RETRY_NS);
}

static void del(struct device *d)
{
	/* Those who had it open when it was stopped by force may stay for long: no waiting. */
	bool wait = !d->stop_force && !d->stopped_outside;

	/* A command that is still on its way would reach the next device of this number. */
	if (device_shmem_busy(d)) {
		del_later(d);
		return;
	}
	/* Of DEL_DEV_ASYNC the driver does not know which right on the node it needs: -EINVAL. */
	wait |= ctl_wants_path(d->info.flags);
	device_send(d, wait ? UBLK_U_CMD_DEL_DEV : UBLK_U_CMD_DEL_DEV_ASYNC, NULL, 0, del_done);
}

static void del_failed(struct device *d, int err)
{
	bool not_ours = err == -EACCES && ctl_wants_path(d->info.flags);

	/* udev may be about to give us the node again, after an event of its own. */
	if (++d->del_tries < (not_ours ? DEL_TRIES_NOT_OURS : DEL_TRIES_MAX)) {
		del_later(d);
		return;
	}
	/* UNTESTED: the simulated driver gives in before. */
	device_set_error(d, "DEL_DEV failed: %s", errname(err));
	log_error("device could not be deleted", "dev=%s id=%u error=%s%s", d->spec.name,
		  d->info.dev_id, errname(err),
		  not_ours ? " cure=\"root removes it: ublkctl gc --remove\"" : "");
	/* Nothing of it is ours: not one to be adopted later. */
	if (not_ours)
		d->added = false;
	finish(d);
}

static void del_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	/* DEL_DEV_ASYNC came after 6.8; the synchronous one waits for the last close. */
	if (res == -EOPNOTSUPP && cmd->request.cmd_op == UBLK_U_CMD_DEL_DEV_ASYNC) {
		device_send(d, UBLK_U_CMD_DEL_DEV, NULL, 0, del_done);
		return;
	}
	/* -ENODEV: somebody else deleted it; gone is gone. */
	if (res < 0 && res != -ENODEV) {
		del_failed(d, res);
		return;
	}
	d->added = false;
	finish(d);
}

/* What still refers to /dev/ublkcN keeps DEL_DEV waiting. */
static void close_cdev(struct device *d)
{
	for (unsigned i = 0; i < d->mapped_nr; i++)
		ring_unmap((void *)(uintptr_t)d->queues[i].setup.descs, d->descs_bytes);
	d->mapped_nr = 0;
	if (d->cdev_fd >= 0)
		ring_close(d->cdev_fd);
	d->cdev_fd = -1;
}

/* It could not be adopted, and nothing was done to it: its users go on waiting for a better try. */
static bool left_to_driver(const struct device *d)
{
	return d->adopting && !d->stop_wanted && d->attach_nr == 0;
}

void device_abandon(struct device *d)
{
	close_cdev(d);
	backend_abandon(d->backend);
}

static void delete (struct device *d)
{
	close_cdev(d);
	if (!d->added || left_to_driver(d)) {
		finish(d);
		return;
	}
	device_set_state(d, DEVICE_DELETING);
	del(d);
}

void device_queue_released(struct queue *q)
{
	struct device *d = q->setup.owner;

	d->released_nr++;
	device_go_down(d);
}

void device_check_drained(struct device *d)
{
	if (d->attach_nr == 0 || d->drained_nr < d->attach_nr)
		return;
	/* The driver aborted everything without being asked: its end was called from outside. */
	if (d->state == DEVICE_LIVE) {
		device_set_error(d, "the device was stopped by somebody else");
		log_error("device stopped from outside", "dev=%s id=%u", d->spec.name,
			  d->info.dev_id);
		d->failed = d->stopped_outside = true;
	}
	if (d->failed || d->stop_wanted)
		device_go_down(d);
}

void device_queue_drained(struct queue *q)
{
	struct device *d = q->setup.owner;

	d->drained_nr++;
	limit_unasked_stop(d);
	device_check_drained(d);
}

static void release_queues(struct device *d)
{
	device_set_state(d, DEVICE_DRAINING);
	for (unsigned i = 0; i < d->attach_nr; i++)
		queue_release(&d->queues[i]);
}

static void cancel_queues(struct device *d, bool cancel)
{
	/* Not behind a release: the queues are gone. */
	if (d->cancelled == cancel || d->state == DEVICE_DRAINING || d->state == DEVICE_DELETING)
		return;
	d->cancelled = cancel;
	for (unsigned i = 0; i < d->attach_nr; i++)
		queue_cancel(&d->queues[i], cancel);
}

void device_refuse_stop(struct device *d, const char *words)
{
	bool unserved = d->adopting && d->attach_nr == 0;

	d->error[0] = '\0';
	/* Somebody else was less polite: then it goes down as was wished. */
	if (!unserved && d->drained_nr == d->attach_nr) {
		d->stopped_outside = true;
		device_go_down(d);
		return;
	}
	device_set_error(d, "%s (--force stops it all the same)", words);
	d->stop_wanted = d->stop_sent = false;
	device_flush_undo(d);
	cancel_queues(d, false);
	reactor_timer_cancel(d->host->ctl->reactor, &d->deadline);
	d->stop_deadline_ns = 0;
	if (unserved) {
		d->failed = true;
		device_go_down(d);
		return;
	}
	if (d->adopting) {
		device_event(d, DEVICE_EVENT_STOP_REFUSED);
		d->error[0] = '\0';
		device_begin_serving(d);
		return;
	}
	device_set_state(d, DEVICE_LIVE);
	device_event(d, DEVICE_EVENT_STOP_REFUSED);
	d->error[0] = '\0';
}

static void refuse_for_users(struct device *d, enum block_users found, const char *names)
{
	char words[DEVICE_ERROR_BYTES - 64];

	openers_words(found, names, words, sizeof(words));
	device_refuse_stop(d, words);
}

static void stop_again(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, retry);

	d->stop_sent = d->waits_for_openers = false;
	device_go_down(d);
}

static bool driver_refuses(const struct device *d)
{
	return d->host->ctl->features & UBLK_F_SAFE_STOP_DEV;
}

/* What cannot be looked at stays so; but where the driver looks, it may have been a probe. */
static bool may_go_away(const struct device *d, enum block_users found)
{
	return found < BLOCK_USERS_UNKNOWN || (found == BLOCK_USERS_UNKNOWN && driver_refuses(d));
}

/* Somebody has the device open: wait for a probe of udev, refuse for anybody else. */
static void stop_is_busy(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, retry);
	struct reactor *home = d->host->ctl->reactor;
	char names[DEVICE_ERROR_BYTES / 2];
	enum block_users found = openers_find((int)d->info.dev_id, names, sizeof(names));

	d->waits_for_openers = may_go_away(d, found) && home->now_ns < d->retry_until_ns;
	if (d->waits_for_openers) {
		timer_init(&d->retry, stop_again);
		reactor_timer_arm(home, &d->retry, home->now_ns + PROBE_RETRY_NS);
		return;
	}
	refuse_for_users(d, found, names);
}

/* From the loop: whoever asked for the stop must not hear of its end before its call returns. */
static void stop_is_busy_soon(struct device *d)
{
	struct reactor *home = d->host->ctl->reactor;

	d->waits_for_openers = true;
	timer_init(&d->retry, stop_is_busy);
	reactor_timer_arm(home, &d->retry, home->now_ns);
}

/* As long as the driver has not aborted the tags there is no way on: ask until it does. */
static void stop_failed(struct device *d, const struct ctl_cmd *cmd, int err)
{
	struct reactor *home = d->host->ctl->reactor;

	log_limited(LOG_LEVEL_ERROR, "device could not be stopped, trying again",
		    "dev=%s id=%u cmd=%s error=%s", d->spec.name, d->info.dev_id,
		    ctl_cmd_name(cmd->request.cmd_op), errname(err));
	timer_init(&d->retry, stop_again);
	reactor_timer_arm(home, &d->retry, home->now_ns + CMD_RETRY_NS);
}

static void stop_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (res == -EBUSY && polite(d)) {
		stop_is_busy_soon(d);
		return;
	}
	/*
	 * Became a forced stop meanwhile: ask again, without manners. TRY_STOP_DEV says ENODEV when
	 * there is no disk (any more), and aborts nothing: STOP_DEV does.
	 */
	if (res == -ENODEV && cmd->request.cmd_op == UBLK_U_CMD_TRY_STOP_DEV)
		d->has_disk = d->stop_sent = false;
	else if (res == -EBUSY) {
		d->stop_sent = false;
	} else if (res < 0 && !(res == -ENODEV && d->attach_nr == 0)) {
		/* An unserved device can have been deleted by others: then it is stopped. */
		stop_failed(d, cmd, res);
		return;
	}
	device_go_down(d);
}

/* True when a driver without TRY_STOP_DEV must not be asked because of openers. */
static bool refused_by_us(struct device *d)
{
	char names[DEVICE_ERROR_BYTES / 2];
	enum block_users found;

	if (!polite(d) || !d->has_disk || driver_refuses(d))
		return false;
	found = openers_find((int)d->info.dev_id, names, sizeof(names));
	/* Besides us only root can open an unprivileged device: whose processes we never see. */
	if (found == BLOCK_USERS_UNKNOWN && ctl_wants_path(d->info.flags))
		return false;
	return found != BLOCK_USERS_NONE;
}

static void stop(struct device *d)
{
	bool try = polite(d) && d->has_disk && driver_refuses(d);

	if (d->state == DEVICE_FLUSHING)
		limit_stop(d, d->stop_deadline_ns);
	device_set_state(d, DEVICE_STOPPING);
	d->stop_sent = true;
	if (refused_by_us(d))
		stop_is_busy_soon(d);
	else
		device_send(d, try ? UBLK_U_CMD_TRY_STOP_DEV : UBLK_U_CMD_STOP_DEV, NULL, 0,
			    stop_done);
}

/* Of an adopted device that is to be stopped before it was served: who has it open is asked. */
static bool has_unserved_disk(const struct device *d)
{
	return d->adopting && d->stop_wanted && d->has_disk && d->attach_nr == 0 && !d->stop_sent;
}

void device_go_down(struct device *d)
{
	limit_unasked_stop(d);
	/* Each of these ends in a callback that comes back here. */
	if (ctl_cmd_busy(&d->cmd) || d->attached_nr < d->attach_nr || d->retry.armed ||
	    d->grows_to_driver)
		return;
	/* All is given back; only the answer to a question is awaited (device_check_finish). */
	if (d->finish_waits || device_flush_first(d))
		return;
	if (d->drained_nr < d->attach_nr || has_unserved_disk(d)) {
		if (!d->stop_sent)
			stop(d);
		return;
	}
	/* The queues owe an answer about requests that have ended by now: device_resize.c. */
	device_cache_cancel(d);
	device_snapshot_hurry(d);
	device_flush_hurry(d);
	if (d->resize.busy || d->snapshot.busy || d->cache.busy || d->flush.busy)
		return;
	if (d->state != DEVICE_DRAINING && d->attach_nr > 0) {
		release_queues(d);
		return;
	}
	if (d->released_nr == d->attach_nr && d->state != DEVICE_DELETING)
		delete (d);
}

/*
 * A polite stop fails no I/O of a device that stays. Waiting for openers to go: they are refused
 * now. TRY_STOP_DEV under way: who has it open is told at once, so that after a grace it must have
 * been accepted. True when the deadline is settled.
 */
static bool stop_late_politely(struct device *d)
{
	struct reactor *home = d->host->ctl->reactor;
	char names[DEVICE_ERROR_BYTES / 2];
	enum block_users found;

	if (!polite(d) || d->state != DEVICE_STOPPING)
		return false;
	if (d->waits_for_openers) {
		reactor_timer_cancel(home, &d->retry);
		d->waits_for_openers = false;
		found = openers_find((int)d->info.dev_id, names, sizeof(names));
		refuse_for_users(d, found, names);
		return true;
	}
	if (!ctl_cmd_busy(&d->cmd) || home->now_ns >= d->cmd.sent_ns + TRY_STOP_GRACE_NS)
		return false;
	reactor_timer_arm(home, &d->deadline, d->cmd.sent_ns + TRY_STOP_GRACE_NS);
	return true;
}

static void stop_late(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, deadline);

	if (stop_late_politely(d))
		return;
	if (d->state == DEVICE_FLUSHING) {
		device_set_error(d, "the stop waits until what was written is in its storage, and "
				    "goes on (--force stops it without)");
		device_event(d, DEVICE_EVENT_LATE);
		return;
	}
	log_warn("stop is over its deadline, cancelling the backend's I/O", "dev=%s id=%u state=%s",
		 d->spec.name, d->info.dev_id, device_state_name(d->state));
	cancel_queues(d, true);
	device_set_error(d, "the stop took longer than %llu ms (state: %s)",
			 (unsigned long long)(d->stop_deadline_ns / NS_PER_MS),
			 device_state_name(d->state));
	device_event(d, DEVICE_EVENT_LATE);
}

/* Waits that the way up has armed would keep the way down waiting. */
static void end_retry(struct device *d)
{
	struct reactor *home = d->host->ctl->reactor;

	if (!d->retry.armed || d->state == DEVICE_DELETING)
		return;
	/* Served already, it waits for its node: live it is stopped as any other. */
	if (d->state == DEVICE_STARTING) {
		reactor_timer_arm(home, &d->retry, home->now_ns);
		return;
	}
	reactor_timer_cancel(home, &d->retry);
	d->waits_for_openers = false;
	if (d->state == DEVICE_STOPPING)
		d->stop_sent = false;
}

int device_stop(struct device *d, bool force, uint64_t deadline_ns)
{
	if (d->state == DEVICE_GONE || d->state == DEVICE_FAILED)
		return -EALREADY;
	if (d->stop_wanted && (d->stop_force || !force))
		return -EALREADY;
	d->stop_wanted = true;
	d->stop_force = force;
	limit_stop(d, deadline_ns);
	end_retry(d);
	device_go_down(d);
	return 0;
}
