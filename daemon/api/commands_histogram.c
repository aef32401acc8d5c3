/*
 * The commands about histograms: get, set boundaries, reset, and the counters in the form of QEMU.
 * Main thread; what is remembered is in member->latency.
 *
 * Happy path: the device by its name, the layer and op by theirs, an answer at once. Failure modes:
 * a name that does not exist, boundaries that do not ascend: an error, and nothing has changed.
 */
#include <errno.h>
#include <string.h>

#include "base/errname.h"
#include "base/util.h"
#include "daemon/api/commands_internal.h"
#include "daemon/api/json_device.h"
#include "daemon/wire/json_histogram.h"

#define ALL_OPS ((1u << BACKEND_OP_NR) - 1)

/* Large; one main thread. */
static struct device_stats now;

/* ---- layer and op by name ---- */

static bool find_layer(struct socket_client *client, const json_t *request,
		       enum queue_layer *ret_layer)
{
	const char *name = json_string_value(json_object_get(request, "layer"));

	*ret_layer = QUEUE_LAYER_TOTAL;
	if (!name)
		return true;
	for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++)
		if (strcmp(queue_layer_name(layer), name) == 0) {
			*ret_layer = layer;
			return true;
		}
	socket_refuse(client, "layer: one of total, throttle, daemon, backend", NULL);
	return false;
}

static bool find_ops(struct socket_client *client, const json_t *request, uint32_t *ret_ops)
{
	const char *name = json_string_value(json_object_get(request, "op"));

	*ret_ops = ALL_OPS;
	if (!name)
		return true;
	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		if (strcmp(backend_op_name(op), name) == 0) {
			*ret_ops = 1u << op;
			return true;
		}
	socket_refuse(client, "op: one of read, write, flush, discard, write_zeroes", NULL);
	return false;
}

/* ---- get ---- */

static json_t *histogram_of(const struct member *m, enum backend_op op, enum queue_layer layer)
{
	static struct histogram h;
	const uint64_t *boundary_ns;
	json_t *one;
	size_t nr;

	latency_view_read(&m->latency, &now, op, layer, &h);
	one = json_pack("{s:s, s:s}", "op", backend_op_name(op), "layer", queue_layer_name(layer));
	json_set_buckets(one, &h);
	json_set_summary(one, &h);
	boundary_ns = latency_boundaries(&m->latency, op, &nr);
	if (boundary_ns)
		json_set_bins(one, &h, boundary_ns, nr);
	return one;
}

void commands_histogram_get(struct commands *c, struct socket_client *client, const json_t *request)
{
	enum queue_layer layer;
	const struct member *m;
	json_t *all;
	uint32_t ops;

	if (!find_layer(client, request, &layer) || !find_ops(client, request, &ops))
		return;
	m = commands_named(c, client, request);
	if (!m)
		return;
	json_read_stats(m, &now);
	all = json_array();
	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		if (ops >> op & 1)
			json_array_append_new(all, histogram_of(m, op, layer));
	socket_answer(client, json_pack("{s:s, s:o}", "name", m->settings->options.name,
					"histograms", all));
}

/* ---- set and reset ---- */

static void refuse_set(struct socket_client *client, int err)
{
	if (err == -EINVAL)
		socket_refuse(client,
			      "boundaries must ascend, each above the one before and above 0",
			      NULL);
	else if (err == -E2BIG)
		socket_refuse(client, "more than 256 boundaries", NULL);
	else
		socket_refuse(client, errname(err), NULL);
}

static int set_ops(struct member *m, uint32_t ops, const json_t *list)
{
	uint64_t ns[LATENCY_BOUNDARIES_MAX + 1] = { 0 };
	size_t nr = MIN(json_array_size(list), ARRAY_SIZE(ns));

	for (size_t i = 0; i < nr; i++) {
		json_int_t value = json_integer_value(json_array_get(list, i));

		ns[i] = value > 0 ? (uint64_t)value : 0;
	}
	return latency_set(&m->latency, &now, ops, ns, nr);
}

/* Which ops each key is for; a key of one op goes before the key for all. */
static const struct {
	const char *key;
	uint32_t ops;
} boundary_keys[] = {
	{ "boundaries_read", 1u << BACKEND_READ },
	{ "boundaries_write", 1u << BACKEND_WRITE | 1u << BACKEND_WRITE_ZEROES },
	{ "boundaries_flush", 1u << BACKEND_FLUSH },
	{ "boundaries", ALL_OPS },
};

/* Looked at before anything is changed. */
static int check_boundary_keys(const json_t *request)
{
	struct latency_view nothing = { 0 };
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(boundary_keys); i++) {
		struct member fake = { .latency = nothing };
		const json_t *list = json_object_get(request, boundary_keys[i].key);

		if (list)
			ret = set_ops(&fake, boundary_keys[i].ops, list);
		latency_fini(&fake.latency);
	}
	return ret;
}

