/*
 * Requests of a ring: what happens to each from SUBMIT to the program's taking its completion, tied
 * by arrows. Owns struct request. Main thread.
 *
 * Happy path: SUBMIT begins an arrow; POLL, ASYNC, WORKER end it and begin the next; COMPLETE ends
 * the last and, where the program tells, begins one to REAP. Failure modes: a COMPLETE that was
 * lost is noticed when the kernel uses the address again; what is under way when the trace ends
 * gets an end that says so.
 */
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ublktrace/events/names.h"
#include "ublktrace/timeline/timeline_internal.h"

#define UNREAPED_MAX 65536u

static const char *request_opcode_name(unsigned opcode)
{
	const char *name = name_opcode(opcode);

	return name ? name : "unknown opcode";
}

static const char *request_command_name(unsigned opcode, int ublk_id, uint32_t cmd_op)
{
	const char *name = NULL;

	if (opcode == IORING_OP_URING_CMD && ublk_id >= 0)
		name = name_ublk_io(cmd_op);
	else if (opcode == IORING_OP_URING_CMD && ublk_id == -2)
		name = name_ublk_ctrl(cmd_op);
	return name ? name : request_opcode_name(opcode);
}

static struct track *ring_track(struct timeline *t, struct ring *ring, struct track **track,
				const char *name)
{
	if (!*track)
		*track = track_new(&t->tracks, ring->process.id, name);
	return *track;
}

/* The arrow of r goes to s, and on from there. */
static void request_step(struct request *r, struct slice_ref s)
{
	if (!r)
		return;
	flow_end(s, r->flow);
	r->flow = flow_begin(s);
	r->flow_ns = slice_start_ns(s);
}

/* After the slice that the arrow of r comes from; r may be NULL. */
static uint64_t after_flow(const struct request *r, uint64_t time_ns)
{
	return r ? MAX(r->flow_ns + 1, time_ns) : time_ns;
}

void request_drop(struct timeline *t, struct request *r, const char *why)
{
	if (r->flow) {
		struct slice_ref s =
			track_point(r->ring->complete, after_flow(r, t->now_ns), r->name);

		slice_arg_text(s, "end", why);
		flow_end(s, r->flow);
	}
	free(map_remove(&t->requests, r->req, 0));
}

/* ---- submission ---- */

static void sqe_args(struct slice_ref s, const struct event *e)
{
	const struct event_sqe *sqe = &e->sqe;
	char text[128];

	slice_arg_unsigned(s, "user_data", e->user_data);
	slice_arg(s, "fd", sqe->fd);
	slice_arg(s, "len", sqe->len);
	slice_arg(s, "offset", (int64_t)sqe->offset);
	if (sqe->flags)
		slice_arg_copy(s, "flags", name_sqe_flags(sqe->flags, text, sizeof(text)));
	if (sqe->sq_thread)
		slice_arg_text(s, "taken_by", "SQPOLL");
	slice_arg(s, "tid", e->tid);
	slice_arg(s, "cpu", e->cpu);
	if (sqe->ublk_id >= 0) {
		slice_arg(s, "ublk_queue", (uint16_t)sqe->cmd[0]);
		slice_arg(s, "ublk_tag", (uint16_t)(sqe->cmd[0] >> 16));
	}
}

static void on_submit(struct timeline *t, struct ring *ring, const struct event *e)
{
	struct request *r = map_get(&t->requests, e->req, 0);

	if (r)
		request_drop(t, r, "completion not seen");
	r = memory_zalloc(sizeof(*r));
	*r = (struct request){
		.ring = ring,
		.req = e->req,
		.user_data = e->user_data,
		.name = request_command_name(e->sqe.opcode, e->sqe.ublk_id, e->sqe.cmd_op),
		.path = "inline",
		.submit_ns = e->time_ns,
		.idle = e->sqe.ublk_id >= 0 && ublk_cmd_fetches(e->sqe.cmd_op),
	};
	r->submit = track_point(ring->submit, e->time_ns, r->name);
	sqe_args(r->submit, e);
	request_step(r, r->submit);
	map_put(&t->requests, r->req, 0, r);
	if (e->sqe.ublk_id >= 0)
		ublk_submitted(t, e, r->submit);
}

static void on_link(struct timeline *t, const struct event *e)
{
	struct request *r = map_get(&t->requests, e->req, 0);
	struct request *head = map_get(&t->requests, e->other, 0);

	if (!r || !head)
		return;
	flow_between(head->submit, r->submit);
	slice_arg_unsigned(r->submit, "linked_after", head->user_data);
}

