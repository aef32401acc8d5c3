/*
 * One connection to an NBD server, from its address to the end of the handshake. Owns the socket
 * and the TLS session while nbd_examine runs. Any thread that may wait; it waits in poll(2) alone,
 * on a socket that never blocks, until its deadline.
 *
 * Happy path: connect -> bytes between the socket and nbd_handshake.c, through tls.c once that asks
 * for it -> DISC -> close. Failure modes: nobody there: the next address, then words; refused: the
 * words of the handshake; time is up: in which phase.
 */
#include "backends/nbd/nbd_examine.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/address.h"
#include "backends/nbd/nbd_credentials.h"
#include "backends/nbd/nbd_request.h"
#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

/* Between two tries to connect to a unix socket whose backlog is full. */
#define BACKLOG_RETRY_MS 5
/* Some answers are a page of exports; a record of TLS is 16 KiB and a little. */
#define WIRE_BYTES (16u << 10)

struct line {
	const struct nbd_examine *examine;
	char whom[160]; /* net_host_format */
	char *error;
	size_t error_bytes;
	int fd;
	uint64_t deadline_ns;
	struct tls *tls; /* NULL: clear text */
	bool tls_runs;	 /* its handshake is done: what is said goes through it */
	struct nbd_handshake h;
	uint8_t wire[WIRE_BYTES], plain[WIRE_BYTES];
};

