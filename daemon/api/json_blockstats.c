/*
 * query-blockstats of QEMU: its names, its four kinds of request (a write of zeroes is a write),
 * its meaning (operations are those that succeeded; failed ones have their own counter, and their
 * time counts). What QEMU has and we have not (merged requests, timed stats) is left out. Main
 * thread.
 */
#include "daemon/api/json_blockstats.h"

#include "base/util.h"
#include "daemon/api/json_device.h"

static const struct {
	const char *prefix;
	enum backend_op op;
	uint32_t ops; /* all that it counts */
	bool bytes;
} kinds[] = {
	{ "rd", BACKEND_READ, 1u << BACKEND_READ, true },
	{ "wr", BACKEND_WRITE, 1u << BACKEND_WRITE | 1u << BACKEND_WRITE_ZEROES, true },
	{ "flush", BACKEND_FLUSH, 1u << BACKEND_FLUSH, false },
	{ "unmap", BACKEND_DISCARD, 1u << BACKEND_DISCARD, true },
};

json_t *json_bins(const struct histogram *h, const uint64_t *boundary_ns, size_t nr)
{
	uint64_t bins[LATENCY_BOUNDARIES_MAX + 1];
	json_t *boundaries = json_array(), *counts = json_array();

	histogram_bins(h, boundary_ns, nr, bins);
	for (size_t i = 0; i < nr; i++)
		json_array_append_new(boundaries, json_integer((json_int_t)boundary_ns[i]));
	for (size_t i = 0; i <= nr; i++)
		json_array_append_new(counts, json_integer((json_int_t)bins[i]));
	return json_pack("{s:o, s:o}", "boundaries", boundaries, "bins", counts);
}

static void set_number(json_t *stats, const char *fmt, const char *prefix, uint64_t value)
{
	json_t *key = json_sprintf(fmt, prefix);

	if (key)
		json_object_set_new(stats, json_string_value(key), json_integer((json_int_t)value));
	json_decref(key);
}

static void set_histogram(json_t *stats, const struct member *m, const struct device_stats *now,
			  size_t kind, enum queue_layer layer)
{
	struct histogram h, sum = { 0 };
	const uint64_t *boundary_ns;
	json_t *key;
	size_t nr;

	boundary_ns = latency_boundaries(&m->latency, kinds[kind].op, &nr);
	if (!boundary_ns)
		return;
	for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
		if (!(kinds[kind].ops >> op & 1))
			continue;
		latency_read(&m->latency, now, op, layer, &h);
		histogram_add(&sum, &h);
	}
	key = json_sprintf("%s_latency_histogram", kinds[kind].prefix);
	if (key)
		json_object_set_new(stats, json_string_value(key),
				    json_bins(&sum, boundary_ns, nr));
	json_decref(key);
}

static void set_counters(json_t *stats, const struct device_stats *now, size_t kind)
{
	uint64_t done = 0, failed = 0, bytes = 0, total_ns = 0;

	for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
		if (!(kinds[kind].ops >> op & 1))
			continue;
		done += now->op[op].done;
		failed += now->op[op].failed;
		bytes += now->op[op].bytes;
		total_ns += now->op[op].layer[QUEUE_LAYER_TOTAL].sum_ns;
	}
	if (kinds[kind].bytes)
		set_number(stats, "%s_bytes", kinds[kind].prefix, bytes);
	set_number(stats, "%s_operations", kinds[kind].prefix, done - MIN(done, failed));
	set_number(stats, "failed_%s_operations", kinds[kind].prefix, failed);
	set_number(stats, "%s_total_time_ns", kinds[kind].prefix, total_ns);
}

json_t *json_blockstats(const struct member *m, enum queue_layer layer)
{
	static struct device_stats now; /* large; one main thread */
	json_t *stats = json_pack("{s:b}", "account_failed", 1);

	json_read_stats(m, &now);
	for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		set_counters(stats, &now, kind);
		set_histogram(stats, m, &now, kind, layer);
	}
	return json_pack("{s:s, s:s, s:o}", "device", m->settings->options.name, "qdev",
			 m->settings->options.name, "stats", stats);
}
