/*
 * The transport of the control socket. Owns the listening socket and the clients. Main thread;
 * nothing here ever blocks.
 *
 * Happy path: a client is READING until a newline came, and WAITING until it is its turn; the
 * handler has it (HANDLING) until it answers; the answer is WRITING until sent; then READING again,
 * beginning with what came along.
 *
 * Whose turn it is: start-time fair queueing. A request begins where the client's last one ended,
 * in virtual time, but not in the past; the first in virtual time is next. So the next request of
 * a client that used much of the thread's time comes after all that used less.
 *
 * Failure modes: a client too many, a line too long, a client that sends or takes nothing for too
 * long, or its answer too slowly, that is gone: it is dropped, with a word to it where that is
 * possible without waiting.
 */
#include "daemon/socket/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/runtime/fd_message.h"
#include "reactor/ring.h"

#define READ_BYTES 4096
#define BACKLOG 64
#define PAUSE_SECONDS 0.5
#define ACCEPTS_PER_TURN 8

static void forget_passed_fd(struct socket_client *c)
{
	if (c->passed_fd >= 0)
		close(c->passed_fd);
	c->passed_fd = -1;
}

int socket_take_fd(struct socket_client *c)
{
	int fd = c->passed_fd;

	c->passed_fd = -1;
	return fd;
}

static void drop_client(struct socket_client *c)
{
	struct socket_server *s = c->server;

	if (c->state == CLIENT_HANDLING)
		s->cancel(c);
	if (c->state == CLIENT_WAITING) {
		list_remove(&c->turn);
		s->waiting_nr--;
	}
	if (c->state == CLIENT_WRITING)
		s->unread_bytes -= c->out_bytes - c->out_sent;
	ev_io_stop(s->ev, &c->readable);
	ev_io_stop(s->ev, &c->writable);
	ev_timer_stop(s->ev, &c->timeout);
	list_remove(&c->node);
	s->client_nr--;
	close(c->fd);
	forget_passed_fd(c);
	free(c->in);
	free(c->out);
	free(c);
}

/* ---- writing ---- */

static void take_next_request(struct socket_client *c);

static void set_client_timeout(struct socket_client *c, double seconds)
{
	c->timeout.repeat = seconds;
	ev_timer_again(c->server->ev, &c->timeout);
}

static void answer_sent(struct socket_client *c)
{
	ev_io_stop(c->server->ev, &c->writable);
	free(c->out);
	c->out = NULL;
	if (c->close_after) {
		drop_client(c);
		return;
	}
	/* The request at the beginning of in is done with. */
	forget_passed_fd(c);
	memmove(c->in, c->in + c->line_bytes, c->in_bytes - c->line_bytes);
	c->in_bytes -= c->line_bytes;
	c->line_bytes = c->scanned = 0;
	c->state = CLIENT_READING;
	set_client_timeout(c, c->server->idle_seconds);
	take_next_request(c);
}

/* For the next byte, and for all of them. */
static void set_write_timeout(struct socket_client *c)
{
	double left = c->answered + c->server->answer_seconds - ev_time();

	set_client_timeout(c, MAX(MIN(left, c->server->write_seconds), 0.001));
}

