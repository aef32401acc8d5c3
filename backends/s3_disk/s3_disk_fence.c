/*
 * Whether the disk is ours still, while it serves. Owns the lease. Reactor thread.
 *
 * Happy path: FLUSH, or a WRITE with FUA that is stored -> the manifest is written, on the
 * condition that it names us still, with the tally of what is stored (s3_disk_map.h); it is read
 * instead where it has that tally -> all writes that were complete before are what the next writer
 * must find. FLUSHes that come meanwhile share the next one. A third of a lease after it was
 * written last it is written anew. Failure modes: a write that fails may have been done: the
 * manifest is read, and decides. It names another one: all requests fail from then on, until the
 * device is opened again. It names us without the tally: it is written again if it is an earlier
 * write of ours that came in between; else FLUSH fails.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/s3_disk/s3_disk.h"
#include "base/printable.h"
#include "base/util.h"

/* Writes of the manifest that are refused one after the other, though it names us. */
#define FENCE_REFUSED_MAX 3u

static struct s3_disk_queue *fence_queue(struct s3_disk_lease *lease)
{
	return container_of(lease, struct s3_disk_queue, lease);
}

static void fence_lost(struct s3_disk_queue *q)
{
	const struct s3_disk_manifest *m = &q->lease.manifest;
	const char *host = m->host[0] ? m->host : "another host";
	struct s3_disk *d = q->d;
	char how[NET_CHANGED_BYTES];

	if (strcmp(m->owner, d->owner) == 0)
		snprintf(how, sizeof(how), "a change of snapshots was stored and not answered");
	else
		snprintf(how, sizeof(how), "%.*s writes it now: only one may", utf8_fit(host, 64),
			 host);
	net_changed_note(&d->changed, "the disk's writer", how, d->web.name, d->web.url.server);
	reactor_timer_cancel(q->queue->reactor, &q->renewal);
	s3_disk_ios_fail(&q->flushes, -EIO);
}

static void flushes_complete(struct s3_disk_queue *q, int result)
{
	struct list_node all = LIST_INIT(all), *node;

	list_splice(&all, &q->flushes);
	while ((node = list_pop_front(&all))) {
		struct s3_disk_io *w = list_entry(node, struct s3_disk_io, node);

		if (w->covers <= q->asked_covers)
			s3_disk_io_end(w, result);
		else
			list_push_back(&q->flushes, &w->node);
	}
}

/* The disk was ours, after all that had been done when we asked. */
static void fence_keep(struct s3_disk_queue *q)
{
	q->checked_stores = q->asked_stores;
	s3_disk_deletes_go_on(q);
	q->d->counted = q->lease.manifest.stored;
	memcpy(q->d->etag, q->lease.etag, sizeof(q->d->etag));
	/* A change of them may have been stored and not answered. */
	memcpy(q->d->manifest.snapshot, q->lease.manifest.snapshot,
	       sizeof(q->d->manifest.snapshot));
	q->d->manifest.snapshot_nr = q->lease.manifest.snapshot_nr;
	q->d->manifest.beat = q->lease.manifest.beat;
}

/* Of another generation is one that a change has written which did not hear so. */
static bool fence_is_ours(const struct s3_disk_queue *q)
{
	const struct s3_disk_manifest *m = &q->lease.manifest;

	return strcmp(m->owner, q->d->owner) == 0 && m->generation == q->d->manifest.generation;
}

static void renewal_begin(struct s3_disk_queue *q);

/* All that was stored when we asked is in the manifest that the store has. */
static bool fence_is_counted(const struct s3_disk_queue *q)
{
	return s3_disk_tally_has(&q->d->counted, &q->asked_tally);
}

static void fence_succeed(struct s3_disk_queue *q)
{
	q->refused_nr = 0;
	q->checked = q->asked_covers;
	flushes_complete(q, 0);
}

static void fence_fail(struct s3_disk_queue *q)
{
	q->refused_nr = 0;
	if (!list_empty(&q->flushes))
		log_limited_by(&q->d->web.refused_limit, LOG_LEVEL_ERROR, "a flush fails",
			       "device=%s why=\"%s\"", q->d->web.name, q->lease.words);
	flushes_complete(q, -EIO);
}

/* Nothing is asked: what has come meanwhile is next. */
static void fence_go_on(struct s3_disk_queue *q)
{
	if (q->renewal_is_due)
		renewal_begin(q);
	if (!list_empty(&q->flushes))
		s3_disk_fence_ask(q);
	s3_disk_queue_look(q);
}

/* It names us without the tally: whether the write that failed is to be tried again. */
static bool fence_tries_again(struct s3_disk_queue *q)
{
	if (q->write_result != -ESTALE)
		return false;
	if (++q->refused_nr < FENCE_REFUSED_MAX)
		return true;
	snprintf(q->lease.words, sizeof(q->lease.words),
		 "the manifest: the store refuses If-Match with the ETag that it says");
	return false;
}

