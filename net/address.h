/* Where a server can be reached, and the addresses of that for connect(2). */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum net_kind { NET_TCP, NET_UNIX, NET_VSOCK };

/* Texts are terminated. */
struct net_host {
	enum net_kind kind;
	char host[256];	   /* NET_TCP: name, IPv4, or IPv6 without brackets */
	uint32_t cid;	   /* NET_VSOCK */
	uint32_t port;	   /* NET_TCP (16 bits), NET_VSOCK */
	char path[108];	   /* NET_UNIX: as sun_path; begins with NUL: abstract */
	size_t path_bytes; /* without a NUL at the end */
};

/* More than a name server should give; the rest is left out. */
#define NET_ADDRESS_NR_MAX 8u

struct net_address {
	socklen_t bytes;
	struct sockaddr_storage name; /* AF_INET, AF_INET6, AF_UNIX or AF_VSOCK */
};

/* In the order in which they are to be tried (RFC 6724). */
struct net_addresses {
	unsigned nr; /* at least 1 */
	struct net_address address[NET_ADDRESS_NR_MAX];
};

/*
 * Any thread that may wait: asks the name server for a host name, as long as that takes; all else
 * (numeric, unix, vsock) is known at once. Returns 0, or -errno (-ENOENT: no such name, -EAGAIN: no
 * name server answers) with words for the user.
 */
int net_host_find(const struct net_host *host, struct net_addresses *ret_addresses, char *error,
		  size_t error_bytes);

/* True if net_host_find does not wait. */
bool net_host_is_known(const struct net_host *host);

/* "host:10809", "[::1]:10809", "unix:/run/x.sock", "vsock:2:10809", for people. Returns buf. */
const char *net_host_format(const struct net_host *host, char *buf, size_t buf_bytes);

/*
 * True for a server on this machine: a unix socket, or an address of the loopback device. (A tunnel
 * or a proxy that ends here cannot be told from that.)
 */
bool net_address_is_local(const struct net_address *address);

/* Why connect(2) failed, err, with the cure, for people: "no server at X: is it started?". */
void net_connect_words(enum net_kind kind, const char *whom, int err, char *buf, size_t bytes);

#endif
