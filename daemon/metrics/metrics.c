/*
 * OpenMetrics: every family once, with all its series together, so the devices are read once and
 * kept while the text is written. Main thread. The older format differs in how it names families: a
 * counter's has _total, and there is no type "info".
 *
 * Happy path: a table row per family; histograms in buckets at the powers of two from 1.024 us to
 * 8.6 s, which are borders of our own buckets: their counts are exact. Failure mode: no memory: no
 * text at all.
 */
#include "daemon/metrics/metrics_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errname.h"
#include "base/util.h"
#include "daemon/api/json_device.h"
#include "net/session_look.h"
#include "ublk/device/inflight.h"

#define LE_POWER_FIRST 10u /* 1024 ns */
#define LE_POWER_LAST 33u
#define LE_NR (LE_POWER_LAST - LE_POWER_FIRST + 1)

static void snapshots_free(struct writer *w)
{
	for (size_t i = 0; i < w->nr; i++) {
		free(w->devices[i].images);
		free(w->devices[i].caches);
	}
	free(w->devices);
}

static bool is_degraded(const struct member *m)
{
	const struct backend_device *backend = member_backend(m);

	return backend && backend_failure(backend, NULL);
}

static int snapshots_take(struct writer *w)
{
	size_t i = 0;

	w->devices = calloc(w->source->device_set->member_nr + 1, sizeof(w->devices[0]));
	w->nr = 0;
	if (!w->devices)
		return -1;
	list_for_each (node, &w->source->device_set->members) {
		const struct member *m = list_entry(node, struct member, node);

		w->devices[i].name = m->settings->options.name;
		metrics_escape(w->devices[i].label, METRICS_LABEL_BYTES, w->devices[i].name, true);
		w->devices[i].live = m->state == MEMBER_LIVE;
		w->devices[i].degraded = is_degraded(m);
		w->devices[i].device = m->ended ? NULL : m->device;
		json_read_stats(m, &w->devices[i].stats);
		w->nr = i + 1;
		if (metrics_images_take(&w->devices[i]) < 0 ||
		    metrics_caches_take(&w->devices[i++]) < 0)
			return -1;
	}
	return 0;
}

void metrics_family(const struct writer *w, const char *name, const char *type, const char *help)
{
	const char *suffix = "";
	char shown[256];

	if (w->format == METRICS_PROMETHEUS && strcmp(type, "counter") == 0)
		suffix = "_total";
	if (w->format == METRICS_PROMETHEUS && strcmp(type, "info") == 0) {
		suffix = "_info";
		type = "gauge";
	}
	fprintf(w->out, "# TYPE %s%s %s\n# HELP %s%s %s\n", name, suffix, type, name, suffix,
		metrics_escape(shown, sizeof(shown), help, w->format == METRICS_OPENMETRICS));
}

/* ---- devices ---- */

static void write_up(const struct writer *w)
{
	metrics_family(w, "ublkd_device_live", "gauge", "Whether the device serves requests.");
	for (size_t i = 0; i < w->nr; i++)
		fprintf(w->out, "ublkd_device_live{device=\"%s\"} %d\n", w->devices[i].label,
			w->devices[i].live);
}

/* Why, and what helps, is in list and show. */
static void write_degraded(const struct writer *w)
{
	metrics_family(w, "ublkd_device_degraded", "gauge",
		       "Whether a backend fails what comes, though the device is live.");
	for (size_t i = 0; i < w->nr; i++)
		fprintf(w->out, "ublkd_device_degraded{device=\"%s\"} %d\n", w->devices[i].label,
			w->devices[i].degraded);
}

