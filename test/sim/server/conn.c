/* What connections of all protocols do alike: bytes come, and go out a little later. */
#include <stdlib.h>

#include "test/sim/server/server.h"

static void speak(struct sim_event *event);

uint64_t server_conn_silent_until_ns(const struct server_conn *conn)
{
	return conn->server->silent_until_ns;
}

uint64_t server_conn_when(const struct server_conn *conn, uint64_t max_ns)
{
	return MAX(sim.now_ns + sim_skewed(NS_PER_US, max_ns), server_conn_silent_until_ns(conn));
}

void server_conn_say(struct server_conn *conn, const void *data, size_t bytes)
{
	net_bytes_add(&conn->out, data, bytes);
	if (conn->sock)
		conn->sock->answers.said_bytes += bytes;
	if (conn->speak.pos == 0)
		sim_event_arm(&conn->speak, server_conn_when(conn, 100 * NS_PER_US), speak);
}

/* Behind net_say the connection may be gone. */
static void speak(struct sim_event *event)
{
	struct server_conn *conn = container_of(event, struct server_conn, speak);
	struct net_bytes out = conn->out;

	if (sim.now_ns < server_conn_silent_until_ns(conn)) {
		sim_event_arm(event, server_conn_silent_until_ns(conn), speak);
		return;
	}
	conn->out = (struct net_bytes){ 0 };
	if (conn->leaves)
		net_hang_up(conn->sock, 0);
	else
		net_say(conn->sock, net_bytes_at(&out), out.nr);
	net_bytes_fini(&out);
}

/* ---- for the judge ---- */

size_t server_conn_peek(const struct server_conn *conn, size_t at, uint8_t *buf, size_t bytes)
{
	const struct net_bytes *in = &conn->in, *up = &conn->sock->up;
	size_t nr = 0;

	for (; nr < bytes && at + nr < in->nr; nr++)
		buf[nr] = net_bytes_at(in)[at + nr];
	for (; nr < bytes && at + nr < in->nr + up->nr; nr++)
		buf[nr] = net_bytes_at(up)[at + nr - in->nr];
	return nr;
}

bool server_conn_is_fresh(const struct server_conn *conn)
{
	return conn->serves && !conn->leaves && !conn->used && conn->out.nr == 0 &&
	       conn->sock->down.nr == 0;
}

struct client_rq *server_conn_rq(const struct server_conn *conn, unsigned tag)
{
	const struct model_dev *user = conn->server->st->user;

	return user ? model_rq(user, (unsigned)conn->sock->queue, tag) : NULL;
}

void server_conn_heard(const struct server_conn *conn, unsigned tag)
{
	struct client_rq *rq = server_conn_rq(conn, tag);

	if (rq && !rq->heard_ns)
		rq->heard_ns = sim.now_ns;
}

bool server_conn_is_mute(struct server_conn *conn, bool done, struct sim_event *event,
			 sim_event_fn *again)
{
	struct server *server = conn->server;

	if (!server_is_mute(server) && !done && sim_fault(FAULT_NET_MUTE))
		server_fall_mute(server);
	if (!server_is_mute(server))
		return false;
	if (server->mute_hangs_up)
		net_hang_up(conn->sock, 0);
	else
		sim_event_arm(event, server->mute_until_ns + sim_skewed(NS_PER_US, NS_PER_MS),
			      again);
	return true;
}

/* ---- its life ---- */

void server_conn_init(struct server_conn *conn, struct server *server, struct sim_socket *sock)
{
	*conn = (struct server_conn){ .server = server, .sock = sock, .life = server->life };
	list_push_back(&server->conns, &conn->node);
}

void server_conn_hears(struct server_conn *conn, const uint8_t *data, size_t bytes)
{
	size_t taken;

	net_bytes_add(&conn->in, data, bytes);
	do {
		taken = conn->server->protocol->take(conn, net_bytes_at(&conn->in), conn->in.nr);
		net_bytes_drop(&conn->in, taken);
	} while (taken > 0);
}

void server_conn_sent_to(struct server_conn *conn)
{
	if (conn->serves && !conn->leaves && !conn->used)
		judge_up(conn);
}

void server_conn_lost(struct server_conn *conn)
{
	if (conn->serves)
		judge_over(conn);
	conn->server->protocol->lost(conn);
	sim_event_cancel(&conn->speak);
	list_remove(&conn->node);
	net_bytes_fini(&conn->in);
	net_bytes_fini(&conn->out);
	free(conn);
}

void server_conn_cut(struct server_conn *conn, int err)
{
	if (sim_one_in(3))
		server_die(conn->server);
	else
		net_hang_up(conn->sock, err);
}
