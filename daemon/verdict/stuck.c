/*
 * The verdict of why-stuck. The order matters: what hides everything else comes first. A reactor
 * that does not turn ages every I/O; what the driver does not take for live gets no I/O; a tag that
 * is not armed keeps START_DEV waiting; then the oldest I/O; then what never came here.
 */
#include "daemon/verdict/stuck.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"

const char *stuck_kind_name(enum stuck_kind kind)
{
	static const char *const name[STUCK_KIND_NR] = {
		[STUCK_NOTHING] = "nothing-stuck",
		[STUCK_NOT_SERVING] = "not-serving",
		[STUCK_REACTOR] = "reactor-not-turning",
		[STUCK_DRIVER] = "driver-disagrees",
		[STUCK_RING] = "ring-does-not-move",
		[STUCK_NOT_ARMED] = "tag-not-armed",
		[STUCK_THROTTLED] = "throttled",
		[STUCK_DELAYED] = "delayed-on-purpose",
		[STUCK_BACKEND] = "backend-does-not-answer",
		[STUCK_BUSY] = "backend-busy",
		[STUCK_NOT_HANDED_BACK] = "not-handed-back",
		[STUCK_UNSEEN] = "not-seen-by-daemon",
		[STUCK_DRIVER_SILENT] = "driver-does-not-answer",
	};

	return kind < STUCK_KIND_NR ? name[kind] : "?";
}

static const char *cure_of(enum stuck_kind kind)
{
	static const char *const cure[STUCK_KIND_NR] = {
		[STUCK_NOTHING] = "",
		[STUCK_NOT_SERVING] = "see the log of ublkd; ublkctl show tells the step it is at",
		[STUCK_REACTOR] = "a callback blocks, or its CPU is taken: look at the stack of "
				  "thread reactor-N (gdb -p, /proc/PID/task/TID/stack)",
		[STUCK_DRIVER] = "somebody else stopped, deleted or recovers it: see dmesg; "
				 "ublkctl del NAME --force, then add it again",
		[STUCK_RING] = "the kernel is short of memory, or of room in the ring: see dmesg "
			       "and ublkctl reactors",
		[STUCK_NOT_ARMED] =
			"a bug of ublkd, or the driver refused the tag (see its log for "
			"\"refused a tag\"): restart the device, report it with "
			"ublkctl flight",
		[STUCK_THROTTLED] = "intended: raise the limits of the throttle, or submit less",
		[STUCK_DELAYED] = "intended: the delay filter of its configuration holds it",
		[STUCK_BACKEND] = "look at what is below the backend (disk, server, network); "
				  "ublkctl del NAME --force ends its I/Os with errors",
		[STUCK_BUSY] = "the backend takes no more at once: look at its older I/Os with "
			       "ublkctl inflight",
		[STUCK_NOT_HANDED_BACK] = "the ring takes no submissions: see ublkctl reactors, "
					  "SQ FULL and STALLS",
		[STUCK_UNSEEN] = "the driver has not handed them over: see dmesg, and whether the "
				 "thread reactor-N gets its CPU; what is left is a bug: report it "
				 "with ublkctl flight",
		[STUCK_DRIVER_SILENT] =
			"a command to the driver hangs in the kernel: see dmesg for "
			"hung tasks, and the log for \"takes long\"",
	};

	return cure[kind];
}

