/*
 * sd_notify(3)'s protocol, without the library: one datagram to the socket that NOTIFY_SOCKET
 * names. Main thread. Failure mode: the socket is gone; that is logged and changes nothing else.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "reactor/ring.h"

int notify_send(const char *message)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t path_len = path ? strlen(path) : 0, len = strlen(message);
	ssize_t sent;
	int fd;

	if (path_len == 0)
		return 0;
	if (path_len >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return -EAFNOSUPPORT;
	memcpy(addr.sun_path, path, path_len);
	if (path[0] == '@')
		addr.sun_path[0] = '\0'; /* abstract */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	sent = sendto(fd, message, len, MSG_NOSIGNAL, (void *)&addr,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_len));
	sent = sent == (ssize_t)len ? 0 : sent < 0 ? -errno : -EPROTO;
	close(fd);
	return (int)sent;
}

static void send_or_log(const char *message)
{
	int ret = notify_send(message);

	if (ret < 0)
		log_warn("cannot tell the service manager", "state=\"%s\" error=%s", message,
			 errname(ret));
}

void notify_ready(void)
{
	send_or_log("READY=1");
}

void notify_stopping(void)
{
	send_or_log("STOPPING=1");
}

void notify_reloading(void)
{
	char message[64];

	snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(ring_clock_ns() / 1000));
	send_or_log(message);
}
