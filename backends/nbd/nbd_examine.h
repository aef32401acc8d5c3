/*
 * What an NBD server offers: one connection, one handshake, and gone. Before a device is opened,
 * and for ublkctl nbd-info.
 */
#ifndef BACKENDS_NBD_NBD_EXAMINE_H
#define BACKENDS_NBD_NBD_EXAMINE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/nbd/nbd_handshake.h"
#include "backends/nbd/nbd_uri.h"
#include "net/address.h"
#include "net/tls.h"
#include "reactor/reactor.h"

struct nbd_examine_params {
	const struct nbd_uri *uri;	   /* outlives the question */
	const struct tls_credentials *tls; /* uri->tls: which; else NULL */
	const struct nbd_handshake_config
		*wish;			       /* copied; its tls does not count. export_name
						  outlives the question, and may differ from uri's */
	const struct net_addresses *addresses; /* copied; where to try, in this order */
	uint64_t timeout_ns;		       /* for all of it */
};

struct nbd_examine;

/*
 * export: with GO and INFO and ret 0; words: for the user with ret < 0: whom, what, the cure
 * ("unix:/run/x: ..."). Both are gone when it returns. It is over afterwards: no forget.
 */
typedef void nbd_examine_fn(void *arg, int ret, const struct nbd_export *export, const char *words);

/*
 * Tries one address after the other until one answers, each with its share of the time; with GO a
 * DISC is sent at the end. Reactor thread. Returns 0: fn is called once later, from a turn, never
 * from inside this call; or -ENOMEM, -ENOBUFS.
 */
int nbd_examine_begin(struct nbd_examine **ret_examine, struct reactor *reactor,
		      const struct nbd_examine_params *params, nbd_examine_fn *fn, void *arg);

/*
 * fn and wish->on_export are not called any more; what is under way ends by itself soon
 * (reactor_leave_begin). Not from inside of them. Accepts NULL.
 */
void nbd_examine_forget(struct nbd_examine *examine);

/* What it waits for, in words, static or in buf: "waiting for the server's answer to GO". */
const char *nbd_examine_doing(const struct nbd_examine *examine, char *buf, size_t bytes);

/*
 * Any thread without a reactor of its own, which may wait: finds the addresses and asks, on a small
 * reactor made for it. timeout_ns: for all of it but the name server. Returns 0, or -errno with
 * words for the user.
 */
int nbd_examine_wait(const struct nbd_uri *uri, const struct tls_credentials *tls,
		     const struct nbd_handshake_config *wish, uint64_t timeout_ns,
		     struct nbd_export *ret_export, char *error, size_t error_bytes);

#endif
