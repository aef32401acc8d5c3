/*
 * How a member becomes a device: from nothing, or adopted from the driver. Main thread.
 *
 * Happy path: backend_work.c opens the backend, and the member is STARTING meanwhile, without a
 * device; the sweep goes on with it when the backend is open -> the device starts or recovers. When
 * the device has ended, its backend is closed the same way.
 * Failure modes: a backend that cannot be opened: a new device has failed, one that is to be
 * adopted is tried again for a while, since its users wait; a node below /dev that is missing may
 * be that of another device of this daemon, which is waited for. A backend that is neither opened
 * nor closed in device set.patience_seconds: the member is late, the reason is told, nobody waits
 * for it; it goes on when the call returns.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "daemon/devices/device_set_internal.h"
#include "daemon/devices/device_set_notes.h"
#include "daemon/devices/mark.h"
#include "daemon/fdstore/fd_store.h"
#include "daemon/settings/settings_resource.h"

/* Between two questions to a server that did not answer one. */
#define PROBE_RETRY_NS (200 * NS_PER_MS)
/* Between two looks for a file that another device of this daemon may bring. */
#define ABSENT_RETRY_NS (100 * NS_PER_MS)
/* udev makes its links to a new device in less. */
#define NODE_OUTAGE_TIMEOUT_NS (3 * NS_PER_SEC)

static int stored_fd(const struct device_set *f, const struct member *m)
{
	char name[64];

	fd_store_mem_name(name, m->settings->options.name);
	return f->fd_store ? fd_store_find(f->fd_store, name) : -ENOENT;
}

void device_set_fill_spec(const struct device_set *f, const struct member *m,
			  struct device_spec *spec)
{
	const struct device_options *o = &m->settings->options;

	*spec = (struct device_spec){
		.name = o->name,
		.id = m->settings->id,
		.queues = (uint32_t)o->queues,
		.depth = (uint32_t)o->depth,
		.logical_block_bytes = (uint32_t)o->block_bytes,
		.max_io_bytes = (uint32_t)o->max_io_bytes,
		.read_only = o->read_only,
		.data_path = (enum data_path)o->data_path,
		.batch = (enum batch_choice)o->batch,
		.recovery = (enum recovery)o->recovery,
		.mark = mark_of(f->control ? f->control : "", o->name),
		.backend = m->settings->backend,
	};
}

static void begin_start(struct member *m)
{
	m->state = MEMBER_STARTING;
	m->error[0] = '\0';
	latency_fini(&m->latency);
}

/* ---- outage timeout ---- */

static void on_late_work(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct member *m = container_of(w, struct member, outage_timeout);
	const char *doing = "waiting to open its backend";
	char where[WORKER_TEXT_BYTES] = "";
	uint64_t since_ns;

	(void)events;
	ev_timer_stop(ev, w);
	if (m->work)
		doing = backend_work_doing(m->work, &since_ns, where);
	snprintf(m->error, sizeof(m->error), "%s takes longer than %.0f s%s%s%s", doing,
		 m->device_set->outage_timeout_seconds, where[0] ? " (in the kernel: " : "", where,
		 where[0] ? ")" : "");
	device_set_work_is_late(m->device_set, m);
}

/* From the first try on: a member that is tried again has no new time. */
static void begin_outage_timeout(struct device_set *f, struct member *m)
{
	if (ev_is_active(&m->outage_timeout) || m->late)
		return;
	ev_timer_init(&m->outage_timeout, on_late_work, f->outage_timeout_seconds, 0.);
	ev_timer_start(f->ev, &m->outage_timeout);
}

static void end_outage_timeout(struct member *m)
{
	ev_timer_stop(m->device_set->ev, &m->outage_timeout);
}

void device_set_did_not_start(struct device_set *f, struct member *m)
{
	log_error("device did not start", "device=%s error=\"%s\"", m->settings->options.name,
		  m->error);
	m->device = NULL;
	m->state = MEMBER_FAILED;
	m->stop_when_live = false;
	m->ended = true;
	device_set_check(f);
}

static void start_new(struct device_set *f, struct member *m, struct device_spec *spec)
{
	int ret = keep_adding(f, m, m->error, sizeof(m->error));

	if (ret == 0) {
		ret = device_start(&m->device, f->host, spec, m, m->error, sizeof(m->error));
		if (ret == 0)
			return;
		keep_forget(f, m->settings->options.name);
	}
	device_set_did_not_start(f, m);
}

/* EBUSY: I/O of the dead daemon is under way. True: it is tried again. */
static bool try_adoption_again(struct device_set *f, struct member *m, int err)
{
	if (err != -EBUSY || ring_clock_ns() >= m->past->until_ns)
		return false;
	m->device = NULL;
	m->state = MEMBER_WAITING;
	ev_timer_again(f->ev, &f->retry);
	return true;
}

static void adopt(struct device_set *f, struct member *m, struct device_spec *spec)
{
	int ret;

	keep_recovering(f, m);
	keep_sweep(f, m);
	ret = device_recover(&m->device, f->host, spec, &m->past->device, m, m->error,
			     sizeof(m->error));
	m->past->begun = ret == 0;
	if (ret < 0 && !try_adoption_again(f, m, ret))
		device_set_did_not_start(f, m);
}

/* What the device did not take is closed: by a work that nobody waits for. */
static void close_unused(struct device_set *f, struct member *m, struct backend_device *backend)
{
	struct backend_work *work;

	if (backend_work_close(&work, &f->work, m->settings, backend) == 0)
		backend_work_free(work);
}

