/*
 * The walks behind the opening and closing of backends (storage/life.h). Main thread.
 *
 * Happy path: backend_work_open -> a walk -> ended -> the device set takes the backend.
 * Failure modes: the words of the backend; the backend is not needed any more: the walk is
 * cancelled, closes what it has opened, and the work frees itself when that has ended.
 */
#include "daemon/devices/backend_work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"
#include "storage/life.h"
#include "ublk/device/device.h"

struct backend_work {
	struct backend_life *life; /* NULL: it has ended */
	struct backend_work_host *host;
	struct device_settings *settings;   /* a reference of our own */
	int stored_fds[BACKEND_STORED_MAX]; /* our own; what is not above 0 is none */
	int owed_fd;			    /* the same */
	struct backend_device *backend;	    /* what was opened, or could not even begin to close */
	bool closes, has_ended;
	bool begun;    /* the call that began the walk has returned */
	bool unwanted; /* freed by the device set before it has ended */
	bool unanswered;
	int ret;
	char words[DEVICE_ERROR_BYTES];
};

static void work_destroy(struct backend_work *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->stored_fds); i++)
		if (w->stored_fds[i] > 0)
			close(w->stored_fds[i]);
	if (w->owed_fd > 0)
		close(w->owed_fd);
	device_settings_free(w->settings);
	free(w);
}

/* ---- ends of walks ---- */

/* Any thread, when the process is about to end. */
static void work_dropped(void *arg)
{
	work_destroy(arg);
}

static void work_done(void *arg, const struct backend_life_end *end)
{
	struct backend_work *w = arg;
	struct backend_work_host *host = w->host;

	w->life = NULL;
	w->has_ended = true;
	w->ret = end->ret;
	w->backend = end->device;
	w->unanswered = end->waited;
	snprintf(w->words, sizeof(w->words), "%s", end->ret < 0 ? end->words : "");
	if (!w->begun)
		return;
	if (!w->closes)
		host->opens--;
	if (!w->unwanted) {
		host->ended(host->arg);
		return;
	}
	host->unwanted_nr--;
	host->unwanted_ns = ring_clock_ns();
	backend_work_free(w);
}

/* ---- what the device set asks ---- */

static struct backend_work *work_new(struct backend_work_host *host,
				     struct device_settings *settings)
{
	struct backend_work *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->host = host;
	w->settings = device_settings_ref(settings);
	return w;
}

static struct backend_life_owner work_owner(struct backend_work *w)
{
	return (struct backend_life_owner){ .done = work_done, .drop = work_dropped, .arg = w };
}

static int work_take_fd(int *ret_fd, int fd)
{
	*ret_fd = fd > 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd;
	return fd > 0 && *ret_fd < 0 ? -errno : 0;
}

/* The descriptors are the caller's: the walk has duplicates. */
static int work_take_fds(struct backend_work *w, const struct backend_open_params *params)
{
	int ret = work_take_fd(&w->owed_fd, params->owed_fd);

	for (size_t i = 0; params->stored_fds && ret == 0 && i < ARRAY_SIZE(w->stored_fds); i++)
		ret = work_take_fd(&w->stored_fds[i], params->stored_fds[i]);
	return ret;
}

static int work_begin_open(struct backend_work *w, const struct backend_open_params *open_params)
{
	struct backend_open_params params = *open_params;
	struct backend_life_owner owner = work_owner(w);
	int ret = work_take_fds(w, open_params);

	params.owed_fd = w->owed_fd;
	params.stored_fds = open_params->stored_fds ? w->stored_fds : NULL;
	if (ret == 0)
		ret = backend_open_begin(&w->life, &w->host->home, w->settings->backend,
					 w->settings->options.name, &params, &owner);
	w->begun = true;
	return ret;
}

int backend_work_open(struct backend_work **ret_work, struct backend_work_host *host,
		      struct device_settings *settings,
		      const struct backend_open_params *open_params)
{
	struct backend_work *w;
	int ret;

	if (host->opens >= BACKEND_WORK_OPENS_MAX)
		return -EAGAIN;
	w = work_new(host, settings);
	if (!w)
		return -ENOMEM;
	ret = work_begin_open(w, open_params);
	if (ret < 0) {
		work_destroy(w);
		return ret;
	}
	host->opens += !w->has_ended;
	*ret_work = w;
	return 0;
}

/* Returns 0 or -ENOMEM: then nothing has begun. */
static int work_begin_close(struct backend_work *w, struct backend_device *backend)
{
	struct backend_life_owner owner = work_owner(w);
	int ret;

	w->closes = true;
	w->has_ended = w->begun = false;
	ret = backend_close_begin(&w->life, &w->host->home, backend, &owner);
	w->begun = true;
	return ret;
}

int backend_work_close(struct backend_work **ret_work, struct backend_work_host *host,
		       struct device_settings *settings, struct backend_device *backend)
{
	struct backend_work *w = work_new(host, settings);
	int ret = w ? work_begin_close(w, backend) : -ENOMEM;

	if (ret < 0) {
		backend_close(backend);
		if (w)
			work_destroy(w);
		return ret;
	}
	*ret_work = w;
	return 0;
}

bool backend_work_ended(const struct backend_work *w)
{
	return w->has_ended;
}

bool backend_work_closes(const struct backend_work *w)
{
	return w->closes;
}

int backend_work_result(struct backend_work *w, struct backend_device **ret_backend,
			const char **ret_words, bool *ret_unanswered)
{
	ASSERT(w->has_ended && !w->closes);
	*ret_words = w->words;
	*ret_unanswered = w->unanswered;
	if (w->ret < 0)
		return w->ret;
	*ret_backend = w->backend;
	w->backend = NULL;
	return 0;
}

const char *backend_work_loss(const struct backend_work *w)
{
	ASSERT(w->has_ended && w->closes);
	return w->words;
}

const char *backend_work_doing(const struct backend_work *w, uint64_t *ret_since_ns,
			       char where[static WORKER_TEXT_BYTES])
{
	const char *doing = w->closes ? "closing its backend" : "opening its backend";
	struct backend_life_look look = { .since_ns = ring_clock_ns() };

	if (w->life)
		backend_life_look(w->life, &look);
	*ret_since_ns = look.since_ns;
	worker_thread_where(look.tid, where);
	return look.doing ? look.doing : doing;
}

uint64_t backend_work_ends_ns(const struct backend_work *w,
			      char waits_for[static BACKEND_LIFE_WAIT_BYTES])
{
	struct backend_life_look look = { 0 };

	if (w->life)
		backend_life_look(w->life, &look);
	memcpy(waits_for, look.waits_for, sizeof(look.waits_for));
	return look.ends_ns;
}

void backend_work_free(struct backend_work *w)
{
	struct backend_device *backend;

	if (!w)
		return;
	if (!w->has_ended) {
		w->unwanted = true;
		w->host->unwanted_nr++;
		backend_life_cancel(w->life);
		return;
	}
	backend = w->backend;
	w->backend = NULL;
	w->unwanted = true;
	if (!backend || work_begin_close(w, backend) < 0) {
		backend_close(backend);
		work_destroy(w);
	} else if (w->has_ended) {
		work_destroy(w);
	} else {
		w->host->unwanted_nr++;
	}
}
