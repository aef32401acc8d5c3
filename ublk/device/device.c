/*
 * A block device as the main thread sees it: creation, what others ask of it, the end. The way up
 * is in device_start.c, the way down in device_stop.c.
 */
#include "ublk/device/device.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/metadata.h"
#include "ublk/device/device_internal.h"
#include "ublk/device/params.h"
#include "ublk/partition_scan.h"
#include "ublk/queue/tag_io.h"
#include "ublk/shmem.h"
#include "ublk/unprivileged.h"

const char *device_state_name(enum device_state state)
{
	static const char *const name[DEVICE_STATE_NR] = {
		[DEVICE_ADDING] = "adding",
		[DEVICE_PARAMS] = "params",
		[DEVICE_OPENING] = "opening",
		[DEVICE_PLACING] = "placing",
		[DEVICE_ATTACHING] = "attaching",
		[DEVICE_STARTING] = "starting",
		[DEVICE_RECOVERING] = "recovering",
		[DEVICE_LIVE] = "live",
		[DEVICE_FLUSHING] = "flushing",
		[DEVICE_STOPPING] = "stopping",
		[DEVICE_DRAINING] = "draining",
		[DEVICE_DELETING] = "deleting",
		[DEVICE_GONE] = "gone",
		[DEVICE_FAILED] = "failed",
	};

	return state < DEVICE_STATE_NR ? name[state] : "?";
}

void device_set_state(struct device *d, enum device_state state)
{
	log_debug("device state", "dev=%s id=%d from=%s to=%s", d->spec.name, (int)d->info.dev_id,
		  device_state_name(d->state), device_state_name(state));
	d->state = state;
}

void device_set_error(struct device *d, const char *fmt, ...)
{
	va_list ap;

	if (d->error[0] != '\0')
		return;
	va_start(ap, fmt);
	vsnprintf(d->error, sizeof(d->error), fmt, ap);
	va_end(ap);
}

int device_help(struct device *d, void (*work)(struct helper_job *job),
		void (*done)(struct helper_job *job))
{
	d->job = (struct helper_job){ .work = work, .done = done };
	if (d->host->helpers)
		return helper_start(d->host->helpers, &d->job);
	work(&d->job);
	done(&d->job);
	return 0;
}

void device_event(struct device *d, enum device_event event)
{
	d->host->event(d, event, d->host->arg);
}

void device_open_params(const struct device_spec *spec, const struct device_past *past,
			struct backend_open_params *ret_open_params)
{
	struct device_spec same = *spec;

	if (past)
		device_spec_take_over(&same, past);
	*ret_open_params = (struct backend_open_params){
		.logical_block_bytes = same.logical_block_bytes,
		.max_io_bytes = same.max_io_bytes,
		.queue_nr = same.queues,
		.depth = same.depth,
		.read_only = same.read_only,
		.size_bytes = past ? past->size_bytes : 0,
	};
}

/* UBLK_F_* that a device of this daemon can have. */
static uint64_t device_features(const struct device *d)
{
	uint64_t features = d->host->ctl->features;

	return d->host->ctl->unprivileged ? unprivileged_features(features) : features;
}

/* What is not in shared memory goes by user_copy: shmem.h. */
static int choose_shmem(struct device *d, char *error, size_t error_bytes)
{
	char words[SHMEM_ERROR_BYTES];
	int ret = shmem_check(d->spec.data_path, d->spec.backend, device_features(d), words);

	if (ret < 0) {
		snprintf(error, error_bytes, "%s", words);
		return ret;
	}
	d->data.path = DATA_PATH_USER_COPY;
	d->data.shmem = true;
	ret = device_shmem_init(d);
	if (ret < 0)
		snprintf(error, error_bytes, "shared memory: %s", errname(ret));
	return ret;
}

static int choose_data_path(struct device *d, char *error, size_t error_bytes)
{
	char words[DATA_PATH_ERROR_BYTES];
	int ret = data_path_choose(&d->data, d->spec.data_path, d->spec.batch, d->spec.backend,
				   device_features(d), words);

	if (ret < 0) {
		snprintf(error, error_bytes, "%s", words);
		return ret;
	}
	return d->spec.has_shmem ? choose_shmem(d, error, error_bytes) : 0;
}

_Static_assert(RECOVERY_ERROR_BYTES >= PARTITION_SCAN_ERROR_BYTES, "one buffer for either");

/* What the backend has no say in. */
static int check_driver(const struct device *d, char *error, size_t error_bytes)
{
	char words[RECOVERY_ERROR_BYTES];
	uint64_t features = device_features(d);
	int ret = recovery_check(d->spec.recovery, features, words);

	/* Of an unprivileged device no driver scans them. */
	if (ret == 0 && !d->host->ctl->unprivileged)
		ret = partition_scan_check(!d->spec.no_partition_scan, features, words);
	if (ret < 0)
		snprintf(error, error_bytes, "%s", words);
	return ret;
}