static void start_opened(struct device_set *f, struct member *m, struct backend_device *backend)
{
	struct device_spec spec;

	device_set_fill_spec(f, m, &spec);
	spec.opened = backend;
	if (m->past)
		adopt(f, m, &spec);
	else
		start_new(f, m, &spec);
	if (!m->device)
		close_unused(f, m, backend);
}

/* ---- opening ---- */

void device_set_forget_work(struct member *m)
{
	end_outage_timeout(m);
	backend_work_free(m->work);
	m->work = NULL;
	m->work_after_ns = 0;
}

/* The sweep looks again, also when nobody else wakes it up. */
static void open_later(struct device_set *f, struct member *m, uint64_t in_ns)
{
	m->work_after_ns = ring_clock_ns() + in_ns;
	ev_timer_again(f->ev, &f->retry);
}

static void open_backend(struct device_set *f, struct member *m)
{
	struct backend_open_params open_params;
	struct device_spec spec;
	int ret;

	device_set_fill_spec(f, m, &spec);
	device_open_params(&spec, m->past ? &m->past->device : NULL, &open_params);
	if (m->past)
		open_params.stored_fd = stored_fd(f, m);
	begin_outage_timeout(f, m);
	ret = backend_work_open(&m->work, &f->work, m->settings, &open_params);
	if (ret == -EAGAIN) {
		open_later(f, m, 0);
	} else if (ret < 0) {
		snprintf(m->error, sizeof(m->error), "cannot open its backend: %s", errname(ret));
		device_set_did_not_start(f, m);
	}
}

/* The words are in m->error. */
static void probe_failed(struct device_set *f, struct member *m)
{
	if (!m->past || ring_clock_ns() >= m->past->until_ns) {
		device_set_did_not_start(f, m);
		return;
	}
	if (!m->past->told)
		log_warn("device cannot be adopted yet", "device=%s reason=\"%s\"",
			 m->settings->options.name, m->error);
	m->past->told = true;
	open_later(f, m, PROBE_RETRY_NS);
}

/* Another device is on its way up, and may be the one whose node this one wants. */
static bool others_start(const struct device_set *f, const struct member *m)
{
	list_for_each (node, &f->members) {
		const struct member *other = list_entry(node, struct member, node);

		if (other != m && !other->late && !other->absent &&
		    (other->state == MEMBER_STARTING || other->state == MEMBER_WAITING))
			return true;
	}
	return false;
}

static bool lives_on_device_node(const struct member *m)
{
	const char *path = settings_path(m->settings);

	return path && strncmp(path, "/dev/", 5) == 0;
}

/* The words are in m->error. */
static void open_failed(struct device_set *f, struct member *m, int err)
{
	m->absent = err == -ENOENT || err == -ENXIO;
	if (m->past && try_adoption_again(f, m, err))
		return;
	/* It was deleted and added again while its file did not answer: the first open holds it. */
	if (err == -EBUSY && (f->work.unwanted_nr > 0 ||
			      (f->work.unwanted_ns &&
			       ring_clock_ns() - f->work.unwanted_ns < NODE_OUTAGE_TIMEOUT_NS))) {
		open_later(f, m, ABSENT_RETRY_NS);
		return;
	}
	if (m->absent && others_start(f, m))
		m->absent_until_ns = ring_clock_ns() + NODE_OUTAGE_TIMEOUT_NS;
	if (m->absent && ring_clock_ns() < m->absent_until_ns && lives_on_device_node(m))
		open_later(f, m, ABSENT_RETRY_NS);
	else
		device_set_did_not_start(f, m);
}

static void work_has_ended(struct device_set *f, struct member *m)
{
	struct backend_device *backend = NULL;
	struct backend_work *work = m->work;
	enum backend_work_step step;
	const char *words;
	int ret = backend_work_result(work, &backend, &words, &step);

	m->work = NULL;
	snprintf(m->error, sizeof(m->error), "%s", ret < 0 ? words : "");
	backend_work_free(work);
	if (ret == 0) {
		m->absent = false;
		start_opened(f, m, backend);
	} else if (step == BACKEND_WORK_PROBE) {
		probe_failed(f, m);
	} else {
		open_failed(f, m, ret);
	}
	if (m->device || m->state != MEMBER_STARTING)
		end_outage_timeout(m);
}

static void go_on(struct device_set *f, struct member *m)
{
	if (m->work && backend_work_ended(m->work))
		work_has_ended(f, m);
	else if (!m->work && ring_clock_ns() >= m->work_after_ns)
		open_backend(f, m);
	else if (!m->work)
		ev_timer_again(f->ev, &f->retry);
}

void device_set_start_opened(struct device_set *f)
{
	list_for_each (node, &f->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->state == MEMBER_STARTING && !m->device && !m->ended)
			go_on(f, m);
	}
}

void device_set_start(struct device_set *f, struct member *m)
{
	ASSERT(!m->device && !m->work);
	begin_start(m);
	m->late = m->absent = false;
	open_backend(f, m);
	/* Where there are no helpers. */
	if (m->state == MEMBER_STARTING && m->work && backend_work_ended(m->work))
		work_has_ended(f, m);
}

/* ---- closing ---- */

bool device_set_close_backend(struct device_set *f, struct member *m)
{
	struct backend_device *backend = m->device ? device_take_backend(m->device) : NULL;

	if (backend && backend_work_close(&m->work, &f->work, m->settings, backend) == 0)
		begin_outage_timeout(f, m);
	if (!m->work || !backend_work_closes(m->work))
		return false;
	return !backend_work_ended(m->work);
}
