/*
 * What FLUSH means while connections come and go. Writes that were acknowledged but not flushed
 * cannot be sent again when a server is gone: unless it keeps them (cache: kept) the next FLUSH
 * fails, as fsync(2) does after an error of the medium. The marks are the device's, so that a FLUSH
 * of one queue stands for the writes of all. Reactor threads, several at once: atomics.
 *
 * Happy path: a write is acknowledged: unflushed -> a FLUSH is sent: it covers them -> answered:
 * nothing is left. Failure modes: the connection is lost meanwhile: that FLUSH or the next fails.
 */
#include <errno.h>

#include "backends/nbd/nbd.h"

static bool cache_is_volatile(const struct nbd_device *nbd)
{
	return nbd->config->cache == NBD_CACHE_VOLATILE;
}

/* Counted before `unflushed` is cleared: a loss at that moment finds at least one of both. */
static void nbd_flush_cover(struct nbd_device *nbd, struct nbd_io *n)
{
	bool counts = cache_is_volatile(nbd) && !n->covers;

	atomic_fetch_add(&nbd->covering_nr, counts);
	n->covers |= atomic_exchange(&nbd->unflushed, false);
	atomic_fetch_sub(&nbd->covering_nr, counts && !n->covers);
}

static void nbd_flush_uncover(struct nbd_device *nbd, struct nbd_io *n)
{
	atomic_fetch_sub(&nbd->covering_nr, n->covers && cache_is_volatile(nbd));
	n->covers = false;
}

/*
 * False: lost_writes was set, and is reported by it; or writes were lost since it came, which it
 * stands for as much as the FLUSH that covered them.
 */
bool nbd_flush_begin(struct nbd_device *nbd, struct nbd_io *n)
{
	unsigned losses = atomic_load(&nbd->losses);

	if (n->losses != losses || atomic_exchange(&nbd->lost_writes, false))
		return false;
	nbd_flush_cover(nbd, n);
	return true;
}

void nbd_flush_answered(struct nbd_device *nbd, struct nbd_io *n, int result)
{
	bool is_flush = n->io->op == BACKEND_FLUSH;
	bool modified = n->io->op == BACKEND_WRITE || n->io->op == BACKEND_WRITE_ZEROES;
	bool due = is_flush ? result < 0 && n->covers : modified && !(n->io->flags & BACKEND_FUA);

	if (due && !atomic_load_explicit(&nbd->unflushed, memory_order_relaxed))
		atomic_store(&nbd->unflushed, true);
	if (is_flush)
		nbd_flush_uncover(nbd, n);
}

static unsigned covering_by(const struct nbd_connection *conn)
{
	unsigned nr = 0;

	list_for_each (node, &conn->c.sent)
		nr += nbd_io_of(list_entry(node, struct session_request, node))->covers;
	return nr;
}

/*
 * The server may have restarted, even if other connections are still there. Writes that a FLUSH on
 * this connection covers fail that FLUSH; those of a FLUSH on another connection fail the next,
 * too.
 */
void nbd_flush_lost(struct nbd_device *nbd, const struct nbd_connection *conn)
{
	bool unflushed;
	unsigned covering_nr;

	if (!cache_is_volatile(nbd))
		return;
	unflushed = atomic_exchange(&nbd->unflushed, false);
	covering_nr = atomic_load(&nbd->covering_nr);
	if (!unflushed && covering_nr == 0)
		return;
	atomic_fetch_add(&nbd->losses, 1);
	if (unflushed || covering_nr > covering_by(conn))
		atomic_store(&nbd->lost_writes, true);
}

bool nbd_flush_may_resend(struct nbd_device *nbd, struct nbd_io *n)
{
	if (!n->covers || !cache_is_volatile(nbd))
		return true;
	nbd_flush_uncover(nbd, n);
	return false;
}
