/*
 * Samples from answers of ublkd, and their differences. Owns the arrays of a sample.
 *
 * Happy path: stats makes the devices, list tells their backends, reactors the threads; what is
 * missing in an answer (another version of ublkd) is 0 or "". Failure modes: control characters
 * in a name become '?'; out of memory ends the program.
 */
#include "ublkctl/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "daemon/wire/json_histogram.h"
#include "ublkctl/client.h"

static const char *const op_names[SAMPLE_OP_NR] = {
	[SAMPLE_READ] = "read",
	[SAMPLE_WRITE] = "write",
	[SAMPLE_FLUSH] = "flush",
	[SAMPLE_DISCARD] = "discard",
	[SAMPLE_WRITE_ZEROES] = "write_zeroes",
};

const char *sample_op_name(unsigned op)
{
	return op_names[op];
}

void *sample_array(size_t nr, size_t bytes)
{
	void *array = calloc(nr + 1, bytes);

	if (!array)
		abort();
	return array;
}

static void *copy_array(const void *array, size_t nr, size_t bytes)
{
	void *copy = sample_array(nr, bytes);

	return nr ? memcpy(copy, array, nr * bytes) : copy;
}

void sample_copy(struct sample *to, const struct sample *from)
{
	*to = *from;
	to->devices = copy_array(from->devices, from->device_nr, sizeof(to->devices[0]));
	to->reactors = copy_array(from->reactors, from->reactor_nr, sizeof(to->reactors[0]));
}

void sample_fini(struct sample *s)
{
	free(s->devices);
	free(s->reactors);
	*s = (struct sample){ 0 };
}

/* ---- from JSON ---- */

/* Only what is one column wide everywhere. */
static void copy_printable(char *to, size_t bytes, const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	snprintf(to, bytes, "%s", text ? text : "");
	for (; *to; to++)
		if (*to < 0x20 || *to > 0x7e)
			*to = '?';
}

/* "EIO 3, ENOSPC 1" */
static void read_device_errors(struct sample_device *d, const json_t *errors)
{
	const char *name;
	size_t used = 0;
	json_t *count;

	json_object_foreach((json_t *)errors, name, count)
	{
		used += (size_t)snprintf(d->errors + used, sizeof(d->errors) - used, "%s%s %lld",
					 used ? ", " : "", name,
					 (long long)json_integer_value(count));
		if (used >= sizeof(d->errors))
			return;
	}
}

static void read_sample_device(struct sample_device *d, const json_t *json)
{
	copy_printable(d->name, sizeof(d->name), json, "name");
	copy_printable(d->state, sizeof(d->state), json, "state");
	d->inflight = client_number(json, "inflight");
	read_device_errors(d, json_object_get(json, "errors"));
	for (unsigned i = 0; i < SAMPLE_OP_NR; i++) {
		const json_t *op = json_object_get(json_object_get(json, "ops"), op_names[i]);

		d->op[i].done = client_number(op, "done");
		d->op[i].failed = client_number(op, "failed");
		d->op[i].bytes = client_number(op, "bytes");
		json_read_buckets(op, &d->op[i].latency);
	}
}

void sample_read_stats(struct sample *s, const json_t *data)
{
	const json_t *devices = json_object_get(data, "devices");

	free(s->devices);
	s->time_ns = client_number(data, "time_ns");
	s->device_nr = json_array_size(devices);
	s->devices = sample_array(s->device_nr, sizeof(s->devices[0]));
	for (size_t i = 0; i < s->device_nr; i++)
		read_sample_device(&s->devices[i], json_array_get(devices, i));
}

/* hint: where it most likely is, as the daemon keeps its devices in one order. */
static struct sample_device *find_device(const struct sample *s, const char *name, size_t hint)
{
	if (hint < s->device_nr && strcmp(s->devices[hint].name, name) == 0)
		return &s->devices[hint];
	for (size_t i = 0; i < s->device_nr; i++)
		if (strcmp(s->devices[i].name, name) == 0)
			return &s->devices[i];
	return NULL;
}

void sample_read_list(struct sample *s, const json_t *data)
{
	char name[SAMPLE_NAME_BYTES];
	json_t *json;
	size_t i;

	json_array_foreach(data, i, json)
	{
		struct sample_device *d;

		copy_printable(name, sizeof(name), json, "name");
		d = find_device(s, name, i);
		if (d)
			copy_printable(d->backend, sizeof(d->backend), json, "backend");
	}
}

