/* What the core sees of the node: its table, who it is, and the tree for those who look through it.
 */
#include "filters/shared/shared.h"

#include "storage/snapshot.h"
#include "storage/node.h"
#include "storage/registry.h"
#include "storage/sharing.h"

static const struct option shared_options[] = {
	{ .name = "name",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct shared_config, name),
	  .min = 1,
	  .max = SHARED_NAME_MAX,
	  .flags = OPTION_REQUIRED,
	  .help = "Devices with the same name here have the same backend below, word for word, and "
		  "the same block_size. A YAML anchor says it once." },
	OPTION_END,
};

static bool shared_only_reads(const void *config)
{
	(void)config;
	return true;
}

/* ---- who it is: the main thread ---- */

static const struct shared_tree *tree_of(const struct backend_device *device)
{
	const struct shared_device *d = device->priv;

	return d->tree;
}

static void shared_identity(const struct backend_device *device, char text[BACKEND_IDENTITY_BYTES])
{
	backend_identity(tree_of(device)->device, text);
}

static const char *shared_failure(const struct backend_device *device)
{
	return backend_failure(tree_of(device)->device, NULL);
}

static bool shared_settle(struct backend_device *device)
{
	return backend_settle(tree_of(device)->device);
}

static void shared_abandon(struct backend_device *device)
{
	struct shared_device *d = device->priv;

	if (!d->tree->is_abandoned)
		backend_abandon(d->tree->device);
	d->tree->is_abandoned = true;
}

/* ---- for those who look through it ---- */

static struct backend_device *shared_tree_device(const struct backend_device *device)
{
	return tree_of(device)->device;
}

static const struct backend_queue *shared_tree_queue(const struct backend_queue *queue)
{
	return tree_of(queue->device)->home.queue;
}

/* Who has used it longest. */
static bool shared_counts(const struct backend_device *device)
{
	const struct shared_device *d = device->priv;

	return d->tree->users.next == &d->node;
}

static const char *shared_name(const void *config)
{
	const struct shared_config *shared = config;

	return shared->name;
}

static const struct backend_shared_ops shared_ops = {
	.device = shared_tree_device,
	.queue = shared_tree_queue,
	.io = shared_io_below,
	.counts = shared_counts,
	.name = shared_name,
};

/* Nodes above it in other devices are not asked. Create: it is only read, and refuses by itself. */
static const char *shared_above_apply(const struct backend_device *device,
				      const struct backend_device *child)
{
	(void)device, (void)child;
	return "serves the same bytes to other devices: remove all of them, and apply the snapshot "
	       "with a device of what is below alone";
}

static const struct backend_above shared_above = { .apply = shared_above_apply };

const struct backend backend_shared = {
	.name = "shared",
	.summary = "A filter that opens one backend for several devices, to be read by all of "
		   "them: with one cache, and one set of connections.",
	.options = shared_options,
	.config_bytes = sizeof(struct shared_config),
	.device_bytes = sizeof(struct shared_device),
	.queue_bytes = sizeof(struct shared_queue),
	.io_bytes = sizeof(struct shared_io),
	.data = BACKEND_DATA_ANY,
	.sizes_itself = true,
	.batches = true,
	.children = backend_one_child,
	.only_reads = shared_only_reads,
	.shared = &shared_ops,
	.open_async = shared_open_async,
	.close_async = shared_close_async,
	.cancel_async = shared_cancel_async,
	.close = shared_close,
	.queue_init = shared_queue_init,
	.queue_fini = shared_queue_fini,
	.rest = shared_queue_rest,
	.io_init = shared_io_init,
	.submit = shared_submit,
	.cancel = shared_cancel,
	.wait = shared_wait,
	.identity = shared_identity,
	.settle = shared_settle,
	.abandon = shared_abandon,
	.failure = shared_failure,
	.above = &shared_above,
};
