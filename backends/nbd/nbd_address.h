/* Where a server of an NBD URI can be reached. Thread: any that may wait for a name server. */
#ifndef BACKENDS_NBD_NBD_ADDRESS_H
#define BACKENDS_NBD_NBD_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

#include "backends/nbd/nbd_uri.h"

/* More than a name server should give; the rest is left out. */
#define NBD_ADDRESS_NR_MAX 8u

struct nbd_address {
	socklen_t bytes;
	struct sockaddr_storage name; /* AF_INET, AF_INET6, AF_UNIX or AF_VSOCK */
};

/* In the order in which they are to be tried (RFC 6724). */
struct nbd_addresses {
	unsigned nr; /* at least 1 */
	struct nbd_address address[NBD_ADDRESS_NR_MAX];
};

/*
 * Asks the name server for a host name, as long as that takes; all else (numeric, unix, vsock) is
 * known at once. Returns 0, or -errno (-ENOENT: no such name, -EAGAIN: the name server does not
 * answer) with words for the user.
 */
int nbd_addresses_find(const struct nbd_uri *uri, struct nbd_addresses *ret_addresses, char *error,
		       size_t error_bytes);

/*
 * True for a server on this machine: a unix socket, or an address of the loopback device. (A tunnel
 * or a proxy that ends here cannot be told from that.)
 */
bool nbd_address_is_local(const struct nbd_address *address);

/* True when nbd_addresses_find waits for nobody. */
bool nbd_addresses_known(const struct nbd_uri *uri);

#endif
