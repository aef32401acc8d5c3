/*
 * A few messages on a socket. Failure mode: the old program goes away, which each call tells.
 */
#include "daemon/handover/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/handover/successor.h"

void standby_init(struct standby *s)
{
	const char *text = getenv(SUCCESSOR_STANDBY);
	bool given = text && sscanf(text, "%d %d", &s->socket, &s->lock_fd) == 2 &&
		     fcntl(s->socket, F_SETFD, FD_CLOEXEC) == 0 &&
		     fcntl(s->lock_fd, F_SETFD, FD_CLOEXEC) == 0;

	if (!given)
		s->socket = s->lock_fd = -1;
	unsetenv(SUCCESSOR_STANDBY);
}

bool standby_say(const struct standby *s, const char *fmt, ...)
{
	char text[STANDBY_MESSAGE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return send(s->socket, text, strlen(text), MSG_NOSIGNAL) >= 0;
}

bool standby_wait_for_go(const struct standby *s)
{
	char text[16];
	ssize_t bytes;

	do {
		bytes = recv(s->socket, text, sizeof(text), 0);
	} while (bytes < 0 && errno == EINTR);
	return bytes == 2 && memcmp(text, "go", 2) == 0;
}

void standby_end(struct standby *s)
{
	if (s->socket >= 0)
		close(s->socket);
	s->socket = -1;
}
