/*
 * Notes of the devices, one file each (state.h), and their memory (fd_store.h). Main thread.
 *
 * Happy path: ADDING before the driver knows the device, SERVING with its id before anybody can use
 * it, nothing when it is gone. Failure modes: a note that cannot be written keeps the device from
 * starting, since it could not be adopted; later ones are told and tried again, for the device
 * serves already. One that cannot be read keeps it from starting too: what it tells about the
 * driver would be lost. So does memory that is in the fd store under its name: it may be all that
 * is left of another.
 */
#include "daemon/devices/device_set_notes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/devices/adopt_sweep.h"
#include "daemon/fdstore/fd_store.h"

/* Between two tries to write a note that could not be written. */
#define OWED_SECONDS 2.

void fd_store_mem_name(char name[static 64], const char *device)
{
	snprintf(name, 64, "mem-%s", device);
}

static int write_note(struct device_set *f, const struct member *m, struct state_record *record)
{
	snprintf(record->name, sizeof(record->name), "%s", m->settings->options.name);
	record->from_file = m->from_file;
	record->settings = m->settings;
	return state_write(f->state, record);
}

static int fail(const struct device_set *f, int err, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "cannot note the device in %s: %s", f->state->path,
		 errname(err));
	return err;
}

int keep_adding(struct device_set *f, const struct member *m, char *error, size_t error_bytes)
{
	struct state_record record = { .phase = STATE_ADDING, .id = -1 };
	const char *name = m->settings->options.name;
	char parked[64];
	int ret;

	if (!f->state)
		return 0;
	fd_store_mem_name(parked, name);
	/* What is dropped with its device is here no more: this is of one that was not adopted. */
	if (f->fd_store && fd_store_find(f->fd_store, parked) >= 0) {
		snprintf(error, error_bytes,
			 "memory of another device of this name is still parked (see the log of "
			 "the start): remove that device with ublkctl gc and start ublkd again, or "
			 "take another name");
		return -EEXIST;
	}
	ret = state_check(f->state, name);
	if (ret == -EEXIST) {
		snprintf(error, error_bytes,
			 "its note %s/%s.json cannot be used (see the log): start the ublkd that "
			 "wrote it, or remove the file",
			 f->state->path, name);
		return ret;
	}
	if (ret == 0)
		ret = write_note(f, m, &record);
	return ret < 0 ? fail(f, ret, error, error_bytes) : 0;
}

static int note_serving(struct device_set *f, struct member *m, struct device *device)
{
	struct state_record record = { .phase = STATE_SERVING };
	struct device_info info;

	device_info(device, &info);
	record.id = info.id;
	record.size_bytes = info.size_bytes;
	backend_identity(device_backend(device), record.identity);
	return write_note(f, m, &record);
}

/* Where the device outlives us, its memory has to. */
static void fd_store_memory(struct device_set *f, const struct member *m, struct device *device)
{
	int fd = backend_stored_fd(device_backend(device));
	struct device_info info;
	char name[64];

	device_info(device, &info);
	fd_store_mem_name(name, m->settings->options.name);
	if (f->fd_store && fd >= 0 && recovery_possible(info.flags))
		fd_store_put(f->fd_store, name, fd);
}

int keep_added(struct device *device, void *device_set, char *error, size_t error_bytes)
{
	struct member *m = device_owner(device);
	struct device_set *f = device_set;
	int ret;

	if (!f->state)
		return 0;
	fd_store_memory(f, m, device);
	ret = note_serving(f, m, device);
	return ret < 0 ? fail(f, ret, error, error_bytes) : 0;
}

int keep_before_change(struct device_set *f, struct member *m, char *error, size_t error_bytes)
{
	int ret = f->state ? note_serving(f, m, m->device) : 0;

	return ret < 0 ? fail(f, ret, error, error_bytes) : 0;
}

void keep_serving(struct device_set *f, struct member *m)
{
	int ret = f->state ? note_serving(f, m, m->device) : 0;

	m->note_owed = ret < 0;
	if (ret == 0)
		return;
	log_error("cannot note that a device is served; it is tried again",
		  "device=%s folder=\"%s\" error=%s", m->settings->options.name, f->state->path,
		  errname(ret));
	if (!ev_is_active(&f->owed))
		ev_timer_again(f->ev, &f->owed);
}

static void on_owed(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct device_set *f = container_of(w, struct device_set, owed);
	bool any = false;

	(void)events;
	list_for_each (node, &f->members) {
		struct member *m = list_entry(node, struct member, node);

		if (!m->note_owed || m->state != MEMBER_LIVE)
			continue;
		m->note_owed = note_serving(f, m, m->device) < 0;
		any |= m->note_owed;
		if (!m->note_owed)
			log_info("the note of a device is written now", "device=%s",
				 m->settings->options.name);
	}
	if (!any)
		ev_timer_stop(ev, w);
}

void keep_init(struct device_set *f)
{
	ev_timer_init(&f->owed, on_owed, 0., OWED_SECONDS);
}

void keep_fini(struct device_set *f)
{
	ev_timer_stop(f->ev, &f->owed);
}

void keep_recovering(struct device_set *f, const struct member *m)
{
	struct state_record record = { .phase = STATE_RECOVERING,
				       .id = (int64_t)m->past->device.info.dev_id,
				       .size_bytes = m->past->device.size_bytes };
	int ret;

	/* A backend that is still busy is tried again and again. */
	if (!f->state || m->past->noted)
		return;
	snprintf(record.identity, sizeof(record.identity), "%s", m->past->identity);
	ret = write_note(f, m, &record);
	m->past->noted = ret == 0;
	if (ret < 0)
		log_error("cannot note that a device is being recovered",
			  "device=%s folder=\"%s\" error=%s", record.name, f->state->path,
			  errname(ret));
}

void keep_forget(struct device_set *f, const char *device)
{
	char name[64];

	if (f->state)
		state_remove(f->state, device);
	fd_store_mem_name(name, device);
	if (f->fd_store)
		fd_store_drop(f->fd_store, name);
}

void keep_sweep(const struct device_set *f, const struct member *m)
{
	if (m->past->begun && !ctl_notices_end(f->host->ctl))
		adopt_sweep(&m->past->device.info);
}

struct member_past *keep_past(const struct state_record *record,
			      const struct ublksrv_ctrl_dev_info *info)
{
	struct member_past *past = calloc(1, sizeof(*past));

	if (!past)
		return NULL;
	snprintf(past->identity, sizeof(past->identity), "%s", record->identity);
	past->device = (struct device_past){
		.info = *info,
		.size_bytes = record->size_bytes,
		.identity = past->identity,
	};
	past->until_ns = ring_clock_ns() + KEEP_OUTAGE_TIMEOUT_NS;
	past->begun = record->phase == STATE_RECOVERING;
	return past;
}