static void write_op_counters(const struct writer *w)
{
	static const struct {
		const char *name, *help;
		size_t offset;
	} counters[] = {
		{ "ublkd_requests", "Requests completed, failed ones too.",
		  offsetof(struct device_op_stats, done) },
		{ "ublkd_failed_requests", "Requests completed with an error.",
		  offsetof(struct device_op_stats, failed) },
		{ "ublkd_bytes", "Bytes of requests that succeeded.",
		  offsetof(struct device_op_stats, bytes) },
	};

	for (size_t c = 0; c < ARRAY_SIZE(counters); c++) {
		metrics_family(w, counters[c].name, "counter", counters[c].help);
		for (size_t i = 0; i < w->nr; i++)
			for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
				const char *base = (const char *)&w->devices[i].stats.op[op];

				if (!device_op_is_told(&w->devices[i].stats, op))
					continue;
				fprintf(w->out, "%s_total{device=\"%s\",op=\"%s\"} %" PRIu64 "\n",
					counters[c].name, w->devices[i].label, backend_op_name(op),
					*(const uint64_t *)(base + counters[c].offset));
			}
	}
}

static void write_device_numbers(const struct writer *w)
{
	static const struct {
		const char *name, *type, *suffix, *help;
		size_t offset;
	} numbers[] = {
		{ "ublkd_inflight_requests", "gauge", "", "Requests in the daemon now.",
		  offsetof(struct device_stats, inflight) },
		{ "ublkd_inflight_requests_max", "gauge", "",
		  "Most requests at once since the start, of each queue, summed.",
		  offsetof(struct device_stats, inflight_max) },
		{ "ublkd_busy_retries", "counter", "_total",
		  "Times that a backend could not take a request yet.",
		  offsetof(struct device_stats, busy_retries) },
		{ "ublkd_fallbacks", "counter", "_total",
		  "Requests that zero copy could not serve and that were copied.",
		  offsetof(struct device_stats, fallbacks) },
		{ "ublkd_shared_memory_requests", "counter", "_total",
		  "Requests in memory that a client shares, which were not copied.",
		  offsetof(struct device_stats, shmem) },
		{ "ublkd_lost_tags", "counter", "_total",
		  "Tags that the driver refused to take back.",
		  offsetof(struct device_stats, lost_tags) },
	};

	for (size_t n = 0; n < ARRAY_SIZE(numbers); n++) {
		metrics_family(w, numbers[n].name, numbers[n].type, numbers[n].help);
		for (size_t i = 0; i < w->nr; i++) {
			const char *base = (const char *)&w->devices[i].stats;

			fprintf(w->out, "%s%s{device=\"%s\"} %" PRIu64 "\n", numbers[n].name,
				numbers[n].suffix, w->devices[i].label,
				*(const uint64_t *)(base + numbers[n].offset));
		}
	}
}

/* Only errors that occurred. */
static void write_errors(const struct writer *w)
{
	metrics_family(w, "ublkd_errors", "counter", "Failed requests by error.");
	for (size_t i = 0; i < w->nr; i++)
		for (int err = 1; err < QUEUE_ERRNO_NR; err++)
			if (w->devices[i].stats.errors[err])
				fprintf(w->out,
					"ublkd_errors_total{device=\"%s\",errno=\"%s\"} %" PRIu64
					"\n",
					w->devices[i].label, errname(err),
					w->devices[i].stats.errors[err]);
}

static void write_histogram(const struct writer *w, const char *name, const char *labels,
			    const struct histogram *h)
{
	uint64_t boundary_ns[LE_NR], bins[LE_NR + 1], sum = 0;

	for (unsigned i = 0; i < LE_NR; i++)
		boundary_ns[i] = 1ull << (LE_POWER_FIRST + i);
	histogram_bins(h, boundary_ns, LE_NR, bins);
	for (unsigned i = 0; i < LE_NR; i++) {
		sum += bins[i];
		fprintf(w->out, "%s_bucket{%s,le=\"%.9f\"} %" PRIu64 "\n", name, labels,
			(double)boundary_ns[i] / NS_PER_SEC, sum);
	}
	sum += bins[LE_NR];
	fprintf(w->out,
		"%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n"
		"%s_sum{%s} %.9f\n%s_count{%s} %" PRIu64 "\n",
		name, labels, sum, name, labels, (double)h->sum_ns / NS_PER_SEC, name, labels, sum);
}

