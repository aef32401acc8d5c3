/*
 * What the files of the timeline share: timeline.c (order, processes), timeline_ring.c (rings and
 * their requests), timeline_thread.c (syscalls, off the CPU), timeline_ublk.c (devices). Main
 * thread.
 */
#ifndef UBLKTRACE_TIMELINE_TIMELINE_INTERNAL_H
#define UBLKTRACE_TIMELINE_TIMELINE_INTERNAL_H

#include "base/printable.h"
#include "ublktrace/timeline/timeline_hold.h"
#include "ublktrace/timeline/timeline_track.h"

#define TIMELINE_NAME_BYTES 96u

struct process {
	uint64_t id;
	char name[TIMELINE_NAME_BYTES];
};

struct thread {
	struct process *process;
	char comm[EVENT_COMM_BYTES];
	struct track *calls, *off; /* off: NULL until it is seen to leave a CPU */
	uint64_t ring;		   /* the one it entered last */
};

/* A completion that the program has not taken yet. */
struct unreaped {
	uint64_t user_data, flow, flow_ns;
};

struct ring {
	struct process process;
	uint64_t address;
	uint32_t pid;
	int32_t fd;					    /* -1: not known */
	struct track *submit, *waiting, *complete, *reaped; /* NULL until needed */
	struct map workers;				    /* by tid: struct track */
	uint64_t sq_counter, cq_counter;
	uint32_t sq_depth, cq_depth; /* as told last; UINT32_MAX: never */
	/* Completions in their order, of a program that tells what it takes. */
	struct unreaped *unreaped;
	size_t unreaped_nr, unreaped_room;
	bool tells_reaps;
};

/* One that was submitted and may still complete. */
struct request {
	struct ring *ring;
	uint64_t req, user_data;
	const char *name; /* static */
	const char *path; /* "inline", "poll", "io-wq", static */
	struct slice_ref submit;
	uint64_t submit_ns;
	uint64_t flow;	  /* an arrow that waits for its end, or 0 */
	uint64_t flow_ns; /* where it begins: slices may be moved, arrows do not go back in time */
	bool idle;	  /* a FETCH: it waits for work, that is no latency */
};

struct timeline {
	struct tracks tracks;
	struct hold hold;
	uint64_t first_ns, now_ns;
	uint64_t late;	      /* records that came after their place was gone */
	struct map processes; /* by pid: struct process */
	struct map threads;   /* by tid: struct thread */
	struct map rings;     /* by address: struct ring */
	struct map requests;  /* by address: struct request */
	struct map devices;   /* by number: struct process */
	struct map tags;      /* by id: struct tag of timeline_ublk.c */
};

/* comm as text that every viewer takes. Returns buf, of COMM_TEXT_BYTES. */
#define COMM_TEXT_BYTES (PRINTABLE_GROWTH * EVENT_COMM_BYTES + 1)
const char *comm_text(const char *comm, char *buf);
struct process *process_of(struct timeline *t, const struct event *e);
void process_rename(struct timeline *t, struct process *p, const char *name);

/* ---- timeline_thread.c ---- */

struct thread *thread_of(struct timeline *t, const struct event *e);
void thread_event(struct timeline *t, const struct event *e);
/* The slice in which the thread of e is inside the kernel now; seq 0: none is known. */
struct slice_ref thread_call(struct timeline *t, const struct event *e);

/* ---- timeline_ring.c ---- */

void ring_event(struct timeline *t, const struct event *e);
/* Ends the arrows that are still open, at the end of the trace. */
void rings_end(struct timeline *t);
void rings_free(struct timeline *t);

/* ---- timeline_request.c ---- */

void request_event(struct timeline *t, struct ring *ring, const struct event *e);
void request_drop(struct timeline *t, struct request *r, const char *why);
void unreaped_drop(struct timeline *t, struct ring *ring, size_t nr);

/* ---- timeline_ublk.c ---- */

void ublk_event(struct timeline *t, const struct event *e);
/* A SUBMIT or COMPLETE of a data command of a ublk device, drawn at s. */
void ublk_submitted(struct timeline *t, const struct event *e, struct slice_ref s);
void ublk_completed(struct timeline *t, const struct event *e, struct slice_ref s);
/* Whether cmd_op waits for the next request, and gives one back. */
bool ublk_cmd_fetches(uint32_t cmd_op);
bool ublk_cmd_commits(uint32_t cmd_op);

#endif
