/*
 * The control socket for a program that must not wait: one connection per sample, all questions at
 * once, answers as they come. The caller polls the fd and the deadline.
 */
#ifndef UBLKCTL_TOP_TOP_LINK_H
#define UBLKCTL_TOP_TOP_LINK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ublkctl/client.h"

#define TOP_LINK_QUESTIONS_MAX 4

enum top_link_state {
	TOP_LINK_IDLE,
	TOP_LINK_WAITING,
	TOP_LINK_DONE,	 /* each question has an answer */
	TOP_LINK_FAILED, /* error says why */
};

struct top_link {
	const char *path;
	enum top_link_state state;
	int fd; /* to be polled for reading while WAITING, else -1 */
	uint64_t deadline_ns;
	char *in;
	size_t in_bytes, in_size, scanned;
	json_t *replies[TOP_LINK_QUESTIONS_MAX]; /* whole, with "ok" */
	unsigned question_nr, reply_nr;
	char error[CLIENT_TEXT_BYTES];
};

void top_link_init(struct top_link *l, const char *path);
void top_link_fini(struct top_link *l);

/* Asks; requests are JSON objects, each one line with its newline. Leaves WAITING or FAILED. */
void top_link_ask(struct top_link *l, const char *requests, unsigned nr, uint64_t now_ns);

/* When the fd is readable or the deadline is over. */
void top_link_turn(struct top_link *l, uint64_t now_ns);

/* DONE: the data of an answer, borrowed until the next ask; NULL: refused, ret_error says why. */
const json_t *top_link_data(const struct top_link *l, unsigned idx, const char **ret_error);

#endif
