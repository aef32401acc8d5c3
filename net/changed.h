/*
 * A peer that came back as another one: what a device was opened with is gone, and it fails until
 * it is opened anew. The words are made once, by the reactor that sees it first; anybody reads them
 * from then on. Starts zeroed.
 */
#ifndef NET_CHANGED_H
#define NET_CHANGED_H

#include <stdatomic.h>
#include <stdbool.h>

#define NET_CHANGED_BYTES 320

struct net_changed {
	atomic_bool claimed, is;
	char words[NET_CHANGED_BYTES + 100];
};

/*
 * Reactor thread. what: "the export"; how: in what it is another one, as in "size was 1GiB, is
 * 2GiB". Told once, in the log too.
 */
void net_changed_note(struct net_changed *c, const char *what, const char *how, const char *device,
		      const char *server);

/* Any thread: the words, NULL while it is what it was. */
const char *net_changed_words(const struct net_changed *c);

/* The same question, of the hot path. */
static inline bool net_has_changed(const struct net_changed *c)
{
	return atomic_load_explicit(&c->is, memory_order_relaxed);
}

#endif
