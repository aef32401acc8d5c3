/*
 * A live device becomes larger or smaller, while it goes on serving. Main thread, but for what the
 * backend does: it may block, so a helper does it.
 *
 *   growing    the backend makes room -> requests up to the new end are taken -> UPDATE_SIZE
 *   shrinking  UPDATE_SIZE -> requests beyond the new end are refused (EIO) -> the queues say that
 *              the backend has none of them any more -> the backend gives the rest back
 *
 * So at no moment the block device is larger than what is behind it, and nothing is cut off under a
 * request. Failure modes: whatever cannot be done is refused in words before anything has changed;
 * UPDATE_SIZE fails: the size stays as it was (a file that has grown stays longer); data written
 * while a polite shrink was on its way: the device is smaller, but nothing is thrown away; a
 * backend that does not answer: the device is smaller, the rest is given back when it answers. A
 * stop goes on at once, and waits at its end for what is under way here.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/errname.h"
#include "base/util.h"
#include "storage/life.h"
#include "storage/resize.h"
#include "ublk/openers.h"

/* An answer to whoever asks, or of the end. */
struct answer {
	char *text;
	size_t bytes;
};

static int refuse(const struct answer *a, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(const struct answer *a, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->text, a->bytes, fmt, ap);
	va_end(ap);
	return err;
}

static void end(struct device *d, int err)
{
	d->resize.busy = false;
	/* -EALREADY: the size that the backend has by itself is the one that the device has. */
	d->resize.err = err == -EALREADY ? 0 : err;
	if (d->resize.in_call)
		return;
	device_event(d, DEVICE_EVENT_RESIZED);
	if (d->stop_wanted || d->failed)
		device_go_down(d);
	else
		device_follow_again(d);
}

/* ---- shrinking: after the driver has agreed ---- */

/* Polite: what was looked for before may have been written since. */
static bool may_throw_away(struct device *d)
{
	const struct resize *r = &d->resize;

	return r->force || backend_usage(d->backend, r->to_bytes, r->from_bytes) == BACKEND_UNUSED;
}

/* By a helper. */
static void resize_trim(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);
	struct resize *r = &d->resize;

	if (may_throw_away(d))
		backend_shrink(d->backend, r->to_bytes, r->from_bytes);
	else
		snprintf(r->words, sizeof(r->words),
			 "data was written beyond the new end meanwhile: it is kept below, and "
			 "there again when the device grows");
}

static void trimmed(struct helper_job *job)
{
	end(container_of(job, struct device, job), 0);
}

void device_queue_fenced(struct queue *q)
{
	struct device *d = q->setup.owner;
	struct resize *r = &d->resize;

	if (++r->fenced_nr < d->attach_nr)
		return;
	if (device_help(d, resize_trim, trimmed) < 0) {
		snprintf(r->words, sizeof(r->words),
			 "what is beyond the new end is kept below: no thread to give it back");
		end(d, 0);
	}
}

static void shrunk(struct device *d)
{
	d->resize.fenced_nr = 0;
	backend_set_size(d->backend, d->resize.to_bytes);
	for (unsigned i = 0; i < d->attach_nr; i++)
		queue_fence(&d->queues[i], d->resize.to_bytes);
}

/* ---- both ---- */

static void update_failed(struct device *d, int err)
{
	const char *words = ctl_explain(UBLK_U_CMD_UPDATE_SIZE, err);

	backend_set_size(d->backend, d->resize.from_bytes);
	snprintf(d->resize.words, sizeof(d->resize.words),
		 "UPDATE_SIZE failed: %s%s%s; the device keeps its size", errname(err),
		 *words ? ": " : "", words);
	end(d, err);
}

static void update_done(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (res < 0) {
		update_failed(d, res);
		return;
	}
	d->params.basic.dev_sectors = d->resize.to_bytes >> 9;
	if (d->resize.to_bytes < d->resize.from_bytes)
		shrunk(d);
	else
		end(d, 0);
}

