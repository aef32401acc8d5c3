/*
 * Snapshots: maps that the manifest names beside the current one. Owns a change that is under way.
 * Main thread begins and ends it; in between it is the queue's reactor's.
 *
 * Happy path: requests that come wait -> those before are complete -> the map as it is becomes an
 * object, that of a new generation -> the manifest names it, as the snapshot's too -> requests go
 * on. Delete changes the manifest alone; apply makes the snapshot's map that of a new generation.
 * Failure modes: before the manifest is written nothing has changed; whether it was written is not
 * known: the next FLUSH sees which generation it has, and the device fails if that is another one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/s3_disk/s3_disk.h"
#include "base/printable.h"
#include "base/util.h"
#include "storage/snapshot.h"

struct s3_disk_change {
	struct backend_snapshot_change *change;
	struct s3_disk *d;
	struct s3_disk_queue *q;
	struct mail mail;
	struct task task;
	struct s3_disk_call call;
	struct s3_disk_manifest next;
	struct s3_disk_map map; /* apply: the snapshot's */
	uint8_t *buf;
	size_t buf_bytes;
	unsigned idx; /* of the snapshot */
	int result;
};

/* ---- its end ---- */

static void change_free(struct s3_disk_change *p)
{
	s3_disk_map_fini(&p->map);
	free(p->buf);
	free(p);
}

/* Main thread. */
static void change_on_ended(struct mail *mail)
{
	struct s3_disk_change *p = container_of(mail, struct s3_disk_change, mail);
	struct backend_snapshot_change *change = p->change;
	struct s3_disk *d = p->d;
	int result = p->result;

	if (result == 0)
		s3_disk_snapshots_show(d, &p->next);
	d->change = NULL;
	change_free(p);
	change->done(change, result);
}

/* Not from inside of its call. */
static void change_leave(struct task *task)
{
	struct s3_disk_change *p = container_of(task, struct s3_disk_change, task);

	s3_disk_call_fini(&p->call);
	s3_disk_queue_release(p->q);
	reactor_post(p->change->reactor, &p->mail, change_on_ended);
}

static void change_end(struct s3_disk_change *p, int result)
{
	p->result = result;
	reactor_defer(p->q->queue->reactor, &p->task, change_leave);
}

static void change_fail(struct s3_disk_change *p, int err, const char *what, const char *words)
{
	snprintf(p->change->words, sizeof(p->change->words), "%s%.*s", what, utf8_fit(words, 190),
		 words);
	change_end(p, err);
}

/* ---- the manifest ---- */

static void change_adopt(struct s3_disk_change *p)
{
	struct s3_disk *d = p->d;

	if (p->change->op == BACKEND_SNAPSHOT_APPLY) {
		s3_disk_map_fini(&d->map);
		d->map = p->map;
		p->map = (struct s3_disk_map){ 0 };
		s3_disk_slots_forget(p->q);
	}
	if (p->next.generation != d->manifest.generation)
		d->seq = 0;
	d->manifest = p->next;
}

static void change_on_named(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_queue *q = container_of(lease, struct s3_disk_queue, lease);
	struct s3_disk_change *p = q->change;

	s3_disk_fence_returned(q, result);
	if (result < 0) {
		change_fail(p, result == -ESTALE ? -EBUSY : result, "",
			    result == -ESTALE ? "another host writes the disk" : lease->words);
		return;
	}
	p->next = lease->manifest;
	change_adopt(p);
	change_end(p, 0);
}

static void change_name(struct s3_disk_change *p)
{
	s3_disk_fence_write(p->q, &p->next, change_on_named);
}

/* ---- the map ---- */

static void change_on_stored(struct s3_disk_call *call, int result)
{
	struct s3_disk_change *p = container_of(call, struct s3_disk_change, call);

	if (result < 0)
		change_fail(p, result, "the map: ", call->words);
	else
		change_name(p);
}