/* ---- between ---- */

static void on_waiting(struct timeline *t, struct ring *ring, const struct event *e,
		       const char *name, const char *path)
{
	struct request *r = map_get(&t->requests, e->req, 0);
	struct slice_ref s;

	s = track_point(ring_track(t, ring, &ring->waiting, "waiting"), after_flow(r, e->time_ns),
			name);
	if (!r)
		return;
	r->path = path;
	slice_arg_text(s, "request", r->name);
	slice_arg_unsigned(s, "user_data", r->user_data);
	if (e->type == EVENT_POLL)
		slice_arg(s, "mask", (int64_t)e->value);
	request_step(r, s);
}

static struct track *worker_track(struct timeline *t, struct ring *ring, const struct event *e)
{
	struct track *track = map_get(&ring->workers, e->tid, 0);
	char name[TIMELINE_NAME_BYTES];

	if (track)
		return track;
	snprintf(name, sizeof(name), "io-wq %u", e->tid);
	track = track_new(&t->tracks, ring->process.id, name);
	map_put(&ring->workers, e->tid, 0, track);
	return track;
}

static void on_worker(struct timeline *t, struct ring *ring, const struct event *e)
{
	struct track *track = worker_track(t, ring, e);
	struct request *r = map_get(&t->requests, e->req, 0);
	struct slice_ref s;

	track_end_to(track, e->time_ns, 0);
	s = track_begin(track, after_flow(r, e->time_ns), r ? r->name : "request");
	slice_arg_unsigned(s, "user_data", e->user_data);
	slice_arg(s, "cpu", e->cpu);
	if (!r)
		return;
	r->path = "io-wq";
	request_step(r, s);
}

/* ---- completion ---- */

static void cqe_args(struct slice_ref s, const struct event *e, const struct request *r)
{
	uint64_t submit_ns = e->cqe.submit_ns ? e->cqe.submit_ns : r ? r->submit_ns : 0;

	slice_arg_result(s, e->cqe.res);
	slice_arg_unsigned(s, "user_data", e->user_data);
	if (e->cqe.flags)
		slice_arg(s, "flags", e->cqe.flags);
	if (submit_ns && submit_ns <= e->time_ns)
		slice_arg(s, r && r->idle ? "armed_ns" : "latency_ns",
			  (int64_t)(e->time_ns - submit_ns));
	if (r)
		slice_arg_text(s, "path", r->path);
	else if (e->cqe.async)
		slice_arg_text(s, "path", "io-wq");
	slice_arg(s, "tid", e->tid);
	slice_arg(s, "cpu", e->cpu);
	if (e->cqe.ublk_id >= 0) {
		slice_arg(s, "ublk_queue", e->cqe.q_id);
		if (event_cmd_has_tag(e->cqe.cmd_op))
			slice_arg(s, "ublk_tag", e->cqe.tag);
	}
}

static void await_reap(struct timeline *t, struct ring *ring, const struct event *e,
		       struct slice_ref s)
{
	if (!ring->tells_reaps)
		return;
	if (ring->unreaped_nr == UNREAPED_MAX)
		unreaped_drop(t, ring, UNREAPED_MAX / 2);
	if (ring->unreaped_nr == ring->unreaped_room) {
		ring->unreaped_room = ring->unreaped_room ? ring->unreaped_room * 2 : 64;
		ring->unreaped =
			memory_resize(ring->unreaped, ring->unreaped_room, sizeof(struct unreaped));
	}
	ring->unreaped[ring->unreaped_nr++] = (struct unreaped){
		.user_data = e->user_data,
		.flow = flow_begin(s),
		.flow_ns = slice_start_ns(s),
	};
}

/* A multishot request goes on: its next completion is drawn as coming from this one. r: NULL when
 * it is not known. */
static void request_answer(struct timeline *t, const struct event *e, struct request *r,
			   struct slice_ref s)
{
	if (r && (e->cqe.flags & IORING_CQE_F_MORE)) {
		request_step(r, s);
	} else if (r) {
		flow_end(s, r->flow);
		free(map_remove(&t->requests, r->req, 0));
	}
}