static void update(struct device *d)
{
	uint64_t size_bytes = d->resize.to_bytes;
	struct ctl_request request = {
		.cmd_op = UBLK_U_CMD_UPDATE_SIZE,
		.dev_id = d->info.dev_id,
		.queue_id = -1,
		.data = size_bytes >> 9,
		.with_path = device_wants_path(d, UBLK_U_CMD_UPDATE_SIZE),
	};

	if (size_bytes > d->resize.from_bytes)
		backend_set_size(d->backend, size_bytes);
	ctl_cmd_send(&d->cmd, &request, update_done);
}

/* ---- room in the backend ---- */

static void device_grown(void *arg, const struct backend_life_end *grown)
{
	struct device *d = arg;

	d->resize.ret = grown->ret;
	if (grown->ret < 0)
		snprintf(d->resize.words, sizeof(d->resize.words), "%s", grown->words);
	d->resize.grown(d);
}

/* The process is about to end. */
static void device_grow_dropped(void *arg)
{
	(void)arg;
}

void device_grow(struct device *d, uint64_t size_bytes, void (*done)(struct device *d))
{
	const struct backend_home home = { .reactor = d->host->ctl->reactor,
					   .helpers = d->host->helpers };
	const struct backend_life_owner owner = { .done = device_grown,
						  .drop = device_grow_dropped,
						  .arg = d };
	struct backend_life *life;
	int ret;

	d->resize.grown = done;
	ret = backend_grow_begin(&life, &home, d->backend, size_bytes, &owner);
	if (ret < 0)
		device_grown(d, &(struct backend_life_end){ .ret = ret, .words = errname(ret) });
}

/* ---- what is refused ---- */

static int check_device(const struct device *d, const struct answer *a)
{
	if (d->resize.busy)
		return refuse(a, -EBUSY, "the device is being resized already");
	if (d->snapshot.busy)
		return refuse(a, -EBUSY, "a snapshot of the device is being changed");
	if (d->state != DEVICE_LIVE || d->stop_wanted || ctl_cmd_busy(&d->cmd))
		return refuse(a, -EBUSY, "the device is not live: %s", device_state_name(d->state));
	if (d->backend->limits.caps & BACKEND_CAP_READ_ONLY)
		return refuse(a, -EROFS, "a read-only device keeps its size");
	if (!(d->host->ctl->features & UBLK_F_UPDATE_SIZE))
		return refuse(a, -EOPNOTSUPP,
			      "the kernel's ublk driver cannot resize a live device (UPDATE_SIZE, "
			      "Linux 6.16): stop the device and start it with the new size");
	if (!backend_can_resize(d->backend))
		return refuse(a, -EOPNOTSUPP,
			      "the backend %s cannot change its size: stop the device and start it "
			      "with the new size",
			      d->stack);
	return 0;
}

/* 0 becomes what the backend has by itself. */
static int find_size(struct device *d, uint64_t *size_bytes, const struct answer *a)
{
	char has[32], is[32];
	int ret;

	if (*size_bytes)
		return 0;
	ret = backend_size_now(d->backend, size_bytes, a->text, a->bytes);
	if (ret < 0 || *size_bytes >= backend_size(d->backend))
		return ret;
	return refuse(a, -ENOSPC,
		      "what is below has only %s, less than the device's %s: give a size to make "
		      "the device smaller",
		      option_format_size(*size_bytes, has, sizeof(has)),
		      option_format_size(backend_size(d->backend), is, sizeof(is)));
}

static int check_size(const struct device *d, uint64_t size_bytes, const struct answer *a)
{
	uint32_t block_bytes = d->spec.logical_block_bytes;

	if (size_bytes < block_bytes || size_bytes % block_bytes != 0)
		return refuse(a, -EINVAL, "%llu bytes are not a multiple of block_size: %u",
			      (unsigned long long)size_bytes, block_bytes);
	if (size_bytes > INT64_MAX)
		return refuse(a, -EFBIG, "%llu bytes are more than a block device can have",
			      (unsigned long long)size_bytes);
	if (size_bytes == backend_size(d->backend))
		return -EALREADY;
	return backend_check_size(d->backend, size_bytes, a->text, a->bytes);
}