static void fence_on_read(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_queue *q = fence_queue(lease);

	q->is_asking = false;
	if (result == -ENOENT || (result == 0 && !fence_is_ours(q))) {
		fence_lost(q);
		s3_disk_queue_look(q);
		return;
	}
	if (result == 0)
		fence_keep(q);
	if (result == 0 && fence_is_counted(q))
		fence_succeed(q);
	else if (result < 0 || !fence_tries_again(q))
		fence_fail(q);
	fence_go_on(q);
}

/* For what was asked: fence_note. */
static void fence_read(struct s3_disk_queue *q)
{
	q->is_asking = true;
	s3_disk_lease_read(&q->lease, fence_on_read);
}

static void fence_note(struct s3_disk_queue *q)
{
	q->asked_covers = q->written;
	q->asked_stores = q->stores;
	q->asked_tally = q->d->manifest.stored;
	q->write_result = 0;
}

static void fence_on_written(struct s3_disk_lease *lease, int result);

void s3_disk_fence_ask(struct s3_disk_queue *q)
{
	if (q->is_asking || net_has_changed(&q->d->changed))
		return;
	fence_note(q);
	if (fence_is_counted(q))
		fence_read(q);
	else
		s3_disk_fence_write(q, &q->d->manifest, fence_on_written);
}

void s3_disk_flush(struct s3_disk_io *w)
{
	struct s3_disk_queue *q = w->io->queue->priv;

	if (net_has_changed(&q->d->changed) || q->written == q->checked) {
		s3_disk_io_end(w, net_has_changed(&q->d->changed) ? -EIO : 0);
		return;
	}
	w->covers = q->written;
	s3_disk_io_set_state(w, S3_DISK_IO_CHECKS);
	list_push_back(&q->flushes, &w->node);
	s3_disk_fence_ask(q);
}

/* ---- renewal ---- */

static void renewal_arm(struct s3_disk_queue *q)
{
	struct reactor *r = q->queue->reactor;

	if (!q->is_resting && !q->d->is_read_only && !net_has_changed(&q->d->changed))
		reactor_timer_arm(r, &q->renewal, r->now_ns + q->d->config->lease_ns / 3);
}

void s3_disk_fence_returned(struct s3_disk_queue *q, int result)
{
	q->is_asking = false;
	q->write_result = result;
	if (result < 0) {
		fence_read(q);
		return;
	}
	q->renewal_is_due = false;
	fence_keep(q);
	fence_succeed(q);
	renewal_arm(q);
}

static void fence_on_written(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_queue *q = fence_queue(lease);

	s3_disk_fence_returned(q, result);
	if (result == 0)
		fence_go_on(q);
}

static void fence_on_renewed(struct s3_disk_lease *lease, int result)
{
	struct s3_disk_queue *q = fence_queue(lease);

	/* Of -ESTALE what is asked next tells more: who writes the disk. */
	if (result < 0 && result != -ESTALE)
		log_limited_by(&q->d->web.lease_limit, LOG_LEVEL_WARN,
			       "the lease was not renewed: another host may take the disk",
			       "device=%s why=\"%s\"", q->d->web.name, lease->words);
	if (result < 0)
		renewal_arm(q);
	fence_on_written(lease, result);
}

void s3_disk_fence_write(struct s3_disk_queue *q, const struct s3_disk_manifest *next,
			 void (*done)(struct s3_disk_lease *lease, int result))
{
	fence_note(q);
	q->is_asking = true;
	/* That of a manifest which named us: the last one that was read may name another writer. */
	memcpy(q->lease.etag, q->d->etag, sizeof(q->lease.etag));
	q->lease.next = *next;
	q->lease.next.beat = q->d->manifest.beat;
	s3_disk_lease_write(&q->lease, false, done);
}

/* Nothing is asked. A change writes the manifest itself. */
static void renewal_begin(struct s3_disk_queue *q)
{
	q->renewal_is_due = false;
	if (q->change || q->is_resting)
		renewal_arm(q);
	else
		s3_disk_fence_write(q, &q->d->manifest, fence_on_renewed);
}

static void fence_on_time(struct timer *timer)
{
	struct s3_disk_queue *q = container_of(timer, struct s3_disk_queue, renewal);

	if (!q->is_asking)
		renewal_begin(q);
	else if (q->change)
		renewal_arm(q);
	else
		q->renewal_is_due = true;
}

bool s3_disk_fence_rest(struct s3_disk_queue *q)
{
	q->is_resting = true;
	reactor_timer_cancel(q->queue->reactor, &q->renewal);
	return !q->is_asking;
}

void s3_disk_fence_wake(struct s3_disk_queue *q)
{
	q->is_resting = false;
	renewal_arm(q);
}

int s3_disk_fence_init(struct s3_disk_queue *q)
{
	list_init(&q->flushes);
	timer_init(&q->renewal, fence_on_time);
	q->lease.manifest = q->d->manifest;
	memcpy(q->lease.etag, q->d->etag, sizeof(q->lease.etag));
	renewal_arm(q);
	return s3_disk_lease_init(&q->lease, &q->client, &q->d->etag_is_bare,
				  q->d->config->lease_ns);
}

void s3_disk_fence_fini(struct s3_disk_queue *q)
{
	reactor_timer_cancel(q->queue->reactor, &q->renewal);
	s3_disk_lease_fini(&q->lease);
}
