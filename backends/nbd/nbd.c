/*
 * nbd: a device on an NBD server. This file is its queues: they own the requests, know which
 * connections are ready, and decide what becomes of a request that no connection can take. Reactor
 * thread, but for nbd_wait.
 *
 *	submit -> (a connection is ready) nbd_connection_send -> ... -> nbd_io_end
 *	       -> (none is) waiting -> a connection is ready -> as above
 *	                            -> the outage timeout has expired -> fails
 *
 * The outage timeout runs from a loss until the server has done a request: one that accepts
 * connections and answers nothing is not back. Where no request had to wait a connection is enough.
 * When it has expired, new requests still go to a connection that is ready, because only an answer
 * shows that the server is back, and those that are with one stay there; what is lost then fails.
 *
 * What a lost connection had is sent again: every NBD request can be done twice. Writes that were
 * acknowledged but not flushed cannot be sent again: unless the server keeps them (cache: kept)
 * the next FLUSH fails, as fsync(2) does after an error of the medium.
 *
 * Failure modes: no server: on_disconnect decides, for each queue by itself; another server than
 * before: everything fails. cancel ends what waits at once, and what was sent by dropping the
 * connection, as NBD cannot take a request back.
 */
#include "backends/nbd/nbd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/registry.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"

void nbd_io_end(struct nbd_io *n, int result)
{
	n->state = NBD_IO_IDLE;
	n->conn = NULL;
	backend_io_complete(n->io, n->cancelled ? -ECANCELED : result);
}

static void nbd_queue_wait(struct nbd_queue *q, struct nbd_io *n)
{
	q->unconfirmed = true;
	if (n->state == NBD_IO_IDLE)
		n->losses = atomic_load(&q->nbd->losses);
	n->state = NBD_IO_WAITING;
	n->conn = NULL;
	list_push_back(&q->waiting, &n->node);
}

/* One whose turn it is by the tag, or another; NULL: none is ready, or all are about to close. */
static struct nbd_connection *choose_conn(const struct nbd_queue *q, unsigned tag)
{
	if (q->ready_nr == 0)
		return NULL;
	for (unsigned i = 0; i < q->conn_nr; i++) {
		struct nbd_connection *conn = q->conn[(tag + i) % q->conn_nr];

		if (nbd_connection_takes_requests(conn))
			return conn;
	}
	return NULL;
}

/* Counted before `unflushed` is cleared: a loss at that moment finds at least one of both. */
static void nbd_flush_cover(struct nbd_device *nbd, struct nbd_io *n)
{
	bool counts = nbd->config->cache == NBD_CACHE_VOLATILE && !n->covers;

	atomic_fetch_add(&nbd->covering_nr, counts);
	n->covers |= atomic_exchange(&nbd->unflushed, false);
	atomic_fetch_sub(&nbd->covering_nr, counts && !n->covers);
}

static void nbd_flush_uncover(struct nbd_device *nbd, struct nbd_io *n)
{
	atomic_fetch_sub(&nbd->covering_nr, n->covers && nbd->config->cache == NBD_CACHE_VOLATILE);
	n->covers = false;
}

/*
 * False, the FLUSH fails: lost_writes was set, and is reported by it; or writes were lost since it
 * came, which it stands for as much as the FLUSH that covered them.
 */
static bool begin_flush(struct nbd_device *nbd, struct nbd_io *n)
{
	unsigned losses = atomic_load(&nbd->losses);

	if (n->state == NBD_IO_IDLE)
		n->losses = losses;
	if (n->losses != losses || atomic_exchange(&nbd->lost_writes, false))
		return false;
	nbd_flush_cover(nbd, n);
	return true;
}

/* 0, or the error that it ends with. */
static int send_by(struct nbd_connection *conn, struct nbd_io *n)
{
	if (n->io->op == BACKEND_FLUSH && !begin_flush(conn->queue->nbd, n))
		return -EIO;
	n->state = NBD_IO_SENT;
	n->conn = conn;
	n->cookie = (uint64_t)++conn->queue->cookie_nr << 16 | n->io->tag;
	nbd_connection_send(conn, n);
	n->again = true;
	return 0;
}

static bool is_changed(const struct nbd_queue *q)
{
	return atomic_load_explicit(&q->nbd->changed, memory_order_relaxed);
}

static enum backend_submit nbd_submit(struct backend_io *io)
{
	struct nbd_queue *q = io->queue->priv;
	struct nbd_io *n = io->priv;
	struct nbd_connection *conn = choose_conn(q, io->tag);

