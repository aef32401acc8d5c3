/*
 * ublk devices: a process for each, a track for each (queue, tag), on it the request with its
 * phases: queued (by the block layer, until the server has its completion), reap (until ublkd
 * looks), daemon, in it backend, commit (until the block layer has it back). Owns struct tag. Main
 * thread.
 *
 * Happy path: BLOCK_QUEUE, COMPLETE of the fetch, FETCH, SUBMIT, DONE, COMMIT, SUBMIT of the
 * commit, BLOCK_COMPLETE. Failure modes: any of them may be missing, as without ublkd's probes or
 * on another server; a phase lasts until the next that is seen. A tag that waits for work is drawn
 * as nothing.
 */
#include <linux/types.h>
#include <stdio.h>

#include "base/util.h"
#include "ublktrace/events/names.h"
#include "ublktrace/timeline/timeline_internal.h"

/* _IOC_NR of include/uapi/linux/ublk_cmd.h */
enum { IO_FETCH = 0x20, IO_COMMIT_AND_FETCH = 0x21, IO_NEED_GET_DATA = 0x22 };

/* What a fetch is answered with when there is a request: UBLK_IO_RES_OK, _NEED_GET_DATA. */
enum { RES_OK = 0, RES_NEED_GET_DATA = 1 };

enum phase { IDLE, QUEUED, REAP, DAEMON, COMMIT };
enum { DEPTH_REQUEST = 1, DEPTH_PHASE = 2 };

struct tag {
	struct track *track;
	struct slice_ref request, phase_slice;
	enum phase phase;
	const char *backend; /* what its backend is asked for, as FETCH told */
};

bool ublk_cmd_fetches(uint32_t cmd_op)
{
	return (cmd_op & 0xff) == IO_FETCH || (cmd_op & 0xff) == IO_COMMIT_AND_FETCH;
}

bool ublk_cmd_commits(uint32_t cmd_op)
{
	return (cmd_op & 0xff) == IO_COMMIT_AND_FETCH;
}

/* ---- tags ---- */

static struct process *device_of(struct timeline *t, uint32_t device)
{
	struct process *p = map_get(&t->devices, device, 0);

	if (p)
		return p;
	p = memory_zalloc(sizeof(*p));
	snprintf(p->name, sizeof(p->name), "ublkb%u", device);
	p->id = process_new(&t->tracks, p->name);
	map_put(&t->devices, device, 0, p);
	return p;
}

static struct tag *tag_of(struct timeline *t, uint64_t id)
{
	struct tag *tag = map_get(&t->tags, id, 1);
	char name[TIMELINE_NAME_BYTES];

	if (tag)
		return tag;
	tag = memory_zalloc(sizeof(*tag));
	snprintf(name, sizeof(name), "queue %u tag %u", (unsigned)(id >> 16 & 0xffff),
		 (unsigned)(id & 0xffff));
	tag->track = track_new(&t->tracks, device_of(t, (uint32_t)(id >> 32))->id, name);
	map_put(&t->tags, id, 1, tag);
	return tag;
}

static void request_begin(struct tag *tag, uint64_t time_ns, const char *name)
{
	if (tag->phase != IDLE) {
		slice_arg_text(tag->request, "end", "not seen");
		track_end_to(tag->track, time_ns, 0);
	}
	tag->request = track_begin(tag->track, time_ns, name);
}

static void phase_begin(struct tag *tag, uint64_t time_ns, enum phase phase)
{
	static const char *const names[] = {
		[QUEUED] = "queued",
		[REAP] = "reap",
		[DAEMON] = "daemon",
		[COMMIT] = "commit",
	};

	if (tag->phase == IDLE && !tag->track->depth)
		request_begin(tag, time_ns, "request");
	track_end_to(tag->track, time_ns, DEPTH_REQUEST);
	tag->phase_slice = track_begin(tag->track, time_ns, names[phase]);
	tag->phase = phase;
}

static void request_end(struct tag *tag, uint64_t time_ns)
{
	track_end_to(tag->track, time_ns, 0);
	tag->phase = IDLE;
}

/* ---- the block layer ---- */

static void on_queue(struct timeline *t, struct tag *tag, const struct event *e)
{
	const char *name = name_block_op(e->block.op & 0xff);
	struct slice_ref call = thread_call(t, e);

	request_begin(tag, e->time_ns, name ? name : "request");
	slice_arg(tag->request, "sector", (int64_t)e->block.sector);
	slice_arg(tag->request, "bytes", e->block.value);
	slice_arg(tag->request, "tid", e->tid);
	slice_arg(tag->request, "cpu", e->cpu);
	phase_begin(tag, e->time_ns, QUEUED);
	flow_between(call, tag->request);
}