static void on_client_writable(struct ev_loop *ev, struct ev_io *w, int events)
{
	struct socket_client *c = container_of(w, struct socket_client, writable);
	ssize_t ret = send(c->fd, c->out + c->out_sent, c->out_bytes - c->out_sent, MSG_NOSIGNAL);

	(void)ev, (void)events;
	if (ret < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (ret < 0) {
		drop_client(c);
		return;
	}
	c->out_sent += (size_t)ret;
	c->server->unread_bytes -= (size_t)ret;
	set_write_timeout(c);
	if (c->out_sent == c->out_bytes)
		answer_sent(c);
}

/* A timer of zero seconds: the work continues after everything else that the loop has to do. */
static void want_turn(struct socket_server *s)
{
	if (!ev_is_active(&s->turn))
		ev_timer_start(s->ev, &s->turn);
}

/*
 * Only marks the answer to be sent: it goes out from the loop. So a client with many requests in
 * its buffer cannot make handler and transport call each other ever deeper.
 */
bool socket_client_left(const struct socket_client *client)
{
	struct pollfd p = { .fd = client->fd };

	/* POLLHUP, which needs no asking for: of a stream socket, when both ends are shut down. */
	return poll(&p, 1, 0) == 1;
}

void socket_reply(struct socket_client *c, char *text, bool close_after)
{
	ASSERT(c->state == CLIENT_HANDLING);
	c->state = CLIENT_WRITING;
	c->request = NULL;
	c->out = text;
	c->out_sent = 0;
	c->close_after = close_after;
	if (text) {
		c->out_bytes = strlen(text);
		text[c->out_bytes++] = '\n'; /* in the place of the NUL */
	} else {
		c->out_bytes = 0;
		c->close_after = true;
	}
	c->server->unread_bytes += c->out_bytes;
	c->answered = ev_time();
	ev_io_start(c->server->ev, &c->writable);
	set_write_timeout(c);
	if (c->server->unread_bytes > c->server->unread_bytes_max)
		want_turn(c->server);
}

/* ---- reading ---- */

static void refuse_request(struct socket_client *c, const char *reason)
{
	char *text = NULL;

	if (asprintf(&text, "{\"ok\":false,\"error\":\"%s\"}", reason) < 0)
		text = NULL;
	ev_io_stop(c->server->ev, &c->readable);
	c->state = CLIENT_HANDLING;
	socket_reply(c, text, true);
}

/* The first `bytes` bytes of in are a request: it waits for its turn. */
static void queue_up(struct socket_client *c, size_t bytes)
{
	struct socket_server *s = c->server;
	struct list_node *before;

	c->state = CLIENT_WAITING;
	c->line_bytes = bytes + 1;
	ev_io_stop(s->ev, &c->readable);
	ev_timer_stop(s->ev, &c->timeout);
	c->virtual_ns = MAX(c->virtual_ns, s->virtual_ns);
	for (before = s->waiting.prev; before != &s->waiting; before = before->prev)
		if (list_entry(before, struct socket_client, turn)->virtual_ns <= c->virtual_ns)
			break;
	list_insert_between(&c->turn, before, before->next);
	s->waiting_nr++;
	want_turn(s);
}

/* READING: queues up with the first line of what there is, or asks for more. */
static void take_next_request(struct socket_client *c)
{
	char *newline = memchr(c->in + c->scanned, '\n', c->in_bytes - c->scanned);

	c->scanned = c->in_bytes;
	if (newline)
		queue_up(c, (size_t)(newline - c->in));
	else if (c->in_bytes >= SOCKET_REQUEST_BYTES_MAX)
		refuse_request(c, "request is longer than 1 MiB");
	else if (c->eof)
		drop_client(c);
	else
		ev_io_start(c->server->ev, &c->readable);
}

/*
 * Never past a client that waits for another turn: a new client begins before it. That new clients
 * come again and again must not stop the clock, else they would be all that is ever handled.
 */
static void advance_clock(struct socket_server *s, uint64_t took_ns)
{
	s->virtual_ns += took_ns / (s->waiting_nr + 1);
	list_for_each (node, &s->waiting) {
		const struct socket_client *c = list_entry(node, struct socket_client, turn);

		if (!c->had_turn)
			continue;
		s->virtual_ns = MIN(s->virtual_ns, c->virtual_ns);
		break;
	}
}

/* Of this thread: that others had the CPU is not the client's doing. */
static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static void handle_next(struct socket_server *s)
{
	struct socket_client *c = list_entry(s->waiting.next, struct socket_client, turn);
	uint64_t begin_ns = thread_cpu_ns(), took_ns;

	list_remove(&c->turn);
	s->waiting_nr--;
	c->had_turn = true;
	c->state = CLIENT_HANDLING;
	c->in[c->line_bytes - 1] = '\0';
	s->request(c, c->in, c->line_bytes - 1);
	took_ns = MAX(thread_cpu_ns() - begin_ns, 1000u);
	c->virtual_ns += took_ns;
	advance_clock(s, took_ns);
}

/* NULL: less than two clients have something to read. */
static struct socket_client *find_oldest_answer(const struct socket_server *s)
{
	struct socket_client *oldest = NULL;
	unsigned nr = 0;

	list_for_each (node, &s->clients) {
		struct socket_client *c = list_entry(node, struct socket_client, node);

		if (c->state != CLIENT_WRITING)
			continue;
		if (!oldest || c->answered < oldest->answered)
			oldest = c;
		nr++;
	}
	return nr > 1 ? oldest : NULL;
}

static void bound_unread(struct socket_server *s)
{
	while (s->unread_bytes > s->unread_bytes_max) {
		struct socket_client *c = find_oldest_answer(s);

		if (!c)
			break;
		log_limited(LOG_LEVEL_WARN, "control client dropped",
			    "reason=\"too much is unread, and its answer is the oldest\"");
		drop_client(c);
	}
}

static void on_turn(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct socket_server *s = container_of(w, struct socket_server, turn);
	uint64_t begin_ns = ring_clock_ns();

	(void)ev, (void)events;
	bound_unread(s);
	while (s->waiting_nr > 0) {
		handle_next(s);
		if (ring_clock_ns() - begin_ns >= SOCKET_TURN_NS)
			break;
	}
	if (s->waiting_nr > 0)
		want_turn(s);
}

/* Room for at least one byte more, never above the limit. */
static bool make_input_room(struct socket_client *c)
{
	size_t size =
		MIN(MAX(c->in_size * 2, (size_t)READ_BYTES), (size_t)SOCKET_REQUEST_BYTES_MAX);
	char *in;

	if (c->in_bytes < c->in_size)
		return true;
	in = realloc(c->in, size);
	if (!in)
		return false;
	c->in = in;
	c->in_size = size;
	return true;
}

/* A request has one at most: with two it would not be known which is meant. False: it had two. */
static bool keep_passed_fd(struct socket_client *c, int fd, int flags)
{
	bool one = !(flags & MSG_CTRUNC) && (fd < 0 || c->passed_fd < 0);

	if (one)
		c->passed_fd = MAX(fd, c->passed_fd);
	else if (fd >= 0)
		close(fd);
	return one;
}

static void on_client_readable(struct ev_loop *ev, struct ev_io *w, int events)
{
	struct socket_client *c = container_of(w, struct socket_client, readable);
	int fd, flags;
	ssize_t ret;

	(void)ev, (void)events;
	if (!make_input_room(c)) {
		drop_client(c);
		return;
	}
	ret = fd_message_receive(c->fd, c->in + c->in_bytes, c->in_size - c->in_bytes, 0, &fd,
				 &flags);
	if (ret < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (ret < 0) {
		drop_client(c);
		return;
	}
	if (!keep_passed_fd(c, fd, flags)) {
		drop_client(c);
		return;
	}
	c->eof = ret == 0;
	c->in_bytes += (size_t)ret;
	take_next_request(c);
}

static void on_client_timeout(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct socket_client *c = container_of(w, struct socket_client, timeout);

	(void)ev, (void)events;
	log_limited(LOG_LEVEL_DEBUG, "control client dropped", "reason=\"%s\"",
		    c->state == CLIENT_WRITING ? "takes no answer" : "sends nothing");
	drop_client(c);
}

/* ---- accepting ---- */

static void take_client(struct socket_server *s, int fd)
{
	struct socket_client *c = calloc(1, sizeof(*c));

	/* in is never NULL: what is in it is looked at before the first byte came. */
	if (!c || !(c->in = malloc(READ_BYTES))) {
		free(c);
		close(fd);
		return;
	}
	c->in_size = READ_BYTES;
	c->server = s;
	c->fd = fd;
	c->passed_fd = -1;
	list_push_back(&s->clients, &c->node);
	s->client_nr++;
	ev_io_init(&c->readable, on_client_readable, fd, EV_READ);
	ev_io_init(&c->writable, on_client_writable, fd, EV_WRITE);
	ev_timer_init(&c->timeout, on_client_timeout, 0., 0.);
	set_client_timeout(c, s->idle_seconds);
	take_next_request(c);
}

static void turn_away(int fd)
{
	static const char text[] = "{\"ok\":false,\"error\":\"too many clients\"}\n";

	if (send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_limited(LOG_LEVEL_DEBUG, "control client turned away", "error=%s",
			    errname(errno));
	close(fd);
}

/* False: no other client waits to be accepted. */
static bool accept_one(struct socket_server *s)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0 && s->client_nr < SOCKET_CLIENTS_MAX) {
		take_client(s, fd);
	} else if (fd >= 0) {
		turn_away(fd);
	} else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		/* Out of descriptors or memory: the socket stays acceptable, do not spin on it. */
		log_limited(LOG_LEVEL_WARN, "cannot take in a control client", "error=%s",
			    errname(errno));
		ev_io_stop(s->ev, &s->acceptable);
		ev_timer_set(&s->pause, PAUSE_SECONDS, 0.);
		ev_timer_start(s->ev, &s->pause);
	}
	return fd >= 0;
}

