/*
 * Asks the name server anew for a server's addresses, off the reactor: a thread waits, the reactor
 * gets mail. Reactor thread.
 */
#ifndef BACKENDS_NBD_NBD_RESOLVE_H
#define BACKENDS_NBD_NBD_RESOLVE_H

#include "backends/nbd/nbd_address.h"
#include "reactor/reactor.h"

struct nbd_resolve;

/* found NULL: error says why. It is over afterwards: no forget. */
typedef void nbd_resolve_fn(void *arg, const struct nbd_addresses *found, const char *error);

/* Returns 0, and fn is called once later, from a turn; or -ENOMEM, -EAGAIN (no thread to be had).
 */
int nbd_resolve_begin(struct nbd_resolve **ret_resolve, struct reactor *reactor,
		      const struct nbd_uri *uri, nbd_resolve_fn *fn, void *arg);

/* fn is not called any more. The thread ends by itself, whatever else is gone. Accepts NULL. */
void nbd_resolve_forget(struct nbd_resolve *resolve);

#endif
