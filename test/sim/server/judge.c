/*
 * Which errors the users of a device may see although its server reported none, and for how long
 * they may wait. All of it is what the world saw: a connection counts as there from the moment when
 * the first request went over it, until it was over; that is never more than what the client
 * believes.
 *
 *	on_disconnect fail	requests of before a connection was there, or was given up
 *	on_disconnect queue	those of an outage that was as long as they wait: from the first
 *				connection that ended until the client had looked at an answer, or
 *				was connected when it had no request
 *				A server that says that it can serve nothing is as good as none
 *	FLUSH			the first one after a connection was given up, unless the cache
 *				is kept. More than one only when they were in flight together
 *	another server		all
 *
 * The client looks when it receives again; what it then had not noticed of the ends of others
 * begins an outage of its own.
 */
#include <errno.h>

#include "test/sim/server/server.h"
#include "test/sim/ublk_model.h"

/* A clock that is read before the world's. */
#define GRACE_NS NS_PER_MS
/* Turns that come late, one after the other. */
#define LATE_NS (5 * NS_PER_SEC)

static bool has_outage_timeout(const struct server *server)
{
	return server->outage_timeout_ns != 0 && server->outage_timeout_ns != UINT64_MAX;
}

static struct server_outage *outage_of_sock(const struct sim_socket *sock)
{
	struct server *server = sock->server;

	return server && sock->life == server->life && sock->queue >= 0
		       ? &server->queue[sock->queue]
		       : NULL;
}

/* NULL: of another life, or of a probe. */
static struct server_outage *outage_of(const struct server_conn *conn)
{
	return conn->sock ? outage_of_sock(conn->sock) : NULL;
}

void judge_begin(struct server *server)
{
	server->life++;
	server->was_up = false;
	server->closed_ns = server->told_ns = 0;
	for (unsigned i = 0; i < SERVER_QUEUES_MAX; i++)
		server->queue[i] =
			(struct server_outage){ .since_ns = sim.now_ns, .answered_ns = sim.now_ns };
}

static bool too_long(const struct server *server, const struct server_outage *o)
{
	return has_outage_timeout(server) && o->since_ns &&
	       sim.now_ns - o->since_ns + GRACE_NS >= server->outage_timeout_ns;
}

/* What it has said then may come late, and its client asks again now and then only. */
static bool refused_lately(const struct server *server, const struct server_outage *o)
{
	return o->refused_ns && sim.now_ns - o->refused_ns <= LATE_NS + 2 * server->timeout_ns;
}

/* since_ns: of the next outage, or 0. */
static void end_outage(const struct server *server, struct server_outage *o, uint64_t since_ns)
{
	if (too_long(server, o))
		o->too_long_ns = sim.now_ns;
	o->since_ns = since_ns;
	o->harmed = false;
}

static void come_up(struct server_outage *o)
{
	if (o->up_nr++ == 0)
		o->end_ns = sim.now_ns;
}

void judge_up(struct server_conn *conn)
{
	struct server_outage *o = outage_of(conn);

	if (!o)
		return;
	conn->used = true;
	conn->server->was_up = true;
	if (!conn->useless)
		come_up(o);
}

void judge_over(const struct server_conn *conn)
{
	struct server_outage *o = outage_of(conn);

	if (!o)
		return;
	o->up_nr -= conn->used && !conn->useless;
	o->over_ns = sim.now_ns;
	if (!o->since_ns)
		o->since_ns = sim.now_ns;
}

void judge_said(struct server_conn *conn)
{
	struct server_answers *a = &conn->sock->answers;

	a->last_end = a->said_bytes;
	if (!a->next_end)
		a->next_end = a->said_bytes;
}

void judge_useless(struct server_conn *conn, bool useless)
{
	struct server_outage *o = outage_of(conn);

	if (o && useless)
		o->refused_ns = sim.now_ns;
	if (!o || conn->useless == useless)
		return;
	conn->useless = useless;
	if (!useless) {
		come_up(o);
		return;
	}
	o->up_nr -= conn->used;
	if (!o->since_ns)
		o->since_ns = sim.now_ns;
}

/* Ends between the next and the last are not known: the client has them a little later. */
void judge_got(struct sim_socket *sock, size_t bytes)
{
	struct server_answers *a = &sock->answers;

	a->got_bytes += bytes;
	if (sock->shut || !a->next_end || a->got_bytes < a->next_end)
		return;
	a->next_end = a->last_end > a->got_bytes ? a->last_end : 0;
	a->got_ns = sim.now_ns;
	a->doubt = net_any_over(sock->server, sock->queue);
}