static int device_init(struct device *d, char *error, size_t error_bytes)
{
	int ret = check_driver(d, error, error_bytes);

	if (ret < 0)
		return ret;
	d->queues = calloc(d->spec.queues, sizeof(*d->queues));
	if (!d->queues || !d->spec.name) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	ret = ctl_cmd_init(&d->cmd, d->host->ctl);
	if (ret == 0)
		ret = ctl_cmd_init(&d->ask, d->host->ctl);
	if (ret < 0) {
		snprintf(error, error_bytes, "too many devices");
		return ret;
	}
	return 0;
}

int device_take_opened(struct device *d, char *error, size_t error_bytes)
{
	d->backend = d->spec.opened;
	d->errors = io_errors_create(backend_node_nr(d->backend));
	if (!d->errors || device_follow_begin(d) < 0) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	return choose_data_path(d, error, error_bytes);
}

void device_free_unstarted(struct device *d)
{
	if (d) {
		device_follow_end(d);
		d->backend = NULL;
	}
	device_free(d);
}

int device_create(struct device **ret_device, const struct device_host *host,
		  const struct device_spec *spec, void *owner, char *error, size_t error_bytes)
{
	struct device *d = calloc(1, sizeof(*d));
	int ret;

	if (!d) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	d->host = host;
	d->spec = *spec;
	d->spec.name = strdup(spec->name);
	backend_spec_text(spec->backend, d->stack);
	d->owner = owner;
	d->cdev_fd = -1;
	d->info.dev_id = (uint32_t)spec->id;
	d->state = DEVICE_FAILED; /* until it is on its way, it may be freed */
	ret = device_init(d, error, error_bytes);
	if (ret < 0) {
		device_free(d);
		return ret;
	}
	*ret_device = d;
	return 0;
}

/* The backend may serve fewer queues than are configured: an NBD server of one client. */
static void limit_queues(struct device *d)
{
	uint32_t wanted = d->spec.queues;

	d->spec.queues = params_queues(wanted, &d->backend->limits);
	if (d->spec.queues < wanted)
		log_info("device has fewer queues than configured",
			 "dev=%s queues=%u wanted=%u reason=\"the backend serves no more\"",
			 d->spec.name, d->spec.queues, wanted);
}

int device_start(struct device **ret_device, const struct device_host *host,
		 const struct device_spec *spec, void *owner, char *error, size_t error_bytes)
{
	struct device *d;
	int ret = device_create(&d, host, spec, owner, error, error_bytes);

	if (ret < 0)
		return ret;
	ret = device_take_opened(d, error, error_bytes);
	if (ret < 0) {
		device_free_unstarted(d);
		return ret;
	}
	limit_queues(d);
	*ret_device = d;
	device_go_up(d);
	return 0;
}

bool device_id_taken(const struct device *d)
{
	return d->id_taken;
}

bool device_kept(const struct device *d)
{
	return d->state == DEVICE_FAILED && d->added;
}

struct backend_device *device_take_backend(struct device *d)
{
	struct backend_device *backend = d->backend;

	ASSERT(d->state == DEVICE_GONE || d->state == DEVICE_FAILED);
	device_follow_end(d);
	d->backend = NULL;
	return backend;
}

void device_free(struct device *d)
{
	if (!d)
		return;
	ASSERT(d->state == DEVICE_GONE || d->state == DEVICE_FAILED);
	ctl_cmd_fini(&d->cmd);
	ctl_cmd_fini(&d->ask);
	device_shmem_fini(d);
	device_follow_end(d);
	backend_close(d->backend);
	free(d->errors);
	free(d->queues);
	free((char *)d->spec.name);
	free(d);
}

bool device_wants_path(const struct device *d, uint32_t cmd_op)
{
	/* No node is there yet. */
	return ctl_wants_path(d->info.flags) && cmd_op != UBLK_U_CMD_ADD_DEV;
}

void device_send(struct device *d, uint32_t cmd_op, void *buf, uint16_t buf_bytes, ctl_cmd_fn *done)
{
	struct ctl_request request = {
		.cmd_op = cmd_op,
		.dev_id = d->info.dev_id,
		.queue_id = -1,
		.buf = buf,
		.buf_bytes = buf_bytes,
		.with_path = device_wants_path(d, cmd_op),
	};

	ctl_cmd_send(&d->cmd, &request, done);
}

void *device_owner(const struct device *d)
{
	return d->owner;
}

const char *device_name(const struct device *d)
{
	return d->spec.name;
}

enum device_state device_state(const struct device *d)
{
	return d->state;
}

const char *device_error(const struct device *d)
{
	return d->error;
}

