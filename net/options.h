/*
 * Options that all backends with a server have in common: groups and maps for their option tables
 * (config/option.h), so that the same words mean the same everywhere. The structs stand in a
 * backend's own configuration:
 *
 *	{ .type = OPTION_GROUP,
 *	  .offset = offsetof(struct x_config, outage),
 *	  .table = net_outage_options },
 *	{ .name = "tls",
 *	  .type = OPTION_MAP,
 *	  .offset = offsetof(struct x_config, tls),
 *	  .table = net_tls_options,
 *	  .table_bytes = sizeof(struct net_tls_config),
 *	  .help = what TLS is to this backend },
 */
#ifndef NET_OPTIONS_H
#define NET_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "config/option.h"

/* A group: `on_disconnect` and `timeout`. */
struct net_outage_config {
	uint64_t outage_timeout_ns; /* on_disconnect: 0: fail, OPTION_FOREVER: for ever */
	uint64_t timeout_ns;	    /* of a request, and of connect with handshake */
	bool fail_fast;		    /* net_fail_fast_options */
};

extern const struct option net_outage_options[];

/*
 * The pause that a server asks for before a request is sent again (Retry-After, NVMe's CRDT), as
 * far as it is granted: half of on_disconnect, so that a server that is well again is asked before
 * requests fail; and NET_WISH_NS_MAX, which is often enough for one that wants hours. With
 * on_disconnect: fail, where no request waits for it, a second. Pure.
 */
#define NET_WISH_NS_MAX (60 * NS_PER_SEC)
uint64_t net_outage_grant_ns(const struct net_outage_config *outage, uint64_t wish_ns);

/* A group for the same struct, of those whose session can (session_protocol.fails_fast):
 * `failfast`. */
extern const struct option net_fail_fast_options[];

enum net_tls_type { NET_TLS_AUTO, NET_TLS_ANON, NET_TLS_X509, NET_TLS_PSK };

/* What a map `tls` says; texts that it does not say are NULL. */
struct net_tls_config {
	char *psk_file, *username, *certificates, *hostname;
	int type; /* enum net_tls_type */
	bool verify_peer;
};

extern const struct option net_tls_options[];

#endif