static void on_complete(struct timeline *t, struct ring *ring, const struct event *e)
{
	struct request *r = e->req ? map_get(&t->requests, e->req, 0) : NULL;
	const char *name =
		r ? r->name
		: e->cqe.opcode > 0xfe
			? "completion"
			: request_command_name(e->cqe.opcode, e->cqe.ublk_id, e->cqe.cmd_op);
	struct slice_ref s = track_point(ring->complete, after_flow(r, e->time_ns), name);

	cqe_args(s, e, r);
	request_answer(t, e, r, s);
	await_reap(t, ring, e, s);
	if (e->cqe.ublk_id >= 0)
		ublk_completed(t, e, s);
}

/* The only one of the ring that it can be, or NULL. */
static struct request *by_user_data(const struct timeline *t, const struct ring *ring,
				    uint64_t user_data)
{
	struct request *found = NULL;

	for (size_t i = 0; i < t->requests.size; i++) {
		struct request *r = t->requests.slots[i].value;

		if (!r || r->ring != ring || r->user_data != user_data)
			continue;
		if (found)
			return NULL;
		found = r;
	}
	return found;
}

/* A completion for which the CQ has no room: the program takes it when it has made some. */
static void on_overflow(struct timeline *t, struct ring *ring, const struct event *e)
{
	struct request *r = by_user_data(t, ring, e->user_data);
	struct slice_ref s = track_point(ring->complete, after_flow(r, e->time_ns), "CQ overflow");

	if (r)
		slice_arg_text(s, "request", r->name);
	cqe_args(s, e, r);
	request_answer(t, e, r, s);
	await_reap(t, ring, e, s);
}

/* ---- what the program took ---- */

void unreaped_drop(struct timeline *t, struct ring *ring, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct slice_ref s;

		if (!ring->unreaped[i].flow)
			continue;
		s = track_point(ring->reaped, MAX(t->now_ns, ring->unreaped[i].flow_ns + 1),
				"not seen to be taken");
		slice_arg_unsigned(s, "user_data", ring->unreaped[i].user_data);
		flow_end(s, ring->unreaped[i].flow);
	}
	if (nr == 0)
		return;
	ring->unreaped_nr -= nr;
	memmove(ring->unreaped, ring->unreaped + nr, ring->unreaped_nr * sizeof(struct unreaped));
}

/* Completions are taken in their order, but records may be lost: the first that fits. */
static void on_reap(struct timeline *t, struct ring *ring, const struct event *e)
{
	struct track *track = ring_track(t, ring, &ring->reaped, "reaped");
	struct unreaped u = { 0 };
	struct slice_ref s;
	size_t i = 0;

	ring->tells_reaps = true;
	while (i < ring->unreaped_nr && ring->unreaped[i].user_data != e->user_data)
		i++;
	if (i < ring->unreaped_nr) {
		u = ring->unreaped[i];
		ring->unreaped_nr--;
		memmove(ring->unreaped + i, ring->unreaped + i + 1,
			(ring->unreaped_nr - i) * sizeof(struct unreaped));
	}
	s = track_point(track, MAX(e->time_ns, u.flow_ns + 1), "taken");
	slice_arg_unsigned(s, "user_data", e->user_data);
	slice_arg_result(s, e->cqe.res);
	slice_arg(s, "tid", e->tid);
	flow_end(s, u.flow);
}

void request_event(struct timeline *t, struct ring *ring, const struct event *e)
{
	switch ((enum event_type)e->type) {
	case EVENT_SUBMIT:
		on_submit(t, ring, e);
		break;
	case EVENT_LINK:
		on_link(t, e);
		break;
	case EVENT_POLL:
		on_waiting(t, ring, e, "poll armed", "poll");
		break;
	case EVENT_ASYNC:
		on_waiting(t, ring, e, "queued to io-wq", "io-wq");
		break;
	case EVENT_DEFER:
		on_waiting(t, ring, e, "deferred", "deferred");
		break;
	case EVENT_WORKER:
		on_worker(t, ring, e);
		break;
	case EVENT_WORKER_END:
		track_end_to(worker_track(t, ring, e), e->time_ns, 0);
		break;
	case EVENT_COMPLETE:
		on_complete(t, ring, e);
		break;
	case EVENT_REAP:
		on_reap(t, ring, e);
		break;
	case EVENT_OVERFLOW:
		on_overflow(t, ring, e);
		break;
	case EVENT_FAIL_LINK:
		slice_arg_unsigned(track_point(ring->complete, e->time_ns, "link failed"),
				   "user_data", e->user_data);
		break;
	default:
		break;
	}
}
