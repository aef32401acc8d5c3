/*
 * The verdict of why-stuck. Pure: any thread, no state.
 *
 * Happy path: JSON of the control command inflight -> view -> the first check that applies. Their
 * order matters, because the first cause hides the others: a reactor that does not turn delays
 * every I/O; the driver sends no I/O to a device that is not live; a tag that is not armed delays
 * START_DEV; then comes the oldest I/O; then requests that have not reached the daemon. Failure
 * mode: a key that is missing (a ublkd of another version, no memory) is 0, NULL or "?".
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

static const char *verdict_cure(enum stuck_kind kind)
{
	static const char *const cure[STUCK_KIND_NR] = {
		[STUCK_NOTHING] = "",
		[STUCK_NOT_SERVING] = "see the log of ublkd; ublkctl show prints its step",
		[STUCK_REACTOR] =
			"a callback blocks, or other threads use its CPU: see the stack of "
			"thread reactor-N (gdb -p, /proc/PID/task/TID/stack)",
		[STUCK_DRIVER] = "another process stopped, deleted or recovers it: see dmesg; "
				 "ublkctl del NAME --force, then add it again",
		[STUCK_RING] = "the kernel is short of memory, or of room in the ring: see dmesg "
			       "and ublkctl reactors",
		[STUCK_NOT_ARMED] =
			"a bug of ublkd, or the driver refused the tag (see its log for "
			"\"refused a tag\"): restart the device, report it with "
			"ublkctl flight",
		[STUCK_THROTTLED] = "intended: raise the limits of the throttle, or submit less",
		[STUCK_DELAYED] = "intended: its configuration has a delay filter",
		[STUCK_BACKEND] = "look at what is below the backend (disk, server, network); "
				  "ublkctl del NAME --force fails its I/Os",
		[STUCK_BUSY] = "the backend is at its limit of I/Os: see the older ones with "
			       "ublkctl inflight",
		[STUCK_NOT_HANDED_BACK] = "the ring takes no submissions: see ublkctl reactors, "
					  "SQ FULL and STALLS",
		[STUCK_UNSEEN] =
			"the driver has not delivered them: see dmesg, and check that thread "
			"reactor-N "
			"gets CPU time; if it does, this is a bug: report it with ublkctl flight",
		[STUCK_DRIVER_SILENT] =
			"a command to the driver hangs in the kernel: see dmesg for "
			"hung tasks, and the log for \"takes long\"",
	};

	return cure[kind];
}

static void decide(struct stuck_verdict *v, enum stuck_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void decide(struct stuck_verdict *v, enum stuck_kind kind, const char *fmt, ...)
{
	va_list ap;

	v->kind = kind;
	v->cure = verdict_cure(kind);
	va_start(ap, fmt);
	vsnprintf(v->where, sizeof(v->where), fmt, ap);
	va_end(ap);
}

const char *stuck_place(const struct stuck_view *view, char text[static STUCK_PLACE_BYTES])
{
	char bytes[FORMAT_BYTES];

	text[0] = '\0';
	if (view->bytes > 0)
		snprintf(text, STUCK_PLACE_BYTES, " of %s at sector %llu",
			 format_bytes(view->bytes, bytes), (unsigned long long)view->sector);
	return text;
}

static void decide_oldest(struct stuck_verdict *v, enum stuck_kind kind, const struct stuck_view *s,
			  const char *words)
{
	char age[FORMAT_BYTES], place[STUCK_PLACE_BYTES];

	decide(v, kind, "the %s%s (queue %u tag %u) is %s old: %s", s->op, stuck_place(s, place),
	       s->queue, s->tag, format_ns(s->age_ns, age), words);
}

static bool is_text(const char *a, const char *b)
{
	return a && strcmp(a, b) == 0;
}

static void judge_serving(const struct stuck_view *s, struct stuck_verdict *v)
{
	char words[256];

	if (is_text(s->backend_wait, "throttle")) {
		decide_oldest(v, STUCK_THROTTLED, s, "a throttle delays it to keep its limits");
	} else if (is_text(s->backend_wait, "delay")) {
		decide_oldest(v, STUCK_DELAYED, s, "the delay filter delays it");
	} else if (!s->backend) {
		decide_oldest(v, STUCK_BACKEND, s, "the backend does not answer");
	} else {
		snprintf(words, sizeof(words), "the backend %s does not answer (%s)", s->backend,
			 s->backend_state ? s->backend_state : "?");
		decide_oldest(v, STUCK_BACKEND, s, words);
	}
}

static void judge_oldest(const struct stuck_view *s, struct stuck_verdict *v)
{
	if (is_text(s->state, "busy"))
		decide_oldest(v, STUCK_BUSY, s, "the backend is busy and has not accepted it");
	else if (is_text(s->state, "done"))
		decide_oldest(v, STUCK_NOT_HANDED_BACK, s,
			      "it is complete, but not committed to the driver");
	else
		judge_serving(s, v);
}

static bool judge_reactor(const struct stuck_view *s, struct stuck_verdict *v)
{
	char age[FORMAT_BYTES], ring[96] = "", unseen[96] = "";

	if (s->reactor < 0 || s->silent_ns < STUCK_REACTOR_NS)
		return false;
	if (s->cq_unseen)
		snprintf(ring, sizeof(ring), "; %u completions in its ring are not reaped",
			 s->cq_unseen);
	if (s->kernel_nr > (long)s->seen_nr)
		snprintf(unseen, sizeof(unseen),
			 "; the daemon has not received %ld requests of the kernel",
			 s->kernel_nr - (long)s->seen_nr);
	decide(v, STUCK_REACTOR, "reactor %d has not turned for %s%s%s%s%s%s", s->reactor,
	       format_ns(s->silent_ns, age), s->doing ? ": it " : "", s->doing ? s->doing : "",
	       s->inflight ? ", and holds the I/Os of this device" : "", ring, unseen);
	return true;
}

static const char *words_of_state(const char *state)
{
	if (is_text(state, "DEAD"))
		return "its disk was removed";
	if (is_text(state, "QUIESCED"))
		return "its server is gone, and requests wait for a new one";
	if (is_text(state, "FAIL_IO"))
		return "its server is gone, and requests fail";
	return "";
}

/* Applies to a live device only: while it starts or stops, the driver knows no server. */
static bool judge_driver(const struct stuck_view *s, struct stuck_verdict *v)
{
	if (!is_text(s->step, "live"))
		return false;
	if (s->driver_error)
		decide(v, STUCK_DRIVER, "the driver does not know this device: %s",
		       s->driver_error);
	else if (s->driver_state && !is_text(s->driver_state, "LIVE"))
		decide(v, STUCK_DRIVER, "the driver reports this device as %s: %s", s->driver_state,
		       words_of_state(s->driver_state));
	else if (s->driver_state && s->server_pid != s->daemon_pid)
		decide(v, STUCK_DRIVER,
		       "the driver reports pid %d as its server, not this ublkd (pid %d)",
		       s->server_pid, s->daemon_pid);
	else
		return false;
	return true;
}

