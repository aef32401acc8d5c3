/*
 * A detached thread per question. What thread and reactor share is under the lock: whether the
 * answer is still wanted, and whether it is in the mail. Whoever comes last frees it.
 *
 * Happy path: begin -> the thread asks -> mail -> fn. Failure modes: no such name, or no answer: fn
 * says so; nobody waits any more: the thread throws the answer away.
 */
#include "backends/nbd/nbd_resolve.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "base/util.h"

struct nbd_resolve {
	pthread_mutex_t lock;
	struct reactor *reactor; /* NULL: nobody waits */
	bool posted;
	struct mail mail;
	nbd_resolve_fn *fn; /* the reactor's; NULL: forgotten with the mail on its way */
	void *arg;
	struct nbd_uri uri;
	int ret;
	struct nbd_addresses found;
	char error[256];
};

static void destroy(struct nbd_resolve *r)
{
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static void on_mail(struct mail *mail)
{
	struct nbd_resolve *r = container_of(mail, struct nbd_resolve, mail);

	/* The thread has let go of the lock when this has it. */
	pthread_mutex_lock(&r->lock);
	pthread_mutex_unlock(&r->lock);
	if (r->fn)
		r->fn(r->arg, r->ret == 0 ? &r->found : NULL, r->error);
	else
		reactor_leave_end(r->reactor);
	destroy(r);
}

static void *ask(void *arg)
{
	struct nbd_resolve *r = arg;
	bool wanted;

	r->ret = nbd_addresses_find(&r->uri, &r->found, r->error, sizeof(r->error));
	pthread_mutex_lock(&r->lock);
	wanted = r->reactor;
	r->posted = wanted;
	if (wanted)
		reactor_post(r->reactor, &r->mail, on_mail);
	pthread_mutex_unlock(&r->lock);
	if (!wanted)
		destroy(r);
	return NULL;
}

int nbd_resolve_begin(struct nbd_resolve **ret_resolve, struct reactor *reactor,
		      const struct nbd_uri *uri, nbd_resolve_fn *fn, void *arg)
{
	struct nbd_resolve *r = calloc(1, sizeof(*r));
	struct thread_params params = {
		.name = "nbd-resolve",
		.stack_bytes = THREAD_STACK_BYTES,
		.run = ask,
		.arg = r,
	};
	int ret;

	if (!r)
		return -ENOMEM;
	r->reactor = reactor;
	r->fn = fn;
	r->arg = arg;
	r->uri = *uri;
	pthread_mutex_init(&r->lock, NULL);
	ret = thread_start(NULL, &params);
	if (ret < 0) {
		destroy(r);
		return ret;
	}
	*ret_resolve = r;
	return 0;
}

void nbd_resolve_forget(struct nbd_resolve *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->fn = NULL;
	if (r->posted)
		reactor_leave_begin(r->reactor);
	else
		r->reactor = NULL;
	pthread_mutex_unlock(&r->lock);
}
