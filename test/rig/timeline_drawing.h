/*
 * For test_trace_timeline.c: a writer of timelines that notes down all that is drawn and checks the
 * rules that every encoder relies on; lists of records to draw.
 */
#ifndef TEST_RIG_TIMELINE_DRAWING_H
#define TEST_RIG_TIMELINE_DRAWING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "test/trace/synthetic.h"
#include "tracefile/map.h"
#include "ublktrace/timeline/timeline.h"
#include "ublktrace/timeline/timeline_hold.h"
#include "ublktrace/timeline/timeline_track.h"

#define START_NS 1000000000ull

/* ---- a writer that notes down and checks ---- */

struct drawn {
	uint64_t track, start_ns, end_ns;
	char name[32];
	unsigned in_nr, out_nr;
	int64_t result; /* the argument of that name, or -1 */
	bool unseen;	/* has an argument "end" */
};

struct place {
	uint64_t process;
	char name[64];
	uint64_t last_ns, end_ns[TRACK_DEPTH_MAX];
	unsigned depth;
};

/* Where an arrow begins and ends. */
struct arrow {
	uint64_t from_ns, to_ns;
	uint64_t from, to; /* tracks */
};

struct notes {
	struct trace_writer writer;
	struct drawn *drawn;
	size_t nr, room;
	struct map places, arrows; /* by id */
	int64_t lost_late;
};

static void on_process(struct trace_writer *w, uint64_t process, const char *name)
{
	struct notes *n = (struct notes *)w;
	struct place *p = map_get(&n->places, process, 0);

	if (!p) {
		p = memory_zalloc(sizeof(*p));
		map_put(&n->places, process, 0, p);
	}
	assert_true(strlen(name) > 0);
	snprintf(p->name, sizeof(p->name), "%s", name);
}

static void on_track(struct trace_writer *w, uint64_t track, uint64_t process, const char *name)
{
	struct notes *n = (struct notes *)w;
	struct place *p = map_get(&n->places, track, 0);

	assert_non_null(map_get(&n->places, process, 0));
	if (!p) {
		p = memory_zalloc(sizeof(*p));
		p->process = process;
		map_put(&n->places, track, 0, p);
	}
	assert_true(p->process == process);
	snprintf(p->name, sizeof(p->name), "%s", name);
}

static struct arrow *arrow_of(struct notes *n, uint64_t id)
{
	struct arrow *a = map_get(&n->arrows, id, 0);

	assert_true(id != 0);
	if (!a) {
		a = memory_zalloc(sizeof(*a));
		map_put(&n->arrows, id, 0, a);
	}
	return a;
}

/* Sorted by start, the outer first, none cuts another. */
static void check_nesting(struct place *p, uint64_t start_ns, uint64_t end_ns)
{
	assert_true(start_ns < end_ns);
	assert_true(start_ns >= p->last_ns);
	p->last_ns = start_ns;
	while (p->depth > 0 && p->end_ns[p->depth - 1] <= start_ns)
		p->depth--;
	assert_true(p->depth < TRACK_DEPTH_MAX);
	assert_true(p->depth == 0 || end_ns <= p->end_ns[p->depth - 1]);
	p->end_ns[p->depth++] = end_ns;
}

static void note_arrows(struct notes *n, struct place *p, const struct drawn *d, const uint64_t *in,
			const uint64_t *out)
{
	(void)p;
	for (unsigned i = 0; i < d->in_nr; i++) {
		struct arrow *a = arrow_of(n, in[i]);

		assert_int_equal(a->to, 0);
		a->to = d->track;
		a->to_ns = d->start_ns;
	}
	for (unsigned i = 0; i < d->out_nr; i++) {
		struct arrow *a = arrow_of(n, out[i]);

		assert_int_equal(a->from, 0);
		a->from = d->track;
		a->from_ns = d->start_ns;
	}
}

static void on_slice(struct trace_writer *w, const struct trace_slice *s)
{
	struct notes *n = (struct notes *)w;
	struct place *p = map_get(&n->places, s->track, 0);
	struct drawn *d;

	assert_non_null(p);
	assert_true(s->arg_nr <= TRACE_ARGS_MAX);
	check_nesting(p, s->start_ns, s->end_ns);
	if (n->nr == n->room) {
		n->room = n->room ? n->room * 2 : 64;
		n->drawn = memory_resize(n->drawn, n->room, sizeof(*n->drawn));
	}
	d = &n->drawn[n->nr++];
	*d = (struct drawn){
		.track = s->track,
		.start_ns = s->start_ns,
		.end_ns = s->end_ns,
		.in_nr = s->flow_in_nr,
		.out_nr = s->flow_out_nr,
		.result = -1,
	};
	snprintf(d->name, sizeof(d->name), "%s", s->name);
	for (unsigned i = 0; i < s->arg_nr; i++) {
		if (!strcmp(s->args[i].name, "result") && !s->args[i].text)
			d->result = s->args[i].number;
		if (!strcmp(s->args[i].name, "end"))
			d->unseen = true;
	}
	note_arrows(n, p, d, s->flow_in, s->flow_out);
}

