/*
 * How a member becomes a device: from nothing, or adopted from the driver. Main thread.
 *
 * Happy path: backend_work.c opens the backend; meanwhile the member is STARTING, without a device.
 * When the backend is open, the sweep goes on: the device starts or recovers. When the device has
 * ended, its backend is closed the same way.
 *
 * Failure modes: a backend that cannot be opened: a new device has failed; one that is to be
 * adopted is tried again for a while, since its users wait. A node below /dev that is missing may
 * be that of another device of this daemon, which is waited for. A backend that is neither opened
 * nor closed in open_timeout_seconds: the member is late, the reason is told, nobody waits for
 * it; it goes on when the call returns. An id that is taken: explained.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "daemon/devices/device_set_internal.h"
#include "daemon/devices/old_driver.h"
#include "daemon/devices/device_notes.h"
#include "daemon/fdstore/fd_store.h"
#include "daemon/settings/settings_resource.h"
#include "host/sysfs.h"
#include "ublk/servers.h"

/* Between two questions to a server that did not answer one. */
#define SERVER_RETRY_NS (200 * NS_PER_MS)
/* Between two looks for a file that another device of this daemon may bring. */
#define ABSENT_RETRY_NS (100 * NS_PER_MS)
/* So much longer than open_timeout a backend has that is about to say why it cannot be opened. */
#define REASON_NS (2 * NS_PER_SEC)
/* udev makes its links to a new device in less. */
#define NODE_OUTAGE_TIMEOUT_NS (3 * NS_PER_SEC)

struct device_spec device_set_spec_of(const struct device_settings *settings)
{
	const struct device_options *o = &settings->options;

	return (struct device_spec){
		.name = o->name,
		.id = settings->id,
		.queues = (uint32_t)o->queues,
		.depth = (uint32_t)o->depth,
		.logical_block_bytes = (uint32_t)o->block_bytes,
		.max_io_bytes = (uint32_t)o->max_io_bytes,
		.has_shmem = o->shmem_bytes > 0,
		.shmem_bytes = o->shmem_bytes,
		.read_only = o->read_only,
		.no_partition_scan = !o->partition_scan,
		.data_path = (enum data_path)o->data_path,
		.batch = (enum batch_choice)o->batch,
		.recovery = (enum recovery)o->recovery,
		.backend = settings->backend,
	};
}

void device_set_fill_spec(const struct device_set *set, const struct member *m,
			  struct device_spec *spec)
{
	*spec = device_set_spec_of(m->settings);
	spec->mark = mark_of(set->control ? set->control : "", spec->name);
}

/* ---- open timeout ---- */

/*
 * Its own limit, as long as ours by default, ends it about now, with the reason that its user would
 * have got too late. False: it does not, or should have by far.
 */
static bool wait_for_reason(struct ev_loop *ev, struct ev_timer *w, uint64_t ends_ns)
{
	uint64_t now_ns = ring_clock_ns(), until_ns = ends_ns + REASON_NS;

	if (ends_ns == 0 || until_ns <= now_ns || ends_ns > now_ns + REASON_NS)
		return false;
	ev_timer_set(w, (double)(until_ns - now_ns) / NS_PER_SEC, 0.);
	ev_timer_start(ev, w);
	return true;
}

static void on_late_work(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct member *m = container_of(w, struct member, open_timeout);
	const char *doing = "waiting to open its backend";
	char where[WORKER_TEXT_BYTES] = "", waits_for[BACKEND_LIFE_WAIT_BYTES] = "";
	uint64_t since_ns;

	(void)events;
	ev_timer_stop(ev, w);
	if (m->work && wait_for_reason(ev, w, backend_work_ends_ns(m->work, waits_for)))
		return;
	if (m->work)
		doing = backend_work_doing(m->work, &since_ns, where);
	snprintf(m->error, sizeof(m->error), "%s takes longer than %.0f s%s%s%s%s%s", doing,
		 m->device_set->open_timeout_seconds, waits_for[0] ? ": " : "", waits_for,
		 where[0] ? " (in the kernel: " : "", where, where[0] ? ")" : "");
	device_set_is_late(m, member_state_name(m), m->error);
}

/* From the first try on: another try gets no more time. */
static void begin_open_timeout(struct device_set *set, struct member *m)
{
	if (ev_is_active(&m->open_timeout) || m->late)
		return;
	ev_timer_init(&m->open_timeout, on_late_work, set->open_timeout_seconds, 0.);
	ev_timer_start(set->ev, &m->open_timeout);
}

void device_set_did_not_start(struct device_set *set, struct member *m)
{
	log_error("device did not start", "device=%s error=\"%s\"", m->settings->options.name,
		  m->error);
	m->device = NULL;
	m->state = MEMBER_FAILED;
	m->stop_when_live = false;
	m->ended = true;
	device_set_check(set);
}

