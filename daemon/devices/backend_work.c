/*
 * The jobs behind the opening and closing of backends. Main thread, but for what is said to be the
 * job's.
 *
 * Happy path: backend_work_open -> a thread: examine, then backend_open -> ended -> the device set
 * takes the backend. Failure modes: the words of the backend; the backend is not needed any more
 * when it is open: the same job goes on to close it, and frees itself.
 */
#include "daemon/devices/backend_work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/util.h"
#include "ublk/device/device.h"

struct backend_work {
	struct helper_job job;
	struct backend_work_host *host;
	struct device_settings *settings; /* a reference of our own */
	struct backend_open_params open_params;
	int stored_fds[BACKEND_LEAVES_MAX]; /* our own; what is not above 0 is none */
	void *founds[BACKEND_LEAVES_MAX];
	struct backend_device *backend; /* what was opened, or is to be closed */
	bool has_ended, closes;
	bool unwanted;	  /* freed by the device set before it has ended */
	_Atomic int step; /* enum backend_work_step; written by the job */
	int ret;
	char words[DEVICE_ERROR_BYTES];
};

static struct backend_work *work_of(struct helper_job *job)
{
	return container_of(job, struct backend_work, job);
}

/* ---- on the job's thread ---- */

static void work_open_backend(struct backend_work *w)
{
	const struct device_settings *s = w->settings;

	atomic_store(&w->step, BACKEND_WORK_OPEN);
	w->ret = backend_open(&w->backend, s->backend, s->options.name, &w->open_params, w->words,
			      sizeof(w->words));
}

static void work_open(struct helper_job *job)
{
	struct backend_work *w = work_of(job);
	const struct backend_spec *spec = w->settings->backend;

	if (!backend_spec_is_examined(spec)) {
		work_open_backend(w);
		return;
	}
	w->open_params.founds = w->founds;
	w->ret = backend_spec_examine(spec, w->founds, w->words, sizeof(w->words));
	if (w->ret == 0)
		work_open_backend(w);
	backend_spec_examine_free(spec, w->founds);
}

static void work_close(struct helper_job *job)
{
	struct backend_work *w = work_of(job);

	backend_close(w->backend);
	w->backend = NULL;
}

/* ---- its ends ---- */

static void work_destroy(struct backend_work *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->stored_fds); i++)
		if (w->stored_fds[i] > 0)
			close(w->stored_fds[i]);
	device_settings_free(w->settings);
	free(w);
}

/* Any thread, when the process is about to end. */
static void work_drop(struct helper_job *job)
{
	work_close(job);
	work_destroy(work_of(job));
}

static void work_closed_unwanted(struct helper_job *job)
{
	work_destroy(work_of(job));
}

/* Its backend is closed by a thread too; if none can be started, here. */
static void work_discard(struct backend_work *w)
{
	struct helpers *helpers = w->job.helpers;

	w->job.work = work_close;
	w->job.done = work_closed_unwanted;
	if (w->backend && helpers && helper_start(helpers, &w->job) == 0)
		return;
	work_drop(&w->job);
}

static void work_done(struct helper_job *job)
{
	struct backend_work *w = work_of(job);
	struct backend_work_host *host = w->host;

	w->has_ended = true;
	if (!w->closes)
		host->opens--;
	if (w->unwanted) {
		host->unwanted_nr--;
		host->unwanted_ns = ring_clock_ns();
		work_discard(w);
	} else {
		host->ended(host->arg);
	}
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
	w->job.done = work_done;
	w->job.drop = work_drop;
	return w;
}

/* Without helpers the work is done here. Returns 0 or -errno: then it has not begun. */
static int work_start(struct backend_work *w)
{
	if (w->host->helpers)
		return helper_start(w->host->helpers, &w->job);
	w->job.since_ns = ring_clock_ns();
	w->job.work(&w->job);
	w->has_ended = true;
	return 0;
}

/* The descriptors are the caller's: the job has duplicates. */
static int work_take_stored(struct backend_work *w, const int *stored_fds)
{
	w->open_params.stored_fds = stored_fds ? w->stored_fds : NULL;
	for (size_t i = 0; stored_fds && i < ARRAY_SIZE(w->stored_fds); i++) {
		w->stored_fds[i] = stored_fds[i];
		if (stored_fds[i] <= 0)
			continue;
		w->stored_fds[i] = fcntl(stored_fds[i], F_DUPFD_CLOEXEC, 3);
		if (w->stored_fds[i] < 0)
			return -errno;
	}
	return 0;
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
	w->open_params = *open_params;
	ret = work_take_stored(w, open_params->stored_fds);
	w->job.work = work_open;
	if (ret == 0)
		ret = work_start(w);
	if (ret < 0) {
		work_destroy(w);
		return ret;
	}
	host->opens += !w->has_ended;
	*ret_work = w;
	return 0;
}

int backend_work_close(struct backend_work **ret_work, struct backend_work_host *host,
		       struct device_settings *settings, struct backend_device *backend)
{
	struct backend_work *w = work_new(host, settings);

	if (!w) {
		backend_close(backend);
		return -ENOMEM;
	}
	w->closes = true;
	w->backend = backend;
	atomic_store(&w->step, BACKEND_WORK_CLOSE);
	w->job.work = work_close;
	if (work_start(w) < 0) {
		work_drop(&w->job);
		return -ENOMEM;
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
			const char **ret_words, enum backend_work_step *ret_step)
{
	ASSERT(w->has_ended && !w->closes);
	*ret_words = w->words;
	*ret_step = (enum backend_work_step)atomic_load(&w->step);
	if (w->ret < 0)
		return w->ret;
	*ret_backend = w->backend;
	w->backend = NULL;
	return 0;
}

const char *backend_work_doing(const struct backend_work *w, uint64_t *ret_since_ns,
			       char where[static WORKER_TEXT_BYTES])
{
	static const char *const doing[] = {
		[BACKEND_WORK_EXAMINE] = "asking its server",
		[BACKEND_WORK_OPEN] = "opening its backend",
		[BACKEND_WORK_CLOSE] = "closing its backend",
	};
	int step = atomic_load(&w->step);

	if (step == BACKEND_WORK_EXAMINE && !backend_spec_is_examined(w->settings->backend))
		step = BACKEND_WORK_OPEN;
	*ret_since_ns = w->job.since_ns;
	worker_thread_where(atomic_load(&w->job.tid), where);
	return doing[step];
}

void backend_work_free(struct backend_work *w)
{
	if (!w)
		return;
	if (w->has_ended) {
		work_discard(w);
		return;
	}
	w->unwanted = true;
	w->host->unwanted_nr++;
}
