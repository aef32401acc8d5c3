/* Addresses from text. Nothing is owned, any thread. */
#include "daemon/settings/listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_listen_port(const char *text, in_port_t *ret_port)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end || port > 65535)
		return -EINVAL;
	*ret_port = htons((in_port_t)port);
	return 0;
}

int address_parse(const char *text, struct sockaddr_storage *ret_addr)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	char host[INET6_ADDRSTRLEN + 2];
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	in_port_t port;

	if (len == 0 || len >= sizeof(host) || parse_listen_port(colon + 1, &port) < 0)
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)len, text);
	v4.sin_port = v6.sin6_port = port;
	memset(ret_addr, 0, sizeof(*ret_addr));
	if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
		memcpy(ret_addr, &v4, sizeof(v4));
		return 0;
	}
	if (host[0] != '[' || host[len - 1] != ']')
		return -EINVAL;
	host[len - 1] = '\0';
	if (inet_pton(AF_INET6, host + 1, &v6.sin6_addr) != 1)
		return -EINVAL;
	memcpy(ret_addr, &v6, sizeof(v6));
	return 0;
}

bool address_is_loopback(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;

	if (addr->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}