static void start_new(struct device_set *set, struct member *m, struct device_spec *spec)
{
	int ret = note_adding(set, m, m->error, sizeof(m->error));

	if (ret == 0) {
		ret = device_start(&m->device, set->host, spec, m, m->error, sizeof(m->error));
		if (ret == 0)
			return;
		note_forget(set, m->settings->options.name);
	}
	device_set_did_not_start(set, m);
}

/* EBUSY: I/O of the dead daemon is under way. True: it is tried again. */
static bool try_adoption_again(struct device_set *set, struct member *m, int err)
{
	if (err != -EBUSY || ring_clock_ns() >= m->past->until_ns)
		return false;
	m->device = NULL;
	m->state = MEMBER_WAITING;
	ev_timer_again(set->ev, &set->retry);
	return true;
}

static void adopt_member(struct device_set *set, struct member *m, struct device_spec *spec)
{
	int ret;

	note_recovering(set, m);
	if (m->past->begun && !ctl_notices_end(set->host->ctl))
		old_driver_clear_recovery(&m->past->device.info);
	ret = device_recover(&m->device, set->host, spec, &m->past->device, m, m->error,
			     sizeof(m->error));
	m->past->begun = ret == 0;
	if (ret == 0)
		device_set_restore_shmem(m);
	if (ret < 0 && !try_adoption_again(set, m, ret))
		device_set_did_not_start(set, m);
}

static void start_opened(struct device_set *set, struct member *m, struct backend_device *backend)
{
	struct backend_work *work;
	struct device_spec spec;

	device_set_fill_spec(set, m, &spec);
	spec.opened = backend;
	if (m->past)
		adopt_member(set, m, &spec);
	else
		start_new(set, m, &spec);
	/* The device did not take it: it is closed by a work that nobody waits for. */
	if (!m->device && backend_work_close(&work, &set->work, m->settings, backend) == 0)
		backend_work_free(work);
}

/* ---- opening ---- */

void device_set_forget_work(struct member *m)
{
	ev_timer_stop(m->device_set->ev, &m->open_timeout);
	backend_work_free(m->work);
	m->work = NULL;
	m->work_after_ns = 0;
}

/* The sweep looks again, also when nobody else wakes it up. */
static void open_later(struct device_set *set, struct member *m, uint64_t in_ns)
{
	m->work_after_ns = ring_clock_ns() + in_ns;
	ev_timer_again(set->ev, &set->retry);
}

static void open_backend(struct device_set *set, struct member *m)
{
	struct backend_open_params open_params;
	struct device_spec spec;
	int stored_fds[BACKEND_STORED_MAX], ret;

	device_set_fill_spec(set, m, &spec);
	device_open_params(&spec, m->past ? &m->past->device : NULL, &open_params);
	note_find_memory(set, m, stored_fds);
	open_params.stored_fds = m->past ? stored_fds : NULL;
	if (note_open_owed(set, m, m->error, sizeof(m->error)) < 0) {
		device_set_did_not_start(set, m);
		return;
	}
	begin_open_timeout(set, m);
	open_params.owed_fd = m->owed_fd;
	ret = backend_work_open(&m->work, &set->work, m->settings, &open_params);
	if (ret == -EAGAIN) {
		open_later(set, m, 0);
	} else if (ret < 0) {
		snprintf(m->error, sizeof(m->error), "cannot open its backend: %s", errname(ret));
		device_set_did_not_start(set, m);
	}
}

/* The server did not answer as it should; m->error says what was wrong. */
static void server_failed(struct device_set *set, struct member *m)
{
	if (!m->past || ring_clock_ns() >= m->past->until_ns) {
		device_set_did_not_start(set, m);
		return;
	}
	if (!m->past->told)
		log_warn("device cannot be adopted yet", "device=%s reason=\"%s\"",
			 m->settings->options.name, m->error);
	m->past->told = true;
	open_later(set, m, SERVER_RETRY_NS);
}

/* Another device is starting, and its node may be the file that this one wants. */
static bool others_start(const struct device_set *set, const struct member *m)
{
	list_for_each (node, &set->members) {
		const struct member *other = list_entry(node, struct member, node);

		if (other != m && !other->late && !other->absent &&
		    (other->state == MEMBER_STARTING || other->state == MEMBER_WAITING))
			return true;
	}
	return false;
}

