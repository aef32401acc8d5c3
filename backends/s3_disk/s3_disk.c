/*
 * s3-disk: its table, queues and requests as the core sees them. Reactor thread, but for wait and
 * look.
 *
 * Failure modes: the server is away: requests wait as on_disconnect allows, then fail; another one
 * writes the disk: everything fails.
 */
#include "backends/s3_disk/s3_disk.h"

#include <errno.h>
#include <stdio.h>

#include "base/counter.h"
#include "base/util.h"
#include "storage/registry.h"
#include "storage/version.h"

/* ---- requests ---- */

static enum backend_submit s3_disk_submit(struct backend_io *io)
{
	struct s3_disk_queue *q = io->queue->priv;
	struct s3_disk_io *w = io->priv;

	io->result = -EIO;
	if (net_has_changed(&q->d->changed))
		return BACKEND_DONE;
	if (q->is_resting)
		s3_disk_fence_wake(q);
	w->at_bytes = 0;
	w->read = NULL;
	s3_disk_io_set_state(w, S3_DISK_IO_WAITS_CHANGE);
	list_push_back(&q->incoming, &w->node);
	s3_disk_run_later(q);
	return BACKEND_QUEUED;
}

static void s3_disk_cancel(struct backend_io *io)
{
	s3_disk_io_cancel(io->priv);
}

static int s3_disk_io_init(struct backend_io *io)
{
	struct s3_disk_io *w = io->priv;

	w->io = io;
	list_init(&w->node);
	return 0;
}

/* ---- a change that has the disk for itself ---- */

bool s3_disk_queue_is_free(const struct s3_disk_queue *q)
{
	return q->change && !q->has_change_begun && q->begun_nr == 0 && !q->is_asking &&
	       s3_disk_slots_rest(q);
}

void s3_disk_queue_look(struct s3_disk_queue *q)
{
	if (s3_disk_queue_is_free(q))
		s3_disk_run_later(q);
}

void s3_disk_queue_hold(struct s3_disk_queue *q, struct s3_disk_change *change)
{
	q->change = change;
	s3_disk_queue_look(q);
}

void s3_disk_queue_release(struct s3_disk_queue *q)
{
	q->change = NULL;
	q->has_change_begun = false;
	s3_disk_run_later(q);
}

/* ---- queues ---- */

static int s3_disk_queue_init(struct backend_queue *queue)
{
	struct s3_disk_queue *q = queue->priv;
	char error[HTTP_ERROR_BYTES];
	int ret;

	q->d = queue->device->priv;
	q->queue = queue;
	__atomic_store_n(&q->d->queue, q, __ATOMIC_RELEASE);
	list_init(&q->incoming);
	ret = s3_disk_client_init(&q->client, &q->d->web, queue->reactor, error, sizeof(error));
	if (ret < 0)
		log_error("no client for a web server", "device=%s why=\"%s\"", q->d->web.name,
			  error);
	if (ret == 0)
		ret = s3_renew_init(&q->client.renew, q->d->web.server, q->d->web.name,
				    q->client.http, &q->d->web.keys);
	if (ret == 0)
		ret = s3_disk_reads_init(q);
	if (ret == 0)
		ret = s3_disk_slots_init(q);
	if (ret == 0)
		ret = s3_disk_deletes_init(q);
	return ret == 0 ? s3_disk_fence_init(q) : ret;
}

/* For what is said at the end. */
static void s3_disk_keep_keys(struct s3_disk_queue *q)
{
	if (!q->client.renew.config)
		return;
	q->d->web.keys = q->client.renew.keys;
	s3_use_keys(&q->d->web);
}

static void s3_disk_queue_fini(struct backend_queue *queue)
{
	struct s3_disk_queue *q = queue->priv;

	__atomic_store_n(&q->d->queue, NULL, __ATOMIC_RELEASE);
	task_cancel(&q->task);
	s3_disk_fence_fini(q);
	s3_disk_deletes_fini(q);
	s3_disk_slots_fini(q);
	s3_disk_reads_fini(q);
	s3_disk_keep_keys(q);
	s3_disk_client_fini(&q->client);
}

/* What is to be deleted, and is not yet, is garbage. */
static bool s3_disk_rest(struct backend_queue *queue)
{
	struct s3_disk_queue *q = queue->priv;
	bool rests = s3_disk_fence_rest(q);

	q->deleting_nr = 0;
	return s3_disk_deletes_rest(q) && rests;
}

