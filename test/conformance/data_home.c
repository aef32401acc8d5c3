/*
 * A reactor that turns on its own thread, as those of the daemon do. Failure mode: no ring, no
 * thread: a reason to skip.
 */
#include "data_home.h"

#include <pthread.h>
#include <semaphore.h>

static struct {
	struct reactor reactor;
	pthread_t thread;
	sem_t started;
	struct mail stop;
	bool is_up, is_stopping;
} home;

static void *home_main(void *arg)
{
	struct reactor_params params = { .idx = 7, .sq_entries = 32, .cq_entries = 128 };

	(void)arg;
	home.is_up = reactor_init(&home.reactor, &params) == 0;
	sem_post(&home.started);
	if (!home.is_up)
		return NULL;
	while (!home.is_stopping)
		reactor_turn(&home.reactor, true);
	reactor_fini(&home.reactor);
	return NULL;
}

static void home_stop(struct mail *mail)
{
	(void)mail;
	home.is_stopping = true;
}

const char *data_home_start(void)
{
	home.is_stopping = false;
	sem_init(&home.started, 0, 0);
	if (pthread_create(&home.thread, NULL, home_main, NULL) != 0)
		return "no thread for a reactor";
	while (sem_wait(&home.started) < 0)
		;
	if (home.is_up)
		return NULL;
	pthread_join(home.thread, NULL);
	return "no ring for a reactor";
}

void data_home_stop(void)
{
	reactor_post(&home.reactor, &home.stop, home_stop);
	pthread_join(home.thread, NULL);
	sem_destroy(&home.started);
	home.is_up = false;
}

struct reactor *data_home(void)
{
	return home.is_up ? &home.reactor : NULL;
}
