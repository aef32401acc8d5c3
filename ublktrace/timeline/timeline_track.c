/*
 * See timeline_track.h. Owns the slices that are not with the writer yet. Main thread.
 *
 * Happy path: begin, end, and when TRACK_KEEP_NR slices are there the first goes out. Failure
 * modes: an outer slice that never ends keeps what is in it; past TRACK_ROOM_MAX that is not drawn,
 * and counted.
 */
#include "ublktrace/timeline/timeline_track.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errname.h"
#include "base/util.h"

/* Stands for the text of a slice, which may move with it. */
static const char copied[] = "copied";

/* ---- places ---- */

static struct slice *slice_nth(struct track *t, size_t i)
{
	return &t->slices[(t->first + i) & (t->room - 1)];
}

static struct slice *slice_at(struct slice_ref s)
{
	if (!s.seq || s.seq < s.track->first_seq)
		return NULL;
	return slice_nth(s.track, s.seq - s.track->first_seq);
}

uint64_t slice_start_ns(struct slice_ref s)
{
	const struct slice *slice = slice_at(s);

	return slice ? slice->start_ns : 0;
}

static void track_grow(struct track *t)
{
	struct slice *slices = memory_resize(NULL, t->room ? t->room * 2 : 8, sizeof(*slices));

	for (size_t i = 0; i < t->nr; i++)
		slices[i] = *slice_nth(t, i);
	free(t->slices);
	t->slices = slices;
	t->first = 0;
	t->room = t->room ? t->room * 2 : 8;
}

static void track_emit_first(struct track *t)
{
	struct slice *s = slice_nth(t, 0);

	for (unsigned i = 0; i < s->arg_nr; i++)
		if (s->args[i].text == copied)
			s->args[i].text = s->text;
	t->all->w->ops->slice(t->all->w, &(struct trace_slice){ .track = t->id,
								.start_ns = s->start_ns,
								.end_ns = s->end_ns,
								.name = s->name,
								.flow_in = s->in.ids,
								.flow_in_nr = s->in.nr,
								.flow_out = s->out.ids,
								.flow_out_nr = s->out.nr,
								.args = s->args,
								.arg_nr = s->arg_nr });
	free(s->in.ids);
	free(s->out.ids);
	t->first = (t->first + 1) & (t->room - 1);
	t->first_seq++;
	t->nr--;
}

/* Slices are kept in the order of their start, so the first may go as soon as its end is known. */
static void track_emit_old(struct track *t, size_t keep)
{
	while (t->nr > keep && slice_nth(t, 0)->end_ns)
		track_emit_first(t);
}

static struct slice_ref track_push(struct track *t, uint64_t time_ns, const char *name)
{
	track_emit_old(t, TRACK_KEEP_NR);
	if (t->nr >= TRACK_ROOM_MAX) {
		t->all->undrawn++;
		return (struct slice_ref){ .track = t };
	}
	if (t->nr == t->room)
		track_grow(t);
	*slice_nth(t, t->nr) = (struct slice){ .start_ns = time_ns, .name = name };
	return (struct slice_ref){ .track = t, .seq = t->first_seq + t->nr++ };
}

/* ---- time ---- */

/* Ends the last point. Returns the time at which something may begin or end now. */
static uint64_t track_settle(struct track *t, uint64_t time_ns)
{
	if (t->point_seq) {
		struct slice *s = slice_at((struct slice_ref){ .track = t, .seq = t->point_seq });

		time_ns = MAX(time_ns, s->start_ns + 1);
		s->end_ns = MIN(s->start_ns + TRACK_POINT_NS, time_ns);
		t->point_seq = 0;
	}
	t->at_ns = MAX(t->at_ns, time_ns);
	return t->at_ns;
}

struct slice_ref track_begin(struct track *t, uint64_t time_ns, const char *name)
{
	struct slice_ref s = { .track = t };

	time_ns = track_settle(t, time_ns);
	if (t->depth == TRACK_DEPTH_MAX)
		t->all->undrawn++;
	else
		s = track_push(t, time_ns, name);
	if (s.seq)
		t->open[t->depth++] = s.seq;
	return s;
}

struct slice_ref track_point(struct track *t, uint64_t time_ns, const char *name)
{
	struct slice_ref s = track_push(t, track_settle(t, time_ns), name);

	t->point_seq = s.seq;
	return s;
}

