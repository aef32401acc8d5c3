/*
 * Notes of the devices, one file each (state.h), their memory (fd_store.h), and their marks. Main
 * thread.
 *
 * Happy path: ADDING before the driver knows the device, SERVING with its id before anybody can use
 * it, no note when it is gone. Failure modes: a first note that cannot be written: the device does
 * not start, since it could not be adopted. A later one: logged and tried again, since the device
 * serves already. A note of this name that cannot be read: the device does not start, since what
 * the note says about the driver would be lost. Memory in the fd store under this name: the same,
 * since it may be all that is left of another device.
 */
#include "daemon/devices/device_notes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/fdstore/fd_store.h"

/* Between two tries to write a note. */
#define OWED_SECONDS 2.

#define MARK_PREFIX 0x7562ull /* "ub", then 32 bits of hash of the control path, 16 of the name */

/* ---- names and marks ---- */

void note_memory_name(char name[static NOTE_MEMORY_NAME_BYTES], const char *device, unsigned idx)
{
	int len = snprintf(name, NOTE_MEMORY_NAME_BYTES, "mem-%s", device);

	/* No device's name has a slash. The first is what it was when there was no other. */
	if (idx > 0)
		snprintf(name + len, (size_t)(NOTE_MEMORY_NAME_BYTES - len), "/%u", idx);
}

bool note_memory_is_of(const char *name, const char *device)
{
	size_t len = strlen(device);

	return (strncmp(name, "mem-", 4) == 0 || strncmp(name, "shm-", 4) == 0) &&
	       strncmp(name + 4, device, len) == 0 &&
	       (name[4 + len] == '\0' || name[4 + len] == '/');
}

/* The index in a name that is of the device; BACKEND_STORED_MAX: no name of ours has it. */
static unsigned memory_idx(const char *name, const char *device)
{
	const char *digits = name + 4 + strlen(device);
	unsigned idx = 0;
	char end;

	if (name[0] != 'm')
		return BACKEND_STORED_MAX;
	if (*digits == '\0')
		return 0;
	if (sscanf(digits, "/%3u%c", &idx, &end) != 1 || idx == 0 || idx > BACKEND_STORED_MAX)
		return BACKEND_STORED_MAX;
	return idx;
}

void note_find_memory(const struct device_set *set, const struct member *m,
		      int ret_fds[static BACKEND_STORED_MAX])
{
	const char *device = m->settings->options.name;

	for (unsigned i = 0; i < BACKEND_STORED_MAX; i++)
		ret_fds[i] = -ENOENT;
	for (unsigned i = 0; set->fd_store && i < fd_store_nr(set->fd_store); i++) {
		int fd;
		const char *name = fd_store_at(set->fd_store, i, &fd);
		unsigned idx = note_memory_is_of(name, device) ? memory_idx(name, device)
							       : BACKEND_STORED_MAX;

		if (idx < BACKEND_STORED_MAX)
			ret_fds[idx] = fd;
	}
}