static bool judge_ring(const struct stuck_view *s, struct stuck_verdict *v)
{
	if (s->overflow)
		decide(v, STUCK_RING,
		       "%u completions overflowed the ring of reactor %d: it is too slow for its "
		       "load",
		       s->overflow, s->reactor);
	else if (s->sq_waiting)
		decide(v, STUCK_RING, "the kernel has not consumed %u submissions of reactor %d",
		       s->sq_waiting, s->reactor);
	else
		return false;
	return true;
}

/* While a device stops, the driver returns the tags: they are rightly not armed. */
static bool judge_armed(const struct stuck_view *s, struct stuck_verdict *v)
{
	bool serves = is_text(s->step, "live") || is_text(s->step, "starting");

	if (!serves || s->armed + s->inflight >= s->depth)
		return false;
	decide(v, STUCK_NOT_ARMED, "queue %u has armed %u tags of depth %u%s: FETCH is missing%s",
	       s->short_queue, s->short_armed, s->short_depth,
	       s->inflight ? "" : " with nothing in flight",
	       is_text(s->step, "starting") ? ", and START_DEV waits for it in the kernel" : "");
	return true;
}

static void judge_rest(const struct stuck_view *s, struct stuck_verdict *v)
{
	char age[FORMAT_BYTES];

	if (s->kernel_nr > (long)s->seen_nr)
		decide(v, STUCK_UNSEEN,
		       "the kernel has %ld requests in flight, of which the daemon has seen %u",
		       s->kernel_nr, s->seen_nr);
	else if (s->driver_owed_ns >= STUCK_REACTOR_NS)
		decide(v, STUCK_DRIVER_SILENT, "the driver has not answered GET_DEV_INFO for %s",
		       format_ns(s->driver_owed_ns, age));
	else if (!is_text(s->step, "live"))
		decide(v, STUCK_NOT_SERVING, "the device is %s", s->step);
	else if (s->has_oldest)
		decide(v, STUCK_NOTHING, "nothing is stuck: the oldest of %u I/Os is %s old",
		       s->inflight, format_ns(s->age_ns, age));
	else
		decide(v, STUCK_NOTHING,
		       "nothing is stuck: no I/O in the daemon, %u of %u tags armed", s->armed,
		       s->depth);
}

