/* What the tests of the control socket share: a peer in the same thread, and the loop turned for
 * it. */
#ifndef TEST_RIG_SOCKET_CHECK_H
#define TEST_RIG_SOCKET_CHECK_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <ev.h>

/* Only what hangs takes so long, also on a slow and busy machine. */
#define PEER_OUTAGE_TIMEOUT_SECONDS 60.

struct peer {
	int fd;
	char *in;
	size_t in_bytes, in_size;
	bool eof;
};

static struct ev_loop *peer_loop;

static inline int peer_connect_fd(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	strcpy(addr.sun_path, path);
	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), 0);
	return fd;
}

static inline struct peer peer_connect(const char *path)
{
	return (struct peer){ .fd = peer_connect_fd(path) };
}

static inline void peer_close(struct peer *p)
{
	close(p->fd);
	free(p->in);
	*p = (struct peer){ .fd = -1 };
}

static inline void peer_pump(void)
{
	ev_run(peer_loop, EVRUN_NOWAIT);
}

/* Turns the loop for a while, for what must not happen; on a busy machine often enough, too. */
static inline void peer_pump_for(double seconds)
{
	double until = ev_time() + seconds;

	for (int turns = 0; turns < 10 || ev_time() < until; turns++) {
		ev_run(peer_loop, EVRUN_NOWAIT);
		usleep(1000);
	}
}

/* All of it, however little the other side takes at once; false when the connection is closed. */
static inline bool peer_send_bytes(struct peer *p, const char *data, size_t bytes)
{
	double until = ev_time() + PEER_OUTAGE_TIMEOUT_SECONDS;
	size_t sent = 0;

	while (sent < bytes && ev_time() < until) {
		ssize_t ret = send(p->fd, data + sent, bytes - sent, MSG_NOSIGNAL);

		if (ret < 0 && errno != EAGAIN)
			return false;
		if (ret > 0)
			sent += (size_t)ret;
		peer_pump();
	}
	return sent == bytes;
}

static inline bool peer_send(struct peer *p, const char *text)
{
	return peer_send_bytes(p, text, strlen(text));
}

static inline void peer_read_some(struct peer *p)
{
	ssize_t ret;

	if (p->in_bytes + 1 >= p->in_size) {
		p->in_size = p->in_size ? p->in_size * 2 : 4096;
		p->in = realloc(p->in, p->in_size);
		assert_non_null(p->in);
	}
	ret = recv(p->fd, p->in + p->in_bytes, p->in_size - p->in_bytes - 1, 0);
	if (ret > 0)
		p->in_bytes += (size_t)ret;
	else if (ret == 0 || errno != EAGAIN)
		p->eof = true;
}

/* The next line without its newline, to be freed; NULL: closed, or nothing came in time. */
static inline char *peer_line(struct peer *p)
{
	double until = ev_time() + PEER_OUTAGE_TIMEOUT_SECONDS;

	for (;;) {
		char *newline = p->in_bytes ? memchr(p->in, '\n', p->in_bytes) : NULL;

		if (newline) {
			size_t bytes = (size_t)(newline - p->in);
			char *line = strndup(p->in, bytes);

			p->in_bytes -= bytes + 1;
			memmove(p->in, newline + 1, p->in_bytes);
			return line;
		}
		if (p->eof || ev_time() >= until)
			return NULL;
		peer_pump();
		peer_read_some(p);
	}
}

static inline void peer_expect(struct peer *p, const char *expected)
{
	char *line = peer_line(p);

	assert_non_null(line);
	assert_string_equal(line, expected);
	free(line);
}

/* True when the other side closes without another line. */
static inline bool peer_closed(struct peer *p)
{
	char *line = peer_line(p);

	free(line);
	return !line && p->eof;
}

#endif
