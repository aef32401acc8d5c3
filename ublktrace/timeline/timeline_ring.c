/*
 * Rings: each is a process of the timeline. Owns struct ring. Main thread.
 *
 * Happy path: the first record of a ring makes it, RING tells its descriptor. Failure modes: a ring
 * that existed before the trace is drawn from its first record on, with the descriptor it is
 * entered by if RING tells none.
 */
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>

#include "ublktrace/events/names.h"
#include "ublktrace/timeline/timeline_internal.h"

static void ring_name(const struct ring *ring, const struct event *e, char *name, size_t bytes)
{
	char comm[COMM_TEXT_BYTES];

	comm_text(e->comm, comm);
	if (ring->fd >= 0)
		snprintf(name, bytes, "ring %d of %s (%u)", ring->fd, comm, ring->pid);
	else
		snprintf(name, bytes, "ring %#llx of %s (%u)", (unsigned long long)ring->address,
			 comm, ring->pid);
}

static struct ring *ring_new(struct timeline *t, const struct event *e)
{
	struct ring *ring = memory_zalloc(sizeof(*ring));

	*ring = (struct ring){
		.address = e->ring,
		.pid = e->pid,
		.fd = e->type == EVENT_RING ? e->ring_info.fd : -1,
		.sq_depth = UINT32_MAX,
		.cq_depth = UINT32_MAX,
	};
	ring_name(ring, e, ring->process.name, sizeof(ring->process.name));
	ring->process.id = process_new(&t->tracks, ring->process.name);
	ring->submit = track_new(&t->tracks, ring->process.id, "submit");
	ring->complete = track_new(&t->tracks, ring->process.id, "complete");
	map_put(&t->rings, e->ring, 0, ring);
	return ring;
}

static void ring_free(struct timeline *t, struct ring *ring)
{
	unreaped_drop(t, ring, ring->unreaped_nr);
	map_free(&ring->workers);
	free(ring->unreaped);
	free(ring);
}

/* ---- what is told once ---- */

static void setup_args(struct slice_ref s, const struct event_ring *info)
{
	char text[128];

	slice_arg(s, "fd", info->fd);
	slice_arg(s, "sq_entries", info->sq_entries);
	slice_arg(s, "cq_entries", info->cq_entries);
	slice_arg_copy(s, "flags", name_setup_flags(info->setup_flags, text, sizeof(text)));
	slice_arg_text(s, "existed", info->existed ? "before the trace" : "no");
}

struct of_ring {
	const struct ring *ring;
	struct request **found;
	size_t nr;
};

static void collect(void *value, void *arg)
{
	struct of_ring *o = arg;
	struct request *r = value;

	if (!o->ring || r->ring == o->ring)
		o->found[o->nr++] = r;
}

/* ring NULL: those of all. */
static void drop_requests(struct timeline *t, const struct ring *ring, const char *why)
{
	struct of_ring o = { .ring = ring };

	if (!t->requests.nr)
		return;
	o.found = memory_resize(NULL, t->requests.nr, sizeof(struct request *));
	map_each(&t->requests, collect, &o);
	for (size_t i = 0; i < o.nr; i++)
		request_drop(t, o.found[i], why);
	free(o.found);
}

/* A new ring at the address of an old one: that one is gone. */
static void on_ring(struct timeline *t, const struct event *e)
{
	struct ring *ring = map_get(&t->rings, e->ring, 0);
	char name[TIMELINE_NAME_BYTES];

	if (ring && !e->ring_info.existed) {
		drop_requests(t, ring, "ring closed");
		map_remove(&t->rings, e->ring, 0);
		ring_free(t, ring);
		ring = NULL;
	}
	if (!ring)
		ring = ring_new(t, e);
	if (e->ring_info.fd >= 0)
		ring->fd = e->ring_info.fd;
	ring_name(ring, e, name, sizeof(name));
	process_rename(t, &ring->process, name);
	setup_args(track_point(ring->submit, e->time_ns, "ring"), &e->ring_info);
}

/* ---- levels ---- */

static void tell_depth(struct timeline *t, struct ring *ring, const char *name, uint64_t *counter,
		       uint32_t *last, uint32_t depth)
{
	if (depth == *last)
		return;
	if (!*counter)
		*counter = track_new_counter(&t->tracks, ring->process.id, name);
	*last = depth;
	t->tracks.w->ops->counter(t->tracks.w, *counter, t->now_ns, depth);
}

/* Heads and tails are written by the program: what is no depth at all is not drawn. */
static void tell_levels(struct timeline *t, struct ring *ring, const struct event_levels *l)
{
	uint32_t sq = l->sq_tail - l->sq_head, cq = l->cq_tail - l->cq_head;

	if (!l->have)
		return;
	if (sq < 1u << 20)
		tell_depth(t, ring, "SQ depth", &ring->sq_counter, &ring->sq_depth, sq);
	if (cq < 1u << 20)
		tell_depth(t, ring, "CQ depth", &ring->cq_counter, &ring->cq_depth, cq);
}

/* ---- records ---- */

/* A record of the program itself may not know the ring: it is the one its thread entered last. */
static uint64_t ring_address(struct timeline *t, const struct event *e)
{
	const struct thread *thread;
	const struct request *r;

	if (e->ring)
		return e->ring;
	r = e->req ? map_get(&t->requests, e->req, 0) : NULL;
	if (r)
		return r->ring->address;
	thread = map_get(&t->threads, e->tid, 0);
	return e->type == EVENT_REAP && thread ? thread->ring : 0;
}

void ring_event(struct timeline *t, const struct event *e)
{
	uint64_t address = ring_address(t, e);
	struct ring *ring = address ? map_get(&t->rings, address, 0) : NULL;
	struct event first = *e;
	char name[TIMELINE_NAME_BYTES];

	if (!address || e->type == EVENT_SWITCH)
		return;
	first.ring = address;
	if (e->type == EVENT_RING) {
		on_ring(t, e);
		return;
	}
	if (!ring)
		ring = ring_new(t, &first);
	if (e->type == EVENT_ENTER && ring->fd < 0 && e->enter.fd >= 0 &&
	    !(e->enter.flags & IORING_ENTER_REGISTERED_RING)) {
		ring->fd = e->enter.fd;
		ring_name(ring, e, name, sizeof(name));
		process_rename(t, &ring->process, name);
	}
	tell_levels(t, ring, &e->levels);
	request_event(t, ring, e);
}

void rings_end(struct timeline *t)
{
	drop_requests(t, NULL, "still in flight");
	for (size_t i = 0; i < t->rings.size; i++) {
		struct ring *ring = t->rings.slots[i].value;

		if (ring)
			unreaped_drop(t, ring, ring->unreaped_nr);
	}
}

void rings_free(struct timeline *t)
{
	for (size_t i = 0; i < t->rings.size; i++)
		if (t->rings.slots[i].value)
			ring_free(t, t->rings.slots[i].value);
	map_free(&t->rings);
}
