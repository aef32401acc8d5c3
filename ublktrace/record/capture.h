/*
 * The BPF side of `record`: loads ublktrace/bpf/events.bpf.c, attaches what this kernel has, hands
 * out the records. Main thread.
 *
 * Happy path: capture_open, capture_poll until the caller has enough, capture_losses,
 * capture_close.
 */
#ifndef UBLKTRACE_RECORD_CAPTURE_H
#define UBLKTRACE_RECORD_CAPTURE_H

#include "ublktrace/events/event.h"
#include "ublktrace/events/losses.h"
#include "ublktrace/target.h"

struct capture;

/* What to listen to, besides the rings of the target. */
enum capture_part {
	CAPTURE_URING = 1 << 0,
	CAPTURE_SYSCALLS = 1 << 1,
	CAPTURE_SWITCHES = 1 << 2, /* context switches of the target's threads */
	CAPTURE_BLOCK = 1 << 3,	   /* requests of ublk devices */
	CAPTURE_DAEMON = 1 << 4,   /* the probe points of ublkd, when the target is one */
};

/*
 * Loads and attaches: from its return on nothing is missed. fn is called by capture_poll.
 * Returns 0, or -errno with one line of words on stderr that names the cure (-EPERM: the
 * capability).
 */
int capture_open(const struct target *t, unsigned parts,
		 void (*fn)(const struct event *e, void *arg), void *arg,
		 struct capture **ret_capture);

/* Waits for records for up to timeout_ms and hands them out. Returns their number or -errno. */
int capture_poll(struct capture *c, int timeout_ms);

/* Stops new records and hands out those that are there. */
void capture_drain(struct capture *c);

/* What was lost until now; unmatched counts COMPLETEs whose SUBMIT was not seen. */
void capture_losses(const struct capture *c, struct losses *ret_losses);

/*
 * Of losses.recursion: what each skipped run would have told ([0]: it makes no record of its own).
 * The kernel does not say whose event it was: of all processes.
 */
void capture_skipped(const struct capture *c, uint64_t ret_nr[EVENT_TYPE_NR]);
void capture_close(struct capture *c);

#endif
