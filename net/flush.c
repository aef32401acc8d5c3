/*
 * The marks of flush.h. Owns struct net_flush; reactor threads.
 *
 * Happy path: a write is acknowledged: unflushed -> a FLUSH is sent: it covers them -> answered:
 * nothing is left. Failure modes: the connection is lost meanwhile: the writes may be.
 */
#include "net/flush.h"

void net_flush_init(struct net_flush *f, bool is_volatile, bool unflushed)
{
	*f = (struct net_flush){ .is_volatile = is_volatile };
	atomic_init(&f->unflushed, unflushed);
}

/* Counted before `unflushed` is cleared: a loss at that moment finds at least one of both. */
void net_flush_begin(struct net_flush *f, struct net_flush_mark *m)
{
	bool counts = f->is_volatile && !m->covers;

	atomic_fetch_add(&f->covering_nr, counts);
	m->covers |= atomic_exchange(&f->unflushed, false);
	atomic_fetch_sub(&f->covering_nr, counts && !m->covers);
}

static void flush_uncover(struct net_flush *f, struct net_flush_mark *m)
{
	atomic_fetch_sub(&f->covering_nr, m->covers && f->is_volatile);
	m->covers = false;
}

void net_flush_answered(struct net_flush *f, struct net_flush_mark *m, int result)
{
	if (result < 0 && m->covers)
		net_flush_wrote(f);
	flush_uncover(f, m);
}

/* As net_flush_begin: a loss at any moment finds at least one of both. */
void net_flush_begin_own(struct net_flush *f)
{
	atomic_store(&f->own_covers, true);
	if (!atomic_exchange(&f->unflushed, false))
		atomic_store(&f->own_covers, false);
}

void net_flush_end_own(struct net_flush *f, int result)
{
	if (result < 0 && atomic_load(&f->own_covers))
		net_flush_wrote(f);
	atomic_store(&f->own_covers, false);
}

/* The server may have restarted, even if other connections are still there. */
bool net_flush_lost(struct net_flush *f)
{
	bool lost;

	if (!f->is_volatile)
		return false;
	lost = atomic_exchange(&f->unflushed, false);
	lost |= atomic_exchange(&f->own_covers, false);
	return lost || atomic_load(&f->covering_nr) > 0;
}

bool net_flush_may_resend(struct net_flush *f, struct net_flush_mark *m)
{
	if (!m->covers || !f->is_volatile)
		return true;
	flush_uncover(f, m);
	return false;
}