/* Only of kinds of request that there were: each is a hundred lines. */
static void write_latencies(const struct writer *w)
{
	char labels[METRICS_LABELS_BYTES];

	metrics_family(w, "ublkd_latency_seconds", "histogram", "Time of requests in each layer.");
	for (size_t i = 0; i < w->nr; i++)
		for (unsigned op = 0; op < BACKEND_OP_NR; op++)
			for (unsigned layer = 0; layer < QUEUE_LAYER_NR; layer++) {
				const struct device_op_stats *s = &w->devices[i].stats.op[op];

				if (s->done == 0)
					break;
				snprintf(labels, sizeof(labels),
					 "device=\"%s\",op=\"%s\",layer=\"%s\"",
					 w->devices[i].label, backend_op_name(op),
					 queue_layer_name(layer));
				write_histogram(w, "ublkd_latency_seconds", labels,
						&s->layer[layer]);
			}
}

/* ---- connections ---- */

/* Runs fn for each, with its labels. */
static void each_connection(const struct writer *w, size_t device,
			    void (*fn)(const struct writer *w, const char *labels,
				       const struct net_connection_look *c, const void *arg),
			    const void *arg)
{
	const struct snapshot *s = &w->devices[device];
	struct net_connection_look c;
	char labels[METRICS_LABELS_BYTES], node[METRICS_LABELS_BYTES];

	if (!s->device)
		return;
	DEVICE_FOR_EACH_CONNECTION(s->device, q, i, &c)
	{
		if (c.is_repeated)
			continue;
		snprintf(labels, sizeof(labels), "%s,queue=\"%u\",connection=\"%u\"",
			 metrics_node_labels(s, c.node, node), q, i);
		fn(w, labels, &c, arg);
	}
}

struct connection_metric {
	const char *name, *help;
	size_t offset;
};

static void write_connection_counter(const struct writer *w, const char *labels,
				     const struct net_connection_look *c, const void *arg)
{
	const struct connection_metric *m = arg;

	fprintf(w->out, "%s_total{%s} %" PRIu64 "\n", m->name, labels,
		*(const uint64_t *)((const char *)c + m->offset));
}

static void write_connection_up(const struct writer *w, const char *labels,
				const struct net_connection_look *c, const void *arg)
{
	(void)arg;
	fprintf(w->out, "ublkd_connection_up{%s} %d\n", labels, strcmp(c->state, "connected") == 0);
}

/* Only reasons that there were. */
static void write_connection_ends(const struct writer *w, const char *labels,
				  const struct net_connection_look *c, const void *arg)
{
	(void)arg;
	for (unsigned end = 0; end < NET_END_NR; end++)
		if (c->ends[end])
			fprintf(w->out,
				"ublkd_connection_ends_total{%s,reason=\"%s\"} %" PRIu64 "\n",
				labels, net_end_name((enum net_end)end), c->ends[end]);
}

static void write_connection_counters(const struct writer *w)
{
	static const struct connection_metric counters[] = {
		{ "ublkd_connection_connects", "Connections made, ready for requests.",
		  offsetof(struct net_connection_look, connects) },
		{ "ublkd_connection_losses", "Of those: ended.",
		  offsetof(struct net_connection_look, lost) },
		{ "ublkd_connection_failed_tries", "Tries to connect that led to nothing.",
		  offsetof(struct net_connection_look, failed_tries) },
		{ "ublkd_connection_resent_requests", "Requests sent that had been sent before.",
		  offsetof(struct net_connection_look, resent) },
		{ "ublkd_connection_answered_requests", "Requests answered.",
		  offsetof(struct net_connection_look, answered) },
		{ "ublkd_connection_sends", "Calls of the kernel that sent bytes.",
		  offsetof(struct net_connection_look, sends) },
		{ "ublkd_connection_sent_bytes", "Bytes sent.",
		  offsetof(struct net_connection_look, sent_bytes) },
		{ "ublkd_connection_receives", "Calls of the kernel that received bytes.",
		  offsetof(struct net_connection_look, receives) },
		{ "ublkd_connection_received_bytes", "Bytes received.",
		  offsetof(struct net_connection_look, received_bytes) },
	};

	for (size_t m = 0; m < ARRAY_SIZE(counters); m++) {
		metrics_family(w, counters[m].name, "counter", counters[m].help);
		for (size_t i = 0; i < w->nr; i++)
			each_connection(w, i, write_connection_counter, &counters[m]);
	}
}