static void on_counter(struct trace_writer *w, uint64_t track, uint64_t time_ns, int64_t value)
{
	struct notes *n = (struct notes *)w;
	struct place *p = map_get(&n->places, track, 0);

	assert_non_null(p);
	assert_true(time_ns >= p->last_ns);
	p->last_ns = time_ns;
	if (!strcmp(p->name, "lost: too late"))
		n->lost_late = value;
}

static const struct trace_writer_ops drawing_ops = {
	.process = on_process,
	.track = on_track,
	.counter_track = on_track,
	.slice = on_slice,
	.counter = on_counter,
};

static void check_arrow(void *value, void *arg)
{
	const struct arrow *a = value;

	(void)arg;
	assert_true(a->from && a->to);
	assert_true(a->from_ns < a->to_ns);
}

static void free_value(void *value, void *arg)
{
	(void)arg;
	free(value);
}

static void notes_free(struct notes *n)
{
	map_each(&n->places, free_value, NULL);
	map_each(&n->arrows, free_value, NULL);
	map_free(&n->places);
	map_free(&n->arrows);
	free(n->drawn);
}

/* ---- what tests ask ---- */

static struct place *place_of(const struct notes *n, const struct drawn *d)
{
	return map_get(&n->places, d->track, 0);
}

/* How many slices called name are on tracks called track; NULL: any. */
static unsigned count(const struct notes *n, const char *track, const char *name)
{
	unsigned nr = 0;

	for (size_t i = 0; i < n->nr; i++)
		if ((!name || !strcmp(n->drawn[i].name, name)) &&
		    (!track || !strcmp(place_of(n, &n->drawn[i])->name, track)))
			nr++;
	return nr;
}

static const struct drawn *only(const struct notes *n, const char *track, const char *name)
{
	const struct drawn *found = NULL;

	for (size_t i = 0; i < n->nr; i++) {
		if (strcmp(n->drawn[i].name, name) ||
		    strcmp(place_of(n, &n->drawn[i])->name, track))
			continue;
		assert_null(found);
		found = &n->drawn[i];
	}
	assert_non_null(found);
	return found;
}

struct asked {
	const struct notes *n;
	const char *from, *to;
	unsigned nr;
};

static void ask_arrow(void *value, void *arg)
{
	const struct arrow *a = value;
	struct asked *q = arg;
	const struct place *from = map_get(&q->n->places, a->from, 0);
	const struct place *to = map_get(&q->n->places, a->to, 0);

	if (!strcmp(from->name, q->from) && !strcmp(to->name, q->to))
		q->nr++;
}

static unsigned arrows(const struct notes *n, const char *from, const char *to)
{
	struct asked q = { .n = n, .from = from, .to = to };

	map_each(&n->arrows, ask_arrow, &q);
	return q.nr;
}

static bool has_place(const struct notes *n, const char *name)
{
	for (size_t i = 0; i < n->places.size; i++) {
		const struct place *p = n->places.slots[i].value;

		if (p && !strcmp(p->name, name))
			return true;
	}
	return false;
}

/* ---- a list of records, to be drawn in several ways ---- */

struct records {
	struct event *events;
	size_t nr, room;
};

static void keep(const struct event *e, void *arg)
{
	struct records *r = arg;

	if (r->nr == r->room) {
		r->room = r->room ? r->room * 2 : 256;
		r->events = memory_resize(r->events, r->room, sizeof(*r->events));
	}
	r->events[r->nr++] = *e;
}

static struct synthetic synthetic_of(struct records *r)
{
	return (struct synthetic){ .put = keep, .arg = r, .now_ns = START_NS };
}

static struct notes draw(const struct records *r)
{
	static const struct losses losses;
	struct notes n = { .writer.ops = &drawing_ops };
	struct timeline *t = timeline_new(&n.writer);

	for (size_t i = 0; i < r->nr; i++)
		timeline_event(t, &r->events[i]);
	timeline_end(t, &losses);
	map_each(&n.arrows, check_arrow, NULL);
	return n;
}

#endif