/* FNV-1a */
static uint32_t mark_hash(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

uint64_t mark_of(const char *control_path, const char *name)
{
	uint32_t name_hash = mark_hash(name);

	return MARK_PREFIX << 48 | (uint64_t)mark_hash(control_path) << 16 |
	       ((name_hash >> 16 ^ name_hash) & 0xffff);
}

bool mark_is_of(uint64_t mark, const char *control_path)
{
	return mark >> 16 == mark_of(control_path, "") >> 16;
}

bool mark_is_ublkd(uint64_t mark)
{
	return mark >> 48 == MARK_PREFIX;
}

/* ---- notes ---- */

static int write_note(struct device_set *set, const struct member *m, struct state_record *record)
{
	snprintf(record->name, sizeof(record->name), "%s", m->settings->options.name);
	record->from_file = m->from_file;
	record->settings = m->settings;
	return state_write(set->state, record);
}

static int write_serving(struct device_set *set, struct member *m, struct device *device)
{
	struct state_record record = { .phase = STATE_SERVING };
	struct device_info info;

	device_info(device, &info);
	record.id = info.id;
	record.size_bytes = info.size_bytes;
	backend_identity(device_backend(device), record.identity);
	return write_note(set, m, &record);
}

/* Returns ret, with words when it is an error. */
static int note_result(const struct device_set *set, int ret, char *error, size_t error_bytes)
{
	if (ret < 0)
		snprintf(error, error_bytes, "cannot note the device in %s: %s", set->state->path,
			 errname(ret));
	return ret;
}

int note_adding(struct device_set *set, const struct member *m, char *error, size_t error_bytes)
{
	struct state_record record = { .phase = STATE_ADDING, .id = -1 };
	const char *device = m->settings->options.name;
	int fds[BACKEND_STORED_MAX], ret;
	bool has_memory = false;

	if (!set->state)
		return 0;
	note_find_memory(set, m, fds);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		has_memory |= fds[i] >= 0;
	/* A device's memory is dropped with it: this belongs to one that was not adopted. */
	if (has_memory) {
		snprintf(error, error_bytes,
			 "memory of another device of this name is still in the fd store (see the "
			 "log of the start): remove that device with ublkctl gc and start ublkd "
			 "again, or take another name");
		return -EEXIST;
	}
	ret = state_check(set->state, device);
	if (ret == -EEXIST) {
		snprintf(error, error_bytes,
			 "its note %s/%s.json cannot be used (see the log): start the ublkd that "
			 "wrote it, or remove the file",
			 set->state->path, device);
		return ret;
	}
	if (ret == 0)
		ret = write_note(set, m, &record);
	return note_result(set, ret, error, error_bytes);
}

static void store_memory(struct fd_store *fd_store, const struct member *m,
			 const struct backend_device *backend)
{
	char name[NOTE_MEMORY_NAME_BYTES];

	for (unsigned i = 0; i < backend_stored_nr(backend); i++) {
		int fd = backend_stored_fd(backend, i);

		note_memory_name(name, m->settings->options.name, i);
		if (fd >= 0)
			fd_store_put(fd_store, name, fd);
	}
}

int note_open_owed(const struct device_set *set, struct member *m, char *error, size_t error_bytes)
{
	int fd = 0;

	note_close_owed(m);
	if (set->state && m->past)
		fd = state_open_owed(set->state, m->settings->options.name);
	else if (set->state)
		fd = state_new_owed(set->state);
	if (fd < 0)
		return note_result(set, fd, error, error_bytes);
	m->owed_fd = fd;
	return 0;
}

void note_close_owed(struct member *m)
{
	if (m->owed_fd > 0)
		close(m->owed_fd);
	m->owed_fd = 0;
}

void note_stored(struct device *device, void *device_set)
{
	struct device_set *set = device_set;
	struct device_info info;

	device_info(device, &info);
	/* Before it has an id, note_added is still to come. */
	if (info.id >= 0 && set->state && set->fd_store && recovery_possible(info.flags))
		store_memory(set->fd_store, device_owner(device), device_backend(device));
}

int note_added(struct device *device, void *device_set, char *error, size_t error_bytes)
{
	struct member *m = device_owner(device);
	struct device_set *set = device_set;
	int ret;

	if (!set->state)
		return 0;
	note_stored(device, set);
	ret = m->owed_fd > 0 && !m->past
		      ? state_link_owed(set->state, m->settings->options.name, m->owed_fd)
		      : 0;
	note_close_owed(m);
	if (ret == 0)
		ret = write_serving(set, m, device);
	return note_result(set, ret, error, error_bytes);
}

int note_before_change(struct device_set *set, struct member *m, char *error, size_t error_bytes)
{
	int ret = set->state ? write_serving(set, m, m->device) : 0;

	return note_result(set, ret, error, error_bytes);
}

void note_serving(struct device_set *set, struct member *m)
{
	int ret = set->state ? write_serving(set, m, m->device) : 0;

	m->note_owed = ret < 0;
	if (ret == 0)
		return;
	log_error("cannot note that a device is served; it is tried again",
		  "device=%s folder=\"%s\" error=%s", m->settings->options.name, set->state->path,
		  errname(ret));
	if (!ev_is_active(&set->owed))
		ev_timer_again(set->ev, &set->owed);
}

static void on_owed(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct device_set *set = container_of(w, struct device_set, owed);
	bool any = false;

	(void)events;
	list_for_each (node, &set->members) {
		struct member *m = list_entry(node, struct member, node);

		if (!m->note_owed || m->state != MEMBER_LIVE)
			continue;
		m->note_owed = write_serving(set, m, m->device) < 0;
		any |= m->note_owed;
		if (!m->note_owed)
			log_info("the note of a device is written now", "device=%s",
				 m->settings->options.name);
	}
	if (!any)
		ev_timer_stop(ev, w);
}

void note_init(struct device_set *set)
{
	ev_timer_init(&set->owed, on_owed, 0., OWED_SECONDS);
}

void note_fini(struct device_set *set)
{
	ev_timer_stop(set->ev, &set->owed);
}

void note_recovering(struct device_set *set, const struct member *m)
{
	struct state_record record = { .phase = STATE_RECOVERING,
				       .id = (int64_t)m->past->device.info.dev_id,
				       .size_bytes = m->past->device.size_bytes };
	int ret;

	/* While its backend is busy, the recovery is tried again and again. */
	if (!set->state || m->past->noted)
		return;
	snprintf(record.identity, sizeof(record.identity), "%s", m->past->identity);
	ret = write_note(set, m, &record);
	m->past->noted = ret == 0;
	if (ret < 0)
		log_error("cannot note that a device is being recovered",
			  "device=%s folder=\"%s\" error=%s", record.name, set->state->path,
			  errname(ret));
}

void note_forget(struct device_set *set, const char *device)
{
	char memory[FD_STORE_NAME_MAX + 1];

	if (set->state)
		state_remove(set->state, device);
	for (unsigned i = set->fd_store ? fd_store_nr(set->fd_store) : 0; i-- > 0;) {
		int fd;
		const char *name = fd_store_at(set->fd_store, i, &fd);

		if (!note_memory_is_of(name, device))
			continue;
		snprintf(memory, sizeof(memory), "%s", name);
		fd_store_drop(set->fd_store, memory);
	}
}
