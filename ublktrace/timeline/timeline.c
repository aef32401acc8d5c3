/*
 * The timeline as a whole: brings records into order and gives each to the file that draws it. Owns
 * the tables of what is known. Main thread.
 *
 * Happy path: timeline_event holds a record back for a second of trace time; then it is drawn.
 * Failure modes: a record that comes later than that is drawn where the timeline is by then, and
 * counted; what never ends is ended with the trace, and says so.
 */
#include "ublktrace/timeline/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "ublktrace/timeline/timeline_internal.h"

/* ---- processes ---- */

const char *comm_text(const char *comm, char *buf)
{
	return printable(buf, COMM_TEXT_BYTES, comm, strnlen(comm, EVENT_COMM_BYTES));
}

void process_rename(struct timeline *t, struct process *p, const char *name)
{
	if (!strcmp(p->name, name))
		return;
	snprintf(p->name, sizeof(p->name), "%s", name);
	t->tracks.w->ops->process(t->tracks.w, p->id, p->name);
}

/* Named by its first thread, as soon as that is seen. */
struct process *process_of(struct timeline *t, const struct event *e)
{
	struct process *p = map_get(&t->processes, e->pid, 0);
	char comm[COMM_TEXT_BYTES], name[TIMELINE_NAME_BYTES];

	snprintf(name, sizeof(name), "%s (%u)", comm_text(e->comm, comm), e->pid);
	if (!p) {
		p = memory_zalloc(sizeof(*p));
		snprintf(p->name, sizeof(p->name), "%s", name);
		p->id = process_new(&t->tracks, p->name);
		map_put(&t->processes, e->pid, 0, p);
	} else if (e->pid == e->tid) {
		process_rename(t, p, name);
	}
	return p;
}

/* ---- records ---- */

static void timeline_draw(struct timeline *t, struct event *e)
{
	if (!t->first_ns)
		t->first_ns = e->time_ns;
	if (e->time_ns < t->now_ns) {
		t->late++;
		e->time_ns = t->now_ns;
	}
	t->now_ns = e->time_ns;
	switch ((enum event_type)e->type) {
	case EVENT_BLOCK_QUEUE:
	case EVENT_BLOCK_COMPLETE:
	case EVENT_DAEMON_FETCH:
	case EVENT_DAEMON_SUBMIT:
	case EVENT_DAEMON_BUSY:
	case EVENT_DAEMON_DONE:
	case EVENT_DAEMON_COMMIT:
		ublk_event(t, e);
		break;
	case EVENT_ENTER:
	case EVENT_SYSCALL:
	case EVENT_SWITCH:
	case EVENT_WAIT:
	case EVENT_TASK_WORK:
		thread_event(t, e);
		if (e->ring)
			ring_event(t, e);
		break;
	default:
		ring_event(t, e);
	}
}

struct timeline *timeline_new(struct trace_writer *w)
{
	struct timeline *t = memory_zalloc(sizeof(*t));

	t->tracks.w = w;
	return t;
}

void timeline_event(struct timeline *t, const struct event *e)
{
	struct event next;

	hold_put(&t->hold, e);
	while (hold_take(&t->hold, false, &next))
		timeline_draw(t, &next);
}

/* ---- the end ---- */

static void timeline_tell_loss(struct timeline *t, uint64_t process, const char *name,
			       uint64_t value)
{
	uint64_t track = track_new_counter(&t->tracks, process, name);

	t->tracks.w->ops->counter(t->tracks.w, track, t->first_ns, 0);
	t->tracks.w->ops->counter(t->tracks.w, track, t->now_ns, (int64_t)value);
}

static void timeline_tell_losses(struct timeline *t, const struct losses *l)
{
	uint64_t process = process_new(&t->tracks, "ublktrace");

	timeline_tell_loss(t, process, "lost: ring buffer full", l->ring_full);
	timeline_tell_loss(t, process, "lost: map full", l->map_full);
	timeline_tell_loss(t, process, "lost: missed by recursion", l->recursion);
	timeline_tell_loss(t, process, "lost: unmatched", l->unmatched);
	timeline_tell_loss(t, process, "lost: too late", t->late);
	timeline_tell_loss(t, process, "lost: not drawn", t->tracks.undrawn);
}

static void timeline_free_value(void *value, void *arg)
{
	(void)arg;
	free(value);
}

static void timeline_free_map(struct map *m)
{
	map_each(m, timeline_free_value, NULL);
	map_free(m);
}

void timeline_end(struct timeline *t, const struct losses *l)
{
	struct event next;

	while (hold_take(&t->hold, true, &next))
		timeline_draw(t, &next);
	rings_end(t);
	tracks_end(&t->tracks, t->now_ns);
	if (l)
		timeline_tell_losses(t, l);
	rings_free(t);
	timeline_free_map(&t->processes);
	timeline_free_map(&t->threads);
	timeline_free_map(&t->requests);
	timeline_free_map(&t->devices);
	timeline_free_map(&t->tags);
	hold_free(&t->hold);
	free(t);
}
