/*
 * Samples from answers of ublkd, and their differences. Owns the arrays of a sample.
 *
 * Happy path: stats makes the devices, list tells their backends, reactors the threads; what is
 * missing in an answer (another version of ublkd) is 0 or "". Failure modes: names that a terminal
 * would take for commands: their bytes become '?'; out of memory ends the program.
 */
#include "ublkctl/top/top_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static const char *const op_names[TOP_OP_NR] = {
	[TOP_READ] = "read", [TOP_WRITE] = "write", "flush", "discard", "write_zeroes"
};
static const char *const layer_names[TOP_LAYER_NR] = { "total", "throttle", "daemon", "backend" };

const char *top_op_name(unsigned op)
{
	return op_names[op];
}

const char *top_layer_name(enum top_layer layer)
{
	return layer_names[layer];
}

void top_sample_fini(struct top_sample *s)
{
	free(s->devices);
	free(s->reactors);
	*s = (struct top_sample){ 0 };
}

/* ---- from JSON ---- */

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* Only what is one column wide everywhere. */
static void copy_text(char *to, size_t bytes, const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	snprintf(to, bytes, "%s", text ? text : "");
	for (; *to; to++)
		if (*to < 0x20 || *to > 0x7e)
			*to = '?';
}

static void *array_of(size_t nr, size_t bytes)
{
	void *array = calloc(nr + 1, bytes);

	if (!array)
		abort();
	return array;
}

static void read_buckets(struct histogram *h, const json_t *object)
{
	json_t *bucket;
	size_t i;

	h->sum_ns = number(object, "sum_ns");
	json_array_foreach(json_object_get(object, "buckets"), i, bucket)
	{
		json_int_t start_ns = json_integer_value(json_array_get(bucket, 0));
		json_int_t count = json_integer_value(json_array_get(bucket, 1));

		h->bucket[histogram_index((uint64_t)start_ns)] += (uint64_t)count;
	}
}

static void read_device(struct top_device *d, const json_t *json)
{
	copy_text(d->name, sizeof(d->name), json, "name");
	copy_text(d->state, sizeof(d->state), json, "state");
	d->inflight = number(json, "inflight");
	for (unsigned i = 0; i < TOP_OP_NR; i++) {
		const json_t *op = json_object_get(json_object_get(json, "ops"), op_names[i]);

		d->op[i].done = number(op, "done");
		d->op[i].failed = number(op, "failed");
		d->op[i].bytes = number(op, "bytes");
		read_buckets(&d->op[i].latency, op);
	}
}

void top_sample_read_stats(struct top_sample *s, const json_t *data)
{
	const json_t *devices = json_object_get(data, "devices");

	free(s->devices);
	s->time_ns = number(data, "time_ns");
	s->device_nr = json_array_size(devices);
	s->devices = array_of(s->device_nr, sizeof(s->devices[0]));
	for (size_t i = 0; i < s->device_nr; i++)
		read_device(&s->devices[i], json_array_get(devices, i));
}

/* hint: where it most likely is, as the daemon keeps its devices in one order. */
static struct top_device *find_device(const struct top_sample *s, const char *name, size_t hint)
{
	if (hint < s->device_nr && strcmp(s->devices[hint].name, name) == 0)
		return &s->devices[hint];
	for (size_t i = 0; i < s->device_nr; i++)
		if (strcmp(s->devices[i].name, name) == 0)
			return &s->devices[i];
	return NULL;
}

void top_sample_read_list(struct top_sample *s, const json_t *data)
{
	char name[TOP_NAME_BYTES];
	json_t *json;
	size_t i;

	json_array_foreach(data, i, json)
	{
		struct top_device *d;

		copy_text(name, sizeof(name), json, "name");
		d = find_device(s, name, i);
		if (d)
			copy_text(d->backend, sizeof(d->backend), json, "backend");
	}
}

static void read_reactor(struct top_reactor *r, const json_t *json)
{
	copy_text(r->name, sizeof(r->name), json, "name");
	r->cpu = (int)json_integer_value(json_object_get(json, "cpu"));
	r->turns = number(json, "turns");
	r->cqes = number(json, "cqes");
	r->callback_ns = number(json, "callback_ns");
	r->kernel_ns = number(json, "kernel_ns");
	r->poll_ns = number(json, "poll_ns");
	r->idle_ns = number(json, "idle_ns");
	r->stalls = number(json, "stalls");
	r->sq_full = number(json, "sq_full");
	r->timers_late = number(json, "timers_late");
}

