/*
 * The way up of a device that the driver has kept since its server died. Main thread.
 *
 *   RECOVERING  GET_PARAMS: the limits are those of its first start, whatever we would choose now
 *               START_USER_RECOVERY, asked again until the driver has let go of the dead server
 *   OPENING     as a new device (device_start.c), with END_USER_RECOVERY in the place of START_DEV
 *
 * Failure modes: the device wants of its server what ublkd does not do, the backend is not what it
 * was, or cannot do what the device promises: refused in words before the driver is asked for
 * anything. The driver does not let go in time, or refuses. In all these the device stays in the
 * driver as it is: its users wait, nothing is lost.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/errname.h"
#include "base/util.h"
#include "ublk/device/params.h"
#include "ublk/partition_scan.h"
#include "ublk/servable.h"
#include "storage/resize.h"

/*
 * A server dies within milliseconds; its I/O, which the driver waits for, may take its time. Linux
 * 6.12 finds out about the death of a server that had all requests of a queue only by their timeout
 * (ublk_timeout), after 30 s and what the block layer rounds that up by.
 */
#define RECOVER_RETRY_NS NS_PER_MS
#define RECOVER_OUTAGE_TIMEOUT_NS (60 * NS_PER_SEC)

static void start_recovery(struct timer *timer);

static bool try_again(struct device *d)
{
	struct reactor *home = d->host->ctl->reactor;

	if (home->now_ns >= d->retry_until_ns)
		return false;
	timer_init(&d->retry, start_recovery);
	reactor_timer_arm(home, &d->retry, home->now_ns + RECOVER_RETRY_NS);
	return true;
}

static void recovery_started(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (device_turned_back(d))
		return;
	if (res == -EBUSY && try_again(d))
		return;
	if (res < 0)
		device_fail_cmd(d, cmd, res);
	else
		device_open_driver(d);
}

static void start_recovery(struct timer *timer)
{
	struct device *d = container_of(timer, struct device, retry);

	if (!device_turned_back(d))
		device_send(d, UBLK_U_CMD_START_USER_RECOVERY, NULL, 0, recovery_started);
}

static void fail_recovery(struct device *d, const char *what, const char *words)
{
	device_set_error(d, "%s: %s", what, words);
	d->failed = true;
	device_go_down(d);
}

static void size_is_settled(struct device *d)
{
	char buf[PARAMS_WORDS_BYTES];
	const char *words = params_incompatible(&d->params, &d->spec, &d->backend->limits, buf);

	if (words) {
		fail_recovery(d, "the backend no longer fits the device", words);
		return;
	}
	/* The backend may have grown: the device has not. */
	backend_set_size(d->backend, d->params.basic.dev_sectors << 9);
	start_recovery(&d->retry);
}

static void grown_to_driver(struct device *d)
{
	d->grows_to_driver = false;
	if (device_turned_back(d))
		return;
	if (d->resize.ret < 0) {
		fail_recovery(d, "the backend is smaller than the device", d->resize.words);
		return;
	}
	backend_set_size(d->backend, d->resize.to_bytes);
	size_is_settled(d);
}

/*
 * Its daemon died between UPDATE_SIZE and the note of it: the driver knows best, and the backend
 * had grown before the driver was told. By a helper: what there is without being asked to grow.
 */
static void find_own_size(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);
	char words[BACKEND_ERROR_BYTES];
	uint64_t now_bytes;

	d->resize.to_bytes = d->params.basic.dev_sectors << 9;
	d->resize.ret = backend_size_now(d->backend, &now_bytes, words, sizeof(words));
	if (d->resize.ret == 0)
		d->resize.to_bytes = MIN(now_bytes, d->resize.to_bytes);
}

/* A file that is really shorter is not to be filled up. */
static void own_size_found(struct helper_job *job)
{
	struct device *d = container_of(job, struct device, job);

	if (d->resize.ret == 0)
		grown_to_driver(d);
	else
		device_grow(d, d->resize.to_bytes, grown_to_driver);
}

static void params_known(struct ctl_cmd *cmd, int res)
{
	struct device *d = container_of(cmd, struct device, cmd);

	if (device_turned_back(d))
		return;
	if (res < 0) {
		device_fail_cmd(d, cmd, res);
		return;
	}
	if (d->params.basic.dev_sectors << 9 <= backend_size(d->backend)) {
		size_is_settled(d);
		return;
	}
	d->grows_to_driver = true;
	res = device_help(d, find_own_size, own_size_found);
	if (res < 0) {
		d->grows_to_driver = false;
		fail_recovery(d, "no thread to ask the backend", errname(res));
	}
}