static bool change_buffer(struct s3_disk_change *p, size_t bytes)
{
	free(p->buf);
	p->buf = malloc(bytes);
	p->buf_bytes = bytes;
	if (!p->buf)
		change_fail(p, -ENOMEM, "out of memory", "");
	return p->buf;
}

/* The map becomes that of the next generation. */
static void change_store_map(struct s3_disk_change *p, const struct s3_disk_map *map)
{
	if (p->next.generation == S3_DISK_GENERATION_MAX) {
		change_fail(p, -EOVERFLOW, "the disk has no generation left", "");
		return;
	}
	p->next.generation++;
	p->next.stored = (struct s3_disk_tally){ 0 };
	p->next.has_even_holes = true;
	if (p->change->op == BACKEND_SNAPSHOT_CREATE)
		s3_disk_manifest_content(&p->d->manifest, map, p->next.content);
	else
		s3_disk_content(p->d->token, map, p->next.content);
	p->d->map_nr++;
	s3_disk_map_name(p->d, p->next.generation, p->next.map);
	if (p->change->op == BACKEND_SNAPSHOT_CREATE) {
		struct s3_disk_snapshot *s = &p->next.snapshot[p->idx];

		s->generation = p->next.generation;
		memcpy(s->map, p->next.map, sizeof(s->map));
	}
	if (!change_buffer(p, s3_disk_map_bytes(map)))
		return;
	s3_disk_map_write(map, p->next.generation, p->buf);
	s3_disk_call_put(&p->call, p->next.map, NULL, p->buf, p->buf_bytes, change_on_stored);
}

static void change_on_map(struct s3_disk_call *call, int result)
{
	struct s3_disk_change *p = container_of(call, struct s3_disk_change, call);
	char words[100];

	if (result < 0)
		change_fail(p, result == -ENOENT ? -EIO : result,
			    "the snapshot's map: ", call->words);
	else if (s3_disk_map_read(&p->map, p->next.snapshot[p->idx].generation, p->buf, call->got,
				  words, sizeof(words)) < 0)
		change_fail(p, -EINVAL, "the snapshot: ", words);
	else
		change_store_map(p, &p->map);
}

static void change_load_map(struct s3_disk_change *p)
{
	uint32_t nr = p->d->map.nr;

	if (s3_disk_map_init(&p->map, nr) < 0) {
		change_fail(p, -ENOMEM, "out of memory", "");
		return;
	}
	if (change_buffer(p, s3_disk_map_bytes_max(nr)))
		s3_disk_call_get(&p->call, p->next.snapshot[p->idx].map, p->buf, p->buf_bytes,
				 change_on_map);
}

/* ---- its beginning ---- */

/* Where it is, or will be, in the manifest. */
static bool change_find(struct s3_disk_change *p)
{
	p->idx = 0;
	while (p->idx < p->next.snapshot_nr &&
	       strcmp(p->next.snapshot[p->idx].name, p->change->name) != 0)
		p->idx++;
	return p->idx < p->next.snapshot_nr || p->change->op == BACKEND_SNAPSHOT_CREATE;
}

void s3_disk_change_go(struct s3_disk_queue *q)
{
	struct s3_disk_change *p = q->change;

	p->next = p->d->manifest;
	if (!change_find(p)) {
		change_fail(p, -ENOENT, "there is no such snapshot any more", "");
		return;
	}
	if (p->change->op == BACKEND_SNAPSHOT_CREATE) {
		struct s3_disk_snapshot *s = &p->next.snapshot[p->next.snapshot_nr++];

		*s = (struct s3_disk_snapshot){ .sec = (uint64_t)time(NULL) };
		snprintf(s->name, sizeof(s->name), "%s", p->change->name);
		change_store_map(p, &p->d->map);
	} else if (p->change->op == BACKEND_SNAPSHOT_APPLY) {
		change_load_map(p);
	} else {
		p->next.snapshot_nr--;
		memmove(&p->next.snapshot[p->idx], &p->next.snapshot[p->idx + 1],
			(p->next.snapshot_nr - p->idx) * sizeof(p->next.snapshot[0]));
		change_name(p);
	}
}

