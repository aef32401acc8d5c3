/*
 * Tracks: slices begin and end in time order, and are handed to the writer as whole ones. Main
 * thread.
 *
 * A track keeps its latest slices for a while, so that arrows can still be tied to them; the writer
 * gets the oldest once its end is known. Nothing on a track overlaps: what would is moved by as
 * little as a nanosecond.
 */
#ifndef UBLKTRACE_TIMELINE_TIMELINE_TRACK_H
#define UBLKTRACE_TIMELINE_TIMELINE_TRACK_H

#include "tracefile/map.h"
#include "ublktrace/timeline/timeline.h"

#define TRACK_POINT_NS 1000u  /* how wide a point in time is drawn, at most */
#define TRACK_KEEP_NR 64u     /* slices that are kept for arrows */
#define TRACK_ROOM_MAX 4096u  /* slices inside of one that does not end; more are not drawn */
#define TRACK_DEPTH_MAX 8u    /* slices in each other */
#define TRACK_FLOWS_MAX 1024u /* arrows of one slice; more are not drawn */

struct flows {
	uint64_t *ids;
	unsigned nr, room;
};

struct slice {
	uint64_t start_ns, end_ns; /* end 0: open */
	const char *name;	   /* static */
	struct trace_arg args[TRACE_ARGS_MAX];
	unsigned arg_nr;
	char text[128]; /* for one argument that is not static */
	struct flows in, out;
};

/* A slice by its place; it may be with the writer by now. seq 0: none. */
struct slice_ref {
	struct track *track;
	uint64_t seq;
};

struct track {
	uint64_t id;
	struct track *next;
	struct tracks *all;
	struct slice *slices; /* a ring of room, a power of two */
	size_t first, nr, room;
	uint64_t first_seq; /* of the first one */
	uint64_t open[TRACK_DEPTH_MAX];
	unsigned depth;
	uint64_t point_seq; /* a point whose end is not known yet, or 0 */
	uint64_t at_ns;	    /* nothing may begin before */
};

/* What all tracks share. */
struct tracks {
	struct trace_writer *w;
	struct track *list;
	uint64_t next_id, next_flow;
	uint64_t undrawn; /* slices and arrows that found no room */
};

uint64_t process_new(struct tracks *all, const char *name);
struct track *track_new(struct tracks *all, uint64_t process, const char *name);
void track_rename(struct track *t, uint64_t process, const char *name);
/* Returns the id for the writer's counter. */
uint64_t track_new_counter(struct tracks *all, uint64_t process, const char *name);

/* Return where the slice is; its seq is 0 if there was no room. */
struct slice_ref track_begin(struct track *t, uint64_t time_ns, const char *name);
struct slice_ref track_point(struct track *t, uint64_t time_ns, const char *name);
/* Ends the innermost slices until depth are left open. */
void track_end_to(struct track *t, uint64_t time_ns, unsigned depth);
/* The innermost open slice; seq 0: there is none. */
struct slice_ref track_top(struct track *t);

/* Where it was drawn; 0 when it is no longer here. */
uint64_t slice_start_ns(struct slice_ref s);

/* Of a slice that is no longer here, or never was, nothing is told. */
void slice_arg(struct slice_ref s, const char *name, int64_t number);
void slice_arg_unsigned(struct slice_ref s, const char *name, uint64_t number);
void slice_arg_text(struct slice_ref s, const char *name, const char *static_text);
/* One of a slice; the text is copied. An empty one says nothing: Perfetto's reader of FXT drops an
 * event for it. */
void slice_arg_copy(struct slice_ref s, const char *name, const char *text);
/* "result": a number, or the errno by name. */
void slice_arg_result(struct slice_ref s, int64_t result);

/*
 * An arrow begins at s. Returns its id, which must go to flow_end once, or 0. The slice where it
 * ends has to start later, be it by a nanosecond: viewers sort by time, and leave out an arrow that
 * ends before it has begun.
 */
uint64_t flow_begin(struct slice_ref s);
/* It ends at s, which was just made. flow 0: nothing. */
void flow_end(struct slice_ref s, uint64_t flow);
/* An arrow between slices that are both there, and start in this order; else none. */
void flow_between(struct slice_ref from, struct slice_ref to);

/* Ends all that is open, hands out all, frees the tracks. */
void tracks_end(struct tracks *all, uint64_t time_ns);

#endif
