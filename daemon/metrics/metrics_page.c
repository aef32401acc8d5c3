/*
 * The answers that the web page draws. Main thread; the reactors' counters are read live.
 *
 * Happy path: counters since the device's start; the page takes differences of two answers. A
 * device is judged as ublkctl why-stuck does, but from what the daemon knows alone: sysfs, debugfs
 * and the rings are not read here. Failure mode: no memory: no text, or a part of it is missing.
 *
 * What an answer costs is bounded: each device is read once, into one static buffer; devices and
 * connections above a limit are only counted; reactors and driver are asked at most once in
 * ASK_REACTORS_NS and ASK_DRIVER_NS, however many clients poll.
 */
#include "daemon/metrics/metrics.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/histogram.h"
#include "base/util.h"
#include "daemon/api/json_device.h"
#include "daemon/api/json_inflight.h"
#include "daemon/api/json_reactor.h"
#include "daemon/verdict/stuck.h"
#include "daemon/wire/json_histogram.h"
#include "daemon/wire/json_words.h"
#include "net/session_look.h"
#include "ublk/device/inflight.h"

#define ASK_REACTORS_NS (NS_PER_SEC / 2)
#define ASK_DRIVER_NS (5 * NS_PER_SEC)

/* Rows of the heat map: two per power of two from 1.024 us to 8.6 s. */
#define POWER_FIRST 10u
#define POWER_LAST 33u
#define BOUNDARY_NR (2 * (POWER_LAST - POWER_FIRST + 1))

static void set_boundaries(uint64_t boundary_ns[static BOUNDARY_NR])
{
	for (unsigned i = 0; i < BOUNDARY_NR / 2; i++) {
		boundary_ns[2 * i] = 1ull << (POWER_FIRST + i);
		boundary_ns[2 * i + 1] = 3ull << (POWER_FIRST + i - 1);
	}
}

/* Of all kinds of request together. */
static void sum_layer(const struct device_stats *stats, unsigned layer, struct histogram *ret_sum)
{
	memset(ret_sum, 0, sizeof(*ret_sum));
	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		histogram_add(ret_sum, &stats->op[op].layer[layer]);
}

/* ---- a device ---- */

static json_t *page_ops(const struct device_stats *stats)
{
	json_t *all = json_object();

	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		if (device_op_is_told(stats, op))
			json_object_set_new(all, backend_op_name(op),
					    json_pack("{s:I, s:I, s:I}", "done",
						      (json_int_t)stats->op[op].done, "failed",
						      (json_int_t)stats->op[op].failed, "bytes",
						      (json_int_t)stats->op[op].bytes));
	return all;
}

static json_t *page_layers(const struct device_stats *stats, const uint64_t *boundary_ns)
{
	json_t *all = json_object();
	struct histogram sum;

	for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++) {
		sum_layer(stats, layer, &sum);
		json_object_set_new(all, queue_layer_name(layer),
				    json_pack("{s:I, s:I, s:o}", "count",
					      (json_int_t)histogram_count(&sum), "sum_ns",
					      (json_int_t)sum.sum_ns, "bins",
					      json_bins(&sum, boundary_ns, BOUNDARY_NR)));
	}
	return all;
}

static json_t *page_connection(unsigned queue, unsigned idx, const struct net_connection_look *c,
			       uint64_t now_ns)
{
	json_t *last_end = c->last_end < 0 ? json_null()
					   : json_string(net_end_name((enum net_end)c->last_end));

	return json_pack("{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "queue", (int)queue,
			 "connection", (int)idx, "node", c->node, "state", c->state, "state_ns",
			 (json_int_t)(now_ns - MIN(c->since_ns, now_ns)), "lost",
			 (json_int_t)c->lost, "failed_tries", (json_int_t)c->failed_tries, "resent",
			 (json_int_t)c->resent, "answered", (json_int_t)c->answered, "last_end",
			 last_end);
}

static void set_page_connections(json_t *object, const struct device *device, uint64_t now_ns)
{
	struct net_connection_look c;
	json_t *all = json_array();
	unsigned nr = 0, up = 0;

	DEVICE_FOR_EACH_CONNECTION(device, queue, i, &c)
	{
		if (nr++ < METRICS_PAGE_CONNECTIONS_MAX)
			json_array_append_new(all, page_connection(queue, i, &c, now_ns));
		up += strcmp(c.state, "connected") == 0;
	}
	json_object_set_new(object, "connection_nr", json_integer(nr));
	json_object_set_new(object, "connection_up", json_integer(up));
	json_object_set_new(object, "connections", all);
}

/* I/Os in flight and the verdict. inflight: the JSON of the control command, with "pid"
 * and "reactors" as answer has them. */
static void set_page_inflight(json_t *object, const json_t *inflight, const json_t *answer)
{
	struct stuck_verdict verdict;
	struct stuck_view view;
	json_t *oldest = json_array_get(json_object_get(inflight, "ios"), 0);

	stuck_view_fill(&view, inflight, answer);
	stuck_judge(&view, &verdict);
	/* Counted in the same look as the oldest, so that the two agree. */
	json_object_set_new(object, "inflight", json_integer(view.inflight));
	json_object_set_new(object, "verdict",
			    json_pack("{s:s, s:o, s:s}", "verdict", stuck_kind_name(verdict.kind),
				      "where", json_words(verdict.where), "cure", verdict.cure));
	json_object_set(object, "step", json_object_get(inflight, "step"));
	json_object_set(object, "oldest", oldest ? oldest : json_null());
}