static void on_socket_acceptable(struct ev_loop *ev, struct ev_io *w, int events)
{
	struct socket_server *s = container_of(w, struct socket_server, acceptable);

	(void)ev, (void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN && accept_one(s); i++)
		;
}

static void on_accept_pause_over(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)events;
	ev_io_start(ev, &container_of(w, struct socket_server, pause)->acceptable);
}

/* ---- the socket ---- */

static int remove_stale(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	/* Another user serves it, perhaps to receive the requests of ublkctl. */
	if (st.st_uid != geteuid())
		return -EPERM;
	return unlink(path) < 0 ? -errno : 0;
}

static int bind_private(int fd, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	mode_t before;
	int ret;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	ret = remove_stale(path);
	if (ret < 0)
		return ret;
	/* The mode is there from the start: a chmod afterwards would leave a moment for others. */
	before = umask(0177);
	ret = bind(fd, (void *)&addr, sizeof(addr)) < 0 ? -errno : 0;
	umask(before);
	return ret;
}

static int open_socket(const char *path, int *ret_fd)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), ret;

	if (fd < 0)
		return -errno;
	ret = bind_private(fd, path);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	*ret_fd = fd;
	return 0;
}

static void init_server(struct socket_server *s, struct ev_loop *ev)
{
	s->ev = ev;
	s->fd = -1;
	s->client_nr = 0;
	s->idle_seconds = SOCKET_IDLE_SECONDS;
	s->write_seconds = SOCKET_WRITE_SECONDS;
	s->answer_seconds = SOCKET_ANSWER_SECONDS;
	s->unread_bytes = 0;
	s->unread_bytes_max = SOCKET_UNREAD_BYTES_MAX;
	s->waiting_nr = 0;
	s->virtual_ns = 0;
	list_init(&s->clients);
	list_init(&s->waiting);
	ev_timer_init(&s->turn, on_turn, 0., 0.);
	ev_timer_init(&s->pause, on_accept_pause_over, 0., 0.);
}

