/*
 * Messages to a reactor from any thread: a lock-free stack (many producers, one consumer) and an
 * eventfd that the reactor reads through its ring. A mail is embedded in what it is about and is
 * the sender's until posted, the reactor's until its fn runs; fn says who owns it then.
 */
#ifndef REACTOR_MAILBOX_H
#define REACTOR_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mail;
typedef void mail_fn(struct mail *mail);

struct mail {
	mail_fn *fn;
	struct mail *next;
};

struct mailbox {
	_Atomic(struct mail *) top;
	int efd;
};

/* Returns 0 or -errno of eventfd(2). */
int mailbox_init(struct mailbox *box);
void mailbox_fini(struct mailbox *box);

/* Any thread. fn runs on the reactor's thread, in the order of posting per sender. */
void mailbox_post(struct mailbox *box, struct mail *mail, mail_fn *fn);

/* Any thread: whether nothing waits to be read. */
static inline bool mailbox_empty(const struct mailbox *box)
{
	return !atomic_load_explicit(&box->top, memory_order_relaxed);
}

/* The consumer: runs all that has been posted so far; returns how many. */
unsigned mailbox_drain(struct mailbox *box);

#endif
