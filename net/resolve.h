/*
 * Asks the name server for the addresses of a host, off the reactor: a thread waits, the reactor
 * gets mail. Reactor thread.
 */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H

#include "net/address.h"
#include "reactor/reactor.h"

struct net_resolve;

/* found NULL: error says why. It is over afterwards: no forget. */
typedef void net_resolve_fn(void *arg, const struct net_addresses *found, const char *error);

/* Returns 0, and fn is called once later, from a turn; or -ENOMEM, -EAGAIN (no thread to be had).
 */
int net_resolve_begin(struct net_resolve **ret_resolve, struct reactor *reactor,
		      const struct net_host *host, net_resolve_fn *fn, void *arg);

/* fn is not called any more. The thread ends by itself. Accepts NULL. */
void net_resolve_forget(struct net_resolve *resolve);

#endif
