/*
 * What FLUSH means while connections come and go. Writes that a server has acknowledged but not
 * flushed cannot be sent again when it is gone: unless it keeps them (is_volatile is false) the
 * next FLUSH fails, as fsync(2) does after an error of the medium. The marks are the device's, so
 * that a FLUSH of one queue stands for the writes of all. Reactor threads, several at once:
 * atomics.
 */
#ifndef NET_FLUSH_H
#define NET_FLUSH_H

#include <stdatomic.h>
#include <stdbool.h>

/* Of a device. */
struct net_flush {
	bool is_volatile; /* what is acknowledged may be lost with the server; never changed */
	/* Some queue has had a write acknowledged that no flush has covered yet. */
	atomic_bool unflushed;
	/* Such a write may be lost: the next flush says so. */
	atomic_bool lost_writes;
	/*
	 * With is_volatile. FLUSHes under way that cover such writes, and how often such a write
	 * may have been lost: no FLUSH of before succeeds by a server that is there afterwards.
	 */
	atomic_uint covering_nr, losses;
	/* A FLUSH that nobody has asked for covers such writes: it cannot say that they are lost.
	 */
	atomic_bool own_covers;
};

/* Of a request. */
struct net_flush_mark {
	unsigned losses; /* FLUSH: of the device, when it came */
	bool covers;	 /* FLUSH: writes that would be lost with the connection. May be read */
};

/* unflushed: who served it before may have left writes that no flush has covered. */
void net_flush_init(struct net_flush *f, bool is_volatile, bool unflushed);

/* A request has come. */
static inline void net_flush_came(const struct net_flush *f, struct net_flush_mark *m,
				  bool is_flush)
{
	m->covers = false;
	if (is_flush)
		m->losses = atomic_load(&f->losses);
}

/*
 * Before each sending of a FLUSH. False, it fails: writes that it stands for, or that a FLUSH has
 * still to report, may be lost.
 */
bool net_flush_begin(struct net_flush *f, struct net_flush_mark *m);

/* The server has done a write that is not durable by itself. */
static inline void net_flush_wrote(struct net_flush *f)
{
	if (!atomic_load_explicit(&f->unflushed, memory_order_relaxed))
		atomic_store(&f->unflushed, true);
}

/* The end of a FLUSH, that the server has answered by result. */
void net_flush_answered(struct net_flush *f, struct net_flush_mark *m, int result);

/* Nothing that a FLUSH could do for those that come: all is durable, or lost and not said yet. */
static inline bool net_flush_is_settled(const struct net_flush *f)
{
	return !atomic_load(&f->unflushed) || atomic_load(&f->lost_writes);
}

/* All that was acknowledged is durable. */
static inline bool net_flush_is_clean(const struct net_flush *f)
{
	return !atomic_load(&f->unflushed) && !atomic_load(&f->lost_writes);
}

/*
 * Around a FLUSH that nobody has asked for, one at a time; any thread. If what it covers is lost
 * meanwhile, the next FLUSH that somebody asks for says so, from the loss on.
 */
void net_flush_begin_own(struct net_flush *f);
void net_flush_end_own(struct net_flush *f, int result);

/* A connection is lost; covering_nr: of the FLUSHes that it had, those that cover writes. */
void net_flush_lost(struct net_flush *f, unsigned covering_nr);

/* The request was with a connection that is lost. False: it fails, as what it covers may be lost.
 */
bool net_flush_may_resend(struct net_flush *f, struct net_flush_mark *m);

#endif
