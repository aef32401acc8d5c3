/*
 * The requests of a session: which connection takes one, what becomes of those that none can take,
 * and the outage policy. Owns the requests that are held; the connections own the others. Reactor
 * thread.
 *
 *	submit -> (a connection is ready) sent -> ... -> done
 *	       -> (none is) held -> a connection is ready -> as above
 *	                         -> the outage timer has expired -> fails
 *
 * Failure modes: no peer: the outage policy decides, for each session by itself; a peer that is
 * another one than before (is_over): everything fails. cancel ends what is held at once, and what
 * was sent by dropping the connection.
 */
#include <errno.h>
#include <stdlib.h>

#include "net/session_internal.h"
#include "base/assert.h"
#include "base/util.h"

bool session_is_over(const struct session *s)
{
	return s->protocol->is_over && s->protocol->is_over(s);
}

/* ---- what is held ---- */

static void session_hold(struct session *s, struct session_request *r)
{
	s->unconfirmed = true;
	r->state = SESSION_REQUEST_HELD;
	r->connection = NULL;
	list_push_back(&s->held, &r->node);
}

static bool session_fails_fast(const struct session *s, const struct session_request *r)
{
	return s->has_served && s->protocol->fails_fast && s->protocol->fails_fast(r);
}

int session_hold_new(struct session *s, struct session_request *r)
{
	if (s->gave_up)
		return -EIO;
	if (session_fails_fast(s, r))
		return -ENOLINK;
	session_hold(s, r);
	return 0;
}

static void session_fail_held(struct session *s)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	list_splice(&all, &s->held);
	while ((node = list_pop_front(&all)))
		session_end(s->protocol, list_entry(node, struct session_request, node), -EIO);
}

/* What `done` adds goes behind. */
static void session_resume(struct session *s)
{
	struct list_node all = LIST_INIT(all);
	struct list_node *node;

	list_splice(&all, &s->held);
	while ((node = list_pop_front(&all))) {
		struct session_request *r = list_entry(node, struct session_request, node);
		struct session_connection *c = session_choose(s, r->hint);
		int ret = c ? session_send(c, s->protocol, r) : 0;

		if (!c)
			session_hold(s, r);
		else if (ret < 0)
			session_end(s->protocol, r, ret);
	}
}

/* ---- the outage ---- */

static void session_give_up(struct timer *timer)
{
	struct session *s = container_of(timer, struct session, outage);

	log_limited_by(&s->params.limits->gave_up, LOG_LEVEL_ERROR,
		       s->ready_nr > 0
			       ? "the server is back and answers nothing: what it loses fails"
			       : "requests fail until the server is back",
		       "device=%s queue=%u server=%s", s->params.name, s->params.queue_idx,
		       s->params.server);
	s->gave_up = true;
	session_fail_held(s);
}

static void session_watch_outage(struct session *s, uint64_t ns)
{
	if (ns != SESSION_FOREVER && !s->gave_up && !s->outage.armed)
		reactor_timer_arm(s->reactor, &s->outage, s->reactor->now_ns + ns);
}

static void session_be_well(struct session *s)
{
	s->gave_up = false;
	reactor_timer_cancel(s->reactor, &s->outage);
}

static bool session_retires(const struct session *s)
{
	for (unsigned i = 0; i < s->connection_nr; i++)
		if (s->connection[i]->state == SESSION_RETIRING)
			return true;
	return false;
}

void session_confirm(struct session *s)
{
	s->unconfirmed = !list_empty(&s->held);
	session_be_well(s);
	/* What is held now waits for the end of a connection that retires, which must come, or for
	 * one that is of use again. */
	if (s->unconfirmed && !session_retires(s))
		session_watch_outage(s, s->params.outage_timeout_ns);
}

/* A connection takes requests, or none does: one that is ready and of no use is as good as none. */
static void session_judge(struct session *s)
{
	if (!session_choose(s, 0)) {
		session_watch_outage(s, s->params.outage_timeout_ns);
		return;
	}
	if (!s->unconfirmed)
		session_be_well(s);
	session_resume(s);
}

void session_gained(struct session *s)
{
	s->ready_nr++;
	s->has_served = true;
	session_judge(s);
}

