/*
 * Opens a disk: takes its lease, then loads its map. Owns the visit. s3_disk_open: helper; the
 * rest: control reactor.
 *
 * Happy path: the manifest is read -> nobody writes the disk -> the store keeps to conditions ->
 * our name is in the manifest -> the map is loaded, and stored as that of a new generation. Failure
 * modes, each in words: no disk; another writer that is there; a store without conditional writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/s3_disk/s3_disk_visit.h"
#include "base/printable.h"
#include "base/util.h"

/* ---- helper ---- */

static int id_make(char id[S3_DISK_ID_BYTES])
{
	uint8_t bytes[(S3_DISK_ID_BYTES - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(id + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* Whether a process of ours has had it before, which is dead or has given the device away. */
static bool owner_take(struct s3_disk *d, int fd)
{
	if (fd <= 0 ||
	    pread(fd, d->owner, sizeof(d->owner) - 1, 0) != (ssize_t)sizeof(d->owner) - 1)
		return false;
	/* One of an older version has left no more than its name. */
	if (pread(fd, &d->kept, sizeof(d->kept), sizeof(d->owner) - 1) != sizeof(d->kept))
		d->kept = (struct s3_disk_kept){ 0 };
	d->kept_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return d->kept_fd >= 0 && strspn(d->owner, "0123456789abcdef") == sizeof(d->owner) - 1;
}

static int owner_make(struct s3_disk *d)
{
	size_t bytes = sizeof(d->owner) - 1;
	int ret = id_make(d->owner);

	if (ret < 0)
		return ret;
	d->kept_fd = memfd_create("ublkd-s3-disk", MFD_CLOEXEC);
	if (d->kept_fd < 0)
		return -errno;
	return pwrite(d->kept_fd, d->owner, bytes, 0) == (ssize_t)bytes ? 0 : -EIO;
}

int s3_disk_open(struct backend_device *device)
{
	struct s3_disk *d = device->priv;
	int ret;

	d->config = device->config;
	d->kept_fd = -1;
	d->is_read_only = device->open_params.read_only || d->config->snapshot;
	ret = s3_open(device);
	if (ret < 0 || d->is_read_only)
		return ret;
	ret = id_make(d->token);
	if (ret == 0 && !owner_take(d, device->open_params.stored_fd))
		ret = owner_make(d);
	return ret < 0 ? backend_fail(device, ret, "out of memory") : 0;
}

void s3_disk_close(struct backend_device *device)
{
	struct s3_disk *d = device->priv;

	s3_disk_map_fini(&d->map);
	if (d->kept_fd >= 0)
		close(d->kept_fd);
	d->kept_fd = -1;
	web_close(device);
}

/* ---- the visit ---- */

void s3_disk_visit_free(struct s3_disk_visit *v)
{
	struct s3_disk *d = v->d;

	task_cancel(&v->task);
	reactor_timer_cancel(v->visit->reactor, &v->wait);
	s3_disk_call_fini(&v->call);
	s3_disk_lease_fini(&v->lease);
	s3_disk_list_fini(&v->list);
	s3_disk_client_fini(&v->client);
	free(v->buf);
	free(v);
	d->visit = NULL;
}

static void visit_run_end(struct task *task)
{
	struct s3_disk_visit *v = container_of(task, struct s3_disk_visit, task);
	struct backend_visit *visit = v->visit;
	int result = v->result;

	s3_disk_visit_free(v);
	backend_visit_done(visit, result);
}

void s3_disk_visit_end(struct s3_disk_visit *v, int result)
{
	v->result = result;
	reactor_defer(v->visit->reactor, &v->task, visit_run_end);
}

void s3_disk_visit_fail(struct s3_disk_visit *v, int err, const char *fmt, ...)
{
	char words[BACKEND_ERROR_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	s3_disk_visit_end(
		v, backend_fail(v->visit->device, err, "%s: %s", v->d->web.url.server, words));
}

static struct s3_disk_visit *open_visit(struct s3_disk_lease *lease)
{
	return container_of(lease, struct s3_disk_visit, lease);
}

/* ---- limits ---- */

static void open_limits(struct s3_disk_visit *v)
{
	const struct s3_disk *d = v->d;
	const struct s3_disk_manifest *m = &d->manifest;

	v->visit->device->limits = (struct backend_limits){
		.size_bytes = m->size_bytes,
		.caps = d->is_read_only ? BACKEND_CAP_READ_ONLY
					: BACKEND_CAP_FLUSH | BACKEND_CAP_FUA |
						  BACKEND_CAP_DISCARD | BACKEND_CAP_WRITE_ZEROES,
		.physical_block_bytes = 4096,
		.io_opt_bytes = (uint32_t)m->object_bytes,
		.discard_granularity_bytes = (uint32_t)m->object_bytes,
		.boundary_bytes = (uint32_t)m->object_bytes,
		.queue_nr_max = 1,
		.queue_nr_cure = "a disk of objects has one queue",
	};
}

static void open_done(struct s3_disk_visit *v)
{
	s3_disk_snapshots_show(v->d, &v->d->manifest);
	open_limits(v);
	s3_disk_visit_end(v, 0);
}

/* ---- the lease ---- */

/* Which bytes it has, before this opening changes any. */
static void open_loaded(struct s3_disk_visit *v)
{
	struct s3_disk *d = v->d;

	if (d->config->snapshot)
		s3_disk_content("0", &d->map, d->found);
	else
		s3_disk_manifest_content(&d->manifest, &d->map, d->found);
	if (d->is_read_only)
		open_done(v);
	else
		s3_disk_seal(v, open_done);
}

/* Of the snapshot that is to be read: it is the disk. */
static bool open_snapshot(struct s3_disk_manifest *m, const char *name)
{
	for (unsigned i = 0; i < m->snapshot_nr; i++) {
		if (strcmp(m->snapshot[i].name, name) != 0)
			continue;
		m->generation = m->snapshot[i].generation;
		memcpy(m->map, m->snapshot[i].map, sizeof(m->map));
		return true;
	}
	return false;
}

static void open_load(struct s3_disk_visit *v)
{
	const char *snapshot = v->d->config->snapshot;

	v->d->manifest = v->lease.manifest;
	if (snapshot && !open_snapshot(&v->d->manifest, snapshot)) {
		s3_disk_visit_fail(v, -ENOENT, "the disk has no snapshot \"%s\"", snapshot);
		return;
	}
	s3_disk_load(v, open_loaded);
}

static void open_on_taken(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_visit *v = open_visit(lease);

	if (result == 0)
		open_load(v);
	else if (result == -ESTALE)
		s3_disk_visit_fail(v, -EBUSY,
				   "another host has opened the disk at the same moment");
	else
		s3_disk_visit_fail(v, result, "%s", lease->words);
}

static void open_on_created(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_visit *v = open_visit(lease);

	if (result == -ESTALE) {
		s3_disk_visit_fail(v, -EBUSY, "another host makes the disk at this moment");
		return;
	}
	if (result == 0)
		log_info("a new disk", "device=%s prefix=%s bytes=%llu object_bytes=%llu",
			 v->d->web.name, v->d->config->s3.key,
			 (unsigned long long)lease->next.size_bytes,
			 (unsigned long long)lease->next.object_bytes);
	open_on_taken(lease, result);
}

/* For people: what is no letter of ASCII could not stand in JSON. */
static void open_name_host(char host[S3_DISK_HOST_BYTES])
{
	memset(host, 0, S3_DISK_HOST_BYTES);
	if (gethostname(host, S3_DISK_HOST_BYTES) < 0 || host[S3_DISK_HOST_BYTES - 1])
		host[0] = '\0';
	for (char *at = host; *at; at++)
		if (*at <= ' ' || *at >= 0x7f)
			*at = '?';
}

static void open_take(struct s3_disk_visit *v)
{
	const struct s3_disk_config *c = v->d->config;
	struct s3_disk_manifest *next = &v->lease.next;

	*next = v->lease.manifest;
	if (v->is_new) {
		*next = (struct s3_disk_manifest){ .size_bytes = c->size_bytes,
						   .object_bytes = c->object_bytes,
						   .generation = 1 };
		/* The first name of its first writer is as good as any. */
		memcpy(next->id, v->d->owner, sizeof(next->id));
	}
	memcpy(next->owner, v->d->owner, sizeof(next->owner));
	open_name_host(next->host);
	s3_disk_lease_write(&v->lease, v->is_new, v->is_new ? open_on_created : open_on_taken);
}

/* ---- does the store keep to conditions? ---- */

static void open_probe_put(struct s3_disk_visit *v, const char *condition,
			   s3_disk_call_done_fn *done)
{
	s3_disk_call_put(&v->call, "probe", condition, "ublkd", 5, done);
}

static void open_probe_failed(struct s3_disk_visit *v, int result, const char *condition)
{
	if (result < 0)
		s3_disk_visit_fail(v, result, "%s", v->call.words);
	else
		s3_disk_visit_fail(v, -EOPNOTSUPP,
				   "the store ignores %s: two writers could damage the disk",
				   condition);
}

static void open_on_matched(struct s3_disk_call *call, int result)
{
	struct s3_disk_visit *v = container_of(call, struct s3_disk_visit, call);

	if (result == -ESTALE)
		open_take(v);
	else
		open_probe_failed(v, result, "If-Match");
}

static void open_probe(struct s3_disk_visit *v);

static void open_on_probed(struct s3_disk_call *call, int result)
{
	struct s3_disk_visit *v = container_of(call, struct s3_disk_visit, call);

	if (result == -ESTALE) {
		open_probe_put(v, "If-Match: \"00000000000000000000000000000000\"",
			       open_on_matched);
	} else if (result < 0 || (v->was_probed && call->tries == 1)) {
		open_probe_failed(v, result, "If-None-Match");
	} else {
		v->was_probed = true;
		open_probe(v);
	}
}

/* An object that is there is not to be replaced on this condition. */
static void open_probe(struct s3_disk_visit *v)
{
	open_probe_put(v, "If-None-Match: *", open_on_probed);
}

/* ---- who has it ---- */

static int open_check(struct s3_disk_visit *v)
{
	const struct s3_disk_manifest *m = &v->lease.manifest;
	uint64_t wanted = v->d->config->size_bytes;

	if (wanted == 0 || wanted == m->size_bytes)
		return 0;
	s3_disk_visit_fail(v, -EINVAL, "the disk has %llu bytes, not %llu: say no size, or that",
			   (unsigned long long)m->size_bytes, (unsigned long long)wanted);
	return -EINVAL;
}

static void open_on_second(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_visit *v = open_visit(lease);

	if (result < 0)
		s3_disk_visit_fail(v, result, "%s", lease->words);
	else if (lease->manifest.owner[0] && strcmp(lease->etag, v->etag) != 0)
		s3_disk_visit_fail(v, -EBUSY, "%.*s writes the disk: stop its device first",
				   utf8_fit(lease->manifest.host, 64), lease->manifest.host);
	else
		open_probe(v);
}

static void open_on_wait(struct timer *timer)
{
	struct s3_disk_visit *v = container_of(timer, struct s3_disk_visit, wait);

	v->visit->doing = "asking its server";
	s3_disk_lease_read(&v->lease, open_on_second);
}

static void open_wait(struct s3_disk_visit *v)
{
	struct reactor *r = v->visit->reactor;

	memcpy(v->etag, v->lease.etag, sizeof(v->etag));
	v->visit->doing = "waiting whether the writer before is there still";
	log_info("the disk has a writer: is it there still?", "device=%s host=%.*s wait_ns=%llu",
		 v->d->web.name, utf8_fit(v->lease.manifest.host, 64), v->lease.manifest.host,
		 (unsigned long long)v->d->config->lease_ns);
	reactor_timer_arm(r, &v->wait, r->now_ns + v->d->config->lease_ns);
}

static void open_on_manifest(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_visit *v = open_visit(lease);
	const struct s3_disk *d = v->d;

	if (result == -ENOENT && d->config->create && !d->is_read_only) {
		v->is_new = true;
		open_probe(v);
	} else if (result == -ENOENT) {
		s3_disk_visit_fail(v, -ENOENT, "there is no disk: create: true makes one");
	} else if (result < 0) {
		s3_disk_visit_fail(v, result, "%s", lease->words);
	} else if (open_check(v) == 0) {
		if (d->is_read_only)
			open_load(v);
		else if (!lease->manifest.owner[0] || strcmp(lease->manifest.owner, d->owner) == 0)
			open_probe(v);
		else
			open_wait(v);
	}
}

/* ---- beginning ---- */

/* Of a call that is sent again and again: how it ended last. */
static const char *s3_disk_waits_for(const struct backend_visit *visit, char *buf, size_t bytes)
{
	const struct s3_disk *d = visit->device->priv;
	const struct s3_disk_visit *v = d->visit;
	const struct s3_disk_call *const calls[] = { v ? &v->call : NULL, v ? &v->lease.call : NULL,
						     v ? &v->list.call : NULL };

	for (size_t i = 0; v && i < ARRAY_SIZE(calls); i++)
		if (calls[i]->is_under_way && calls[i]->words[0]) {
			snprintf(buf, bytes, "%s: %s", d->web.url.server, calls[i]->words);
			utf8_end_whole(buf);
			return buf;
		}
	return "";
}

int s3_disk_visit_begin(struct backend_visit *visit)
{
	struct backend_device *device = visit->device;
	struct s3_disk *d = device->priv;
	struct s3_disk_visit *v = calloc(1, sizeof(*v));
	int ret;

	if (!v)
		return backend_fail(device, -ENOMEM, "out of memory");
	v->visit = visit;
	v->d = d;
	d->visit = v;
	timer_init(&v->wait, open_on_wait);
	visit->doing = "asking its server";
	visit->waits_for = s3_disk_waits_for;
	visit->timeout_ns = BACKEND_VISIT_OWN_DEADLINE;
	visit->ends_ns = ring_clock_ns() + d->web.config->outage.timeout_ns;
	ret = s3_disk_client_init(&v->client, &d->web, visit->reactor, device->error,
				  sizeof(device->error));
	if (ret == 0)
		ret = s3_disk_call_init(&v->call, &v->client);
	if (ret == 0)
		ret = s3_disk_lease_init(&v->lease, &v->client, &d->etag_is_bare,
					 d->config->lease_ns);
	if (ret == 0)
		ret = s3_disk_list_init(&v->list, &v->client);
	if (ret < 0)
		s3_disk_visit_free(v);
	return ret;
}

void s3_disk_open_async(struct backend_visit *visit)
{
	struct s3_disk *d = visit->device->priv;
	int ret = s3_disk_visit_begin(visit);

	if (ret < 0) {
		backend_visit_done(visit, ret);
		return;
	}
	s3_disk_lease_read(&d->visit->lease, open_on_manifest);
}

void s3_disk_cancel_async(struct backend_visit *visit)
{
	struct s3_disk *d = visit->device->priv;

	s3_disk_visit_free(d->visit);
	backend_visit_done(visit, -ECANCELED);
}

/* ---- closing ---- */

static void close_on_released(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_visit *v = open_visit(lease);

	if (result < 0)
		log_warn("the lease of a disk was not given back: the next writer waits for it",
			 "device=%s why=\"%s\"", v->d->web.name, lease->words);
	s3_disk_visit_end(v, 0);
}

void s3_disk_close_async(struct backend_visit *visit)
{
	struct s3_disk *d = visit->device->priv;
	struct s3_disk_lease *lease;

	if (d->is_read_only || net_has_changed(&d->changed) || s3_disk_visit_begin(visit) < 0) {
		backend_visit_done(visit, 0);
		return;
	}
	visit->timeout_ns = 0;
	lease = &d->visit->lease;
	lease->manifest = lease->next = d->manifest;
	memcpy(lease->etag, d->etag, sizeof(lease->etag));
	lease->next.owner[0] = lease->next.host[0] = '\0';
	s3_disk_lease_write(lease, false, close_on_released);
}