/* m->error says why. */
static void backend_open_failed(struct device_set *set, struct member *m, int err)
{
	uint64_t now_ns = ring_clock_ns();

	m->absent = err == -ENOENT || err == -ENXIO;
	if (m->past && try_adoption_again(set, m, err))
		return;
	/* It was deleted and added again while its file did not answer: the first open holds it. */
	if (err == -EBUSY &&
	    (set->work.unwanted_nr > 0 ||
	     (set->work.unwanted_ns && now_ns - set->work.unwanted_ns < NODE_OUTAGE_TIMEOUT_NS))) {
		open_later(set, m, ABSENT_RETRY_NS);
		return;
	}
	if (m->absent && others_start(set, m))
		m->absent_until_ns = now_ns + NODE_OUTAGE_TIMEOUT_NS;
	if (m->absent && now_ns < m->absent_until_ns && settings_has_path_in(m->settings, "/dev/"))
		open_later(set, m, ABSENT_RETRY_NS);
	else
		device_set_did_not_start(set, m);
}

static void work_has_ended(struct device_set *set, struct member *m)
{
	struct backend_device *backend = NULL;
	struct backend_work *work = m->work;
	const char *words;
	bool unanswered;
	int ret = backend_work_result(work, &backend, &words, &unanswered);

	m->work = NULL;
	snprintf(m->error, sizeof(m->error), "%s", ret < 0 ? words : "");
	backend_work_free(work);
	if (ret == 0) {
		m->absent = false;
		start_opened(set, m, backend);
	} else if (unanswered) {
		server_failed(set, m);
	} else {
		backend_open_failed(set, m, ret);
	}
	if (m->device || m->state != MEMBER_STARTING)
		ev_timer_stop(set->ev, &m->open_timeout);
}

void device_set_start_opened(struct device_set *set)
{
	list_for_each (node, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->state != MEMBER_STARTING || m->device || m->ended)
			continue;
		if (m->work && backend_work_ended(m->work))
			work_has_ended(set, m);
		else if (!m->work && ring_clock_ns() >= m->work_after_ns)
			open_backend(set, m);
		else if (!m->work)
			ev_timer_again(set->ev, &set->retry);
	}
}

void device_set_start(struct device_set *set, struct member *m)
{
	ASSERT(!m->device && !m->work);
	m->state = MEMBER_STARTING;
	m->error[0] = '\0';
	latency_fini(&m->latency);
	m->late = m->absent = false;
	open_backend(set, m);
	/* Where there are no helpers. */
	if (m->state == MEMBER_STARTING && m->work && backend_work_ended(m->work))
		work_has_ended(set, m);
}

/* ---- closing ---- */

bool device_set_close_backend(struct device_set *set, struct member *m)
{
	struct backend_device *backend = m->device ? device_take_backend(m->device) : NULL;

	if (backend && backend_work_close(&m->work, &set->work, m->settings, backend) == 0)
		begin_open_timeout(set, m);
	if (!m->work || !backend_work_closes(m->work))
		return false;
	return !backend_work_ended(m->work);
}

/* ---- an id that is taken ---- */

struct id_server {
	unsigned id;
	int pid; /* 0: none was seen */
};

static void note_id_server(int pid, unsigned id, void *arg)
{
	struct id_server *s = arg;

	if (id == s->id && pid != getpid())
		s->pid = pid;
}

/* Its server is out of sight, but who made it is not. */
static bool is_others_node(const char *folder, unsigned id, uid_t *ret_uid)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/ublkc%u", folder, id);
	if (stat(path, &st) < 0 || st.st_uid == geteuid())
		return false;
	*ret_uid = st.st_uid;
	return true;
}

void device_set_explain_id(const struct device_set *set, const struct member *m, const char *folder,
			   char *text, size_t bytes)
{
	struct id_server server = { .id = (unsigned)m->settings->id };
	struct device_info info;
	char process[32];
	uid_t uid;

	list_for_each (node, &set->members) {
		const struct member *other = list_entry(node, struct member, node);
		const char *name = other->settings->options.name;

		if (other == m || !other->device || other->ended)
			continue;
		device_info(other->device, &info);
		if (info.id != m->settings->id)
			continue;
		snprintf(text, bytes,
			 "id %u is taken by device \"%s\" of this daemon: choose another id, or "
			 "remove that device (ublkctl del %s) and reload",
			 server.id, name, name);
		return;
	}
	servers_find(folder, note_id_server, &server);
	if (!server.pid && is_others_node(folder, server.id, &uid)) {
		snprintf(text, bytes,
			 "id %u is taken by a device of user %u: choose another id and reload",
			 server.id, (unsigned)uid);
		return;
	}
	if (!server.pid) {
		snprintf(text, bytes,
			 "id %u is taken by a device that no process serves: choose another id, or "
			 "remove that device (ublkctl gc %u --remove) and reload",
			 server.id, server.id);
		return;
	}
	if (!sysfs_line(process, sizeof(process), "/proc/%d/comm", server.pid))
		snprintf(process, sizeof(process), "process");
	snprintf(text, bytes,
		 "id %u is taken by a device of another ublk server, %s[%d]: choose another id, or "
		 "remove %s/ublkb%u there and reload",
		 server.id, process, server.pid, folder, server.id);
}