void track_end_to(struct track *t, uint64_t time_ns, unsigned depth)
{
	while (t->depth > depth) {
		struct slice *s = slice_at(track_top(t));

		s->end_ns = MAX(track_settle(t, time_ns), s->start_ns + 1);
		t->at_ns = s->end_ns;
		t->depth--;
	}
}

struct slice_ref track_top(struct track *t)
{
	return (struct slice_ref){ .track = t, .seq = t->depth ? t->open[t->depth - 1] : 0 };
}

/* ---- arguments ---- */

static void slice_add_arg(struct slice_ref s, struct trace_arg arg)
{
	struct slice *slice = slice_at(s);

	if (slice && slice->arg_nr < TRACE_ARGS_MAX)
		slice->args[slice->arg_nr++] = arg;
}

void slice_arg(struct slice_ref s, const char *name, int64_t number)
{
	slice_add_arg(s, (struct trace_arg){ .name = name, .number = number });
}

void slice_arg_unsigned(struct slice_ref s, const char *name, uint64_t number)
{
	slice_add_arg(s, (struct trace_arg){
				 .name = name, .number = (int64_t)number, .is_unsigned = true });
}

void slice_arg_text(struct slice_ref s, const char *name, const char *static_text)
{
	slice_add_arg(s, (struct trace_arg){ .name = name, .text = static_text });
}

void slice_arg_copy(struct slice_ref s, const char *name, const char *text)
{
	struct slice *slice = slice_at(s);

	if (!slice || !*text)
		return;
	snprintf(slice->text, sizeof(slice->text), "%s", text);
	slice_arg_text(s, name, copied);
}

void slice_arg_result(struct slice_ref s, int64_t result)
{
	if (result < 0 && result > -4096)
		slice_arg_text(s, "result", errname((int)result));
	else
		slice_arg(s, "result", result);
}

/* ---- arrows ---- */

static bool flows_add(struct flows *f, uint64_t id)
{
	if (f->nr == TRACK_FLOWS_MAX)
		return false;
	if (f->nr == f->room) {
		f->room = f->room ? f->room * 2 : 2;
		f->ids = memory_resize(f->ids, f->room, sizeof(*f->ids));
	}
	f->ids[f->nr++] = id;
	return true;
}

uint64_t flow_begin(struct slice_ref s)
{
	struct slice *slice = slice_at(s);

	if (!slice)
		return 0;
	if (!flows_add(&slice->out, s.track->all->next_flow + 1)) {
		s.track->all->undrawn++;
		return 0;
	}
	return ++s.track->all->next_flow;
}

void flow_end(struct slice_ref s, uint64_t flow)
{
	struct slice *slice = slice_at(s);

	if (flow && (!slice || !flows_add(&slice->in, flow)))
		s.track->all->undrawn++;
}

void flow_between(struct slice_ref from, struct slice_ref to)
{
	struct slice *a = slice_at(from), *b = slice_at(to);

	if (a && b && a->start_ns < b->start_ns)
		flow_end(to, flow_begin(from));
}

/* ---- all of them ---- */

uint64_t process_new(struct tracks *all, const char *name)
{
	uint64_t id = ++all->next_id;

	all->w->ops->process(all->w, id, name);
	return id;
}

struct track *track_new(struct tracks *all, uint64_t process, const char *name)
{
	struct track *t = memory_zalloc(sizeof(*t));

	*t = (struct track){
		.id = ++all->next_id,
		.next = all->list,
		.all = all,
		.first_seq = 1,
	};
	all->list = t;
	all->w->ops->track(all->w, t->id, process, name);
	return t;
}

void track_rename(struct track *t, uint64_t process, const char *name)
{
	t->all->w->ops->track(t->all->w, t->id, process, name);
}

uint64_t track_new_counter(struct tracks *all, uint64_t process, const char *name)
{
	uint64_t id = ++all->next_id;

	all->w->ops->counter_track(all->w, id, process, name);
	return id;
}

void tracks_end(struct tracks *all, uint64_t time_ns)
{
	while (all->list) {
		struct track *t = all->list;

		for (unsigned i = 0; i < t->depth; i++)
			slice_arg_text((struct slice_ref){ .track = t, .seq = t->open[i] }, "end",
				       "not seen");
		track_end_to(t, time_ns, 0);
		track_settle(t, time_ns + TRACK_POINT_NS);
		track_emit_old(t, 0);
		all->list = t->next;
		free(t->slices);
		free(t);
	}
}
