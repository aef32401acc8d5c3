/*
 * What a dead daemon left: its notes in the state folder, its devices in the driver. The
 * daemon that holds the lock of the same control socket may take both. Main thread, at start,
 * before any device.
 *
 * Happy path: ask the driver about each /dev/ublkcN; those with our mark are compared with the
 * notes; what can be recovered is handed to the device set. Failure modes: the driver does not
 * answer (logged; nothing more is asked), a device without a note (logged and left alone: ublkctl
 * gc; memory in the fd store may belong to it), a note without a device (removed), a dead device
 * (deleted: nothing can be had from it any more).
 */
#include "daemon/handover/adopt.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/devices/device_notes.h"
#include "daemon/devices/device_notes.h"
#include "daemon/fdstore/fd_store.h"

#define ANSWER_TIMEOUT_NS (10 * NS_PER_SEC)

/* Static: the driver writes to it whenever a late command completes. */
static struct question {
	struct ctl_cmd cmd;
	struct ublksrv_ctrl_dev_info info;
	struct ublk_params params;
	bool answered;
	int result;
} question;

static void on_adopt_answer(struct ctl_cmd *cmd, int res)
{
	struct question *q = container_of(cmd, struct question, cmd);

	q->answered = true;
	q->result = res;
}

static int adopt_ask(struct loop *loop, uint32_t cmd_op, uint32_t dev_id)
{
	struct ctl_request request = { .cmd_op = cmd_op, .dev_id = dev_id, .queue_id = -1 };

	request.with_path = ctl_wants_path(question.info.flags);
	if (cmd_op == UBLK_U_CMD_GET_DEV_INFO2) {
		request.with_path = true;
		request.buf = &question.info;
		request.buf_bytes = sizeof(question.info);
	} else if (cmd_op == UBLK_U_CMD_GET_PARAMS) {
		question.params.len = sizeof(question.params);
		request.buf = &question.params;
		request.buf_bytes = sizeof(question.params);
	}
	question.answered = false;
	ctl_cmd_send(&question.cmd, &request, on_adopt_answer);
	if (!loop_run_until(loop, &question.answered, ANSWER_TIMEOUT_NS))
		return -ETIMEDOUT;
	return question.result;
}

static int adopt_delete(struct loop *loop, uint32_t dev_id)
{
	int ret = adopt_ask(loop, UBLK_U_CMD_DEL_DEV_ASYNC, dev_id);

	/* Not in 6.8; the other one waits until nobody has the device open. */
	if (ret == -EOPNOTSUPP || ret == -EINVAL)
		ret = adopt_ask(loop, UBLK_U_CMD_DEL_DEV, dev_id);
	if (ret < 0)
		log_warn("cannot delete a dead device", "id=%u error=%s", dev_id, errname(ret));
	else
		log_warn("deleted a dead device", "id=%u", dev_id);
	return ret;
}

static struct state_record *record_of(const struct adoption *a, const char *control,
				      const struct ublksrv_ctrl_dev_info *info)
{
	for (size_t i = 0; i < a->record_nr; i++) {
		struct state_record *r = &a->records[i];

		if (r->settings && mark_of(control, r->name) == info->ublksrv_flags &&
		    (r->phase == STATE_ADDING || r->id == (int64_t)info->dev_id))
			return r;
	}
	return NULL;
}

/*
 * The driver knows best how large the device is: a daemon can die between a change of its size and
 * the note of it. An answer that is none leaves the note's.
 */
static int adopt_size(struct loop *loop, struct state_record *r)
{
	int ret = adopt_ask(loop, UBLK_U_CMD_GET_PARAMS, question.info.dev_id);

	if (ret == 0 && question.params.basic.dev_sectors > 0)
		r->size_bytes = question.params.basic.dev_sectors << 9;
	return ret == -ETIMEDOUT ? ret : 0;
}