int socket_bind(struct socket_server *s, struct ev_loop *ev, const char *path)
{
	int ret;

	init_server(s, ev);
	s->path = strdup(path);
	ret = s->path ? open_socket(path, &s->fd) : -ENOMEM;
	if (ret == 0) {
		ev_io_init(&s->acceptable, on_socket_acceptable, s->fd, EV_READ);
		return 0;
	}
	log_error("cannot make the control socket", "path=\"%s\" error=%s reason=\"%s\"", path,
		  errname(ret),
		  ret == -EEXIST  ? "there is something that is no socket"
		  : ret == -EPERM ? "there is a socket of another user: remove it"
				  : "");
	free(s->path);
	s->path = NULL;
	return ret;
}

int socket_listen(struct socket_server *s)
{
	int ret;

	if (!s->path || ev_is_active(&s->acceptable) || ev_is_active(&s->pause))
		return 0;
	if (listen(s->fd, BACKLOG) < 0) {
		ret = -errno;
		log_error("cannot listen on the control socket", "error=%s", errname(ret));
		return ret;
	}
	ev_io_start(s->ev, &s->acceptable);
	return 0;
}

void socket_stop_listening(struct socket_server *s)
{
	if (!s->path)
		return;
	ev_io_stop(s->ev, &s->acceptable);
	ev_timer_stop(s->ev, &s->pause);
	unlink(s->path);
	close(s->fd);
	free(s->path);
	s->path = NULL;
	s->fd = -1;
}

void socket_fini(struct socket_server *s)
{
	if (!s->ev)
		return;
	socket_stop_listening(s);
	list_for_each_safe (node, next, &s->clients)
		drop_client(list_entry(node, struct socket_client, node));
	ev_timer_stop(s->ev, &s->turn);
}