/* ---- for people ---- */

static struct backend_wait s3_disk_wait(const struct backend_io *io)
{
	static const char *const words[] = {
		[S3_DISK_IO_IDLE] = NULL,
		[S3_DISK_IO_WAITS_SLOT] = "waiting for one of the buffers to be free",
		[S3_DISK_IO_WAITS_CALL] = "waiting for one of the connections to be free",
		[S3_DISK_IO_LOADS] = "the server, for the object that is changed",
		[S3_DISK_IO_WAITS_STORE] = "waiting for the object to be stored as it was before",
		[S3_DISK_IO_READS] = "the server, for bytes of an object",
		[S3_DISK_IO_STORES] = "the server, to store the object",
		[S3_DISK_IO_CHECKS] = "the server, whether the disk is ours still",
		[S3_DISK_IO_WAITS_CHANGE] = "waiting for a change of snapshots to end",
	};
	const struct s3_disk_io *w = io->priv;

	return (struct backend_wait){ .words =
					      words[__atomic_load_n(&w->state, __ATOMIC_RELAXED)] };
}

static bool s3_disk_look(const struct backend_queue *queue, unsigned idx,
			 struct net_connection_look *ret_look)
{
	const struct s3_disk_queue *q = queue->priv;
	const struct s3_disk_client *c = &q->client;

	if (idx > 0)
		return false;
	*ret_look = (struct net_connection_look){
		.server = q->d->web.url.server,
		.state = s3_disk_client_is_away(c) ? "waiting" : "connected",
		.since_ns = counter_read(&c->since_ns),
		.connects = http_client_connects(c->http),
		.lost = counter_read(&c->lost),
		.last_end = __atomic_load_n(&c->last_end, __ATOMIC_RELAXED),
		.resent = counter_read(&c->resent),
		.answered = counter_read(&c->answered),
		.sent_bytes = counter_read(&c->sent_bytes),
		.received_bytes = counter_read(&c->received_bytes),
		.wait = &c->wait,
		.answer = &c->answer,
	};
	for (int end = 0; end < NET_END_NR; end++)
		ret_look->ends[end] = counter_read(&c->ends[end]);
	return true;
}

static const char *s3_disk_failure(const struct backend_device *device)
{
	const struct s3_disk *d = device->priv;

	return net_changed_words(&d->changed);
}

static void s3_disk_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct s3_disk *d = device->priv;

	snprintf(text, BACKEND_IDENTITY_BYTES, "s3-disk %s", d->manifest.id);
}

static void s3_disk_version_found(const struct backend_device *device, struct backend_version *ret)
{
	const struct s3_disk *d = device->priv;

	ret->kind = BACKEND_VERSION_LASTING;
	snprintf(ret->found, sizeof(ret->found), "%s", d->found);
	if (!d->is_read_only)
		snprintf(ret->ours, sizeof(ret->ours), "%s.", d->token);
}

static const struct backend_version_ops s3_disk_version = { .found = s3_disk_version_found };

static int s3_disk_stored_fd(const struct backend_device *device)
{
	const struct s3_disk *d = device->priv;

	return d->kept_fd;
}

const struct backend backend_s3_disk = {
	.name = "s3-disk",
	.summary = "A disk of many objects of an S3 bucket, which can be written.",
	.options = s3_disk_options,
	.config_bytes = sizeof(struct s3_disk_config),
	.device_bytes = sizeof(struct s3_disk),
	.queue_bytes = sizeof(struct s3_disk_queue),
	.io_bytes = sizeof(struct s3_disk_io),
	.batches = true,
	.check = s3_disk_check,
	.open = s3_disk_open,
	.open_async = s3_disk_open_async,
	.close_async = s3_disk_close_async,
	.cancel_async = s3_disk_cancel_async,
	.close = s3_disk_close,
	.queue_init = s3_disk_queue_init,
	.queue_fini = s3_disk_queue_fini,
	.rest = s3_disk_rest,
	.io_init = s3_disk_io_init,
	.submit = s3_disk_submit,
	.cancel = s3_disk_cancel,
	.wait = s3_disk_wait,
	.identity = s3_disk_identity,
	.version = &s3_disk_version,
	.stored_fd = s3_disk_stored_fd,
	.failure = s3_disk_failure,
	.connection = s3_disk_look,
	.snapshots = &s3_disk_snapshots,
};
