/*
 * From a host to what connect(2) takes. Owns nothing. Any thread that may wait: getaddrinfo(3)
 * asks /etc/hosts and name servers, as nsswitch.conf(5) says.
 *
 * Happy path: unix and vsock are copied; TCP is getaddrinfo's list, cut at its limit. Failure
 * modes: no such name, or no name server answers: in words.
 */
#include "net/address.h"

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

/* Returns as getaddrinfo(3); flags: AI_NUMERICHOST, or 0 to ask around. */
static int net_look_up(const struct net_host *host, int flags, struct addrinfo **ret_list)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
	char port[16];

	snprintf(port, sizeof(port), "%u", host->port);
	return getaddrinfo(host->host, port, &hints, ret_list);
}

/* gai: the answer of getaddrinfo. */
static int net_no_name(const struct net_host *host, int gai, char *error, size_t error_bytes)
{
	int err = errno;

	switch (gai) {
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
		snprintf(error, error_bytes,
			 "there is no host \"%s\": is the name right? (getent ahosts %s)",
			 host->host, host->host);
		return -ENOENT;
	case EAI_AGAIN:
		snprintf(error, error_bytes,
			 "no name server answers for \"%s\": is the network up? (resolv.conf)",
			 host->host);
		return -EAGAIN;
	case EAI_MEMORY:
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	case EAI_SYSTEM:
		snprintf(error, error_bytes, "cannot look up \"%s\": %s", host->host, errname(err));
		return err > 0 ? -err : -EIO;
	default:
		snprintf(error, error_bytes, "cannot look up \"%s\": %s", host->host,
			 gai_strerror(gai));
		return -EIO;
	}
}

static int net_find_tcp(const struct net_host *host, struct net_addresses *ret_addresses,
			char *error, size_t error_bytes)
{
	struct addrinfo *list;
	unsigned nr = 0;
	int gai = net_look_up(host, 0, &list);

	if (gai != 0)
		return net_no_name(host, gai, error, error_bytes);
	for (const struct addrinfo *ai = list; ai && nr < NET_ADDRESS_NR_MAX; ai = ai->ai_next) {
		struct net_address *address = &ret_addresses->address[nr];

		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		ASSERT(ai->ai_addrlen <= sizeof(address->name));
		address->bytes = ai->ai_addrlen;
		memcpy(&address->name, ai->ai_addr, ai->ai_addrlen);
		nr++;
	}
	freeaddrinfo(list);
	ret_addresses->nr = nr;
	return nr > 0 ? 0 : net_no_name(host, EAI_NODATA, error, error_bytes);
}

int net_host_find(const struct net_host *host, struct net_addresses *ret_addresses, char *error,
		  size_t error_bytes)
{
	struct net_address *first = &ret_addresses->address[0];
	struct sockaddr_un *un = (struct sockaddr_un *)&first->name;
	struct sockaddr_vm *vm = (struct sockaddr_vm *)&first->name;

	_Static_assert(sizeof(host->path) == sizeof(un->sun_path), "the same limit");
	if (host->kind == NET_TCP)
		return net_find_tcp(host, ret_addresses, error, error_bytes);
	ret_addresses->nr = 1;
	first->name = (struct sockaddr_storage){ 0 };
	if (host->kind == NET_UNIX) {
		un->sun_family = AF_UNIX;
		memcpy(un->sun_path, host->path, sizeof(un->sun_path));
		/* unix(7): an abstract name is as long as it is, a path has its NUL. */
		first->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
					   host->path_bytes + (host->path[0] != '\0'));
	} else {
		vm->svm_family = AF_VSOCK;
		vm->svm_cid = host->cid;
		vm->svm_port = host->port;
		first->bytes = sizeof(*vm);
	}
	return 0;
}

const char *net_host_format(const struct net_host *host, char *buf, size_t buf_bytes)
{
	if (host->kind == NET_VSOCK)
		snprintf(buf, buf_bytes, "vsock:%u:%u", host->cid, host->port);
	else if (host->kind == NET_UNIX)
		/* ss(8) writes an abstract name so too. */
		snprintf(buf, buf_bytes, "unix:%s%s", host->path[0] ? "" : "@",
			 host->path[0] ? host->path : host->path + 1);
	else
		snprintf(buf, buf_bytes, strchr(host->host, ':') ? "[%s]:%u" : "%s:%u", host->host,
			 host->port);
	return buf;
}

bool net_address_is_local(const struct net_address *address)
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

bool net_host_is_known(const struct net_host *host)
{
	struct addrinfo *list;

	if (host->kind != NET_TCP)
		return true;
	if (net_look_up(host, AI_NUMERICHOST, &list) != 0)
		return false;
	freeaddrinfo(list);
	return true;
}

void net_connect_words(enum net_kind kind, const char *whom, int err, char *buf, size_t bytes)
{
	switch (err) {
	case -ECONNREFUSED:
	case -ENOENT:
		snprintf(buf, bytes, "no server at %s: is it started?", whom);
		break;
	case -ETIMEDOUT:
		snprintf(buf, bytes,
			 "%s: time is up while connecting: is the server up, and does a firewall "
			 "let us through?",
			 whom);
		break;
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		snprintf(buf, bytes, "%s: no way there (%s): is the network up?", whom,
			 errname(err));
		break;
	case -EACCES:
	case -EPERM:
		snprintf(buf, bytes,
			 "%s: not allowed to connect (%s): see the socket's mode and owner", whom,
			 errname(err));
		break;
	case -ENODEV:
	case -EAFNOSUPPORT:
		snprintf(buf, bytes, "%s: this kernel cannot connect so (%s)%s", whom, errname(err),
			 kind == NET_VSOCK ? ": modprobe vsock, or its transport, may help" : "");
		break;
	default:
		snprintf(buf, bytes, "%s: cannot connect: %s", whom, errname(err));
	}
}
