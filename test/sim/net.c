/* The simulated world has no network: a stream finds no socket. */
#include <errno.h>

#include "reactor/ring.h"

int ring_socket(int family)
{
	(void)family;
	return -EAFNOSUPPORT;
}

int ring_connect_unix(int fd, const struct sockaddr *address, socklen_t address_bytes)
{
	(void)fd, (void)address, (void)address_bytes;
	return -EBADF;
}

void ring_shutdown(int fd)
{
	(void)fd;
}