static void change_on_begun(struct mail *mail)
{
	struct s3_disk_change *p = container_of(mail, struct s3_disk_change, mail);

	if (s3_disk_call_init(&p->call, &p->q->client) < 0) {
		change_fail(p, -ENOMEM, "out of memory", "");
		return;
	}
	s3_disk_queue_hold(p->q, p);
}

static int change_refuse(struct backend_snapshot_change *change, int err, const char *words)
{
	snprintf(change->words, sizeof(change->words), "%s", words);
	return err;
}

static int change_check(struct s3_disk *d, struct backend_snapshot_change *change, int idx)
{
	if (d->is_read_only)
		return change_refuse(change, -EROFS, "the disk is read-only");
	if (d->change || !__atomic_load_n(&d->queue, __ATOMIC_ACQUIRE))
		return change_refuse(change, -EBUSY, "another change is under way");
	if (change->op != BACKEND_SNAPSHOT_CREATE)
		return idx >= 0 ? 0 : change_refuse(change, -ENOENT, "there is no such snapshot");
	if (!s3_disk_snapshot_name_is_good(change->name))
		return change_refuse(change, -EINVAL,
				     "a name has letters, digits and . _ -, at most 63");
	if (idx >= 0)
		return change_refuse(change, -EEXIST, "there is a snapshot of that name");
	if (d->shown_nr == S3_DISK_SNAPSHOTS_MAX)
		return change_refuse(change, -EINVAL, "there are 128 snapshots: delete one first");
	return 0;
}

static int snapshot_find(const struct s3_disk *d, const char *name)
{
	for (unsigned i = 0; i < d->shown_nr; i++)
		if (strcmp(d->shown[i].name, name) == 0)
			return (int)i;
	return -1;
}

static int s3_disk_change_begin(struct backend_device *device,
				struct backend_snapshot_change *change)
{
	struct s3_disk *d = device->priv;
	int idx = snapshot_find(d, change->name);
	int ret = change_check(d, change, idx);
	struct s3_disk_change *p;

	if (ret < 0)
		return ret;
	p = calloc(1, sizeof(*p));
	if (!p)
		return change_refuse(change, -ENOMEM, "out of memory");
	p->change = change;
	p->d = d;
	p->q = d->queue;
	d->change = p;
	reactor_post(p->q->queue->reactor, &p->mail, change_on_begun);
	return 0;
}

/* ---- what there is: main thread ---- */

void s3_disk_snapshots_show(struct s3_disk *d, const struct s3_disk_manifest *m)
{
	memcpy(d->shown, m->snapshot, sizeof(d->shown));
	d->shown_nr = m->snapshot_nr;
}

static unsigned s3_disk_snapshot_nr(const struct backend_device *device)
{
	const struct s3_disk *d = device->priv;

	return d->shown_nr;
}

static void s3_disk_snapshot_get(const struct backend_device *device, unsigned idx,
				 struct backend_snapshot *ret_snapshot)
{
	const struct s3_disk *d = device->priv;
	const struct s3_disk_snapshot *s = &d->shown[idx];

	*ret_snapshot = (struct backend_snapshot){
		.size_bytes = d->manifest.size_bytes,
		.sec = (uint32_t)s->sec,
	};
	snprintf(ret_snapshot->id, sizeof(ret_snapshot->id), "%s", s->name);
	snprintf(ret_snapshot->name, sizeof(ret_snapshot->name), "%s", s->name);
}

const struct backend_snapshots s3_disk_snapshots = {
	.nr = s3_disk_snapshot_nr,
	.get = s3_disk_snapshot_get,
	.begin = s3_disk_change_begin,
};