/* Of a request that was under way when the trace began nothing is known. */
static void on_block_complete(struct tag *tag, const struct event *e)
{
	if (tag->phase == IDLE)
		return;
	slice_arg_result(tag->request, e->block.value);
	request_end(tag, e->time_ns);
}

/* ---- the server's ring ---- */

static uint64_t tag_id(uint32_t device, uint64_t queue, uint64_t tag)
{
	return (uint64_t)device << 32 | (queue & 0xffff) << 16 | (tag & 0xffff);
}

void ublk_completed(struct timeline *t, const struct event *e, struct slice_ref s)
{
	struct tag *tag;

	if (!ublk_cmd_fetches(e->cqe.cmd_op) ||
	    (e->cqe.res != RES_OK && e->cqe.res != RES_NEED_GET_DATA))
		return;
	tag = tag_of(t, tag_id((uint32_t)e->cqe.ublk_id, e->cqe.q_id, e->cqe.tag));
	if (tag->phase == IDLE || tag->phase == QUEUED)
		phase_begin(tag, MAX(e->time_ns, slice_start_ns(s) + 1), REAP);
	flow_between(s, tag->phase_slice);
}

/* The arrow to the commit is from the daemon's phase that has ended, by way of the submission. */
void ublk_submitted(struct timeline *t, const struct event *e, struct slice_ref s)
{
	uint64_t cmd = e->sqe.cmd[0];
	struct tag *tag;

	if (!ublk_cmd_commits(e->sqe.cmd_op))
		return;
	tag = tag_of(t, tag_id((uint32_t)e->sqe.ublk_id, cmd, cmd >> 16));
	if (tag->phase != IDLE && tag->phase != COMMIT)
		phase_begin(tag, e->time_ns - 1, COMMIT); /* before s: the arrow goes there */
	if (tag->phase == COMMIT)
		flow_between(tag->phase_slice, s);
}

/* ---- ublkd's probe points ---- */

/* enum backend_op, as base/probes.h tells it. */
static const char *backend_name(unsigned op)
{
	static const char *const names[] = {
		"backend read",	   "backend write",	   "backend flush",
		"backend discard", "backend write_zeroes",
	};

	return op < ARRAY_SIZE(names) ? names[op] : "backend";
}

static void on_commit(struct tag *tag, const struct event *e)
{
	phase_begin(tag, e->time_ns, COMMIT);
	slice_arg_result(tag->phase_slice, e->block.value);
	slice_arg(tag->phase_slice, "total_ns", (int64_t)e->block.layer_ns[0]);
	slice_arg(tag->phase_slice, "throttle_ns", (int64_t)e->block.layer_ns[1]);
	slice_arg(tag->phase_slice, "backend_ns", (int64_t)e->block.layer_ns[2]);
}

static void on_daemon(struct tag *tag, const struct event *e)
{
	struct slice_ref s = track_top(tag->track);
	bool in_backend = tag->track->depth > DEPTH_PHASE;

	if (tag->phase != DAEMON)
		return;
	if (e->type == EVENT_DAEMON_SUBMIT && !in_backend) {
		track_begin(tag->track, e->time_ns, tag->backend ? tag->backend : "backend");
	} else if (e->type != EVENT_DAEMON_SUBMIT && in_backend) {
		if (e->type == EVENT_DAEMON_BUSY)
			slice_arg_text(s, "result", "busy, not taken");
		else
			slice_arg_result(s, e->block.value);
		track_end_to(tag->track, e->time_ns, DEPTH_PHASE);
	}
}

void ublk_event(struct timeline *t, const struct event *e)
{
	struct tag *tag = tag_of(t, e->block.id);

	switch ((enum event_type)e->type) {
	case EVENT_BLOCK_QUEUE:
		on_queue(t, tag, e);
		break;
	case EVENT_BLOCK_COMPLETE:
		on_block_complete(tag, e);
		break;
	case EVENT_DAEMON_FETCH:
		tag->backend = e->block.has_op ? backend_name(e->block.op) : NULL;
		phase_begin(tag, e->time_ns, DAEMON);
		slice_arg(tag->phase_slice, "bytes", e->block.value);
		slice_arg(tag->phase_slice, "tid", e->tid);
		break;
	case EVENT_DAEMON_COMMIT:
		on_commit(tag, e);
		break;
	default:
		on_daemon(tag, e);
	}
}