void session_lost(struct session *s, struct session_connection *c)
{
	ASSERT(s->ready_nr > 0);
	s->ready_nr--;
	if (s->protocol->lost)
		s->protocol->lost(c);
	if (session_choose(s, 0))
		return;
	if (s->params.outage_timeout_ns == 0) {
		s->gave_up = true;
		session_fail_held(s);
	}
	session_watch_outage(s, s->params.outage_timeout_ns);
}

void session_ranks_changed(struct session *s)
{
	session_judge(s);
}

void session_take_back(struct session *s, struct session_request *r)
{
	const struct session_protocol *p = s->protocol;
	struct session_connection *c;
	int ret = 0;

	if (r->own)
		ret = -ECONNRESET;
	else if (p->may_resend)
		ret = p->may_resend(r);
	if (ret == 0 &&
	    (r->cancelled || s->gave_up || session_is_over(s) || s->params.outage_timeout_ns == 0))
		ret = -EIO;
	if (ret < 0) {
		session_end(p, r, ret);
		return;
	}
	s->unconfirmed = true;
	session_watch_outage(s, s->params.outage_timeout_ns);
	c = session_choose(s, r->hint);
	if (!c && session_fails_fast(s, r))
		ret = -ENOLINK;
	else if (!c)
		session_hold(s, r);
	else
		ret = session_send(c, p, r);
	if (ret < 0)
		session_end(p, r, ret);
}

void session_stop(struct session *s)
{
	reactor_timer_cancel(s->reactor, &s->outage);
	session_fail_held(s);
}

/* ---- where the peer is ---- */

static void session_resolved(void *arg, const struct net_addresses *found, const char *error)
{
	struct session *s = arg;

	s->resolve = NULL;
	if (found)
		s->addresses = *found;
	else
		log_limited_by(&s->params.limits->lookup, LOG_LEVEL_WARN,
			       "cannot look up the server", "device=%s error=\"%s\"",
			       s->params.name, error);
}

/* Meanwhile the known addresses are tried again: the answer is for the next try. */
void session_look_up(struct session *s)
{
	const struct net_host *host = s->params.host;

	if (!s->resolve && host && !net_host_is_known(host))
		net_resolve_begin(&s->resolve, s->reactor, host, session_resolved, s);
}

/* ---- one request ---- */

void session_cancel(struct session *s, struct session_request *r)
{
	r->cancelled = true;
	if (r->state == SESSION_REQUEST_SENT) {
		session_drop(r->connection, NET_END_CANCELLED, "a request was cancelled");
	} else if (r->state == SESSION_REQUEST_HELD) {
		list_remove(&r->node);
		session_end(s->protocol, r, -ECANCELED);
	}
}

const char *session_request_doing(const struct session_request *r)
{
	static const char *const words[] = {
		[SESSION_REQUEST_HELD] = "waiting for the server to come back",
		[SESSION_REQUEST_SENT] = "waiting for the server's answer",
	};
	unsigned state = __atomic_load_n(&r->state, __ATOMIC_RELAXED);

	return state < ARRAY_SIZE(words) ? words[state] : NULL;
}

/* ---- beginning and end ---- */

int session_init(struct session *s, const struct session_params *params)
{
	int ret = 0;

	ASSERT(params->connection_nr > 0 && params->addresses->nr > 0);
	s->protocol = params->protocol;
	s->reactor = params->reactor;
	s->timeout_ns = params->timeout_ns;
	s->addresses = *params->addresses;
	s->params = *params;
	list_init(&s->held);
	timer_init(&s->outage, session_give_up);
	s->connection = calloc(params->connection_nr, sizeof(struct session_connection *));
	if (!s->connection)
		return -ENOMEM;
	while (ret == 0 && s->connection_nr < params->connection_nr) {
		ret = session_connection_open(&s->connection[s->connection_nr], s,
					      s->connection_nr);
		s->connection_nr += ret == 0;
	}
	/* The first connection is made even where none is waited for later. */
	if (ret == 0)
		session_watch_outage(s, MAX(params->outage_timeout_ns, params->timeout_ns));
	return ret;
}

void session_fini(struct session *s)
{
	if (!s->reactor)
		return;
	reactor_timer_cancel(s->reactor, &s->outage);
	net_resolve_forget(s->resolve);
	for (unsigned i = 0; i < s->connection_nr; i++)
		session_connection_abandon(s->connection[i]);
	free(s->connection);
	*s = (struct session){ 0 };
}
