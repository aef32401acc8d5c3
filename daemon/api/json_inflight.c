/*
 * Reads the tags of a device and lists its I/Os, the oldest first. Main thread; the reactors run on
 * meanwhile. Failure mode: out of memory: I/Os are left out and counted.
 */
#include "daemon/api/json_inflight.h"

#include <stdlib.h>

#include "storage/backend.h"
#include "base/errname.h"
#include "base/util.h"
#include "daemon/api/json_device.h"
#include "daemon/wire/json_words.h"
#include "ublk/device/inflight.h"

struct found {
	struct inflight_io *ios;
	size_t nr, max, lost;
};

static void add_io(const struct inflight_io *io, void *arg)
{
	struct found *f = arg;

	if (f->nr == f->max) {
		size_t max = f->max ? 2 * f->max : 64;
		struct inflight_io *ios = reallocarray(f->ios, max, sizeof(*ios));

		if (!ios) {
			f->lost++;
			return;
		}
		f->ios = ios;
		f->max = max;
	}
	f->ios[f->nr++] = *io;
}

static int compare_start(const void *a, const void *b)
{
	const struct inflight_io *x = a, *y = b;

	return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static json_t *json_io(const struct inflight_io *io, uint64_t now_ns)
{
	uint64_t age_ns = now_ns > io->start_ns ? now_ns - io->start_ns : 0;
	json_t *o = json_pack("{s:i, s:i, s:s, s:I, s:I, s:I, s:s}", "queue", (int)io->queue, "tag",
			      (int)io->tag, "op", backend_op_name(io->op), "sector",
			      (json_int_t)io->sector, "bytes", (json_int_t)io->bytes, "age_ns",
			      (json_int_t)age_ns, "state", inflight_state_name(io->state));

	if (io->node) {
		json_object_set_new(o, "backend", json_string(io->node->ops->name));
		json_object_set_new(o, "node", json_string(io->node->name));
		json_object_set_new(o, "backend_state", json_words(io->wait.words));
		json_object_set_new(o, "backend_wait",
				    json_string(backend_wait_kind_name(io->wait.kind)));
	}
	return o;
}

static json_t *json_queue(unsigned idx, const struct inflight_queue *q)
{
	json_t *o = json_pack("{s:i, s:i, s:i}", "queue", (int)idx, "depth", (int)q->depth,
			      "reactor", (int)q->reactor);

	for (int state = 0; state < INFLIGHT_STATE_NR; state++)
		json_object_set_new(o, inflight_state_name(state), json_integer(q->tags[state]));
	return o;
}

static json_t *json_ios(struct found *f, size_t ios_max, uint64_t now_ns)
{
	json_t *ios = json_array();

	if (f->nr > 0)
		qsort(f->ios, f->nr, sizeof(f->ios[0]), compare_start);
	for (size_t i = 0; i < MIN(f->nr, ios_max); i++)
		json_array_append_new(ios, json_io(&f->ios[i], now_ns));
	f->lost += f->nr - MIN(f->nr, ios_max);
	return ios;
}

/* Empty: not asked yet. */
static json_t *json_driver(const struct device *d, uint64_t now_ns)
{
	struct device_driver said;
	json_t *o = json_object();

	device_driver(d, &said);
	if (said.owed)
		json_object_set_new(o, "owed_ns",
				    json_integer((json_int_t)(now_ns - said.asked_ns)));
	if (said.answered_ns == 0)
		return o;
	if (said.result < 0) {
		json_object_set_new(o, "error", json_string(errname(said.result)));
		return o;
	}
	json_object_set_new(o, "state", json_string(device_driver_state_name(said.state)));
	json_object_set_new(o, "server_pid", json_integer(said.server_pid));
	return o;
}

json_t *json_inflight(const struct member *m, size_t ios_max, uint64_t now_ns)
{
	const struct device *d = m->device && !m->ended ? m->device : NULL;
	json_t *queues = json_array(), *ios, *all;
	struct device_info info = { .id = -1 };
	struct inflight_queue queue;
	struct found found = { 0 };

	if (d)
		device_info(d, &info);
	for (unsigned i = 0; d && i < info.queues; i++)
		if (device_inflight(d, i, &queue, add_io, &found))
			json_array_append_new(queues, json_queue(i, &queue));
	ios = json_ios(&found, ios_max, now_ns);
	free(found.ios);
	all = json_pack("{s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:I}", "name",
			m->settings->options.name, "id", (json_int_t)info.id, "state",
			member_state_name(m), "step",
			d ? device_state_name(device_state(d)) : member_state_name(m), "driver",
			d ? json_driver(d, now_ns) : json_object(), "queues", queues, "ios", ios,
			"left_out", (json_int_t)found.lost);
	json_set_command(all, m);
	return all;
}
