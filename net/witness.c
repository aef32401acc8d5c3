/*
 * The witness of witness.h. Owns struct net_witness; each function says its thread.
 *
 * Happy path: the connection has not been closed by its other end, and its machine has said
 * something within a second, or answers a probe (keepalive, RFC 9293 3.8.4): a program that ends
 * closes its connections, a machine that was restarted does not know them. Then a FIN each way.
 * Failure modes: it was closed or reset, or nobody answers in time: it does not stand.
 */
#include "net/witness.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "reactor/ring.h"

/* A machine that was heard so long ago has not been restarted since. */
#define HEARD_MS 1000

/* Between two looks at what TCP has heard, of which no poll(2) tells. */
#define LOOK_MS 2

/* ---- the witness of the process before ---- */

static bool is_closed(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) != 0;
}

/* How long ago its machine was heard; or -errno: it is no connection of TCP, or not any more. */
static int64_t heard_ago_ms(int fd)
{
	struct tcp_info info;
	socklen_t bytes = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
		return -errno;
	if (info.tcpi_state != TCP_ESTABLISHED)
		return -ENOTCONN;
	return MIN(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
}

/* A connection that was silent for this time is probed at once. */
static void probe(int fd)
{
	int seconds = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
}

static bool machine_answers(int fd)
{
	uint64_t end_ns = ring_clock_ns() + NET_WITNESS_MS * NS_PER_MS;
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	int64_t ago_ms = heard_ago_ms(fd);

	if (ago_ms > HEARD_MS)
		probe(fd);
	while (ago_ms > HEARD_MS && ring_clock_ns() < end_ns && poll(&p, 1, LOOK_MS) == 0)
		ago_ms = heard_ago_ms(fd);
	return ago_ms >= 0 && ago_ms <= HEARD_MS;
}

static bool is_local(int fd)
{
	int family = 0;
	socklen_t bytes = sizeof(family);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

/* Half closed: the server does what it has read, and closes. What it answers is nobody's. */
void net_witness_end(int fd)
{
	uint64_t end_ns = ring_clock_ns() + NET_WITNESS_MS * NS_PER_MS, now_ns;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char rest[4096];
	ssize_t ret = 1;

	if (shutdown(fd, SHUT_WR) < 0)
		return;
	while (ret > 0 && (now_ns = ring_clock_ns()) < end_ns &&
	       poll(&p, 1, (int)((end_ns - now_ns) / NS_PER_MS) + 1) > 0)
		ret = recv(fd, rest, sizeof(rest), MSG_DONTWAIT);
	shutdown(fd, SHUT_RDWR);
}

bool net_witness_hear(int fd)
{
	return !is_closed(fd) && (is_local(fd) || machine_answers(fd)) && !is_closed(fd);
}

/* ---- of a device ---- */

void net_witness_init(struct net_witness *w, int before_fd, bool ends_it)
{
	*w = (struct net_witness){ .stood = before_fd > 0 && net_witness_hear(before_fd) };
	pthread_mutex_init(&w->lock, NULL);
	if (before_fd > 0 && ends_it)
		net_witness_end(before_fd);
	else if (w->stood)
		w->before = MAX(fcntl(before_fd, F_DUPFD_CLOEXEC, 3), 0);
}

static void drop(int *fd)
{
	if (*fd > 0)
		close(*fd);
	*fd = 0;
}

void net_witness_fini(struct net_witness *w)
{
	drop(&w->news);
	drop(&w->fd);
	drop(&w->before);
	pthread_mutex_destroy(&w->lock);
}

static bool let_go_before(struct net_witness *w)
{
	bool stood = w->before <= 0 || !is_closed(w->before);

	if (w->before > 0)
		shutdown(w->before, SHUT_RDWR);
	drop(&w->before);
	return stood;
}

bool net_witness_is(struct net_witness *w, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), on = 1;

	/* Of TCP alone. A machine that is silent is found by who talks, too (net/session.h). */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	pthread_mutex_lock(&w->lock);
	drop(&w->news);
	w->news = MAX(copy, 0);
	pthread_mutex_unlock(&w->lock);
	return let_go_before(w);
}

int net_witness_fd(struct net_witness *w)
{
	pthread_mutex_lock(&w->lock);
	if (w->news > 0) {
		drop(&w->fd);
		w->fd = w->news;
		w->news = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return w->fd > 0 ? w->fd : -1;
}
