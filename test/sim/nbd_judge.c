/*
 * Which errors the users of a device may see although its server reported none. All of it is what
 * the world saw: a connection counts as there from the moment when the first request went over it,
 * until it was over; that is never more than what the client believes.
 *
 *	on_disconnect fail	requests of before a connection was there, or was given up
 *	on_disconnect queue	those of an outage that was as long as they wait
 *	FLUSH			the first one after a connection was given up, unless the cache
 *				is kept. More than one only when they were in flight together
 *	another server		all
 */
#include <errno.h>

#include "test/sim/nbd_server.h"

static struct nbd_outage *outage_of(const struct nbd_conn *conn)
{
	struct nbd_server *server = conn->server;

	return conn->life == server->life ? &server->queue[conn->sock->queue] : NULL;
}

void nbd_judge_begin(struct nbd_server *server)
{
	server->life++;
	server->was_up = false;
	server->closed_ns = server->told_ns = 0;
	for (unsigned i = 0; i < NBD_SERVER_QUEUES_MAX; i++)
		server->queue[i] = (struct nbd_outage){ .since_ns = sim.now_ns };
}

static bool too_long(const struct nbd_server *server, const struct nbd_outage *o)
{
	return server->patience_ns != UINT64_MAX && sim.now_ns - o->since_ns >= server->patience_ns;
}

void nbd_judge_up(struct nbd_conn *conn)
{
	struct nbd_outage *o = outage_of(conn);

	if (!o)
		return;
	conn->used = true;
	conn->server->was_up = true;
	if (o->up_nr++ > 0)
		return;
	o->end_ns = sim.now_ns;
	if (too_long(conn->server, o))
		o->too_long_ns = sim.now_ns;
}

void nbd_judge_over(const struct nbd_conn *conn)
{
	struct nbd_outage *o = conn->used ? outage_of(conn) : NULL;

	if (!o || --o->up_nr > 0)
		return;
	o->since_ns = sim.now_ns;
}

void nbd_server_closed(const struct sim_socket *sock)
{
	struct nbd_server *server = sock->server;

	if (!server || sock->life != server->life || sock->queue < 0)
		return;
	server->closed_ns = sim.now_ns;
	server->queue[sock->queue].lost_ns = sim.now_ns;
}

static bool excuses_flush(const struct nbd_server *server, const struct client_rq *rq)
{
	return client_rq_op(rq) == UBLK_IO_OP_FLUSH && !server->cache_kept && server->closed_ns &&
	       server->closed_ns >= rq->told_ns;
}

static bool excuses_any(const struct nbd_server *server, const struct client_rq *rq)
{
	const struct nbd_outage *o = &server->queue[rq->queue];

	if (server->changed)
		return true;
	if (o->up_nr == 0 && too_long(server, o))
		return true;
	if (server->patience_ns == 0)
		return rq->start_ns <= MAX(o->end_ns, o->lost_ns);
	return rq->start_ns <= o->too_long_ns;
}

bool nbd_judge_excuses(struct nbd_server *server, const struct client_rq *rq)
{
	if (excuses_any(server, rq)) {
		sim_saw(FAULT_NET_OUTAGE);
		return true;
	}
	if (!excuses_flush(server, rq))
		return false;
	sim_saw(FAULT_NET_FLUSH_LOST);
	server->told_ns = MAX(server->told_ns, rq->start_ns);
	return true;
}

/* As after a failed fsync(2): what was acknowledged by then is owed by no later one. */
void nbd_judge_flush_failed(struct nbd_server *server)
{
	struct storage *st = server->st;

	for (uint64_t i = 0; i < st->block_nr; i++) {
		if (st->gone[i])
			st->gone[i] = STORAGE_LOST_TOLD;
		if (st->dirty_seq[i])
			st->acked_seq[i] = 0;
	}
}
