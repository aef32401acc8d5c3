/*
 * The control socket: clients on a unix stream socket that send a line and get a line. What the
 * lines mean is the handler's. Main thread.
 *
 * Each client has one request at a time: while it is handled and until its answer is sent, nothing
 * more is read from it, so that what a client can make the daemon keep is one request and one
 * answer.
 *
 * A client with a whole request waits for its turn. The clients share the main thread's time in
 * equal parts: one that asks now and then comes before those that send request after request.
 */
#ifndef DAEMON_SOCKET_SOCKET_H
#define DAEMON_SOCKET_SOCKET_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define SOCKET_CLIENTS_MAX 64
#define SOCKET_REQUEST_BYTES_MAX (1u << 20)
#define SOCKET_IDLE_SECONDS 60.	  /* without a complete request */
#define SOCKET_WRITE_SECONDS 10.  /* without taking a byte of the answer */
#define SOCKET_ANSWER_SECONDS 60. /* until all of the answer was taken */
/* Of all clients together; where it is more, the oldest answer goes with its client. */
#define SOCKET_UNREAD_BYTES_MAX (64u << 20)
/* So long requests are handled before the loop sees to the rest of the daemon; one at least. */
#define SOCKET_TURN_NS 1000000u

enum client_state {
	CLIENT_READING,
	CLIENT_WAITING, /* for its turn, with a whole request */
	CLIENT_HANDLING,
	CLIENT_WRITING,
};

struct socket_server;

struct socket_client {
	struct list_node node;
	struct socket_server *server;
	int fd;
	enum client_state state;
	bool eof;	  /* the client sends no more */
	bool close_after; /* the answer */
	struct ev_io readable, writable;
	struct ev_timer timeout;
	char *in; /* what was read and not yet handled */
	size_t in_bytes, in_size;
	size_t line_bytes; /* WAITING, HANDLING, WRITING: of the request at the beginning of in */
	size_t scanned;	   /* bytes of in known to hold no newline */
	char *out;
	size_t out_bytes, out_sent;
	double answered; /* WRITING: when its answer was given, of ev_time */
	int passed_fd;	 /* came along with what is in `in`, and nobody took it; -1: none */
	void *request;	 /* the handler's, while HANDLING */
	/* WAITING: in the server's queue, at its place in virtual time; else: where it was. */
	struct list_node turn;
	uint64_t virtual_ns;
	bool had_turn;
};

struct socket_server {
	struct ev_loop *ev;
	int fd;
	char *path; /* made by us, to be removed; NULL for a socket that was given */
	struct ev_io acceptable;
	struct ev_timer pause; /* of accepting, when out of file descriptors */
	struct list_node clients;
	unsigned client_nr;
	double idle_seconds, write_seconds, answer_seconds;
	size_t unread_bytes, unread_bytes_max; /* of all answers */
	struct ev_timer turn;
	struct list_node waiting; /* by virtual_ns */
	unsigned waiting_nr;
	/* Advances by the time of a request, divided by the number of waiting clients. */
	uint64_t virtual_ns;
	/*
	 * line is terminated and holds `bytes` bytes without its newline. Answers with socket_reply
	 * exactly once, now or later.
	 */
	void (*request)(struct socket_client *client, char *line, size_t bytes);
	/* The client has disconnected before its answer: forget it. */
	void (*cancel)(struct socket_client *client);
	void *arg; /* the handler's */
};

/*
 * Makes the socket at path, mode 0600; removes a stale one of ours there. The caller holds the lock
 * that excludes other servers. Until socket_listen, connects are refused. Returns 0 or
 * -errno, logged. Set request, cancel and arg before.
 */
int socket_bind(struct socket_server *s, struct ev_loop *ev, const char *path);

/* From here on clients are taken in. Returns 0 or -errno, logged. Does nothing the second time. */
int socket_listen(struct socket_server *s);

/* Accepts no more clients and removes the socket. */
void socket_stop_listening(struct socket_server *s);

/* Also drops all clients. */
void socket_fini(struct socket_server *s);

/*
 * HANDLING, when nothing is read from it: whether it has closed its end, so that no answer is
 * wanted. One that has only ended what it sends waits for its answer.
 */
bool socket_client_left(const struct socket_client *client);

/*
 * HANDLING: the descriptor that came along with the request (SCM_RIGHTS), the caller's from here
 * on; -1: none. Whatever it may be is the client's choice.
 */
int socket_take_fd(struct socket_client *client);

/*
 * The answer: text without newline, malloced, taken; NULL: out of memory, the client is dropped.
 * close_after: no further request is taken from this client.
 */
void socket_reply(struct socket_client *client, char *text, bool close_after);

#endif
