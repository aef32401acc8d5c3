/* What the core sees of the node: its table, its children, its queues and what they wait for. */
#include "backends/qcow2/qcow2_owner.h"

#include <errno.h>
#include <stdio.h>

#include "backends/qcow2/qcow2_snapshot_change.h"
#include "base/util.h"
#include "storage/snapshot.h"
#include "storage/registry.h"

static const char *const qcow2_backing_words[] = { "auto", "none", NULL };

static const struct backend_child_option qcow2_children[] = {
	{ .name = "data",
	  .nr_min = 1,
	  .nr_max = 1,
	  .help = "Where the image lies: a backend of any type." },
	{ .name = "data_file",
	  .nr_max = 1,
	  .help = "The external data file of an image that has one." },
	{ .name = "backing",
	  .nr_max = 1,
	  .read_only = true,
	  .words = qcow2_backing_words,
	  .help = "What the image stands over: a backend of any type. It is only read. auto: the "
		  "file that the image names, as raw or qcow2, if `data` is a file; what that "
		  "stands over is found in the same way (backing_folder). none: what the image "
		  "does not have reads as zeroes, whatever it names." },
	{ .name = NULL },
};

static struct backend_wait qcow2_wait(const struct backend_io *io)
{
	static const char *const words[] = {
		[QCOW2_FROM_BACKING] = "reading from the backing image",
		[QCOW2_LOADING] = "reading a table of the image",
		[QCOW2_NEEDS_BUFFER] = "waiting for a buffer",
		[QCOW2_BOUNCE_FILL] = "copying a cluster from backing",
		[QCOW2_BOUNCE_WRITE] = "writing a copied cluster",
		[QCOW2_FLUSHING] = "flushing",
	};
	static const char *const ask_words[] = {
		[QCOW2_ASK_MAP] = "waiting for a table of the image",
		[QCOW2_ASK_ALLOC] = "waiting for new clusters",
		[QCOW2_ASK_PUBLISH] = "entering new clusters into the tables",
		[QCOW2_ASK_ABORT] = "giving clusters back",
		[QCOW2_ASK_UNMAP] = "waiting to unmap clusters",
		[QCOW2_ASK_FLUSH] = "writing the tables of the image",
		[QCOW2_ASK_PASS] = "waiting for a snapshot",
	};
	const struct qcow2_io *s = io->priv;
	unsigned state = __atomic_load_n(&s->state, __ATOMIC_RELAXED);
	unsigned ask = __atomic_load_n(&s->ask, __ATOMIC_RELAXED);
	struct backend_wait wait = { .kind = BACKEND_WAIT_ANSWER };

	if (state == QCOW2_ASKING && __atomic_load_n(&s->is_behind, __ATOMIC_RELAXED))
		wait.words = ask_words[QCOW2_ASK_PASS];
	else if (state == QCOW2_ASKING && ask < ARRAY_SIZE(ask_words))
		wait.words = ask_words[ask];
	else if (state < ARRAY_SIZE(words))
		wait.words = words[state];
	return wait;
}

static int qcow2_queue_init(struct backend_queue *queue)
{
	struct qcow2_device *d = queue->device->priv;
	struct qcow2_queue *q = queue->priv;

	q->queue = queue;
	q->d = d;
	list_init(&q->waiting);
	for (unsigned i = 0; i < QCOW2_OWN_NR; i++)
		q->own[i].own = &queue->own[i];
	if (d->luks) {
		q->cipher = qcow2_luks_cipher_new(d->luks);
		if (!q->cipher)
			return -ENOMEM;
	}
	if (d->owner)
		qcow2_owner_add_queue(d->owner, q);
	return qcow2_unpacked_init(q);
}

static void qcow2_queue_fini(struct backend_queue *queue)
{
	struct qcow2_queue *q = queue->priv;

	if (!q->queue)
		return;
	if (q->d->owner)
		qcow2_owner_remove_queue(q->d->owner, q);
	qcow2_unpacked_fini(q);
	qcow2_luks_cipher_free(q->cipher);
	task_cancel(&q->waiting_task);
}

