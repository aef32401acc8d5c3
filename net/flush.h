/*
 * What FLUSH means while connections come and go. Writes that a server has acknowledged but not
 * flushed cannot be sent again when it is gone: unless it keeps them (is_volatile is false) they
 * may be lost, which the backend owes to its users (storage/owed.h). Here is known whether there
 * are such writes. The marks are the device's, as a FLUSH of one queue stands for the writes of
 * all. Reactor threads, several at once: atomics.
 *
 * A count of what is not flushed stands in memory that outlives the process (owed.h): the server
 * may be lost while nobody serves the device. It is above 0 from before the first such write is
 * acknowledged until a FLUSH that covers it has succeeded: `unflushed` has one part of it, and each
 * FLUSH that covers writes, and each loss, takes that over.
 */
#ifndef NET_FLUSH_H
#define NET_FLUSH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In the count that is kept: the server takes several connections at a time. */
#define NET_FLUSH_SEVERAL (1u << 31)

/* Of a device. */
struct net_flush {
	bool is_volatile; /* what is acknowledged may be lost with the server; never changed */
	/* Some queue has had a write acknowledged that no flush has covered yet. */
	atomic_bool unflushed;
	/* With is_volatile: FLUSHes under way that cover such writes. */
	atomic_uint covering_nr;
	/* A FLUSH that nobody has asked for covers such writes. */
	atomic_bool own_covers;
	_Atomic uint32_t *kept; /* the count that outlives the process */
	atomic_uint lost_nr;	/* parts of it that are owed: until a FLUSH succeeds */
};

/* Of a request. */
struct net_flush_mark {
	bool covers; /* FLUSH: writes that would be lost with the connection. May be read */
};

/*
 * unflushed: who served it before may have left writes that no flush has covered. kept: outlives
 * f; several: NET_FLUSH_SEVERAL or 0. Returns true when who served it before did leave such writes,
 * by what is kept: they are lost, unless the server is known to have gone on meanwhile.
 */
bool net_flush_init(struct net_flush *f, bool is_volatile, bool unflushed, _Atomic uint32_t *kept,
		    uint32_t several);

/* To the log: what net_flush_init has found is owed. */
void net_flush_tell_left(const char *device);

/* A request has come. */
static inline void net_flush_came(struct net_flush_mark *m)
{
	m->covers = false;
}

/* Before each sending of a FLUSH. */
void net_flush_begin(struct net_flush *f, struct net_flush_mark *m);

/* The first write since: flush.c. */
void net_flush_wrote_first(struct net_flush *f);

/* The server has done a write that is not durable by itself. Before its user hears of it. */
static inline void net_flush_wrote(struct net_flush *f)
{
	if (!atomic_load_explicit(&f->unflushed, memory_order_relaxed))
		net_flush_wrote_first(f);
}

/* The end of a FLUSH, that the server has answered by result. */
void net_flush_answered(struct net_flush *f, struct net_flush_mark *m, int result);

/* A FLUSH would have nothing to do: all that was acknowledged is durable, or lost. */
static inline bool net_flush_is_settled(const struct net_flush *f)
{
	return !atomic_load(&f->unflushed);
}

/* Around a FLUSH that nobody has asked for, one at a time; any thread. */
void net_flush_begin_own(struct net_flush *f);
void net_flush_end_own(struct net_flush *f, int result);

/* A connection is lost. Whether writes may be: once for each. */
bool net_flush_lost(struct net_flush *f);

/* The request was with a connection that is lost. False: it fails, as what it covers may be lost.
 */
bool net_flush_may_resend(struct net_flush *f, struct net_flush_mark *m);

#endif
