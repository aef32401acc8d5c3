/*
 * From JSON to the view that is judged. Pure. Failure mode: a key that is missing (a ublkd of
 * another version, no memory) is 0, NULL or "?".
 */
#include "daemon/verdict/stuck_view.h"

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static const char *text_or_mark(const json_t *o, const char *key)
{
	const char *value = text(o, key);

	return value ? value : "?";
}

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

unsigned stuck_queue_inflight(const json_t *queue)
{
	return (unsigned)(number(queue, "serving") + number(queue, "busy") + number(queue, "done"));
}

static void add_reactor(struct stuck_view *v, const json_t *reactors, size_t idx)
{
	uint64_t silent_ns = number(json_array_get(reactors, idx), "silent_ns");

	if (v->reactor >= 0 && silent_ns <= v->silent_ns)
		return;
	v->reactor = (int)idx;
	v->silent_ns = silent_ns;
	v->doing = text(json_array_get(reactors, idx), "doing");
}

static void add_queue(struct stuck_view *v, const json_t *queue, const json_t *reactors)
{
	unsigned armed = (unsigned)number(queue, "armed"), depth = (unsigned)number(queue, "depth");
	unsigned down = (unsigned)number(queue, "down");

	if (!v->has_queues || down > v->short_depth - v->short_armed) {
		v->short_queue = (unsigned)number(queue, "queue");
		v->short_armed = armed;
		v->short_depth = depth;
	}
	v->has_queues = true;
	v->depth += depth;
	v->armed += armed;
	v->inflight += stuck_queue_inflight(queue);
	add_reactor(v, reactors, number(queue, "reactor"));
}

static void add_oldest(struct stuck_view *v, const json_t *io)
{
	if (!io)
		return;
	v->has_oldest = true;
	v->queue = (unsigned)number(io, "queue");
	v->tag = (unsigned)number(io, "tag");
	v->sector = number(io, "sector");
	v->bytes = number(io, "bytes");
	v->age_ns = number(io, "age_ns");
	v->op = text(io, "op");
	v->state = text(io, "state");
	v->backend = text(io, "backend");
	v->backend_state = text(io, "backend_state");
}

static void add_driver(struct stuck_view *v, const json_t *device)
{
	const json_t *driver = json_object_get(device, "driver");

	v->driver_state = text(driver, "state");
	v->driver_error = text(driver, "error");
	v->server_pid = (int)json_integer_value(json_object_get(driver, "server_pid"));
	v->driver_owed_ns = number(driver, "owed_ns");
}

void stuck_view_fill(struct stuck_view *v, const json_t *device, const json_t *answer)
{
	const json_t *reactors = json_object_get(answer, "reactors");
	json_t *queue;
	size_t i;

	*v = (struct stuck_view){
		.name = text_or_mark(device, "name"),
		.step = text_or_mark(device, "step"),
		.reactor = -1,
		.daemon_pid = (int)number(answer, "pid"),
		.kernel_nr = -1,
	};
	json_array_foreach(json_object_get(device, "queues"), i, queue)
		add_queue(v, queue, reactors);
	add_oldest(v, json_array_get(json_object_get(device, "ios"), 0));
	add_driver(v, device);
	v->seen_nr = v->inflight;
}