static void write_connection_times(const struct writer *w, size_t device)
{
	const struct snapshot *s = &w->devices[device];
	struct histogram wait = { .sum_ns = 0 }, answer = { .sum_ns = 0 };
	struct net_connection_look c;
	char labels[METRICS_LABELS_BYTES];
	unsigned nr = 0;

	if (!s->device)
		return;
	DEVICE_FOR_EACH_CONNECTION(s->device, q, i, &c)
	{
		if (c.is_repeated)
			continue;
		histogram_add(&wait, c.wait);
		histogram_add(&answer, c.answer);
		nr++;
	}
	if (nr == 0)
		return;
	snprintf(labels, sizeof(labels), "device=\"%s\",part=\"wait\"", s->label);
	write_histogram(w, "ublkd_connection_latency_seconds", labels, &wait);
	snprintf(labels, sizeof(labels), "device=\"%s\",part=\"answer\"", s->label);
	write_histogram(w, "ublkd_connection_latency_seconds", labels, &answer);
}

static void write_connections(const struct writer *w)
{
	metrics_family(w, "ublkd_connection_up", "gauge", "Whether it takes requests.");
	for (size_t i = 0; i < w->nr; i++)
		each_connection(w, i, write_connection_up, NULL);
	write_connection_counters(w);
	metrics_family(w, "ublkd_connection_ends", "counter",
		       "Losses and failed tries, by reason.");
	for (size_t i = 0; i < w->nr; i++)
		each_connection(w, i, write_connection_ends, NULL);
	metrics_family(w, "ublkd_connection_latency_seconds", "histogram",
		       "Time of answered requests until they were sent, and from then on.");
	for (size_t i = 0; i < w->nr; i++)
		write_connection_times(w, i);
}

/* ---- libraries with threads of their own ---- */

#define LIBRARIES_MAX 4

static const struct {
	const char *name, *help;
	size_t offset;
} library_metrics[] = {
	{ "ublkd_library_threads", "Threads of the process that are a client library's.",
	  offsetof(struct backend_library_look, thread_nr) },
	{ "ublkd_library_clients", "Clients that the library has in the process.",
	  offsetof(struct backend_library_look, client_nr) },
	{ "ublkd_library_images", "Images that share these clients.",
	  offsetof(struct backend_library_look, image_nr) },
};

/* Those that are in use. */
static size_t libraries_take(struct backend_library_look looks[static LIBRARIES_MAX])
{
	size_t nr = 0;

	for (const struct backend *const *b = backend_registry; *b && nr < LIBRARIES_MAX; b++) {
		if (!(*b)->library)
			continue;
		(*b)->library(&looks[nr]);
		nr += looks[nr].client_nr > 0;
	}
	return nr;
}

static void write_libraries(const struct writer *w)
{
	struct backend_library_look looks[LIBRARIES_MAX];
	size_t nr = libraries_take(looks);

	for (size_t m = 0; m < ARRAY_SIZE(library_metrics); m++) {
		metrics_family(w, library_metrics[m].name, "gauge", library_metrics[m].help);
		for (size_t i = 0; i < nr; i++) {
			const char *number = (const char *)&looks[i] + library_metrics[m].offset;

			fprintf(w->out, "%s{library=\"%s\"} %u\n", library_metrics[m].name,
				looks[i].name, *(const unsigned *)number);
		}
	}
}

