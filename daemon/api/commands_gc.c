/*
 * gc: lists or removes devices without a server. Main thread.
 *
 * Happy path: a job of gc.c is begun, and its end is the answer: a row per device. Failure modes:
 * a device that cannot be removed has an error in its row; if the client disconnects, the job
 * is cancelled.
 */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "daemon/api/commands_internal.h"
#include "daemon/devices/gc.h"
#include "daemon/devices/device_notes.h"
#include "daemon/devices/state.h"
#include "daemon/wire/json_words.h"

/* Every command of a job together. */
#define GC_SECONDS 15.
#define GC_IDS_MAX 4096

struct gc_wait {
	struct commands_pending pending;
	struct socket_client *client;
	struct gc_job *job;
	const struct device_set *device_set;
	bool remove;
};

static void cancel_gc(struct commands_pending *pending)
{
	struct gc_wait *w = container_of(pending, struct gc_wait, pending);

	gc_cancel(w->job);
	free(w);
}

static const char *orphan_owner(uint64_t mark, const char *control)
{
	if (control && mark_is_of(mark, control))
		return "this ublkd";
	return mark_is_ublkd(mark) ? "ublkd with another control socket" : "not ublkd";
}

/* By its file alone: what cannot be read any more is not given up for that. */
static bool is_named_by_state(const struct ublksrv_ctrl_dev_info *info, void *arg)
{
	const struct device_set *f = ((const struct gc_wait *)arg)->device_set;
	DIR *dir = f->state && f->control ? opendir(f->state->path) : NULL;
	const struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);
		char name[SETTINGS_NAME_MAX + 1];

		if (len <= 5 || strcmp(entry->d_name + len - 5, ".json") != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)len - 5, entry->d_name);
		found = mark_of(f->control, name) == info->ublksrv_flags;
	}
	if (dir)
		closedir(dir);
	return found;
}

static json_t *orphan_row(const struct gc_device *d, const char *control)
{
	json_t *o = json_pack("{s:i, s:b, s:o}", "id", (int)d->id, "removed", d->step == GC_REMOVED,
			      "error", json_words(d->error));
	json_t *more;

	if (d->info.nr_hw_queues == 0)
		return o; /* the driver did not answer */
	more = json_pack("{s:s, s:i, s:I, s:o, s:s}", "state",
			 device_driver_state_name(d->info.state), "server_pid", d->info.ublksrv_pid,
			 "size_bytes", (json_int_t)d->size_bytes, "users", json_words(d->users),
			 "owner", orphan_owner(d->info.ublksrv_flags, control));
	json_object_update(o, more);
	json_decref(more);
	return o;
}

static void on_gc_done(struct gc_job *job, const struct gc_device *devices, size_t nr, void *arg)
{
	struct gc_wait *w = arg;
	json_t *all = json_array();
	json_int_t left_nr = 0;

	(void)job;
	for (size_t i = 0; i < nr; i++) {
		if (devices[i].step == GC_SKIPPED)
			continue;
		json_array_append_new(all, orphan_row(&devices[i], w->device_set->control));
		left_nr += devices[i].step != GC_REMOVED;
	}
	socket_answer(w->client, json_pack("{s:b, s:I, s:o}", "remove", w->remove, "left", left_nr,
					   "devices", all));
	free(w);
}

/* Returns how many, or -1 when one is no id. */
static int read_orphan_ids(const json_t *list, unsigned *ids)
{
	json_t *item;
	size_t i;

	if (json_array_size(list) > GC_IDS_MAX)
		return -1;
	json_array_foreach(list, i, item)
	{
		json_int_t id = json_integer_value(item);

		if (id < 0 || id >= INT32_MAX)
			return -1;
		ids[i] = (unsigned)id;
	}
	return (int)json_array_size(list);
}

void commands_gc(struct commands *c, struct socket_client *client, const json_t *request)
{
	static unsigned ids[GC_IDS_MAX];
	const json_t *list = json_object_get(request, "ids");
	int id_nr = read_orphan_ids(list, ids);
	struct gc_wait *w = calloc(1, sizeof(*w));
	struct gc_params params = {
		.ev = c->ev,
		.ctl = c->device_set->host->ctl,
		.device_set = c->device_set,
		.is_named = is_named_by_state,
		.folder = "/dev",
		.seconds = GC_SECONDS,
		.remove = json_is_true(json_object_get(request, "remove")),
		.ids = id_nr > 0 ? ids : NULL,
		.id_nr = (size_t)MAX(id_nr, 0),
		.done = on_gc_done,
		.arg = w,
	};

	if (w)
		w->device_set = c->device_set;
	if (id_nr < 0 || !w || gc_start(&w->job, &params) < 0) {
		socket_refuse(client,
			      id_nr < 0 ? "ids: numbers of devices are from 0 on" : "out of memory",
			      NULL);
		free(w);
		return;
	}
	w->client = client;
	w->remove = params.remove;
	w->pending.cancel = cancel_gc;
	client->request = &w->pending;
}
