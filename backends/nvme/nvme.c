/*
 * nvme-tcp: a device on a namespace of an NVMe subsystem, over TCP. This file is its table: queues
 * and requests as the core sees them. Each queue has a session (net/session.h), whose connections
 * are the paths to the subsystem; nvme_connection.c is what of it is NVMe's. Reactor thread, but
 * for nvme_wait and nvme_look.
 *
 * Failure modes: no target, no namespace, no path that is accessible: on_disconnect decides, for
 * each queue by itself; another namespace than before: everything fails. cancel ends what waits at
 * once, and what was sent by dropping the connection: Abort is no more than a wish.
 */
#include "backends/nvme/nvme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "storage/sharing.h"
#include "storage/registry.h"

/* Of each connection. */
#define RECEIVE_BYTES (256u << 10)

static enum backend_submit nvme_submit(struct backend_io *io)
{
	struct nvme_queue *q = io->queue->priv;
	struct nvme_io *n = io->priv;

	if (net_has_changed(&q->nvme->changed)) {
		io->result = -EIO;
		return BACKEND_DONE;
	}
	if (q->out_nr >= q->out_max)
		return BACKEND_BUSY;
	n->tries = 0;
	net_flush_came(&n->flush);
	io->result = nvme_connection_submit(q, n);
	if (io->result < 0)
		return BACKEND_DONE;
	q->out_nr++;
	return BACKEND_QUEUED;
}

static void nvme_cancel(struct backend_io *io)
{
	struct nvme_queue *q = io->queue->priv;
	struct nvme_io *n = io->priv;

	if (!nvme_retry_cancel(n))
		session_cancel(&q->session, &n->request);
}

/* It is held although a target is there: its namespace is not, or not by this path. */
static bool nvme_is_out_of_reach(const struct nvme_queue *q, const struct nvme_io *n)
{
	struct net_connection_look look;

	if (__atomic_load_n(&n->request.state, __ATOMIC_RELAXED) != SESSION_REQUEST_HELD)
		return false;
	for (unsigned i = 0; session_look(&q->session, i, &look); i++)
		if (strcmp(look.state, "unusable") == 0)
			return true;
	return false;
}

static struct backend_wait nvme_wait(const struct backend_io *io)
{
	const struct nvme_io *n = io->priv;

	if (nvme_is_out_of_reach(io->queue->priv, n))
		return (struct backend_wait){ .words = "waiting for the namespace to be "
						       "accessible at its target" };
	if (__atomic_load_n(&n->waits, __ATOMIC_RELAXED))
		return (struct backend_wait){ .words = "waiting to be sent again, as the target "
						       "wants it" };
	return (struct backend_wait){ .words = session_request_doing(&n->request) };
}

static bool nvme_look(const struct backend_queue *queue, unsigned idx,
		      struct net_connection_look *ret_connection)
{
	const struct nvme_queue *q = queue->priv;

	return session_look(&q->session, idx, ret_connection);
}

static int nvme_io_init(struct backend_io *io)
{
	struct nvme_queue *q = io->queue->priv;
	struct nvme_io *n = io->priv;

	n->io = io;
	session_request_init(&n->request, io->tag);
	timer_init(&n->retry, nvme_retry_on_timer);
	list_init(&n->pump);
	q->io[io->tag] = n;
	return 0;
}

static int nvme_queue_init(struct backend_queue *queue)
{
	struct nvme_queue *q = queue->priv;
	struct nvme_device *nvme = queue->device->priv;
	bool several = nvme->target.path_nr > 1;
	struct session_params params = {
		.protocol = &nvme_protocol,
		.reactor = queue->reactor,
		.name = nvme->name,
		.server = nvme->path[0],
		.queue_idx = queue->idx,
		.limits = &nvme->limits,
		.host = several ? NULL : &nvme->target.path[0],
		.addresses = &nvme->addresses,
		.path = several ? nvme->path : NULL,
		.connection_nr = nvme->target.path_nr,
		.depth = queue->depth,
		.receive_bytes = RECEIVE_BYTES,
		.tls = nvme->keys.tls,
		.timeout_ns = nvme->config->outage.timeout_ns,
		.outage_timeout_ns = nvme->config->outage.outage_timeout_ns,
	};

	_Static_assert(OPTION_FOREVER == SESSION_FOREVER, "the same for ever");
	q->queue = queue;
	q->nvme = nvme;
	q->out_max = MIN(queue->depth, nvme->controller.commands_nr);
	while (1u << q->tag_bits < queue->depth)
		q->tag_bits++;
	q->io = calloc(queue->depth, sizeof(struct nvme_io *));
	return q->io ? session_init(&q->session, &params) : -ENOMEM;
}

static void nvme_queue_fini(struct backend_queue *queue)
{
	struct nvme_queue *q = queue->priv;

	/* From session_fini on connections have no queue to speak of. */
	for (unsigned i = 0; i < q->session.connection_nr; i++)
		nvme_connection_leave(q->session.connection[i]);
	session_fini(&q->session);
	free(q->io);
}

const struct backend backend_nvme_tcp = {
	.name = "nvme-tcp",
	.summary = "A namespace of an NVMe subsystem, over TCP.",
	.options = nvme_options,
	.uri = &nvme_backend_uri,
	.config_bytes = sizeof(struct nvme_config),
	.device_bytes = sizeof(struct nvme_device),
	.queue_bytes = sizeof(struct nvme_queue),
	.io_bytes = sizeof(struct nvme_io),
	.batches = true,
	.check = nvme_check,
	.open = nvme_open,
	.open_async = nvme_open_async,
	.cancel_async = nvme_cancel_async,
	.close = nvme_close,
	.queue_init = nvme_queue_init,
	.queue_fini = nvme_queue_fini,
	.io_init = nvme_io_init,
	.submit = nvme_submit,
	.cancel = nvme_cancel,
	.wait = nvme_wait,
	.identity = nvme_identity,
	.stored_fd = nvme_stored_fd,
	.places = backend_places_by_identity,
	.failure = nvme_failure,
	.connection = nvme_look,
	.resize = &nvme_resize,
};
