/*
 * A detached thread per question. What thread and reactor share is under the lock: whether the
 * answer is still wanted, and whether it is in the mail. The last of the two to use it frees it.
 *
 * Happy path: begin -> the thread asks -> mail -> fn. Failure modes: no such name, or no answer: fn
 * gets the words; forgotten: the thread discards the answer.
 */
#include "net/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "base/util.h"

struct net_resolve {
	pthread_mutex_t lock;
	struct reactor *reactor; /* NULL: nobody waits */
	bool posted;
	struct mail mail;
	net_resolve_fn *fn; /* the reactor's; NULL: forgotten with the mail on its way */
	void *arg;
	struct net_host host;
	int ret;
	struct net_addresses found;
	char error[256];
};

static void net_resolve_destroy(struct net_resolve *r)
{
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static void net_resolve_on_mail(struct mail *mail)
{
	struct net_resolve *r = container_of(mail, struct net_resolve, mail);

	/* The thread has let go of the lock when this has it. */
	pthread_mutex_lock(&r->lock);
	pthread_mutex_unlock(&r->lock);
	if (r->fn)
		r->fn(r->arg, r->ret == 0 ? &r->found : NULL, r->error);
	else
		reactor_leave_end(r->reactor);
	net_resolve_destroy(r);
}

static void *net_resolve_run(void *arg)
{
	struct net_resolve *r = arg;
	bool wanted;

	r->ret = net_host_find(&r->host, &r->found, r->error, sizeof(r->error));
	pthread_mutex_lock(&r->lock);
	wanted = r->reactor;
	r->posted = wanted;
	if (wanted)
		reactor_post(r->reactor, &r->mail, net_resolve_on_mail);
	pthread_mutex_unlock(&r->lock);
	if (!wanted)
		net_resolve_destroy(r);
	return NULL;
}

int net_resolve_begin(struct net_resolve **ret_resolve, struct reactor *reactor,
		      const struct net_host *host, net_resolve_fn *fn, void *arg)
{
	struct net_resolve *r = calloc(1, sizeof(*r));
	struct thread_params params = {
		.name = "net-resolve",
		.stack_bytes = THREAD_STACK_BYTES,
		.run = net_resolve_run,
		.arg = r,
	};
	int ret;

	if (!r)
		return -ENOMEM;
	r->reactor = reactor;
	r->fn = fn;
	r->arg = arg;
	r->host = *host;
	pthread_mutex_init(&r->lock, NULL);
	ret = thread_start(NULL, &params);
	if (ret < 0) {
		net_resolve_destroy(r);
		return ret;
	}
	*ret_resolve = r;
	return 0;
}

void net_resolve_forget(struct net_resolve *r)
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
