/*
 * From an NBD URI to what connect(2) takes. Owns nothing. Any thread that may wait: getaddrinfo(3)
 * asks /etc/hosts and name servers, as nsswitch.conf(5) says.
 *
 * Happy path: unix and vsock are copied; TCP is getaddrinfo's list, cut at its limit. Failure
 * modes: no such name, or nobody who could tell: in words.
 */
#include "backends/nbd/nbd_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

/* It wants sys/socket.h before it. */
#include <linux/vm_sockets.h>

#include "base/assert.h"
#include "base/errname.h"

static void one(struct nbd_addresses *all, const void *name, size_t bytes)
{
	all->nr = 1;
	all->address[0].bytes = (socklen_t)bytes;
	memcpy(&all->address[0].name, name, bytes);
}

/* unix(7): an abstract name is as long as it is, a path has its NUL. */
static void find_unix(const struct nbd_uri *uri, struct nbd_addresses *ret_addresses)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	bool abstract = uri->socket[0] == '\0';

	_Static_assert(sizeof(uri->socket) == sizeof(un.sun_path), "the same limit");
	memcpy(un.sun_path, uri->socket, sizeof(un.sun_path));
	one(ret_addresses, &un,
	    offsetof(struct sockaddr_un, sun_path) + uri->socket_bytes + !abstract);
}

static void find_vsock(const struct nbd_uri *uri, struct nbd_addresses *ret_addresses)
{
	struct sockaddr_vm vm = {
		.svm_family = AF_VSOCK,
		.svm_cid = uri->cid,
		.svm_port = uri->port,
	};

	one(ret_addresses, &vm, sizeof(vm));
}

/* Returns as getaddrinfo(3); flags: AI_NUMERICHOST, or 0 to ask around. */
static int look_up(const struct nbd_uri *uri, int flags, struct addrinfo **ret_list)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
	char port[16];

	snprintf(port, sizeof(port), "%u", uri->port);
	return getaddrinfo(uri->host, port, &hints, ret_list);
}

/* gai: the answer of getaddrinfo. */
static int no_name(const struct nbd_uri *uri, int gai, char *error, size_t error_bytes)
{
	int err = errno;

	switch (gai) {
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
		snprintf(error, error_bytes,
			 "there is no host \"%s\": is the name right? (getent ahosts %s)",
			 uri->host, uri->host);
		return -ENOENT;
	case EAI_AGAIN:
		snprintf(error, error_bytes,
			 "no name server answers for \"%s\": is the network up? (resolv.conf)",
			 uri->host);
		return -EAGAIN;
	case EAI_MEMORY:
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	case EAI_SYSTEM:
		snprintf(error, error_bytes, "cannot look up \"%s\": %s", uri->host, errname(err));
		return err > 0 ? -err : -EIO;
	default:
		snprintf(error, error_bytes, "cannot look up \"%s\": %s", uri->host,
			 gai_strerror(gai));
		return -EIO;
	}
}

static int find_tcp(const struct nbd_uri *uri, struct nbd_addresses *ret_addresses, char *error,
		    size_t error_bytes)
{
	struct addrinfo *list;
	unsigned nr = 0;
	int gai = look_up(uri, 0, &list);

	if (gai != 0)
		return no_name(uri, gai, error, error_bytes);
	for (const struct addrinfo *ai = list; ai && nr < NBD_ADDRESS_NR_MAX; ai = ai->ai_next) {
		struct nbd_address *address = &ret_addresses->address[nr];

		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		ASSERT(ai->ai_addrlen <= sizeof(address->name));
		address->bytes = ai->ai_addrlen;
		memcpy(&address->name, ai->ai_addr, ai->ai_addrlen);
		nr++;
	}
	freeaddrinfo(list);
	ret_addresses->nr = nr;
	return nr > 0 ? 0 : no_name(uri, EAI_NODATA, error, error_bytes);
}

int nbd_addresses_find(const struct nbd_uri *uri, struct nbd_addresses *ret_addresses, char *error,
		       size_t error_bytes)
{
	switch (uri->transport) {
	case NBD_UNIX:
		find_unix(uri, ret_addresses);
		return 0;
	case NBD_VSOCK:
		find_vsock(uri, ret_addresses);
		return 0;
	case NBD_TCP:
		break;
	}
	return find_tcp(uri, ret_addresses, error, error_bytes);
}

bool nbd_address_is_local(const struct nbd_address *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&address->name;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address->name;

	switch (address->name.ss_family) {
	case AF_UNIX:
		return true;
	case AF_INET:
		return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	case AF_INET6:
		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	default:
		return false;
	}
}

bool nbd_addresses_known(const struct nbd_uri *uri)
{
	struct addrinfo *list;

	if (uri->transport != NBD_TCP)
		return true;
	if (look_up(uri, AI_NUMERICHOST, &list) != 0)
		return false;
	freeaddrinfo(list);
	return true;
}
