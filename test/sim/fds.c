/*
 * Descriptors: which are the world's. Those of the product are found by looking, so that its calls
 * need no wrapping: all that is open and not the world's.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "test/sim/world.h"

#define FD_NR 256

static bool own[FD_NR];

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

void sim_fds_init(void)
{
	for (int fd = 0; fd < FD_NR; fd++)
		own[fd] = is_open(fd);
}

void sim_fd_own(int fd)
{
	if (fd < 0 || fd >= FD_NR)
		sim_fail("descriptor %d of the world", fd);
	own[fd] = true;
}

int sim_fd_dup(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	sim_fd_own(copy);
	return copy;
}

void sim_fd_close(int fd)
{
	own[fd] = false;
	close(fd);
}

unsigned sim_fds_drop(void)
{
	unsigned nr = 0;

	for (int fd = 0; fd < FD_NR; fd++) {
		if (own[fd] || !is_open(fd))
			continue;
		close(fd);
		nr++;
	}
	return nr;
}