static int set_boundaries_of_all(struct member *m, const json_t *request, uint32_t ops)
{
	bool any = false;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(boundary_keys); i++) {
		const json_t *list = json_object_get(request, boundary_keys[i].key);

		if (!list)
			continue;
		any = true;
		ret = set_ops(m, ops & boundary_keys[i].ops, list);
		ops &= ~boundary_keys[i].ops;
	}
	return any ? ret : set_ops(m, ops, NULL);
}

void commands_histogram_set(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m;
	uint32_t ops;
	int ret;

	if (!find_ops(client, request, &ops))
		return;
	m = commands_named(c, client, request);
	if (!m)
		return;
	json_read_stats(m, &now);
	ret = check_boundary_keys(request);
	if (ret == 0)
		ret = set_boundaries_of_all(m, request, ops);
	if (ret < 0)
		refuse_set(client, ret);
	else
		socket_answer(client, json_object());
}

void commands_histogram_reset(struct commands *c, struct socket_client *client,
			      const json_t *request)
{
	struct member *m;
	uint32_t ops;
	int ret;

	if (!find_ops(client, request, &ops))
		return;
	m = commands_named(c, client, request);
	if (!m)
		return;
	json_read_stats(m, &now);
	ret = latency_reset(&m->latency, &now, ops);
	if (ret < 0)
		socket_refuse(client, errname(ret), NULL);
	else
		socket_answer(client, json_object());
}

/*
 * ---- in the form of QEMU ----
 *
 * query-blockstats: its names, its four kinds of request (a write of zeroes is a write), its
 * meaning (operations are those that succeeded; failed ones have their own counter, and their time
 * counts). What QEMU has and we have not (merged requests, timed stats) is left out.
 */

static const struct {
	const char *prefix;
	enum backend_op op;
	uint32_t ops; /* all that it counts */
	bool bytes;
} qemu_kinds[] = {
	{ "rd", BACKEND_READ, 1u << BACKEND_READ, true },
	{ "wr", BACKEND_WRITE, 1u << BACKEND_WRITE | 1u << BACKEND_WRITE_ZEROES, true },
	{ "flush", BACKEND_FLUSH, 1u << BACKEND_FLUSH, false },
	{ "unmap", BACKEND_DISCARD, 1u << BACKEND_DISCARD, true },
};

static void set_qemu_number(json_t *stats, const char *fmt, const char *prefix, uint64_t value)
{
	json_t *key = json_sprintf(fmt, prefix);

	if (key)
		json_object_set_new(stats, json_string_value(key), json_integer((json_int_t)value));
	json_decref(key);
}

static void set_qemu_histogram(json_t *stats, const struct member *m, size_t kind,
			       enum queue_layer layer)
{
	struct histogram h, sum = { 0 };
	const uint64_t *boundary_ns;
	json_t *key, *bins;
	size_t nr;

	boundary_ns = latency_boundaries(&m->latency, qemu_kinds[kind].op, &nr);
	if (!boundary_ns)
		return;
	for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
		if (!(qemu_kinds[kind].ops >> op & 1))
			continue;
		latency_view_read(&m->latency, &now, op, layer, &h);
		histogram_add(&sum, &h);
	}
	bins = json_object();
	json_set_bins(bins, &sum, boundary_ns, nr);
	key = json_sprintf("%s_latency_histogram", qemu_kinds[kind].prefix);
	if (key)
		json_object_set(stats, json_string_value(key), bins);
	json_decref(key);
	json_decref(bins);
}

static void set_qemu_counters(json_t *stats, size_t kind)
{
	uint64_t done = 0, failed = 0, bytes = 0, total_ns = 0;

	for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
		if (!(qemu_kinds[kind].ops >> op & 1))
			continue;
		done += now.op[op].done;
		failed += now.op[op].failed;
		bytes += now.op[op].bytes;
		total_ns += now.op[op].layer[QUEUE_LAYER_TOTAL].sum_ns;
	}
	if (qemu_kinds[kind].bytes)
		set_qemu_number(stats, "%s_bytes", qemu_kinds[kind].prefix, bytes);
	set_qemu_number(stats, "%s_operations", qemu_kinds[kind].prefix, done - MIN(done, failed));
	set_qemu_number(stats, "failed_%s_operations", qemu_kinds[kind].prefix, failed);
	set_qemu_number(stats, "%s_total_time_ns", qemu_kinds[kind].prefix, total_ns);
}

json_t *json_blockstats(const struct member *m, const void *layer)
{
	json_t *stats = json_pack("{s:b}", "account_failed", 1);

	json_read_stats(m, &now);
	for (size_t kind = 0; kind < ARRAY_SIZE(qemu_kinds); kind++) {
		set_qemu_counters(stats, kind);
		set_qemu_histogram(stats, m, kind, *(const enum queue_layer *)layer);
	}
	return json_pack("{s:s, s:s, s:o}", "device", m->settings->options.name, "qdev",
			 m->settings->options.name, "stats", stats);
}

void commands_blockstats(struct commands *c, struct socket_client *client, const json_t *request)
{
	enum queue_layer layer;
	json_t *all;

	if (!find_layer(client, request, &layer))
		return;
	all = commands_for_each(c, client, request, json_blockstats, &layer);
	if (all)
		socket_answer(client, json_pack("{s:o}", "return", all));
}