static uint64_t examine_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static int examine_fail(struct line *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* "unix:/run/x: words". Returns err. */
static int examine_fail(struct line *l, int err, const char *fmt, ...)
{
	int nr = snprintf(l->error, l->error_bytes, "%s: ", l->whom);
	va_list args;

	va_start(args, fmt);
	if (nr > 0 && (size_t)nr < l->error_bytes)
		vsnprintf(l->error + nr, l->error_bytes - (size_t)nr, fmt, args);
	va_end(args);
	return err;
}

/* ---- waiting ---- */

/* Returns 0, -ETIMEDOUT at the deadline, or another -errno of poll(2). */
static int examine_wait_for(const struct line *l, short events)
{
	struct pollfd pfd = { .fd = l->fd, .events = events };

	for (;;) {
		uint64_t now = examine_now_ns();
		uint64_t left_ns = l->deadline_ns > now ? l->deadline_ns - now : 0;
		struct timespec ts = { .tv_sec = (time_t)(left_ns / NS_PER_SEC),
				       .tv_nsec = (long)(left_ns % NS_PER_SEC) };
		int ret = ppoll(&pfd, 1, &ts, NULL);

		if (ret > 0)
			return 0;
		if (ret == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

/* ---- connecting ---- */

static int examine_is_connected(const struct line *l)
{
	socklen_t bytes = sizeof(int);
	int err = 0, ret = examine_wait_for(l, POLLOUT);

	if (ret < 0)
		return ret;
	if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &err, &bytes) < 0)
		return -errno;
	return -err;
}

static int examine_connect_fd(const struct line *l, const struct net_address *address)
{
	const struct timespec pause = { .tv_nsec = BACKLOG_RETRY_MS * (long)NS_PER_MS };

	for (;;) {
		if (connect(l->fd, (const struct sockaddr *)&address->name, address->bytes) == 0)
			return 0;
		if (errno == EINPROGRESS || errno == EINTR)
			return examine_is_connected(l);
		/* unix(7): the server is there, and behind with its accept(2). */
		if (errno != EAGAIN || address->name.ss_family != AF_UNIX)
			return -errno;
		if (examine_now_ns() >= l->deadline_ns)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

/* Returns 0 with l->fd, or -errno. */
static int examine_connect_to(struct line *l, const struct net_address *address)
{
	int family = address->name.ss_family, on = 1, ret;

	l->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return -errno;
	if (family == AF_INET || family == AF_INET6)
		setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	ret = examine_connect_fd(l, address);
	if (ret < 0) {
		close(l->fd);
		l->fd = -1;
	}
	return ret;
}

static int examine_connect_failed(struct line *l, int err)
{
	switch (err) {
	case -ECONNREFUSED:
	case -ENOENT:
		snprintf(l->error, l->error_bytes, "no server at %s: is it started?", l->whom);
		return err;
	case -ETIMEDOUT:
		return examine_fail(
			l, err,
			"time is up while connecting: is the server up, and does a firewall "
			"let us through?");
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return examine_fail(l, err, "no way there (%s): is the network up?", errname(err));
	case -EACCES:
	case -EPERM:
		return examine_fail(l, err,
				    "not allowed to connect (%s): see the socket's mode and owner",
				    errname(err));
	case -ENODEV:
	case -EAFNOSUPPORT:
		return examine_fail(l, err, "this kernel cannot connect so (%s)%s", errname(err),
				    l->examine->uri->server.kind == NET_VSOCK
					    ? ": modprobe vsock, or its "
					      "transport, may help"
					    : "");
	default:
		return examine_fail(l, err, "cannot connect: %s", errname(err));
	}
}

/*
 * One address after the other. One that does not answer must not take the time of those behind it:
 * each has its share of what is left.
 */
static int examine_connect(struct line *l)
{
	struct net_addresses all;
	uint64_t end_ns;
	int ret = net_host_find(&l->examine->uri->server, &all, l->error, l->error_bytes);

	if (ret < 0)
		return ret;
	ASSERT(all.nr > 0);
	end_ns = examine_now_ns() + l->examine->timeout_ns;
	for (unsigned i = 0; i < all.nr; i++) {
		uint64_t now = examine_now_ns();

		l->deadline_ns = now + (end_ns > now ? end_ns - now : 0) / (all.nr - i);
		ret = examine_connect_to(l, &all.address[i]);
		if (ret == 0)
			break;
	}
	l->deadline_ns = end_ns;
	return ret < 0 ? examine_connect_failed(l, ret) : 0;
}

/* ---- bytes of the wire ---- */

static int send_wire(const struct line *l, const uint8_t *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t nr = send(l->fd, data, bytes, MSG_NOSIGNAL);
		int ret = 0;

		if (nr < 0 && errno == EAGAIN)
			ret = examine_wait_for(l, POLLOUT);
		else if (nr < 0 && errno != EINTR)
			ret = -errno;
		if (ret < 0)
			return ret;
		if (nr < 0)
			continue;
		data += nr;
		bytes -= (size_t)nr;
	}
	return 0;
}

/* A server that refuses may close at once: what it said before that is still to be read. */
static bool hung_up(ssize_t sent)
{
	return sent == -EPIPE || sent == -ECONNRESET;
}

/* Into l->wire. Returns how many, 0 at the end, or -errno. A reset is an end, too. */
static ssize_t receive_wire(struct line *l)
{
	for (;;) {
		ssize_t nr = recv(l->fd, l->wire, sizeof(l->wire), 0);
		int ret;

		if (nr >= 0)
			return nr;
		if (errno == ECONNRESET)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		ret = examine_wait_for(l, POLLIN);
		if (ret < 0)
			return ret;
	}
}

/* ---- TLS ---- */

static int send_tls_output(struct line *l)
{
	const uint8_t *data;
	size_t bytes;

	while ((bytes = tls_output(l->tls, &data)) > 0) {
		int ret = send_wire(l, data, bytes);

		if (ret < 0)
			return ret;
		tls_sent(l->tls, bytes);
	}
	return 0;
}

/* The end of the connection: what it means here. Returns 0 when TLS ended as it should. */
static int end_of_tls(struct line *l)
{
	tls_eof(l->tls);
	return tls_error(l->tls)[0] != '\0' ? -EPROTO : 0;
}

/* Returns how many bytes were fed, 0 at the end, or -errno. */
static ssize_t examine_feed_tls(struct line *l)
{
	ssize_t nr = receive_wire(l);

	/* Only when it has nothing left to read, so it has room: TLS_INPUT_BYTES. */
	if (nr > 0 && tls_feed(l->tls, l->wire, (size_t)nr) != (size_t)nr)
		return -EPROTO;
	return nr;
}

/* Of the server, or of its TLS, while what was being done. */
static int examine_broken(struct line *l, int err, const char *what)
{
	if (l->tls && tls_error(l->tls)[0] != '\0')
		return examine_fail(l, -EPROTO, "TLS: %s", tls_error(l->tls));
	if (err == -ETIMEDOUT)
		return examine_fail(l, err, "time is up (%llu ms) while %s",
				    (unsigned long long)(l->examine->timeout_ns / NS_PER_MS), what);
	return examine_fail(l, err, "the connection broke while %s: %s", what, errname(err));
}

static int tls_failed(struct line *l)
{
	send_tls_output(l); /* an alert, if that is still possible */
	return examine_fail(l, -EPROTO, "TLS: %s", tls_error(l->tls));
}

static int shake_hands_of_tls(struct line *l)
{
	enum tls_step step;

	while ((step = tls_handshake(l->tls)) == TLS_MORE) {
		ssize_t ret = send_tls_output(l);

		if (ret == 0 || hung_up(ret))
			ret = examine_feed_tls(l);
		if (ret == 0)
			ret = end_of_tls(l);
		if (ret < 0)
			return examine_broken(l, (int)ret,
					      "waiting for the server's TLS handshake");
	}
	return step == TLS_DONE ? 0 : tls_failed(l);
}

static int start_tls(struct line *l)
{
	int ret = tls_new(&l->tls, l->examine->tls, nbd_credentials_hostname(l->examine->uri));

	if (ret < 0) {
		l->tls = NULL;
		return examine_fail(l, ret, "out of memory");
	}
	ret = shake_hands_of_tls(l);
	if (ret < 0)
		return ret;
	l->tls_runs = true;
	nbd_handshake_tls_started(&l->h);
	return 0;
}

static int send_through_tls(struct line *l, const uint8_t *data, size_t bytes)
{
	while (bytes > 0) {
		struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
		ssize_t nr = tls_write(l->tls, &iov, 1);
		int ret;

		if (nr < 0)
			return (int)nr;
		data += nr;
		bytes -= (size_t)nr;
		ret = send_tls_output(l);
		if (ret < 0)
			return ret;
	}
	return send_tls_output(l);
}

/* Into l->plain, as receive_wire. */
static ssize_t receive_through_tls(struct line *l)
{
	for (;;) {
		ssize_t nr = tls_read(l->tls, l->plain, sizeof(l->plain));

		if (nr == -ENODATA)
			return 0;
		if (nr != -EAGAIN)
			return nr;
		nr = examine_feed_tls(l);
		if (nr == 0)
			return end_of_tls(l);
		if (nr < 0)
			return nr;
	}
}

/* ---- the handshake ---- */

static int examine_say(struct line *l, const uint8_t *data, size_t bytes)
{
	return l->tls_runs ? send_through_tls(l, data, bytes) : send_wire(l, data, bytes);
}

static int say_all(struct line *l)
{
	const uint8_t *data;
	size_t bytes;

	while ((bytes = nbd_handshake_output(&l->h, &data)) > 0) {
		int ret = examine_say(l, data, bytes);

		if (ret < 0)
			return ret;
		nbd_handshake_sent(&l->h, bytes);
	}
	return 0;
}

static int listen_once(struct line *l)
{
	ssize_t nr = l->tls_runs ? receive_through_tls(l) : receive_wire(l);
	size_t used;

	if (nr < 0)
		return (int)nr;
	if (nr == 0)
		nbd_handshake_eof(&l->h);
	else
		nbd_handshake_feed(&l->h, l->tls_runs ? l->plain : l->wire, (size_t)nr, &used);
	return 0;
}

static const char *examine_phase(const struct line *l, char *buf, size_t bytes)
{
	const char *opt = nbd_opt_name(l->h.opt);

	if (l->h.opt == 0 || !opt)
		return "waiting for the server's greeting: does it serve another client, and only "
		       "one at a time?";
	snprintf(buf, bytes, "waiting for the server's answer to %s", opt);
	return buf;
}

static int shake_hands(struct line *l)
{
	char what[80];

	while (l->h.step == NBD_HANDSHAKE_MORE || l->h.step == NBD_HANDSHAKE_START_TLS) {
		int ret = 0;

		if (l->h.step == NBD_HANDSHAKE_START_TLS) {
			ret = start_tls(l);
			if (ret < 0)
				return ret;
		}
		ret = say_all(l);
		if (ret == 0 || hung_up(ret))
			ret = listen_once(l);
		if (ret < 0)
			return examine_broken(l, ret, examine_phase(l, what, sizeof(what)));
	}
	return l->h.step == NBD_HANDSHAKE_DONE ? 0 : examine_fail(l, l->h.err, "%s", l->h.error);
}

/* Nobody waits for answers to this, and nothing is lost when it does not arrive. */
static void examine_say_goodbye(struct line *l, bool transmits)
{
	uint8_t disc[NBD_REQUEST_BYTES_MAX];
	int ret = say_all(l);

	if (ret == 0 && transmits)
		ret = examine_say(l, disc, nbd_request_encode_disc(disc, l->h.export.extended));
	if (ret == 0 && l->tls_runs) {
		tls_bye(l->tls);
		send_tls_output(l);
	}
}

static int examine_talk(struct line *l, struct nbd_export *ret_export)
{
	int ret = shake_hands(l);

	if (l->h.step == NBD_HANDSHAKE_DONE || l->h.step == NBD_HANDSHAKE_FAILED)
		examine_say_goodbye(l, ret == 0 && l->h.config.mode == NBD_HANDSHAKE_GO);
	if (ret == 0)
		*ret_export = l->h.export;
	return ret;
}

int nbd_examine(const struct nbd_examine *examine, struct nbd_export *ret_export, char *error,
		size_t error_bytes)
{
	struct line *l = calloc(1, sizeof(*l));
	struct nbd_handshake_config wish = *examine->wish;
	int ret;

	ASSERT(examine->uri->tls == (examine->tls != NULL));
	wish.tls = examine->uri->tls; /* without it the handshake is in clear text */
	if (!l) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	l->examine = examine;
	l->error = error;
	l->error_bytes = error_bytes;
	net_host_format(&examine->uri->server, l->whom, sizeof(l->whom));
	nbd_handshake_init(&l->h, &wish);
	ret = examine_connect(l);
	if (ret == 0) {
		ret = examine_talk(l, ret_export);
		close(l->fd);
	}
	tls_free(l->tls);
	free(l);
	return ret;
}
