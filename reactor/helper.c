/*
 * A thread for each job. What threads and home share is struct helpers, under its lock: it lives
 * until the last of them has let go of it.
 *
 * Happy path: helper_start -> a thread -> work -> the job is in the list of ended ones, and a mail
 * goes to home -> done. One mail serves for all jobs that end before it is read. Failure mode: the
 * helpers are closed while a job runs: its thread drops it, and sends no mail, since home may be
 * gone.
 */
#include "reactor/helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/util.h"

struct helpers {
	pthread_mutex_t lock;
	unsigned holders; /* the owner, threads, and a mail on its way */
	bool closed, mailed;
	struct list_node ended; /* jobs whose done is due */
	struct helpers *next_with_a_mail;
	struct reactor *home;
	struct mail mail;
};

int helpers_create(struct helpers **ret_helpers, struct reactor *home)
{
	struct helpers *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	*h = (struct helpers){ .holders = 1, .home = home };
	pthread_mutex_init(&h->lock, NULL);
	list_init(&h->ended);
	*ret_helpers = h;
	return 0;
}

/* With the lock, which is gone afterwards. */
static void helpers_let_go_and_unlock(struct helpers *h)
{
	bool last = --h->holders == 0;

	pthread_mutex_unlock(&h->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void helpers_hold(struct helpers *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->holders++;
	pthread_mutex_unlock(&h->lock);
}

void helpers_let_go(struct helpers *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	helpers_let_go_and_unlock(h);
}

bool helpers_are_closed(struct helpers *h)
{
	bool closed;

	pthread_mutex_lock(&h->lock);
	closed = h->closed;
	pthread_mutex_unlock(&h->lock);
	return closed;
}

/* Nobody but this thread closes the helpers, so none of these needs a second look at `closed`. */
static void helpers_run_done(struct list_node *ended)
{
	struct list_node *node;

	while ((node = list_pop_front(ended))) {
		struct helper_job *job = list_entry(node, struct helper_job, node);

		job->done(job);
	}
}

static void on_helpers_mail(struct mail *mail)
{
	struct helpers *h = container_of(mail, struct helpers, mail);
	struct list_node ended = LIST_INIT(ended);

	pthread_mutex_lock(&h->lock);
	h->mailed = false;
	list_splice(&ended, &h->ended);
	pthread_mutex_unlock(&h->lock);
	helpers_run_done(&ended);
	pthread_mutex_lock(&h->lock);
	helpers_let_go_and_unlock(h);
}

/* With the lock: home cannot go meanwhile, as helpers_close comes first. */
static void helpers_tell_home(struct helpers *h)
{
	if (h->mailed)
		return;
	h->mailed = true;
	h->holders++;
	reactor_post(h->home, &h->mail, on_helpers_mail);
}

static void helper_job_drop(struct helper_job *job)
{
	if (job->drop)
		job->drop(job);
}

static void *helper_main(void *arg)
{
	struct helper_job *job = arg;
	struct helpers *h = job->helpers;
	bool closed;

	atomic_store(&job->tid, gettid());
	job->work(job);
	pthread_mutex_lock(&h->lock);
	closed = h->closed;
	if (!closed) {
		list_push_back(&h->ended, &job->node);
		helpers_tell_home(h);
	}
	helpers_let_go_and_unlock(h);
	if (closed)
		helper_job_drop(job);
	return NULL;
}

int helper_start(struct helpers *h, struct helper_job *job)
{
	struct thread_params params = {
		.name = "helper",
		.stack_bytes = THREAD_STACK_BYTES,
		.run = helper_main,
		.arg = job,
	};
	int ret;

	job->helpers = h;
	job->since_ns = ring_clock_ns();
	atomic_store(&job->tid, 0);
	helpers_hold(h);
	ret = thread_start(NULL, &params);
	if (ret < 0)
		helpers_let_go(h);
	return ret;
}

/* Never looked at: what a mail that nobody reads any more holds is no leak. */
static struct helpers *with_a_mail __attribute__((used));

void helpers_close(struct helpers *h)
{
	struct list_node ended = LIST_INIT(ended);
	struct list_node *node;

	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->closed = true;
	list_splice(&ended, &h->ended);
	if (h->mailed) {
		h->next_with_a_mail = with_a_mail;
		with_a_mail = h;
	}
	helpers_let_go_and_unlock(h);
	while ((node = list_pop_front(&ended)))
		helper_job_drop(list_entry(node, struct helper_job, node));
}