void stuck_judge(const struct stuck_view *s, struct stuck_verdict *v)
{
	*v = (struct stuck_verdict){ 0 };
	if (!s->has_queues)
		decide(v, STUCK_NOT_SERVING, "the device is %s and has no queues now", s->step);
	else if (judge_reactor(s, v) || judge_driver(s, v) || judge_ring(s, v) || judge_armed(s, v))
		return;
	else if (s->has_oldest && s->age_ns >= STUCK_IO_NS)
		judge_oldest(s, v);
	else
		judge_rest(s, v);
}

/* ---- the view from JSON ---- */

static const char *text_of_key(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static const char *text_or_question_mark(const json_t *o, const char *key)
{
	const char *value = text_of_key(o, key);

	return value ? value : "?";
}

static uint64_t number_of_key(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

unsigned stuck_queue_inflight(const json_t *queue)
{
	return (unsigned)(number_of_key(queue, "serving") + number_of_key(queue, "busy") +
			  number_of_key(queue, "done"));
}

static void add_reactor(struct stuck_view *v, const json_t *reactors, size_t idx)
{
	uint64_t silent_ns = number_of_key(json_array_get(reactors, idx), "silent_ns");

	if (v->reactor >= 0 && silent_ns <= v->silent_ns)
		return;
	v->reactor = (int)idx;
	v->silent_ns = silent_ns;
	v->doing = text_of_key(json_array_get(reactors, idx), "doing");
}

static void add_queue(struct stuck_view *v, const json_t *queue, const json_t *reactors)
{
	unsigned armed = (unsigned)number_of_key(queue, "armed"),
		 depth = (unsigned)number_of_key(queue, "depth");
	unsigned down = (unsigned)number_of_key(queue, "down");

	if (!v->has_queues || down > v->short_depth - v->short_armed) {
		v->short_queue = (unsigned)number_of_key(queue, "queue");
		v->short_armed = armed;
		v->short_depth = depth;
	}
	v->has_queues = true;
	v->depth += depth;
	v->armed += armed;
	v->inflight += stuck_queue_inflight(queue);
	add_reactor(v, reactors, number_of_key(queue, "reactor"));
}

static void add_oldest(struct stuck_view *v, const json_t *io)
{
	if (!io)
		return;
	v->has_oldest = true;
	v->queue = (unsigned)number_of_key(io, "queue");
	v->tag = (unsigned)number_of_key(io, "tag");
	v->sector = number_of_key(io, "sector");
	v->bytes = number_of_key(io, "bytes");
	v->age_ns = number_of_key(io, "age_ns");
	v->op = text_of_key(io, "op");
	v->state = text_of_key(io, "state");
	v->backend = text_of_key(io, "backend");
	v->backend_state = text_of_key(io, "backend_state");
	v->backend_wait = text_of_key(io, "backend_wait");
}

static void add_driver(struct stuck_view *v, const json_t *device)
{
	const json_t *driver = json_object_get(device, "driver");

	v->driver_state = text_of_key(driver, "state");
	v->driver_error = text_of_key(driver, "error");
	v->server_pid = (int)json_integer_value(json_object_get(driver, "server_pid"));
	v->driver_owed_ns = number_of_key(driver, "owed_ns");
}

void stuck_view_fill(struct stuck_view *v, const json_t *device, const json_t *answer)
{
	const json_t *reactors = json_object_get(answer, "reactors");
	json_t *queue;
	size_t i;

	*v = (struct stuck_view){
		.name = text_or_question_mark(device, "name"),
		.step = text_or_question_mark(device, "step"),
		.reactor = -1,
		.daemon_pid = (int)number_of_key(answer, "pid"),
		.kernel_nr = -1,
	};
	json_array_foreach(json_object_get(device, "queues"), i, queue)
		add_queue(v, queue, reactors);
	add_oldest(v, json_array_get(json_object_get(device, "ios"), 0));
	add_driver(v, device);
	v->seen_nr = v->inflight;
}
