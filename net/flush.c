/*
 * The marks of flush.h. Owns struct net_flush; reactor threads.
 *
 * Happy path: a write is acknowledged: unflushed -> a FLUSH is sent: it covers them -> answered:
 * nothing is left. Failure modes: the connection is lost meanwhile: the writes may be.
 */
#include "net/flush.h"

#include "base/log.h"

bool net_flush_init(struct net_flush *f, bool is_volatile, bool unflushed, _Atomic uint32_t *kept,
		    uint32_t several)
{
	bool may_be_left = is_volatile && unflushed;
	uint32_t left = atomic_exchange(kept, several | may_be_left);

	*f = (struct net_flush){ .is_volatile = is_volatile, .kept = kept };
	atomic_init(&f->unflushed, unflushed);
	return may_be_left && (left & ~NET_FLUSH_SEVERAL) > 0;
}

void net_flush_tell_left(const char *device)
{
	log_warn("writes that the server acknowledged may be lost, while nobody served the device: "
		 "its next FLUSH fails",
		 "device=%s", device);
}

/* ---- the count that is kept ---- */

static void kept_add(struct net_flush *f)
{
	atomic_fetch_add(f->kept, f->is_volatile);
}

static void kept_sub(struct net_flush *f, unsigned nr)
{
	atomic_fetch_sub(f->kept, f->is_volatile ? nr : 0);
}

/* Counted first: who finds `unflushed` set relies on it. */
void net_flush_wrote_first(struct net_flush *f)
{
	kept_add(f);
	if (atomic_exchange(&f->unflushed, true))
		kept_sub(f, 1);
}

/* ---- a FLUSH ---- */

/* Counted before `unflushed` is cleared: a loss at that moment finds at least one of both. */
void net_flush_begin(struct net_flush *f, struct net_flush_mark *m)
{
	bool counts = f->is_volatile && !m->covers, took;

	atomic_fetch_add(&f->covering_nr, counts);
	took = atomic_exchange(&f->unflushed, false);
	/* It has a part of the count already. */
	if (took && m->covers)
		kept_sub(f, 1);
	m->covers |= took;
	atomic_fetch_sub(&f->covering_nr, counts && !m->covers);
}

static void flush_uncover(struct net_flush *f, struct net_flush_mark *m)
{
	atomic_fetch_sub(&f->covering_nr, m->covers && f->is_volatile);
	kept_sub(f, m->covers);
	m->covers = false;
}

/* What was lost before it is told by it, or was: owed.h knows from here on. */
void net_flush_answered(struct net_flush *f, struct net_flush_mark *m, int result)
{
	if (result < 0 && m->covers)
		net_flush_wrote(f);
	else if (result >= 0)
		kept_sub(f, atomic_exchange(&f->lost_nr, 0));
	flush_uncover(f, m);
}

/* As net_flush_begin: a loss at any moment finds at least one of both. */
void net_flush_begin_own(struct net_flush *f)
{
	kept_add(f);
	atomic_store(&f->own_covers, true);
	if (atomic_exchange(&f->unflushed, false) || atomic_exchange(&f->own_covers, false))
		kept_sub(f, 1);
}

void net_flush_end_own(struct net_flush *f, int result)
{
	if (result < 0 && atomic_load(&f->own_covers))
		net_flush_wrote(f);
	/* Else a loss has it. */
	if (atomic_exchange(&f->own_covers, false))
		kept_sub(f, 1);
}

/* ---- a loss ---- */

/*
 * The server may have restarted, even if other connections are still there. What is kept counts it
 * until a FLUSH succeeds: the caller has still to say that it is owed.
 */
bool net_flush_lost(struct net_flush *f)
{
	unsigned nr;

	if (!f->is_volatile)
		return false;
	nr = atomic_exchange(&f->unflushed, false);
	nr += atomic_exchange(&f->own_covers, false);
	atomic_fetch_add(&f->lost_nr, nr);
	return nr > 0 || atomic_load(&f->covering_nr) > 0;
}

bool net_flush_may_resend(struct net_flush *f, struct net_flush_mark *m)
{
	if (!m->covers || !f->is_volatile)
		return true;
	flush_uncover(f, m);
	return false;
}
