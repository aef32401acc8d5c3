/*
 * A peer that misbehaves, as a child of the test: a Python program of this folder, started, told
 * what to do by the lines of its control socket, asked what it has seen.
 */
#ifndef TEST_FAULT_PEER_H
#define TEST_FAULT_PEER_H

#include <stdint.h>
#include <sys/types.h>

#define FAULT_PEER_ANSWER_BYTES 16384

struct fault_peer {
	pid_t pid;
	int control_fd;
	char dir[80]; /* its own; removed at the end */
	char uri[160];
	uint64_t (*count)(struct fault_peer *peer, const char *name); /* of its statistics */
};

/* Makes its folder: what it is started with may name files there. */
void fault_peer_init(struct fault_peer *peer);

/*
 * Starts the program of this folder with these arguments, NULL at the end, behind `--control` and
 * the socket; ready when this returns. It dies with us. Aborts where it cannot be started: nothing
 * could be tested.
 */
void fault_peer_start(struct fault_peer *peer, const char *program, const char *const *args);
/* Kills it; its folder stays, so that it can be started again. Accepts a zeroed one. */
void fault_peer_kill(struct fault_peer *peer);
/* As fault_peer_kill, and the folder is removed. */
void fault_peer_stop(struct fault_peer *peer);

/* One line out, one line back. Aborts unless the answer begins with `ok`. */
const char *fault_peer_ask(struct fault_peer *peer, const char *line, const char *ok);

/* Ends the test: the words go to stderr. */
void fault_peer_give_up(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