static void go_up_again(struct device *d)
{
	d->retry_until_ns = ring_clock_ns() + RECOVER_OUTAGE_TIMEOUT_NS;
	d->params.len = sizeof(d->params);
	device_set_state(d, DEVICE_RECOVERING);
	device_send(d, UBLK_U_CMD_GET_PARAMS, &d->params, sizeof(d->params), params_known);
}

static enum recovery recovery_of(uint64_t flags)
{
	if (flags & UBLK_F_USER_RECOVERY_REISSUE)
		return RECOVERY_REISSUE;
	if (flags & UBLK_F_USER_RECOVERY_FAIL_IO)
		return RECOVERY_FAIL;
	return flags & UBLK_F_USER_RECOVERY ? RECOVERY_HOLD : RECOVERY_NONE;
}

void device_spec_take_over(struct device_spec *spec, const struct device_past *past)
{
	const struct ublksrv_ctrl_dev_info *info = &past->info;
	struct data_choice choice;

	data_path_of_flags(&choice, info->flags);
	spec->id = (int64_t)info->dev_id;
	spec->queues = info->nr_hw_queues;
	spec->depth = info->queue_depth;
	spec->max_io_bytes = info->max_io_buf_bytes;
	spec->data_path = choice.path;
	spec->batch = choice.batch ? BATCH_ON : BATCH_OFF;
	spec->has_shmem = choice.shmem;
	spec->recovery = recovery_of(info->flags);
	spec->no_partition_scan = !partition_scan_of_flags(info->flags);
	spec->mark = info->ublksrv_flags;
}

static int check_backend(const struct device *d, const struct device_past *past, char *error,
			 size_t error_bytes)
{
	char identity[BACKEND_IDENTITY_BYTES];
	uint64_t size_bytes = d->backend->limits.size_bytes;

	backend_identity(d->backend, identity);
	if (strcmp(identity, past->identity) != 0) {
		snprintf(error, error_bytes,
			 "the backend is not the one that was served: it is %s, it was %s; bring "
			 "that back and reload, or give the device up with ublkctl del",
			 identity, past->identity);
		return -ESTALE;
	}
	if (size_bytes < past->size_bytes) {
		snprintf(
			error, error_bytes,
			"the backend has shrunk from %llu to %llu bytes; make it whole and reload, "
			"or give the device up with ublkctl del",
			(unsigned long long)past->size_bytes, (unsigned long long)size_bytes);
		return -ESTALE;
	}
	return 0;
}

static int check_flags(const struct device_past *past, char *error, size_t error_bytes)
{
	char words[SERVABLE_ERROR_BYTES];
	int ret = servable_check(past->info.flags, words);

	if (ret < 0)
		snprintf(error, error_bytes, "%s", words);
	return ret;
}

static struct device *adopt(struct device *d, const struct device_past *past)
{
	d->info = past->info;
	d->added = d->has_disk = d->adopting = d->was_adopted = true;
	return d;
}

int device_recover(struct device **ret_device, const struct device_host *host,
		   const struct device_spec *spec, const struct device_past *past, void *owner,
		   char *error, size_t error_bytes)
{
	struct device_spec same = *spec;
	struct device *d = NULL;
	int ret = check_flags(past, error, error_bytes);

	if (ret < 0)
		return ret;
	device_spec_take_over(&same, past);
	ret = device_create(&d, host, &same, owner, error, error_bytes);
	if (ret == 0)
		ret = device_take_opened(d, error, error_bytes);
	if (ret == 0)
		ret = check_backend(d, past, error, error_bytes);
	if (ret < 0) {
		device_free_unstarted(d);
		return ret;
	}
	*ret_device = adopt(d, past);
	go_up_again(d);
	return 0;
}

int device_discard(struct device **ret_device, const struct device_host *host,
		   const struct device_spec *spec, const struct device_past *past, void *owner,
		   char *error, size_t error_bytes)
{
	struct device_spec same = *spec;
	struct device *d;
	int ret;

	device_spec_take_over(&same, past);
	ret = device_create(&d, host, &same, owner, error, error_bytes);
	if (ret < 0)
		return ret;
	*ret_device = adopt(d, past);
	device_set_state(d, DEVICE_RECOVERING);
	return 0;
}
