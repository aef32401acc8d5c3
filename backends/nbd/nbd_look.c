/*
 * What a connection does and has done, for people. Main thread, while its reactor goes on: links
 * stay where they are between queue_init and queue_fini, and what changes in them is read whole.
 */
#include "backends/nbd/nbd.h"
#include "base/util.h"

static uint64_t peek(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

const char *nbd_link_state_word(enum nbd_link_state state)
{
	static const char waiting[] = "waiting", connecting[] = "connecting", leaving[] = "leaving";
	static const char *const word[] = {
		[NBD_LINK_DOWN] = waiting,	   [NBD_LINK_CONNECTING] = connecting,
		[NBD_LINK_HANDSHAKE] = connecting, [NBD_LINK_TLS] = connecting,
		[NBD_LINK_READY] = "connected",	   [NBD_LINK_RETIRING] = leaving,
		[NBD_LINK_CLOSING] = "closed",	   [NBD_LINK_LEAVING] = leaving,
	};

	return (size_t)state < ARRAY_SIZE(word) ? word[state] : "?";
}

static void look(const struct nbd_link *link, struct backend_connection *c)
{
	enum nbd_link_state state = __atomic_load_n(&link->state, __ATOMIC_RELAXED);
	const struct nbd_link_stats *s = &link->stats;

	*c = (struct backend_connection){
		.state = nbd_link_state_word(state),
		.since_ns = peek(&s->since_ns),
		.next_try_ns = state == NBD_LINK_DOWN ? peek(&s->next_try_ns) : 0,
		.connects = peek(&s->connects),
		.lost = peek(&s->lost),
		.failed_tries = peek(&s->failed_tries),
		.last_end = __atomic_load_n(&s->last_end, __ATOMIC_RELAXED),
		.resent = peek(&s->resent),
		.answered = histogram_count(&s->answer),
		.sends = peek(&link->stream.wire_sends),
		.sent_bytes = peek(&link->stream.wire_sent_bytes),
		.receives = peek(&link->stream.wire_receives),
		.received_bytes = peek(&link->stream.wire_received_bytes),
		.wait = &s->wait,
		.answer = &s->answer,
	};
	for (int end = 0; end < BACKEND_END_NR; end++)
		c->ends[end] = peek(&s->ends[end]);
}

bool nbd_link_look(const struct backend_queue *queue, unsigned idx,
		   struct backend_connection *ret_connection)
{
	const struct nbd_queue *q = queue->priv;

	if (idx >= q->link_nr)
		return false;
	look(q->link[idx], ret_connection);
	return true;
}