	n->cancelled = false;
	n->covers = n->again = false;
	n->start_ns = q->queue->reactor->now_ns;
	if (is_changed(q) || (!conn && q->gave_up)) {
		io->result = -EIO;
		return BACKEND_DONE;
	}
	if (!conn) {
		nbd_queue_wait(q, n);
		return BACKEND_QUEUED;
	}
	io->result = send_by(conn, n);
	return io->result < 0 ? BACKEND_DONE : BACKEND_QUEUED;
}

static void fail_waiting(struct nbd_queue *q)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	list_splice(&all, &q->waiting);
	while ((node = list_pop_front(&all)))
		nbd_io_end(list_entry(node, struct nbd_io, node), -EIO);
}

static void is_outage_over(struct timer *timer)
{
	struct nbd_queue *q = container_of(timer, struct nbd_queue, outage_timeout);

	log_limited_by(
		&q->nbd->limits.gave_up, LOG_LEVEL_ERROR,
		q->ready_nr > 0 ? "the server is back and answers nothing: what it loses fails"
				: "requests fail until the server is back",
		"device=%s queue=%u server=%s", q->nbd->name, q->queue->idx, q->nbd->address);
	q->gave_up = true;
	fail_waiting(q);
}

static void give_up_server(struct nbd_queue *q, uint64_t outage_timeout_ns)
{
	struct reactor *r = q->queue->reactor;

	if (outage_timeout_ns != OPTION_FOREVER && !q->gave_up && !q->outage_timeout.armed)
		reactor_timer_arm(r, &q->outage_timeout, r->now_ns + outage_timeout_ns);
}

static void be_well(struct nbd_queue *q)
{
	q->gave_up = false;
	reactor_timer_cancel(q->queue->reactor, &q->outage_timeout);
}

void nbd_queue_answered(struct nbd_queue *q, struct nbd_io *n)
{
	struct nbd_device *nbd = q->nbd;
	bool is_flush = n->io->op == BACKEND_FLUSH;
	bool modified = n->io->op == BACKEND_WRITE || n->io->op == BACKEND_WRITE_ZEROES;
	bool due =
		is_flush ? n->result < 0 && n->covers : modified && !(n->io->flags & BACKEND_FUA);

	if (due && !atomic_load_explicit(&nbd->unflushed, memory_order_relaxed))
		atomic_store(&nbd->unflushed, true);
	if (is_flush)
		nbd_flush_uncover(nbd, n);
	if (!q->unconfirmed)
		return;
	/* What waits now waits for the end of a connection that takes no more requests. */
	q->unconfirmed = !list_empty(&q->waiting);
	be_well(q);
}

/* Completions submit: what they add goes behind. */
void nbd_queue_ready(struct nbd_queue *q)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	q->ready_nr++;
	if (!q->unconfirmed)
		be_well(q);
	list_splice(&all, &q->waiting);
	while ((node = list_pop_front(&all))) {
		struct nbd_io *n = list_entry(node, struct nbd_io, node);
		struct nbd_connection *conn = choose_conn(q, n->io->tag);
		int ret = conn ? send_by(conn, n) : 0;

		if (!conn)
			nbd_queue_wait(q, n);
		else if (ret < 0)
			nbd_io_end(n, ret);
	}
}

static unsigned covering_by(const struct nbd_connection *conn)
{
	unsigned nr = 0;

	list_for_each (node, &conn->sent)
		nr += list_entry(node, struct nbd_io, node)->covers;
	return nr;
}

/*
 * The server may have restarted, even if other connections are still there. Writes that a FLUSH on
 * this connection covers fail that FLUSH; those of a FLUSH on another connection fail the next,
 * too.
 */
static void lose_writes(struct nbd_device *nbd, const struct nbd_connection *conn)
{
	bool unflushed = atomic_exchange(&nbd->unflushed, false);
	unsigned covering_nr = atomic_load(&nbd->covering_nr);

	if (!unflushed && covering_nr == 0)
		return;
	atomic_fetch_add(&nbd->losses, 1);
	if (unflushed || covering_nr > covering_by(conn))
		atomic_store(&nbd->lost_writes, true);
}

void nbd_queue_lost(struct nbd_queue *q, const struct nbd_connection *conn)
{
	struct nbd_device *nbd = q->nbd;

	ASSERT(q->ready_nr > 0);
	q->ready_nr--;
	if (nbd->config->cache == NBD_CACHE_VOLATILE)
		lose_writes(nbd, conn);
	if (q->ready_nr > 0)
		return;
	if (nbd->config->outage_timeout_ns == 0) {
		q->gave_up = true;
		fail_waiting(q);
	}
	give_up_server(q, nbd->config->outage_timeout_ns);
}