static int check_users(const struct device *d, const struct answer *a)
{
	char names[DEVICE_ERROR_BYTES / 2], words[DEVICE_ERROR_BYTES - 64];
	enum block_users found = openers_find((int)d->info.dev_id, names, sizeof(names));

	if (found < BLOCK_USERS_UNKNOWN)
		return 0;
	openers_words(found, names, words, sizeof(words));
	return refuse(a, -EBUSY, "%s (--force makes it smaller all the same)", words);
}

static int check_shrink(struct device *d, uint64_t size_bytes, const struct answer *a)
{
	char size[32];
	int ret = check_users(d, a);

	if (ret < 0)
		return ret;
	option_format_size(size_bytes, size, sizeof(size));
	switch (backend_usage(d->backend, size_bytes, backend_size(d->backend))) {
	case BACKEND_UNUSED:
		return 0;
	case BACKEND_USED:
		return refuse(a, -ENOTEMPTY, "there is data beyond %s (--force throws it away)",
			      size);
	case BACKEND_USAGE_UNKNOWN:
		break;
	}
	return refuse(a, -ENOTEMPTY,
		      "whether there is data beyond %s cannot be told (--force makes it smaller "
		      "all the same)",
		      size);
}

/* By a helper: all that must be known before the backend makes room or the driver is asked. */
static void resize_prepare(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);
	struct resize *r = &d->resize;
	struct answer a = { r->words, sizeof(r->words) };

	r->ret = find_size(d, &r->to_bytes, &a);
	if (r->ret == 0)
		r->ret = check_size(d, r->to_bytes, &a);
	if (r->ret == 0 && r->to_bytes < r->from_bytes && !r->force)
		r->ret = check_shrink(d, r->to_bytes, &a);
}

/* While the backend was asked, the device may have begun to stop. */
static void resize_room_made(struct device *d)
{
	struct resize *r = &d->resize;

	if (r->ret == 0 && (d->state != DEVICE_LIVE || d->stop_wanted || ctl_cmd_busy(&d->cmd))) {
		r->ret = -EBUSY;
		snprintf(r->words, sizeof(r->words), "the device is not live: %s",
			 device_state_name(d->state));
	}
	if (r->ret == 0)
		update(d);
	else
		end(d, r->ret);
}

static void resize_prepared(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);

	if (d->resize.ret == 0 && d->resize.to_bytes > d->resize.from_bytes)
		device_grow(d, d->resize.to_bytes, resize_room_made);
	else
		resize_room_made(d);
}

static void begin(struct device *d, uint64_t size_bytes, bool force)
{
	d->resize = (struct resize){
		.busy = true,
		.force = force,
		.from_bytes = backend_size(d->backend),
		.to_bytes = size_bytes,
	};
}

int device_resize(struct device *d, uint64_t size_bytes, bool force, char *error,
		  size_t error_bytes)
{
	struct answer a = { error, error_bytes };
	int ret = check_device(d, &a);

	if (ret == 0 && size_bytes)
		ret = check_size(d, size_bytes, &a);
	if (ret < 0)
		return ret;
	begin(d, size_bytes, force);
	/* Without helpers what is refused is known at once. */
	d->resize.in_call = !d->host->helpers;
	ret = device_help(d, resize_prepare, resize_prepared);
	d->resize.in_call = false;
	if (ret < 0) {
		d->resize.busy = false;
		return refuse(&a, ret, "no thread to ask the backend: %s", errname(ret));
	}
	if (!d->host->helpers && !d->resize.busy)
		return refuse(&a, d->resize.ret, "%s", d->resize.words);
	return 0;
}

void device_resized(const struct device *d, struct device_resized *ret_resized)
{
	const struct resize *r = &d->resize;

	*ret_resized = (struct device_resized){
		.err = r->err,
		.from_bytes = r->from_bytes,
		.to_bytes = r->to_bytes,
		.words = r->words,
	};
}