static int add_found(struct adoption *a, struct state_record *r)
{
	struct adopted *more = realloc(a->found, (a->found_nr + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	a->found = more;
	more[a->found_nr++] = (struct adopted){ .record = r, .info = question.info };
	return 0;
}

static bool carries_mark(const struct adoption *a, uint64_t mark)
{
	for (size_t i = 0; i < a->unnamed_nr; i++)
		if (a->unnamed[i] == mark)
			return true;
	return false;
}

/* Its content and its backend are not known; its users may wait for it. */
static int add_unnamed(struct adoption *a)
{
	const struct ublksrv_ctrl_dev_info *info = &question.info;
	uint64_t *more = reallocarray(a->unnamed, a->unnamed_nr + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	a->unnamed = more;
	more[a->unnamed_nr++] = info->ublksrv_flags;
	/* Served by the daemon that is to hand it over: we would take its rings and leave it. */
	if (a->look_only && info->ublksrv_pid == getppid()) {
		log_error("a device that is served has no note", "id=%u cure=\"%s\"", info->dev_id,
			  "stop the device, or bring its note back");
		return -EPROTO;
	}
	log_warn("a device of ours that no note names is left alone",
		 "id=%u unreadable_notes=%zu cure=\"%s\"", info->dev_id, a->unreadable_nr,
		 a->unreadable_nr ? "make its note readable and start ublkd again; ublkctl gc "
				    "gives the device up"
				  : "ublkctl gc");
	return 0;
}

/* Noted before the driver was asked: nobody can have used what came of it, let alone serve it. */
static bool is_others(const struct state_record *r)
{
	return r->phase == STATE_ADDING && question.info.state == UBLK_S_DEV_LIVE;
}

static int adopt_look_at(struct adoption *a, struct loop *loop, const struct device_set *f,
			 uint32_t dev_id)
{
	int ret = adopt_ask(loop, UBLK_U_CMD_GET_DEV_INFO2, dev_id);
	struct state_record *r;

	if (ret < 0 || !mark_is_of(question.info.ublksrv_flags, f->control))
		return ret == -ETIMEDOUT ? ret : 0;
	r = record_of(a, f->control, &question.info);
	if (!r || is_others(r))
		return add_unnamed(a);
	if (r->phase != STATE_ADDING && recovery_possible(question.info.flags) &&
	    question.info.state != UBLK_S_DEV_DEAD) {
		ret = adopt_size(loop, r);
		return ret < 0 ? ret : add_found(a, r);
	}
	ret = a->look_only ? 0 : adopt_delete(loop, dev_id);
	return ret == -ETIMEDOUT ? ret : 0;
}

static int adopt_look_at_all(struct adoption *a, struct loop *loop, const struct device_set *f)
{
	DIR *dev = opendir("/dev");
	struct dirent *entry;
	unsigned dev_id;
	int ret = 0;

	while (dev && ret == 0 && (entry = readdir(dev)))
		if (sscanf(entry->d_name, "ublkc%u", &dev_id) == 1)
			ret = adopt_look_at(a, loop, f, dev_id);
	if (dev)
		closedir(dev);
	return ret;
}

static bool is_found(const struct adoption *a, const struct state_record *r)
{
	for (size_t i = 0; i < a->found_nr; i++)
		if (a->found[i].record == r)
			return true;
	return false;
}

static void drop_stale(const struct adoption *a, struct device_set *f)
{
	for (size_t i = 0; i < a->record_nr; i++) {
		const char *name = a->records[i].name;

		if (is_found(a, &a->records[i]))
			continue;
		if (carries_mark(a, mark_of(f->control, name))) {
			log_warn("the driver has a device of this name, but not of the id that was "
				 "noted: both are left alone",
				 "device=%s id=%lld cure=\"ublkctl gc\"", name,
				 (long long)a->records[i].id);
			continue;
		}
		log_info("a noted device is not in the driver any more", "device=%s", name);
		note_forget(f, name);
	}
}

static bool is_memory_wanted(const char *stored, void *arg)
{
	const struct adoption *a = arg;

	for (size_t i = 0; i < a->found_nr; i++)
		if (note_memory_is_of(stored, a->found[i].record->name))
			return true;
	return false;
}

static bool has_unwanted_memory(struct adoption *a, const struct fd_store *fd_store)
{
	int fd;

	for (unsigned i = 0; i < fd_store_nr(fd_store); i++)
		if (!is_memory_wanted(fd_store_at(fd_store, i, &fd), a))
			return true;
	return false;
}

/* Memory of a device that was removed just before its daemon died. */
static void drop_memory(struct adoption *a, struct device_set *f)
{
	if (!f->fd_store)
		return;
	/* A note that cannot be read may be of a device whose memory this is. */
	if (a->unreadable_nr == 0 && a->unnamed_nr == 0)
		fd_store_prune(f->fd_store, is_memory_wanted, a);
	else if (has_unwanted_memory(a, f->fd_store))
		log_warn("memory in the fd store stays, since it is not known whose it is",
			 "unreadable_notes=%zu devices_without_note=%zu", a->unreadable_nr,
			 a->unnamed_nr);
}

static int adopt_compare(struct adoption *a, struct loop *loop, struct device_set *f)
{
	int ret = ctl_cmd_init(&question.cmd, f->host->ctl);

	if (ret < 0)
		return ret;
	ret = adopt_look_at_all(a, loop, f);
	if (!ctl_cmd_busy(&question.cmd))
		ctl_cmd_fini(&question.cmd);
	if (ret < 0 || a->look_only)
		return ret;
	drop_stale(a, f);
	drop_memory(a, f);
	return 0;
}

int adoption_find(struct adoption *a, struct loop *loop, struct device_set *f, bool look_only)
{
	int ret;

	*a = (struct adoption){ .look_only = look_only };
	if (!look_only)
		state_clean(f->state);
	ret = state_load(f->state, &a->records, &a->record_nr, &a->unreadable_nr);
	if (ret == 0 && look_only && a->unreadable_nr > 0)
		ret = -EPROTO;
	if (ret == 0)
		ret = adopt_compare(a, loop, f);
	if (ret < 0)
		log_error("cannot find out which devices a dead daemon left",
			  "folder=\"%s\" error=%s", f->state->path, errname(ret));
	return ret;
}

void adoption_begin(struct adoption *a, struct device_set *f)
{
	for (size_t i = 0; i < a->found_nr; i++) {
		struct adopted *found = &a->found[i];

		log_info("adopting a device", "device=%s id=%u", found->record->name,
			 found->info.dev_id);
		device_set_adopt(f, found->record, &found->info);
	}
}

void adoption_free(struct adoption *a)
{
	state_free(a->records, a->record_nr);
	free(a->found);
	free(a->unnamed);
	*a = (struct adoption){ 0 };
}