struct backend_device *device_backend(struct device *d)
{
	return d->backend;
}

/* With the nodes that were found when the backend was opened. */
static uint64_t device_memory_found(const struct device *d)
{
	struct device_spec spec = d->spec;

	if (d->backend)
		spec.backend = d->backend->spec;
	return device_memory_max(&spec);
}

void device_info(const struct device *d, struct device_info *ret_info)
{
	static const struct backend_limits none;
	const struct backend_limits *limits = d->backend ? &d->backend->limits : &none;

	*ret_info = (struct device_info){
		.id = d->added ? (int64_t)d->info.dev_id : d->spec.id,
		.queues = d->spec.queues,
		.depth = d->spec.depth,
		.logical_block_bytes = d->spec.logical_block_bytes,
		.physical_block_bytes = 1u << d->params.basic.physical_bs_shift,
		.max_io_bytes = d->params.basic.max_sectors << 9,
		.size_bytes = d->backend ? backend_size(d->backend) : 0,
		.caps = limits->caps,
		.flags = d->info.flags,
		.backend = d->stack,
		.data_path = data_path_names[d->data.path],
		.batch = d->data.batch,
		.partition_scan = !d->spec.no_partition_scan && !d->host->ctl->unprivileged,
		.resizing = d->resize.busy,
		.changes_snapshot = d->snapshot.busy,
		.has_cache_command = d->cache.busy,
		.buffer_bytes_max = device_memory_found(d),
		.queue_reactor_nr = MIN(d->placed_nr, (unsigned)sizeof(ret_info->queue_reactor)),
	};
	for (unsigned i = 0; i < ret_info->queue_reactor_nr; i++)
		ret_info->queue_reactor[i] = (unsigned char)d->queues[i].setup.reactor->idx;
}

/* What instrument_layers leaves out: I/Os that spent no time in a layer. */
static void add_layers(struct device_op_stats *sum, const struct queue_op_stats *s)
{
	uint64_t done = counter_read(&s->done);

	for (int layer = 0; layer < QUEUE_LAYER_NR; layer++) {
		struct histogram h = { 0 };
		uint64_t counted;

		histogram_add(&h, &s->layer[layer]);
		counted = histogram_count(&h);
		/* done is bumped first: what is between the two is not in the histogram yet. */
		if (layer != QUEUE_LAYER_TOTAL && counted < done)
			h.bucket[0] += done - counted;
		histogram_add(&sum->layer[layer], &h);
	}
	sum->done += done;
}

static void add_queue_stats(struct device_stats *sum, const struct queue_stats *s)
{
	uint64_t done = 0, started;

	for (int op = 0; op < BACKEND_OP_NR; op++) {
		add_layers(&sum->op[op], &s->op[op]);
		sum->op[op].failed += counter_read(&s->op[op].failed);
		sum->op[op].bytes += counter_read(&s->op[op].bytes);
		done += counter_read(&s->op[op].done);
	}
	for (int err = 0; err < QUEUE_ERRNO_NR; err++)
		sum->errors[err] += counter_read(&s->errors[err]);
	/* Read after done, so that the difference is never negative. */
	started = counter_read(&s->started);
	sum->inflight += started > done ? started - done : 0;
	sum->inflight_max += counter_read(&s->inflight_max);
	sum->busy_retries += counter_read(&s->busy_retries);
	sum->fallbacks += counter_read(&s->fallbacks);
	sum->shmem += counter_read(&s->shmem);
	sum->lost_tags += counter_read(&s->lost_tags);
}

void device_stats(const struct device *d, struct device_stats *ret_stats)
{
	memset(ret_stats, 0, sizeof(*ret_stats));
	for (unsigned i = 0; i < d->attach_nr; i++)
		add_queue_stats(ret_stats, &d->queues[i].stats);
}

uint64_t device_memory_max(const struct device_spec *spec)
{
	uint64_t per_tag = sizeof(struct tag_io) + sizeof(uint16_t) +
			   backend_spec_metadata_bytes(spec->backend, spec->max_io_bytes,
						       spec->logical_block_bytes);

	return spec->queues *
	       (queue_buffer_bytes(spec->depth, spec->max_io_bytes) + spec->depth * per_tag +
		sizeof(struct queue) + backend_spec_queue_bytes(spec->backend, spec->depth));
}

void device_quiesce(struct device *d, bool on)
{
	for (unsigned i = 0; i < d->attach_nr; i++)
		queue_quiesce(&d->queues[i], on);
}

bool device_settle(const struct device *d)
{
	return backend_settle(d->backend);
}

bool device_quiet(const struct device *d)
{
	for (unsigned i = 0; i < d->attach_nr; i++)
		if (!queue_quiet(&d->queues[i]))
			return false;
	return true;
}
