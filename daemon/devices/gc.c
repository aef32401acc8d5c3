/*
 * Orphans: devices that the driver has, and that no living process serves. Main thread; all devices
 * of a job are asked and removed side by side, so that one that hangs does not delay the others.
 *
 *   ASKING -> LISTED | SKIPPED | REFUSED | STOPPING -> DELETING -> REMOVED
 *
 * Happy path: who holds which /dev/ublkcN is read from /proc once; GET_DEV_INFO2 of each; those
 * that are orphans are listed, or stopped and deleted. Failure modes: the driver refuses a command,
 * or does not answer before the deadline: told of that device; its memory stays until the kernel
 * has let go of it. In doubt a device has a server: one that may just be starting, or one whose
 * server lives without showing its files.
 */
#include "daemon/devices/gc.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "host/sysfs.h"
#include "ublk/openers.h"
#include "ublk/servers.h"

/* Between ADD_DEV and the open of its node a device looks like an orphan. */
#define YOUNG_SECONDS 10
#define DEVICES_MAX 4096

struct gc_job {
	struct gc_params params;
	struct ev_timer deadline, soon;
	size_t nr, open_nr; /* devices; of these not at their end */
	bool over;	    /* `done` was called, or nobody wants it */
	struct gc_device devices[];
};

static unsigned commands_nr;

bool gc_busy(void)
{
	return commands_nr > 0;
}

/* ---- the end ---- */

/* Only when the driver has let go of all of it. */
static void free_job(struct gc_job *job)
{
	for (size_t i = 0; i < job->nr; i++)
		if (job->devices[i].cmd.ctl && ctl_cmd_busy(&job->devices[i].cmd))
			return;
	for (size_t i = 0; i < job->nr; i++)
		ctl_cmd_fini(&job->devices[i].cmd);
	free(job);
}

static void gc_end(struct gc_job *job)
{
	ev_timer_stop(job->params.ev, &job->deadline);
	ev_timer_stop(job->params.ev, &job->soon);
	if (!job->over)
		job->params.done(job, job->devices, job->nr, job->params.arg);
	job->over = true;
	free_job(job);
}

void gc_cancel(struct gc_job *job)
{
	job->over = true;
	gc_end(job);
}

static void on_soon(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	(void)ev, (void)events;
	gc_end(container_of(timer, struct gc_job, soon));
}

static void device_ends(struct gc_device *d, enum gc_step step)
{
	d->step = step;
	if (--d->job->open_nr == 0)
		ev_timer_start(d->job->params.ev, &d->job->soon);
}

static bool at_end(const struct gc_device *d)
{
	return d->step >= GC_SKIPPED;
}

static void on_gc_deadline(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct gc_job *job = container_of(timer, struct gc_job, deadline);

	(void)ev, (void)events;
	for (size_t i = 0; i < job->nr; i++) {
		struct gc_device *d = &job->devices[i];

		if (at_end(d))
			continue;
		snprintf(d->error, sizeof(d->error),
			 "%s has not answered for %g s; ask again later",
			 ctl_cmd_name(d->cmd.request.cmd_op), job->params.seconds);
		d->step = GC_FAILED;
	}
	gc_end(job);
}

/* ---- commands ---- */

static void on_gc_answer(struct ctl_cmd *cmd, int res);

static void gc_ask(struct gc_device *d, uint32_t cmd_op)
{
	bool wants_info = cmd_op == UBLK_U_CMD_GET_DEV_INFO2;
	struct ctl_request request = {
		.cmd_op = cmd_op,
		.dev_id = d->id,
		.queue_id = -1,
		.buf = wants_info ? &d->info : NULL,
		.buf_bytes = wants_info ? sizeof(d->info) : 0,
		.with_path = wants_info || ctl_wants_path(d->info.flags),
	};

	commands_nr++;
	ctl_cmd_send(&d->cmd, &request, on_gc_answer);
}

static void gc_fail(struct gc_device *d, int err)
{
	const char *words = ctl_explain(d->cmd.request.cmd_op, err);

	snprintf(d->error, sizeof(d->error), "%s failed: %s%s%s",
		 ctl_cmd_name(d->cmd.request.cmd_op), errname(err), *words ? ": " : "", words);
	device_ends(d, GC_FAILED);
}

/* ---- is it an orphan? ---- */

static bool is_served_here(const struct gc_job *job, unsigned id)
{
	list_for_each (node, &job->params.device_set->members) {
		const struct member *m = list_entry(node, struct member, node);
		struct device_info info;

		if (!m->device || m->ended)
			continue;
		device_info(m->device, &info);
		if (info.id == (int64_t)id)
			return true;
	}
	return false;
}