void nbd_queue_take_back(struct nbd_queue *q, struct nbd_io *n)
{
	struct nbd_connection *conn;

	if (n->covers && q->nbd->config->cache == NBD_CACHE_VOLATILE) {
		nbd_flush_uncover(q->nbd, n);
		nbd_io_end(n, -EIO);
	} else if (n->cancelled || q->gave_up || is_changed(q) ||
		   q->nbd->config->outage_timeout_ns == 0) {
		nbd_io_end(n, -EIO);
	} else {
		q->unconfirmed = true;
		give_up_server(q, q->nbd->config->outage_timeout_ns);
		conn = choose_conn(q, n->io->tag);
		if (!conn)
			nbd_queue_wait(q, n);
		else if (send_by(conn, n) < 0)
			nbd_io_end(n, -EIO);
	}
}

void nbd_queue_changed(struct nbd_queue *q)
{
	reactor_timer_cancel(q->queue->reactor, &q->outage_timeout);
	fail_waiting(q);
}

static void nbd_queue_resolved(void *arg, const struct net_addresses *found, const char *error)
{
	struct nbd_queue *q = arg;

	q->resolve = NULL;
	if (found)
		q->addresses = *found;
	else
		log_limited_by(&q->nbd->limits.lookup, LOG_LEVEL_WARN, "cannot look up the server",
			       "device=%s error=\"%s\"", q->nbd->name, error);
}

/* Meanwhile the known addresses are tried again: the answer is for the next try. */
void nbd_queue_look_up(struct nbd_queue *q)
{
	if (!q->resolve && !net_host_is_known(&q->nbd->uri.server))
		net_resolve_begin(&q->resolve, q->queue->reactor, &q->nbd->uri.server,
				  nbd_queue_resolved, q);
}

static void nbd_cancel(struct backend_io *io)
{
	struct nbd_io *n = io->priv;

	n->cancelled = true;
	if (n->state == NBD_IO_WAITING) {
		list_remove(&n->node);
		nbd_io_end(n, -ECANCELED);
	} else {
		nbd_connection_drop(n->conn, NET_END_CANCELLED, "a request was cancelled");
	}
}

static struct backend_wait nbd_wait(const struct backend_io *io)
{
	static const char *const name[] = {
		[NBD_IO_WAITING] = "waiting for the server to come back",
		[NBD_IO_SENT] = "waiting for the server's answer",
	};
	const struct nbd_io *n = io->priv;
	unsigned state = __atomic_load_n(&n->state, __ATOMIC_RELAXED);

	return (struct backend_wait){ .words = state < ARRAY_SIZE(name) ? name[state] : NULL };
}

static int nbd_io_init(struct backend_io *io)
{
	struct nbd_queue *q = io->queue->priv;
	struct nbd_io *n = io->priv;

	n->io = io;
	list_init(&n->node);
	q->io[io->tag] = n;
	return 0;
}

static int nbd_queue_init(struct backend_queue *queue)
{
	struct nbd_queue *q = queue->priv;
	int ret = 0;

	q->queue = queue;
	q->nbd = queue->device->priv;
	q->addresses = q->nbd->found.addresses;
	list_init(&q->waiting);
	timer_init(&q->outage_timeout, is_outage_over);
	q->io = calloc(queue->depth, sizeof(*q->io));
	q->conn = calloc(q->nbd->conns_per_queue, sizeof(*q->conn));
	if (!q->io || !q->conn)
		return -ENOMEM;
	while (ret == 0 && q->conn_nr < q->nbd->conns_per_queue) {
		ret = nbd_connection_open(&q->conn[q->conn_nr], q, q->conn_nr);
		q->conn_nr += ret == 0;
	}
	/* The first connection is made even where none is waited for later. */
	if (ret == 0)
		give_up_server(q,
			       MAX(q->nbd->config->outage_timeout_ns, q->nbd->config->timeout_ns));
	return ret;
}

static void nbd_queue_fini(struct backend_queue *queue)
{
	struct nbd_queue *q = queue->priv;

	reactor_timer_cancel(queue->reactor, &q->outage_timeout);
	net_resolve_forget(q->resolve);
	for (unsigned i = 0; i < q->conn_nr; i++)
		nbd_connection_abandon(q->conn[i]);
	free(q->conn);
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
	.batches = true,
	.check = nbd_check,
	.examine = nbd_ask,
	.found_free = free,
	.open = nbd_open,
	.close = nbd_close,
	.queue_init = nbd_queue_init,
	.queue_fini = nbd_queue_fini,
	.io_init = nbd_io_init,
	.submit = nbd_submit,
	.cancel = nbd_cancel,
	.wait = nbd_wait,
	.identity = nbd_identity,
	.failure = nbd_failure,
	.connection = nbd_connection_look,
};
