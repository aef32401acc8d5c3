/*
 * What the connections of a session do and have done, for people. Any thread, while the reactor
 * goes on: connections stay where they are between session_init and session_fini, and what changes
 * in them is read whole.
 */
#include "net/session_internal.h"
#include "base/counter.h"
#include "base/util.h"

const char *net_end_name(enum net_end end)
{
	static const char *const name[NET_END_NR] = { "closed",	   "unreachable", "refused",
						      "silent",	   "protocol",	  "shutdown",
						      "cancelled", "changed" };

	return end < NET_END_NR ? name[end] : "?";
}

const char *session_state_word(enum session_state state)
{
	static const char waiting[] = "waiting", connecting[] = "connecting", leaving[] = "leaving";
	static const char *const word[] = {
		[SESSION_DOWN] = waiting,     [SESSION_CONNECTING] = connecting,
		[SESSION_HELLO] = connecting, [SESSION_READY] = "connected",
		[SESSION_RETIRING] = leaving, [SESSION_CLOSING] = "closed",
		[SESSION_LEAVING] = leaving,
	};

	return (size_t)state < ARRAY_SIZE(word) ? word[state] : "?";
}

/* A connection that serves, and that no request may take now: of a path that is not accessible. */
static const char *session_word_of(const struct session_connection *c, enum session_state state)
{
	bool unusable = __atomic_load_n(&c->rank, __ATOMIC_RELAXED) == SESSION_UNUSABLE;

	return state == SESSION_READY && unusable ? "unusable" : session_state_word(state);
}

bool session_look(const struct session *session, unsigned idx, struct net_connection_look *ret_look)
{
	const struct session_connection *c;
	const struct session_stats *s;
	enum session_state state;

	if (idx >= session->connection_nr)
		return false;
	c = session->connection[idx];
	s = &c->stats;
	state = __atomic_load_n(&c->state, __ATOMIC_RELAXED);
	*ret_look = (struct net_connection_look){
		.server = c->server,
		.state = session_word_of(c, state),
		.since_ns = counter_read(&s->since_ns),
		.next_try_ns = state == SESSION_DOWN ? counter_read(&s->next_try_ns) : 0,
		.connects = counter_read(&s->connects),
		.lost = counter_read(&s->lost),
		.failed_tries = counter_read(&s->failed_tries),
		.last_end = __atomic_load_n(&s->last_end, __ATOMIC_RELAXED),
		.resent = counter_read(&s->resent),
		.answered = histogram_count(&s->answer),
		.sends = counter_read(&c->stream.wire_sends),
		.sent_bytes = counter_read(&c->stream.wire_sent_bytes),
		.receives = counter_read(&c->stream.wire_receives),
		.received_bytes = counter_read(&c->stream.wire_received_bytes),
		.wait = &s->wait,
		.answer = &s->answer,
	};
	for (int end = 0; end < NET_END_NR; end++)
		ret_look->ends[end] = counter_read(&s->ends[end]);
	return true;
}
