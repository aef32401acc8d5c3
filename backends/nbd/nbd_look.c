/*
 * What a connection does and has done, for people. Main thread, while its reactor goes on:
 * connections stay where they are between queue_init and queue_fini, and what changes in them is
 * read whole.
 */
#include "backends/nbd/nbd.h"
#include "base/util.h"

static uint64_t connection_peek(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

const char *nbd_connection_state_word(enum nbd_connection_state state)
{
	static const char waiting[] = "waiting", connecting[] = "connecting", leaving[] = "leaving";
	static const char *const word[] = {
		[NBD_CONNECTION_DOWN] = waiting,	 [NBD_CONNECTION_CONNECTING] = connecting,
		[NBD_CONNECTION_HANDSHAKE] = connecting, [NBD_CONNECTION_READY] = "connected",
		[NBD_CONNECTION_RETIRING] = leaving,	 [NBD_CONNECTION_CLOSING] = "closed",
		[NBD_CONNECTION_LEAVING] = leaving,
	};

	return (size_t)state < ARRAY_SIZE(word) ? word[state] : "?";
}

static void connection_look(const struct nbd_connection *conn, struct net_connection_look *c)
{
	enum nbd_connection_state state = __atomic_load_n(&conn->state, __ATOMIC_RELAXED);
	const struct nbd_connection_stats *s = &conn->stats;

	*c = (struct net_connection_look){
		.state = nbd_connection_state_word(state),
		.since_ns = connection_peek(&s->since_ns),
		.next_try_ns = state == NBD_CONNECTION_DOWN ? connection_peek(&s->next_try_ns) : 0,
		.connects = connection_peek(&s->connects),
		.lost = connection_peek(&s->lost),
		.failed_tries = connection_peek(&s->failed_tries),
		.last_end = __atomic_load_n(&s->last_end, __ATOMIC_RELAXED),
		.resent = connection_peek(&s->resent),
		.answered = histogram_count(&s->answer),
		.sends = connection_peek(&conn->stream.wire_sends),
		.sent_bytes = connection_peek(&conn->stream.wire_sent_bytes),
		.receives = connection_peek(&conn->stream.wire_receives),
		.received_bytes = connection_peek(&conn->stream.wire_received_bytes),
		.wait = &s->wait,
		.answer = &s->answer,
	};
	for (int end = 0; end < NET_END_NR; end++)
		c->ends[end] = connection_peek(&s->ends[end]);
}

bool nbd_connection_look(const struct backend_queue *queue, unsigned idx,
			 struct net_connection_look *ret_connection)
{
	const struct nbd_queue *q = queue->priv;

	if (idx >= q->conn_nr)
		return false;
	connection_look(q->conn[idx], ret_connection);
	return true;
}
