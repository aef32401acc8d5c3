/*
 * nbd: a device on an NBD server. This file is its table: queues and requests as the core sees
 * them. Each queue has a session (net/session.h), which knows the connections and decides what
 * becomes of a request; nbd_connection.c is what of it is NBD's. Reactor thread, but for nbd_wait
 * and nbd_look.
 *
 * Failure modes: no server: on_disconnect decides, for each queue by itself; another server than
 * before: everything fails. cancel ends what waits at once, and what was sent by dropping the
 * connection, as NBD cannot take a request back.
 */
#include "backends/nbd/nbd.h"

#include <errno.h>
#include <stdlib.h>

#include "backends/nbd/nbd_credentials.h"
#include "storage/registry.h"

/* Of each connection. */
#define RECEIVE_BYTES (256u << 10)

static enum backend_submit nbd_submit(struct backend_io *io)
{
	struct nbd_queue *q = io->queue->priv;
	struct nbd_io *n = io->priv;

	if (net_has_changed(&q->nbd->changed)) {
		io->result = -EIO;
		return BACKEND_DONE;
	}
	net_flush_came(&n->flush);
	io->result = nbd_connection_submit(q, n);
	return io->result < 0 ? BACKEND_DONE : BACKEND_QUEUED;
}

static void nbd_cancel(struct backend_io *io)
{
	struct nbd_queue *q = io->queue->priv;
	struct nbd_io *n = io->priv;

	session_cancel(&q->session, &n->request);
}

static struct backend_wait nbd_wait(const struct backend_io *io)
{
	const struct nbd_io *n = io->priv;

	return (struct backend_wait){ .words = session_request_doing(&n->request) };
}

static bool nbd_look(const struct backend_queue *queue, unsigned idx,
		     struct net_connection_look *ret_connection)
{
	const struct nbd_queue *q = queue->priv;

	return session_look(&q->session, idx, ret_connection);
}

static int nbd_io_init(struct backend_io *io)
{
	struct nbd_queue *q = io->queue->priv;
	struct nbd_io *n = io->priv;

	n->io = io;
	session_request_init(&n->request, io->tag);
	q->io[io->tag] = n;
	return 0;
}

static int nbd_queue_init(struct backend_queue *queue)
{
	struct nbd_queue *q = queue->priv;
	struct nbd_device *nbd = queue->device->priv;
	struct session_params params = {
		.protocol = &nbd_protocol,
		.reactor = queue->reactor,
		.name = nbd->name,
		.server = nbd->address,
		.queue_idx = queue->idx,
		.limits = &nbd->limits,
		.host = &nbd->uri.server,
		.addresses = &nbd->found.addresses,
		.connection_nr = nbd->conns_per_queue,
		.depth = queue->depth,
		.receive_bytes = RECEIVE_BYTES,
		.tls = nbd->tls,
		.tls_hostname = nbd_credentials_hostname(&nbd->uri),
		.timeout_ns = nbd->config->outage.timeout_ns,
		.outage_timeout_ns = nbd->config->outage.outage_timeout_ns,
	};

	_Static_assert(OPTION_FOREVER == SESSION_FOREVER, "the same for ever");
	q->queue = queue;
	q->nbd = nbd;
	q->io = calloc(queue->depth, sizeof(*q->io));
	return q->io ? session_init(&q->session, &params) : -ENOMEM;
}

static void nbd_queue_fini(struct backend_queue *queue)
{
	struct nbd_queue *q = queue->priv;

	session_fini(&q->session);
	free(q->io);
}

const struct backend backend_nbd = {
	.name = "nbd",
	.summary = "An export of an NBD server.",
	.options = nbd_options,
	.uri = &nbd_backend_uri,
	.config_bytes = sizeof(struct nbd_config),
	.device_bytes = sizeof(struct nbd_device),
	.queue_bytes = sizeof(struct nbd_queue),
	.io_bytes = sizeof(struct nbd_io),
	.data = BACKEND_DATA_SEALED,
	.batches = true,
	.check = nbd_check,
	.open = nbd_open,
	.open_async = nbd_open_async,
	.cancel_async = nbd_cancel_async,
	.close = nbd_close,
	.queue_init = nbd_queue_init,
	.queue_fini = nbd_queue_fini,
	.io_init = nbd_io_init,
	.submit = nbd_submit,
	.cancel = nbd_cancel,
	.wait = nbd_wait,
	.identity = nbd_identity,
	.stored_fd = nbd_stored_fd,
	.places = nbd_places,
	.failure = nbd_failure,
	.connection = nbd_look,
};
