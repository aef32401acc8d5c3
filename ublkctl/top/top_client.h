/*
 * The control socket for a program that must not wait: one connection per sample, all questions at
 * once, answers as they come. The caller polls the fd and the deadline.
 */
#ifndef UBLKCTL_TOP_TOP_CLIENT_H
#define UBLKCTL_TOP_TOP_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ublkctl/client.h"

#define TOP_CLIENT_QUESTIONS_MAX 4

enum top_client_state {
	TOP_CLIENT_IDLE,
	TOP_CLIENT_WAITING,
	TOP_CLIENT_DONE,   /* each question has an answer */
	TOP_CLIENT_FAILED, /* error says why */
};

struct top_client {
	const char *path;
	enum top_client_state state;
	int fd; /* to be polled for reading while WAITING, else -1 */
	uint64_t deadline_ns;
	char *in;
	size_t in_bytes, in_size, scanned;
	json_t *replies[TOP_CLIENT_QUESTIONS_MAX]; /* whole, with "ok" */
	unsigned question_nr, reply_nr;
	char error[CLIENT_TEXT_BYTES];
};

void top_client_init(struct top_client *c, const char *path);
void top_client_fini(struct top_client *c);

/* Asks; requests are JSON objects, each one line with its newline. Leaves WAITING or FAILED. */
void top_client_ask(struct top_client *c, const char *requests, unsigned nr, uint64_t now_ns);

/* When the fd is readable or the deadline is over. */
void top_client_turn(struct top_client *c, uint64_t now_ns);

/* DONE: the data of an answer, borrowed until the next ask; NULL: refused, ret_error says why. */
const json_t *top_client_data(const struct top_client *c, unsigned idx, const char **ret_error);

#endif