static bool is_idle(const struct server *server, unsigned queue)
{
	const struct model_dev *user = server->st->user;

	for (unsigned tag = 0; user && tag < user->info.queue_depth; tag++)
		if (model_rq(user, queue, tag))
			return false;
	return user != NULL;
}

void judge_looked(struct sim_socket *sock)
{
	struct server_outage *o = outage_of_sock(sock);
	struct server_answers *a = &sock->answers;

	if (!o || sock->shut)
		return;
	if (a->got_ns) {
		/* An answer of before a refusal does not take that back. */
		if (!refused_lately(sock->server, o))
			end_outage(sock->server, o,
				   a->doubt || o->over_ns >= a->got_ns ? a->got_ns : 0);
		o->answered_ns = sim.now_ns;
		a->got_ns = 0;
	} else if (sock->conn && server_conn_is_fresh(sock->conn) && !o->harmed &&
		   is_idle(sock->server, (unsigned)sock->queue)) {
		end_outage(sock->server, o,
			   net_any_over(sock->server, sock->queue) ? sim.now_ns : 0);
	}
}

void server_closed(const struct sim_socket *sock)
{
	struct server *server = sock->server;

	if (!server || sock->life != server->life || sock->queue < 0 || sock->harmless)
		return;
	server->closed_ns = sim.now_ns;
	server->queue[sock->queue].lost_ns = sim.now_ns;
}

static bool excuses_flush(const struct server *server, const struct client_rq *rq)
{
	return client_rq_op(rq) == UBLK_IO_OP_FLUSH && !server->cache_kept && server->closed_ns &&
	       server->closed_ns >= rq->told_ns;
}

static bool excuses_any(const struct server *server, const struct client_rq *rq)
{
	const struct server_outage *o = &server->queue[rq->queue];

	if (server->changed)
		return true;
	if (server->outage_timeout_ns == 0)
		return o->up_nr == 0 || refused_lately(server, o) ||
		       rq->start_ns <= MAX(o->end_ns, o->lost_ns);
	if (too_long(server, o))
		return true;
	return rq->start_ns <= o->too_long_ns && sim.now_ns - o->too_long_ns <= LATE_NS;
}

/*
 * It goes to a connection that is silent, waits, and when that is over is with another one. Nobody
 * knows when a filter lets it go, but the server has heard of it.
 */
static void check_time(const struct server *server, const struct client_rq *rq)
{
	uint64_t came_ns = server->filtered ? rq->heard_ns : rq->handed_ns;
	uint64_t since_ns = MAX(came_ns, server->queue[rq->queue].answered_ns);

	if (has_outage_timeout(server) && came_ns &&
	    sim.now_ns - since_ns > server->outage_timeout_ns + 2 * server->timeout_ns + LATE_NS)
		sim_fail("queue %u tag %u has waited too long: %llu ms", rq->queue, rq->tag,
			 (unsigned long long)((sim.now_ns - since_ns) / NS_PER_MS));
}

void judge_ended(const struct server *server, const struct client_rq *rq)
{
	check_time(server, rq);
	list_for_each (node, &server->conns) {
		const struct server_conn *conn = list_entry(node, struct server_conn, node);

		if (outage_of(conn) && conn->sock->queue == (int)rq->queue &&
		    server->protocol->lacks(conn, rq->tag))
			sim_fail("queue %u tag %u is answered before all of it was sent", rq->queue,
				 rq->tag);
	}
}

bool judge_excuses(struct server *server, const struct client_rq *rq)
{
	server->queue[rq->queue].harmed = true;
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

/* Also where the server has reported an error, which may never have come to the client. */
void judge_failed(struct server *server, const struct client_rq *rq)
{
	struct server_outage *o = &server->queue[rq->queue];

	o->harmed |= o->since_ns != 0;
}

/* As after a failed fsync(2): what was acknowledged by then is owed by no later one. */
void judge_flush_failed(struct server *server)
{
	struct storage *st = server->st;

	for (uint64_t i = 0; i < st->block_nr; i++) {
		if (st->gone[i])
			st->gone[i] = STORAGE_LOST_TOLD;
		if (st->dirty_seq[i])
			st->acked_seq[i] = 0;
	}
}