static json_t *page_device(const struct member *m, const json_t *answer,
			   const uint64_t *boundary_ns)
{
	/* Too large for the stack to like; one main thread. */
	static struct device_stats stats;
	/* Not of the whole answer: the devices before this one took their time. */
	uint64_t now_ns = ring_clock_ns();
	json_t *all = json_device_line(m), *inflight = json_inflight(m, 1, now_ns);

	json_read_stats(m, &stats);
	json_object_set_new(all, "inflight_max", json_integer((json_int_t)stats.inflight_max));
	json_object_set_new(all, "busy_retries", json_integer((json_int_t)stats.busy_retries));
	json_object_set_new(all, "ops", page_ops(&stats));
	json_object_set_new(all, "layers", page_layers(&stats, boundary_ns));
	if (m->device && !m->ended)
		set_page_connections(all, m->device, now_ns);
	set_page_inflight(all, inflight, answer);
	json_decref(inflight);
	return all;
}

/* ---- all of it ---- */

static json_t *page_reactors(const struct metrics_source *source)
{
	const struct reactors *rs = source->reactors;
	json_t *all = json_array();

	for (unsigned i = 0; i < rs->nr; i++)
		json_array_append_new(
			all, json_reactor(rs->reactor[i], rs->cpu[i], !rs->away || !rs->away[i]));
	return all;
}

/* Asks the driver and the reactors; the next answer of the page has what they answered. */
static void ask_for_next_page(const struct metrics_source *source, uint64_t *asked_ns,
			      uint64_t now_ns)
{
	unsigned nr = 0;

	if (now_ns < *asked_ns + ASK_REACTORS_NS)
		return;
	*asked_ns = now_ns;
	reactors_ping(source->reactors, now_ns);
	list_for_each (node, &source->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);
		struct device_driver said;

		if (nr++ == METRICS_PAGE_DEVICES_MAX)
			return;
		if (!m->device || m->ended)
			continue;
		device_driver(m->device, &said);
		if (said.asked_ns == 0 || now_ns - MIN(said.asked_ns, now_ns) >= ASK_DRIVER_NS)
			device_ask_driver(m->device);
	}
}

static char *page_text(json_t *all, size_t *ret_bytes)
{
	char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;

	json_decref(all);
	*ret_bytes = text ? strlen(text) : 0;
	return text;
}

char *metrics_page(const struct metrics_source *source, uint64_t *asked_ns, size_t *ret_bytes)
{
	uint64_t boundary_ns[BOUNDARY_NR], now_ns = ring_clock_ns();
	json_t *devices = json_array(), *all, *answer;
	unsigned nr = 0;

	set_boundaries(boundary_ns);
	answer = json_pack("{s:i, s:o}", "pid", (int)getpid(), "reactors",
			   json_reactors_alive(source->device_set, source->reactors,
					       source->watchdog, now_ns));
	list_for_each (node, &source->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		if (nr++ < METRICS_PAGE_DEVICES_MAX)
			json_array_append_new(devices, page_device(m, answer, boundary_ns));
	}
	all = json_pack("{s:s, s:I, s:o, s:o, s:I, s:o}", "version", UBLKD_VERSION, "time_ns",
			(json_int_t)now_ns, "boundaries", json_numbers(boundary_ns, BOUNDARY_NR),
			"devices", devices, "left_out",
			(json_int_t)(nr - MIN(nr, (unsigned)METRICS_PAGE_DEVICES_MAX)), "reactors",
			page_reactors(source));
	json_decref(answer);
	ask_for_next_page(source, asked_ns, now_ns);
	return page_text(all, ret_bytes);
}

static json_t *heatmap_device(const struct member *m, const uint64_t *boundary_ns)
{
	static struct device_stats stats;
	json_t *layers = json_object();
	struct histogram sum;

	json_read_stats(m, &stats);
	for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++) {
		sum_layer(&stats, layer, &sum);
		json_object_set_new(layers, queue_layer_name(layer),
				    json_bins(&sum, boundary_ns, BOUNDARY_NR));
	}
	return json_pack("{s:s, s:o}", "name", m->settings->options.name, "layers", layers);
}

char *metrics_heatmap(const struct metrics_source *source, size_t *ret_bytes)
{
	uint64_t boundary_ns[BOUNDARY_NR];
	json_t *devices = json_array();

	set_boundaries(boundary_ns);
	list_for_each (node, &source->device_set->members)
		json_array_append_new(devices, heatmap_device(list_entry(node, struct member, node),
							      boundary_ns));
	return page_text(json_pack("{s:o, s:o}", "boundaries",
				   json_numbers(boundary_ns, BOUNDARY_NR), "devices", devices),
			 ret_bytes);
}