static void say(struct stuck_verdict *v, enum stuck_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(struct stuck_verdict *v, enum stuck_kind kind, const char *fmt, ...)
{
	va_list ap;

	v->kind = kind;
	v->cure = cure_of(kind);
	va_start(ap, fmt);
	vsnprintf(v->where, sizeof(v->where), fmt, ap);
	va_end(ap);
}

static void say_oldest(struct stuck_verdict *v, enum stuck_kind kind, const struct stuck_view *s,
		       const char *words)
{
	char age[FORMAT_BYTES], bytes[FORMAT_BYTES];

	say(v, kind, "the %s of %s at sector %llu (queue %u tag %u) is %s old: %s", s->op,
	    format_bytes(s->bytes, bytes), (unsigned long long)s->sector, s->queue, s->tag,
	    format_ns(s->age_ns, age), words);
}

static bool is(const char *a, const char *b)
{
	return a && strcmp(a, b) == 0;
}

static void judge_serving(const struct stuck_view *s, struct stuck_verdict *v)
{
	char words[256];

	if (is(s->backend, "throttle") && is(s->backend_state, "waiting for its turn")) {
		say_oldest(v, STUCK_THROTTLED, s, "a throttle holds it back until its turn");
	} else if (is(s->backend, "delay") && is(s->backend_state, "delaying")) {
		say_oldest(v, STUCK_DELAYED, s, "the filter delay holds it");
	} else if (!s->backend) {
		say_oldest(v, STUCK_BACKEND, s, "the backend does not answer");
	} else {
		snprintf(words, sizeof(words), "the backend %s does not answer (%s)", s->backend,
			 s->backend_state ? s->backend_state : "?");
		say_oldest(v, STUCK_BACKEND, s, words);
	}
}

static void judge_oldest(const struct stuck_view *s, struct stuck_verdict *v)
{
	if (is(s->state, "busy"))
		say_oldest(v, STUCK_BUSY, s, "the backend is busy and did not take it");
	else if (is(s->state, "done"))
		say_oldest(v, STUCK_NOT_HANDED_BACK, s,
			   "it is answered, but not handed back to the driver");
	else
		judge_serving(s, v);
}

static bool judge_reactor(const struct stuck_view *s, struct stuck_verdict *v)
{
	char age[FORMAT_BYTES], ring[96] = "", unseen[96] = "";

	if (s->reactor < 0 || s->silent_ns < STUCK_REACTOR_NS)
		return false;
	if (s->cq_unseen)
		snprintf(ring, sizeof(ring), "; %u completions wait in its ring unseen",
			 s->cq_unseen);
	if (s->kernel_nr > (long)s->seen_nr)
		snprintf(unseen, sizeof(unseen), "; %ld requests wait in the kernel unseen",
			 s->kernel_nr - (long)s->seen_nr);
	say(v, STUCK_REACTOR, "reactor %d has not turned for %s%s%s%s%s%s", s->reactor,
	    format_ns(s->silent_ns, age), s->doing ? ": it " : "", s->doing ? s->doing : "",
	    s->inflight ? ", and holds the I/Os of this device" : "", ring, unseen);
	return true;
}

static const char *words_of_state(const char *state)
{
	if (is(state, "DEAD"))
		return "it has no disk any more";
	if (is(state, "QUIESCED"))
		return "its server is gone, and requests wait for a new one";
	if (is(state, "FAIL_IO"))
		return "its server is gone, and requests fail";
	return "";
}

/* Only of a live device: before, there is no server, and afterwards there must be none. */
static bool judge_driver(const struct stuck_view *s, struct stuck_verdict *v)
{
	if (!is(s->step, "live"))
		return false;
	if (s->driver_error)
		say(v, STUCK_DRIVER, "the driver does not know this device: %s", s->driver_error);
	else if (s->driver_state && !is(s->driver_state, "LIVE"))
		say(v, STUCK_DRIVER, "the kernel says this device is %s: %s", s->driver_state,
		    words_of_state(s->driver_state));
	else if (s->driver_state && s->server_pid != s->daemon_pid)
		say(v, STUCK_DRIVER, "the kernel says its server is pid %d, not us (pid %d)",
		    s->server_pid, s->daemon_pid);
	else
		return false;
	return true;
}

static bool judge_ring(const struct stuck_view *s, struct stuck_verdict *v)
{
	if (s->overflow)
		say(v, STUCK_RING,
		    "%u completions of reactor %d found no room in its ring: it is too slow for "
		    "what it serves",
		    s->overflow, s->reactor);
	else if (s->sq_waiting)
		say(v, STUCK_RING, "the kernel does not take %u submissions of reactor %d",
		    s->sq_waiting, s->reactor);
	else
		return false;
	return true;
}

/* Down is right while a device stops: the driver gives the tags back then. */
static bool judge_armed(const struct stuck_view *s, struct stuck_verdict *v)
{
	bool serves = is(s->step, "live") || is(s->step, "starting");

	if (!serves || s->armed + s->inflight >= s->depth)
		return false;
	say(v, STUCK_NOT_ARMED, "queue %u has armed %u tags of depth %u%s: FETCH is missing%s",
	    s->short_queue, s->short_armed, s->short_depth,
	    s->inflight ? "" : " with nothing in flight",
	    is(s->step, "starting") ? ", and START_DEV waits for it in the kernel" : "");
	return true;
}

static void judge_rest(const struct stuck_view *s, struct stuck_verdict *v)
{
	char age[FORMAT_BYTES];

	if (s->kernel_nr > (long)s->seen_nr)
		say(v, STUCK_UNSEEN,
		    "the kernel has %ld requests in flight, of which the daemon has seen %u",
		    s->kernel_nr, s->seen_nr);
	else if (s->driver_owed_ns >= STUCK_REACTOR_NS)
		say(v, STUCK_DRIVER_SILENT, "the driver has not answered GET_DEV_INFO for %s",
		    format_ns(s->driver_owed_ns, age));
	else if (!is(s->step, "live"))
		say(v, STUCK_NOT_SERVING, "the device is %s", s->step);
	else if (s->has_oldest)
		say(v, STUCK_NOTHING, "nothing is stuck: the oldest of %u I/Os is %s old",
		    s->inflight, format_ns(s->age_ns, age));
	else
		say(v, STUCK_NOTHING, "nothing is stuck: no I/O in the daemon, %u of %u tags armed",
		    s->armed, s->depth);
}

void stuck_judge(const struct stuck_view *s, struct stuck_verdict *v)
{
	*v = (struct stuck_verdict){ 0 };
	if (!s->has_queues)
		say(v, STUCK_NOT_SERVING, "the device is %s and has no queues now", s->step);
	else if (judge_reactor(s, v) || judge_driver(s, v) || judge_ring(s, v) || judge_armed(s, v))
		return;
	else if (s->has_oldest && s->age_ns >= STUCK_IO_NS)
		judge_oldest(s, v);
	else
		judge_rest(s, v);
}
