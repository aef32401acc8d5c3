/* The simulated world has no network: a stream finds no socket. */
#include <errno.h>

#include "reactor/ring.h"

int ring_socket(int family)
{
	(void)family;
	return -EAFNOSUPPORT;
}

void ring_shutdown(int fd)
{
	(void)fd;
}
