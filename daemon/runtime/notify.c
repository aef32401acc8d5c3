/*
 * sd_notify(3)'s protocol, without the library: one datagram to the socket that NOTIFY_SOCKET
 * names. Main thread. Failure mode: the socket is gone; that is logged and changes nothing else.
 */
#include "daemon/runtime/notify.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/runtime/fd_message.h"
#include "reactor/ring.h"

int notify_send_fd(const char *message, int fd)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t path_len = path ? strlen(path) : 0;
	struct timeval limit = { .tv_sec = 1 }; /* a manager whose queue is full must not stop us */
	int sock, ret = 0;

	if (path_len == 0)
		return 0;
	if (path_len >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return -EAFNOSUPPORT;
	memcpy(addr.sun_path, path, path_len);
	if (path[0] == '@')
		addr.sun_path[0] = '\0'; /* abstract */
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	path_len += offsetof(struct sockaddr_un, sun_path);
	if (connect(sock, (const void *)&addr, (socklen_t)path_len) < 0 ||
	    fd_message_send(sock, message, strlen(message), fd, 0) < 0)
		ret = errno == EAGAIN ? -ETIMEDOUT : -errno;
	close(sock);
	return ret;
}

int notify_send(const char *message)
{
	return notify_send_fd(message, -1);
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

/* All of the text, without a sign; 0 for anything else. */
static uint64_t number_of(const char *text)
{
	unsigned long long number;
	char *end;

	if (!text || !isdigit((unsigned char)text[0]))
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	return errno || *end ? 0 : number;
}

uint64_t notify_watchdog_ns(void)
{
	const char *pid = getenv("WATCHDOG_PID");
	uint64_t usec = number_of(getenv("WATCHDOG_USEC"));

	if (pid && number_of(pid) != (uint64_t)getpid())
		return 0;
	return usec > UINT64_MAX / NS_PER_US ? 0 : usec * NS_PER_US;
}

void notify_watchdog(void)
{
	send_or_log("WATCHDOG=1");
}