static bool lives(int pid)
{
	return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

static bool is_young(const struct gc_device *d)
{
	char path[GC_TEXT_BYTES];
	struct stat st;

	snprintf(path, sizeof(path), "%s/ublkc%u", d->job->params.folder, d->id);
	return stat(path, &st) == 0 && st.st_ctim.tv_sec + YOUNG_SECONDS > time(NULL);
}

/* Why it must be left alone, in d->error; false: it is an orphan. */
static bool has_server(struct gc_device *d)
{
	const struct gc_params *p = &d->job->params;
	const struct ublksrv_ctrl_dev_info *info = &d->info;

	if (is_served_here(d->job, d->id))
		snprintf(d->error, sizeof(d->error), "is served by this ublkd");
	else if (d->holder)
		snprintf(d->error, sizeof(d->error), "is served by the living process %d",
			 d->holder);
	else if (info->state == UBLK_S_DEV_LIVE && lives(info->ublksrv_pid))
		snprintf(d->error, sizeof(d->error),
			 "its server, process %d, lives, though it does not show that it has "
			 "/dev/ublkc%u open",
			 info->ublksrv_pid, d->id);
	else if (info->ublksrv_pid <= 0 && is_young(d))
		snprintf(d->error, sizeof(d->error), "was made a moment ago, and may be starting");
	else if (p->is_named && p->is_named(info, p->arg))
		snprintf(d->error, sizeof(d->error),
			 "is one that this ublkd adopts: see ublkctl list");
	else
		return false;
	return true;
}

static void gc_judge(struct gc_device *d)
{
	const struct gc_params *p = &d->job->params;
	char sectors[32];

	if (has_server(d)) {
		device_ends(d, p->ids ? GC_REFUSED : GC_SKIPPED);
		return;
	}
	sysfs_line(sectors, sizeof(sectors), "/sys/block/ublkb%u/size", d->id);
	d->size_bytes = strtoull(sectors, NULL, 10) << 9;
	openers_find((int)d->id, d->users, sizeof(d->users));
	if (!p->remove) {
		device_ends(d, GC_LISTED);
		return;
	}
	d->step = GC_STOPPING;
	gc_ask(d, UBLK_U_CMD_STOP_DEV);
}

/* ---- step by step ---- */

static void gc_asked(struct gc_device *d, int res)
{
	if (res == 0)
		gc_judge(d);
	else if (!d->job->params.ids && (res == -ENODEV || res == -EPERM || res == -EACCES))
		/* A node that is left, or it went meanwhile; or another user's. */
		device_ends(d, GC_SKIPPED);
	else
		gc_fail(d, res);
}

static void gc_stopped(struct gc_device *d, int res)
{
	/* The synchronous DEL_DEV waits for all who have it open. */
	if (res < 0 && res != -ENODEV) {
		gc_fail(d, res);
		return;
	}
	d->step = GC_DELETING;
	/* See del in device_stop.c. */
	gc_ask(d, ctl_wants_path(d->info.flags) ? UBLK_U_CMD_DEL_DEV : UBLK_U_CMD_DEL_DEV_ASYNC);
}

static void gc_deleted(struct gc_device *d, int res)
{
	/* Not in 6.8. */
	if (res == -EOPNOTSUPP && d->cmd.request.cmd_op == UBLK_U_CMD_DEL_DEV_ASYNC) {
		gc_ask(d, UBLK_U_CMD_DEL_DEV);
	} else if (res < 0 && res != -ENODEV) {
		gc_fail(d, res);
	} else {
		log_info("orphan removed", "id=%u server_pid=%d", d->id, d->info.ublksrv_pid);
		device_ends(d, GC_REMOVED);
	}
}

static void on_gc_answer(struct ctl_cmd *cmd, int res)
{
	struct gc_device *d = container_of(cmd, struct gc_device, cmd);

	commands_nr--;
	if (d->job->over) {
		free_job(d->job);
		return;
	}
	if (d->step == GC_ASKING)
		gc_asked(d, res);
	else if (d->step == GC_STOPPING)
		gc_stopped(d, res);
	else
		gc_deleted(d, res);
}

/* ---- the beginning ---- */

static int compare_ids(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return x < y ? -1 : x > y;
}

/* Ids of all nodes in the folder, in order; returns how many. */
static size_t find_ids(const char *folder, unsigned *ids, size_t max)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	size_t nr = 0;
	char rest;

	while (dir && nr < max && (entry = readdir(dir)))
		if (sscanf(entry->d_name, "ublkc%u%c", &ids[nr], &rest) == 1)
			nr++;
	if (dir)
		closedir(dir);
	qsort(ids, nr, sizeof(*ids), compare_ids);
	return nr;
}

static void note_holder(int pid, unsigned id, void *arg)
{
	struct gc_job *job = arg;

	for (size_t i = 0; i < job->nr; i++)
		if (job->devices[i].id == id)
			job->devices[i].holder = pid;
}

static void gc_begin(struct gc_job *job)
{
	servers_find(job->params.folder, note_holder, job);
	for (size_t i = 0; i < job->nr; i++) {
		struct gc_device *d = &job->devices[i];
		int ret = ctl_cmd_init(&d->cmd, job->params.ctl);

		if (ret == 0) {
			gc_ask(d, UBLK_U_CMD_GET_DEV_INFO2);
			continue;
		}
		snprintf(d->error, sizeof(d->error), "too many commands at a time");
		device_ends(d, GC_FAILED);
	}
	if (job->nr == 0)
		ev_timer_start(job->params.ev, &job->soon);
}

int gc_start(struct gc_job **ret_job, const struct gc_params *params)
{
	static unsigned found[DEVICES_MAX];
	const unsigned *ids = params->ids ? params->ids : found;
	size_t nr =
		params->ids ? params->id_nr : find_ids(params->folder, found, ARRAY_SIZE(found));
	struct gc_job *job = calloc(1, sizeof(*job) + nr * sizeof(job->devices[0]));

	if (!job)
		return -ENOMEM;
	job->params = *params;
	job->nr = job->open_nr = nr;
	for (size_t i = 0; i < nr; i++) {
		job->devices[i].job = job;
		job->devices[i].id = ids[i];
	}
	ev_timer_init(&job->deadline, on_gc_deadline, params->seconds, 0.);
	ev_timer_init(&job->soon, on_soon, 0., 0.);
	ev_timer_start(params->ev, &job->deadline);
	gc_begin(job);
	*ret_job = job;
	return 0;
}
