/*
 * A thread for each question. What main and threads share is struct prober, under its lock: it
 * lives until the last of both has let go of it. A question is its thread's while that runs; then
 * it is its asker's, or nobody's and freed by the thread.
 *
 * Happy path: probe_begin -> a thread -> the backend's probe -> ended, and a mail to the control
 * reactor -> probe_result. One mail serves for all that end before it is read. Failure modes: the
 * backend's words; too many threads: -EAGAIN. A prober that is gone gets no mail: its reactor may
 * be gone, too.
 */
#include "daemon/prober.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/util.h"
#include "ublk/device.h"

/* Enough for getaddrinfo(3) and the modules that it loads. */
#define STACK_BYTES MIB(1)

struct prober {
	pthread_mutex_t lock;
	unsigned holders;   /* the owner, threads, and a mail on its way */
	unsigned thread_nr; /* of them */
	bool closed, mailed;
	struct prober *next_with_a_mail;
	struct reactor *home;
	struct mail mail;
	void (*ended)(void *arg);
	void *arg;
};

struct probe {
	struct prober *prober;
	struct device_settings *settings; /* a copy of its own */
	bool has_ended, is_forgotten;	  /* under the lock */
	int ret;
	void *found;
	char words[DEVICE_ERROR_BYTES];
};

/* ---- what is shared ---- */

/* With the lock, which is gone afterwards. */
static void let_go_and_unlock(struct prober *p)
{
	bool last = --p->holders == 0;

	pthread_mutex_unlock(&p->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static void on_mail(struct mail *mail)
{
	struct prober *p = container_of(mail, struct prober, mail);
	bool closed;

	pthread_mutex_lock(&p->lock);
	p->mailed = false;
	closed = p->closed;
	let_go_and_unlock(p);
	/* Nobody but this thread closes it. */
	if (!closed)
		p->ended(p->arg);
}

/* With the lock: the reactor cannot go meanwhile, as prober_free comes first. */
static void tell(struct prober *p)
{
	if (p->closed || p->mailed)
		return;
	p->mailed = true;
	p->holders++;
	reactor_post(p->home, &p->mail, on_mail);
}

int prober_new(struct prober **ret_prober, struct reactor *home, void (*ended)(void *arg),
	       void *arg)
{
	struct prober *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	*p = (struct prober){ .holders = 1, .home = home, .ended = ended, .arg = arg };
	pthread_mutex_init(&p->lock, NULL);
	*ret_prober = p;
	return 0;
}

/* Never looked at. */
static struct prober *with_a_mail __attribute__((used));

void prober_free(struct prober *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->closed = true;
	/* A mail that is not read any more, since the process ends, holds it: that is no leak. */
	if (p->mailed) {
		p->next_with_a_mail = with_a_mail;
		with_a_mail = p;
	}
	let_go_and_unlock(p);
}

/* ---- one question ---- */

static void destroy(struct probe *probe)
{
	if (probe->found)
		backend_spec_probe_free(probe->settings->backend, probe->found);
	device_settings_free(probe->settings);
	free(probe);
}

static void *thread_main(void *arg)
{
	struct probe *probe = arg;
	struct prober *p = probe->prober;
	void *found = NULL;
	bool forgotten;
	int ret = backend_spec_probe(probe->settings->backend, &found, probe->words,
				     sizeof(probe->words));

	pthread_mutex_lock(&p->lock);
	probe->ret = ret;
	probe->found = ret == 0 ? found : NULL;
	probe->has_ended = true;
	forgotten = probe->is_forgotten;
	p->thread_nr--;
	tell(p);
	let_go_and_unlock(p);
	/* Otherwise it is the asker's now, and may be gone. */
	if (forgotten)
		destroy(probe);
	return NULL;
}

/* Signals are the main thread's: a thread inherits the mask it is created under. */
static int create_thread(struct probe *probe)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int ret;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&thread, &attr, thread_main, probe);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -ret;
}

/* By way of the text that a parser of the same program has made and reads back. NULL: no memory. */
static struct device_settings *copy_of(const struct device_settings *settings)
{
	json_t *json = device_settings_json(settings);
	char *text = json ? device_json_text(json) : NULL;
	struct device_settings *copy = NULL;
	struct config_errors errors;
	struct settings all;

	json_decref(json);
	if (!text)
		return NULL;
	config_errors_init(&errors, "");
	if (settings_parse_devices(&all, text, strlen(text), &errors) == 0)
		copy = settings_take(&all, 0);
	settings_free(&all);
	config_errors_fini(&errors);
	free(text);
	return copy;
}

static struct probe *probe_new(struct prober *p, const struct device_settings *settings)
{
	struct probe *probe = calloc(1, sizeof(*probe));

	if (!probe)
		return NULL;
	probe->prober = p;
	probe->settings = copy_of(settings);
	if (probe->settings)
		return probe;
	free(probe);
	return NULL;
}

/* A place for one more thread; false: there is none. */
static bool take_place(struct prober *p)
{
	bool taken;

	pthread_mutex_lock(&p->lock);
	taken = p->thread_nr < PROBER_THREADS_MAX;
	p->thread_nr += taken;
	p->holders += taken;
	pthread_mutex_unlock(&p->lock);
	return taken;
}

static void give_place_back(struct prober *p)
{
	pthread_mutex_lock(&p->lock);
	p->thread_nr--;
	let_go_and_unlock(p);
}

int probe_begin(struct probe **ret_probe, struct prober *p, const struct device_settings *settings)
{
	struct probe *probe;
	int ret;

	if (!take_place(p))
		return -EAGAIN;
	probe = probe_new(p, settings);
	ret = probe ? create_thread(probe) : -ENOMEM;
	if (ret == 0) {
		*ret_probe = probe;
		return 0;
	}
	give_place_back(p);
	if (probe)
		destroy(probe);
	return ret;
}

bool probe_ended(const struct probe *probe)
{
	bool ended;

	pthread_mutex_lock(&probe->prober->lock);
	ended = probe->has_ended;
	pthread_mutex_unlock(&probe->prober->lock);
	return ended;
}

int probe_result(const struct probe *probe, const char **ret_words)
{
	ASSERT(probe_ended(probe));
	*ret_words = probe->words;
	return probe->ret;
}

void *probe_found(const struct probe *probe)
{
	return probe->found;
}

void probe_free(struct probe *probe)
{
	bool ended;

	if (!probe)
		return;
	pthread_mutex_lock(&probe->prober->lock);
	ended = probe->has_ended;
	probe->is_forgotten = true;
	pthread_mutex_unlock(&probe->prober->lock);
	if (ended)
		destroy(probe);
}