static int qcow2_io_init(struct backend_io *io)
{
	struct qcow2_io *s = io->priv;

	s->io = io;
	list_init(&s->waiting);
	list_init(&s->alloc.node);
	list_init(&s->alloc.waiters);
	return 0;
}

static void qcow2_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	const struct qcow2_device *d = device->priv;
	const struct qcow2_config *config = device->config;

	if (config->snapshot)
		snprintf(text, BACKEND_IDENTITY_BYTES, "qcow2 snapshot at %llu",
			 (unsigned long long)d->header.l1_offset);
	else
		snprintf(text, BACKEND_IDENTITY_BYTES, "qcow2");
}

static int qcow2_stored_fd(const struct backend_device *device)
{
	const struct qcow2_device *d = device->priv;

	return d->t ? d->t->fd : -1;
}

static void qcow2_abandon(struct backend_device *device)
{
	struct qcow2_device *d = device->priv;

	if (d->owner)
		qcow2_image_handed_over(d->t);
}

static bool qcow2_only_reads(const void *config)
{
	return ((const struct qcow2_config *)config)->snapshot;
}

/* ---- snapshots of what is below ---- */

static const char *qcow2_above_create(const struct backend_device *device,
				      const struct backend_device *child)
{
	const struct qcow2_device *d = device->priv;

	if (!d->t->has_data_file || child->as->read_only)
		return NULL;
	return "has its tables in `data` and its bytes in `data_file`, and a snapshot of one has "
	       "nothing of the other: remove the device, and create one of each, each with a "
	       "device of its own";
}

static const char *qcow2_failure(const struct backend_device *device)
{
	const struct qcow2_device *d = device->priv;

	return atomic_load_explicit(&d->failure, memory_order_relaxed);
}

static const char *qcow2_above_apply(const struct backend_device *device,
				     const struct backend_device *child)
{
	(void)device;
	if (child->as->read_only)
		return "is an overlay, and fits the bytes of its `backing` as they are alone: make "
		       "a new overlay over the snapshot (snapshot: NAME)";
	return "has the tables of the image in memory: apply a snapshot of the image itself, or "
	       "remove the device, and apply this one with a device of what is below alone";
}

static const struct backend_above qcow2_above = { .create = qcow2_above_create,
						  .apply = qcow2_above_apply };

const struct backend backend_qcow2 = {
	.name = "qcow2",
	.summary = "An image in QEMU's format qcow2, with its backing images: thin, with overlays "
		   "and snapshots.",
	.options = qcow2_options,
	.config_bytes = sizeof(struct qcow2_config),
	.device_bytes = sizeof(struct qcow2_device),
	.queue_bytes = sizeof(struct qcow2_queue),
	.io_bytes = sizeof(struct qcow2_io),
	.data = BACKEND_DATA_ANY,
	.test_options = "create: true\nsize: 2MiB\ncluster_size: 4KiB",
	.sizes_itself = true,
	.is_image_format = true,
	.alone_below = true,
	.children = qcow2_children,
	.own_nr = QCOW2_OWN_NR,
	.own_bytes = QCOW2_OWN_BYTES,
	.resolve = qcow2_resolve,
	.open = qcow2_open,
	.open_async = qcow2_open_async,
	.close_async = qcow2_close_async,
	.close = qcow2_close,
	.queue_init = qcow2_queue_init,
	.queue_fini = qcow2_queue_fini,
	.io_init = qcow2_io_init,
	.submit = qcow2_submit,
	.cancel = qcow2_cancel,
	.child_done = qcow2_child_done,
	.wait = qcow2_wait,
	.look = qcow2_look,
	.identity = qcow2_identity,
	.version = &qcow2_version,
	.stored_fd = qcow2_stored_fd,
	.abandon = qcow2_abandon,
	.failure = qcow2_failure,
	.snapshots = &qcow2_backend_snapshots,
	.only_reads = qcow2_only_reads,
	.above = &qcow2_above,
};