static void read_sample_reactor(struct sample_reactor *r, const json_t *json)
{
	copy_printable(r->name, sizeof(r->name), json, "name");
	r->cpu = (int)json_integer_value(json_object_get(json, "cpu"));
	r->turns = client_number(json, "turns");
	r->cqes = client_number(json, "cqes");
	r->callback_ns = client_number(json, "callback_ns");
	r->kernel_ns = client_number(json, "kernel_ns");
	r->poll_ns = client_number(json, "poll_ns");
	r->idle_ns = client_number(json, "idle_ns");
	r->stalls = client_number(json, "stalls");
	r->sq_full = client_number(json, "sq_full");
	r->timers_late = client_number(json, "timers_late");
}

void sample_read_reactors(struct sample *s, const json_t *data, uint64_t time_ns)
{
	free(s->reactors);
	s->reactors_time_ns = time_ns;
	s->reactor_nr = json_array_size(data);
	s->reactors = sample_array(s->reactor_nr, sizeof(s->reactors[0]));
	for (size_t i = 0; i < s->reactor_nr; i++)
		read_sample_reactor(&s->reactors[i], json_array_get(data, i));
}

bool sample_layers_read(struct sample_layers *l, const json_t *data)
{
	const json_t *device = json_array_get(json_object_get(data, "devices"), 0);
	const json_t *ops = json_object_get(device, "ops");

	memset(l, 0, sizeof(*l));
	copy_printable(l->name, sizeof(l->name), device, "name");
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++) {
		const json_t *layers =
			json_object_get(json_object_get(ops, op_names[op]), "layers");

		for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++)
			json_read_buckets(json_object_get(layers, queue_layer_name(layer)),
					  &l->op[op][layer]);
	}
	return device != NULL;
}

/* ---- differences ---- */

static bool device_anew(const struct sample_device *now, const struct sample_device *before)
{
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++)
		if (now->op[op].done < before->op[op].done ||
		    now->op[op].failed < before->op[op].failed ||
		    now->op[op].bytes < before->op[op].bytes)
			return true;
	return false;
}

static void subtract_device(struct sample_device *now, const struct sample_device *before)
{
	now->measured = true;
	if (!before || device_anew(now, before))
		return;
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++) {
		now->op[op].done -= before->op[op].done;
		now->op[op].failed -= before->op[op].failed;
		now->op[op].bytes -= before->op[op].bytes;
		histogram_subtract(&now->op[op].latency, &before->op[op].latency);
	}
}

static bool reactor_anew(const struct sample_reactor *now, const struct sample_reactor *before)
{
	return now->cpu != before->cpu || now->turns < before->turns || now->cqes < before->cqes ||
	       now->callback_ns < before->callback_ns || now->kernel_ns < before->kernel_ns ||
	       now->poll_ns < before->poll_ns || now->idle_ns < before->idle_ns ||
	       now->stalls < before->stalls || now->sq_full < before->sq_full ||
	       now->timers_late < before->timers_late;
}

static void subtract_reactor(struct sample_reactor *now, const struct sample_reactor *before)
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

void sample_subtract(struct sample *now, const struct sample *before)
{
	for (size_t i = 0; i < now->device_nr; i++)
		subtract_device(&now->devices[i], find_device(before, now->devices[i].name, i));
	for (size_t i = 0; i < now->reactor_nr; i++)
		subtract_reactor(&now->reactors[i],
				 i < before->reactor_nr ? &before->reactors[i] : NULL);
}

void sample_layers_subtract(struct sample_layers *now, const struct sample_layers *before)
{
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++)
		if (histogram_count(&now->op[op][QUEUE_LAYER_TOTAL]) <
		    histogram_count(&before->op[op][QUEUE_LAYER_TOTAL]))
			return;
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++)
		for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++)
			histogram_subtract(&now->op[op][layer], &before->op[op][layer]);
}

/* ---- sums ---- */

uint64_t sample_device_done(const struct sample_device *d)
{
	uint64_t sum = 0;

	for (unsigned op = 0; op < SAMPLE_OP_NR; op++)
		sum += d->op[op].done;
	return sum;
}

uint64_t sample_device_failed(const struct sample_device *d)
{
	uint64_t sum = 0;

	for (unsigned op = 0; op < SAMPLE_OP_NR; op++)
		sum += d->op[op].failed;
	return sum;
}

/* No data moves for a discard or zeroes. */
uint64_t sample_device_bytes(const struct sample_device *d)
{
	return d->op[SAMPLE_READ].bytes + d->op[SAMPLE_WRITE].bytes;
}

void sample_device_latency(const struct sample_device *d, struct histogram *ret_latency)
{
	memset(ret_latency, 0, sizeof(*ret_latency));
	for (unsigned op = 0; op < SAMPLE_OP_NR; op++)
		histogram_add(ret_latency, &d->op[op].latency);
}