/* ---- reactors ---- */

static const struct reactor_metric {
	const char *name, *type, *suffix, *help;
	size_t offset;
	bool seconds;
} reactor_metrics[] = {
	{ "ublkd_reactor_turns", "counter", "_total", "Turns of the loop.",
	  offsetof(struct loop_stats, turns), false },
	{ "ublkd_reactor_events", "counter", "_total", "Completions taken from the ring.",
	  offsetof(struct loop_stats, cqes), false },
	{ "ublkd_reactor_events_max", "gauge", "", "Most completions in one turn.",
	  offsetof(struct loop_stats, cqes_max), false },
	{ "ublkd_reactor_turn_max_seconds", "gauge", "", "Longest stretch outside of the kernel.",
	  offsetof(struct loop_stats, turn_ns_max), true },
	{ "ublkd_reactor_stalls", "counter", "_total", "Turns above 10 ms outside of the kernel.",
	  offsetof(struct loop_stats, stalls), false },
	{ "ublkd_reactor_poll_hits", "counter", "_total",
	  "Times that busy polling found work before its time was up.",
	  offsetof(struct loop_stats, poll_hits), false },
	{ "ublkd_reactor_sq_full", "counter", "_total",
	  "Operations that waited for room in the SQ.", offsetof(struct loop_stats, sq_full),
	  false },
	{ "ublkd_reactor_stale_events", "counter", "_total",
	  "Completions of operations that were not in flight.", offsetof(struct loop_stats, stale),
	  false },
	{ "ublkd_reactor_timers", "counter", "_total", "Timers run.",
	  offsetof(struct loop_stats, timers), false },
	{ "ublkd_reactor_timers_late", "counter", "_total", "Timers run more than 10 ms late.",
	  offsetof(struct loop_stats, timers_late), false },
};

static const struct {
	const char *name, *help;
	size_t offset;
} reactor_time_metrics[] = {
	{ "ublkd_reactor_callback_seconds", "Time outside of the kernel, without busy polling.",
	  offsetof(struct reactor_times, callback_ns) },
	{ "ublkd_reactor_kernel_seconds", "Time in io_uring_enter and on a CPU.",
	  offsetof(struct reactor_times, kernel_ns) },
	{ "ublkd_reactor_poll_seconds", "Time spent busy polling.",
	  offsetof(struct reactor_times, poll_ns) },
	{ "ublkd_reactor_idle_seconds", "Time in io_uring_enter and off the CPU.",
	  offsetof(struct reactor_times, idle_ns) },
};

/* The name of a reactor as a label's value: reactors in order, then control. */
static struct reactor *reactor_at(const struct writer *w, unsigned i, char name[static 16])
{
	const struct reactors *rs = w->source->reactors;

	if (i == rs->nr) {
		snprintf(name, 16, "control");
		return w->source->control;
	}
	snprintf(name, 16, "%u", i);
	return rs->reactor[i];
}

static void write_reactor_times(const struct writer *w)
{
	char name[16];

	for (size_t m = 0; m < ARRAY_SIZE(reactor_time_metrics); m++) {
		metrics_family(w, reactor_time_metrics[m].name, "counter",
			       reactor_time_metrics[m].help);
		for (unsigned i = 0; i <= w->source->reactors->nr; i++) {
			struct reactor_times times;
			const char *ns = (const char *)&times + reactor_time_metrics[m].offset;

			reactor_times(reactor_at(w, i, name), &times);
			fprintf(w->out, "%s_total{reactor=\"%s\"} %.9f\n",
				reactor_time_metrics[m].name, name,
				(double)*(const uint64_t *)ns / NS_PER_SEC);
		}
	}
}