void top_sample_read_reactors(struct top_sample *s, const json_t *data, uint64_t time_ns)
{
	free(s->reactors);
	s->reactors_time_ns = time_ns;
	s->reactor_nr = json_array_size(data);
	s->reactors = array_of(s->reactor_nr, sizeof(s->reactors[0]));
	for (size_t i = 0; i < s->reactor_nr; i++)
		read_reactor(&s->reactors[i], json_array_get(data, i));
}

bool top_layers_read(struct top_layers *l, const json_t *data)
{
	const json_t *device = json_array_get(json_object_get(data, "devices"), 0);
	const json_t *ops = json_object_get(device, "ops");

	memset(l, 0, sizeof(*l));
	copy_text(l->name, sizeof(l->name), device, "name");
	for (unsigned op = 0; op < TOP_OP_NR; op++) {
		const json_t *layers =
			json_object_get(json_object_get(ops, op_names[op]), "layers");

		for (unsigned layer = 0; layer < TOP_LAYER_NR; layer++)
			read_buckets(&l->op[op][layer],
				     json_object_get(layers, layer_names[layer]));
	}
	return device != NULL;
}

/* ---- differences ---- */

static bool device_anew(const struct top_device *now, const struct top_device *before)
{
	for (unsigned op = 0; op < TOP_OP_NR; op++)
		if (now->op[op].done < before->op[op].done ||
		    now->op[op].failed < before->op[op].failed ||
		    now->op[op].bytes < before->op[op].bytes)
			return true;
	return false;
}

static void subtract_device(struct top_device *now, const struct top_device *before)
{
	now->measured = true;
	if (!before || device_anew(now, before))
		return;
	for (unsigned op = 0; op < TOP_OP_NR; op++) {
		now->op[op].done -= before->op[op].done;
		now->op[op].failed -= before->op[op].failed;
		now->op[op].bytes -= before->op[op].bytes;
		histogram_subtract(&now->op[op].latency, &before->op[op].latency);
	}
}

static bool reactor_anew(const struct top_reactor *now, const struct top_reactor *before)
{
	return now->cpu != before->cpu || now->turns < before->turns || now->cqes < before->cqes ||
	       now->callback_ns < before->callback_ns || now->kernel_ns < before->kernel_ns ||
	       now->poll_ns < before->poll_ns || now->idle_ns < before->idle_ns ||
	       now->stalls < before->stalls || now->sq_full < before->sq_full ||
	       now->timers_late < before->timers_late;
}

static void subtract_reactor(struct top_reactor *now, const struct top_reactor *before)
{
	now->measured = true;
	if (!before || reactor_anew(now, before))
		return;
	now->turns -= before->turns;
	now->cqes -= before->cqes;
	now->callback_ns -= before->callback_ns;
	now->kernel_ns -= before->kernel_ns;
	now->poll_ns -= before->poll_ns;
	now->idle_ns -= before->idle_ns;
	now->stalls -= before->stalls;
	now->sq_full -= before->sq_full;
	now->timers_late -= before->timers_late;
}

void top_sample_subtract(struct top_sample *now, const struct top_sample *before)
{
	for (size_t i = 0; i < now->device_nr; i++)
		subtract_device(&now->devices[i], find_device(before, now->devices[i].name, i));
	for (size_t i = 0; i < now->reactor_nr; i++)
		subtract_reactor(&now->reactors[i],
				 i < before->reactor_nr ? &before->reactors[i] : NULL);
}

void top_layers_subtract(struct top_layers *now, const struct top_layers *before)
{
	for (unsigned op = 0; op < TOP_OP_NR; op++)
		if (histogram_count(&now->op[op][TOP_TOTAL]) <
		    histogram_count(&before->op[op][TOP_TOTAL]))
			return;
	for (unsigned op = 0; op < TOP_OP_NR; op++)
		for (unsigned layer = 0; layer < TOP_LAYER_NR; layer++)
			histogram_subtract(&now->op[op][layer], &before->op[op][layer]);
}

/* ---- sums ---- */

uint64_t top_device_done(const struct top_device *d)
{
	uint64_t sum = 0;

	for (unsigned op = 0; op < TOP_OP_NR; op++)
		sum += d->op[op].done;
	return sum;
}

uint64_t top_device_failed(const struct top_device *d)
{
	uint64_t sum = 0;

	for (unsigned op = 0; op < TOP_OP_NR; op++)
		sum += d->op[op].failed;
	return sum;
}

/* No data moves for a discard or zeroes. */
uint64_t top_device_bytes(const struct top_device *d)
{
	return d->op[TOP_READ].bytes + d->op[TOP_WRITE].bytes;
}

void top_device_latency(const struct top_device *d, struct histogram *ret_latency)
{
	memset(ret_latency, 0, sizeof(*ret_latency));
	for (unsigned op = 0; op < TOP_OP_NR; op++)
		histogram_add(ret_latency, &d->op[op].latency);
}