static void write_reactor(const struct writer *w, const struct reactor_metric *metric,
			  const struct reactor *r, const char *name)
{
	const char *counter = (const char *)&r->stats + metric->offset;
	uint64_t value = __atomic_load_n((const uint64_t *)counter, __ATOMIC_RELAXED);

	fprintf(w->out, "%s%s{reactor=\"%s\"} ", metric->name, metric->suffix, name);
	if (metric->seconds)
		fprintf(w->out, "%.9f\n", (double)value / NS_PER_SEC);
	else
		fprintf(w->out, "%" PRIu64 "\n", value);
}

static void write_pins(const struct writer *w)
{
	const struct reactors *rs = w->source->reactors;

	metrics_family(
		w, "ublkd_reactor_pinned", "gauge",
		"1: the reactor is on its CPU; 0: that cannot be used, and it runs on others.");
	for (unsigned i = 0; i < rs->nr; i++)
		fprintf(w->out, "ublkd_reactor_pinned{reactor=\"%u\"} %d\n", i,
			!rs->away || !rs->away[i]);
}

static void write_watchdog(const struct writer *w)
{
	const struct watchdog *watchdog = w->source->watchdog;

	metrics_family(w, "ublkd_reactor_stuck_seconds", "gauge",
		       "For how long the watchdog has known the reactor to be stuck; 0: it turns.");
	for (unsigned i = 0; i < w->source->reactors->nr; i++)
		fprintf(w->out, "ublkd_reactor_stuck_seconds{reactor=\"%u\"} %.3f\n", i,
			(double)watchdog_stuck_ns(watchdog, i) / NS_PER_SEC);
	metrics_family(w, "ublkd_reactor_stuck", "counter",
		       "Times that the reactor was found stuck.");
	for (unsigned i = 0; i < w->source->reactors->nr; i++)
		fprintf(w->out, "ublkd_reactor_stuck_total{reactor=\"%u\"} %" PRIu64 "\n", i,
			watchdog_stuck_count(watchdog, i));
}

static void write_reactors(const struct writer *w)
{
	char name[16];

	for (size_t m = 0; m < ARRAY_SIZE(reactor_metrics); m++) {
		const struct reactor_metric *metric = &reactor_metrics[m];

		metrics_family(w, metric->name, metric->type, metric->help);
		for (unsigned i = 0; i <= w->source->reactors->nr; i++) {
			const struct reactor *r = reactor_at(w, i, name);

			write_reactor(w, metric, r, name);
		}
	}
	write_reactor_times(w);
	write_watchdog(w);
	write_pins(w);
}

const char *metrics_content_type(enum metrics_format format)
{
	return format == METRICS_PROMETHEUS
		       ? "text/plain; version=0.0.4; charset=utf-8"
		       : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

char *metrics_text(const struct metrics_source *source, enum metrics_format format,
		   size_t *ret_bytes)
{
	struct writer w = { .source = source, .format = format };
	char *text = NULL;

	if (snapshots_take(&w) == 0)
		w.out = open_memstream(&text, ret_bytes);
	if (w.out) {
		metrics_family(&w, "ublkd_build", "info", "The program.");
		fputs("ublkd_build_info{version=\"" UBLKD_VERSION "\"} 1\n", w.out);
		write_up(&w);
		write_degraded(&w);
		write_op_counters(&w);
		write_device_numbers(&w);
		write_errors(&w);
		write_latencies(&w);
		write_connections(&w);
		metrics_write_images(&w);
		metrics_write_caches(&w);
		metrics_write_zones(&w);
		metrics_write_integrity(&w);
		write_libraries(&w);
		write_reactors(&w);
		if (format == METRICS_OPENMETRICS)
			fputs("# EOF\n", w.out);
		if (fclose(w.out) != 0) {
			free(text);
			text = NULL;
		}
	}
	snapshots_free(&w);
	return text;
}
