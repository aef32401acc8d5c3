/*
 * How a member becomes a device: from nothing, or adopted from the driver. Main thread.
 *
 * Happy path: a backend that must ask another machine first is asked for by prober.c, and the
 * member is STARTING meanwhile, without a device; the sweep goes on with it when that has ended ->
 * the device starts or recovers. Failure modes: what cannot be asked or opened: a new device has
 * failed, one that is to be adopted is tried again for a while, since its users wait.
 */
#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/log.h"
#include "daemon/fleet_internal.h"
#include "daemon/fleet_keep.h"
#include "daemon/mark.h"
#include "daemon/park.h"
#include "daemon/prober.h"

/* Between two questions to a server that did not answer one. */
#define PROBE_RETRY_NS (200 * NS_PER_MS)

static int parked_fd(const struct fleet *f, const struct member *m)
{
	char name[64];

	keep_park_name(name, m->settings->options.name);
	return f->park ? park_find(f->park, name) : -ENOENT;
}

void fleet_fill_spec(const struct fleet *f, const struct member *m, struct device_spec *spec)
{
	const struct device_options *o = &m->settings->options;

	*spec = (struct device_spec){
		.name = o->name,
		.id = m->settings->id,
		.queues = (uint32_t)o->queues,
		.depth = (uint32_t)o->depth,
		.logical_block_bytes = (uint32_t)o->block_bytes,
		.max_io_bytes = (uint32_t)o->max_io_bytes,
		.read_only = o->read_only,
		.data_path = (enum data_path)o->data_path,
		.batch = (enum batch_wish)o->batch,
		.recovery = (enum recovery)o->recovery,
		.mark = mark_of(f->control ? f->control : "", o->name),
		.backend = m->settings->backend,
	};
}

static void begin_start(struct member *m)
{
	m->state = MEMBER_STARTING;
	m->late = false;
	m->error[0] = '\0';
	latency_fini(&m->latency);
}

void fleet_did_not_start(struct fleet *f, struct member *m)
{
	log_error("device did not start", "device=%s error=\"%s\"", m->settings->options.name,
		  m->error);
	m->device = NULL;
	m->state = MEMBER_FAILED;
	m->stop_when_live = false;
	m->ended = true;
	fleet_check(f);
}

static void start_new(struct fleet *f, struct member *m, void *found)
{
	struct device_spec spec;
	int ret;

	fleet_fill_spec(f, m, &spec);
	spec.found = found;
	ret = keep_adding(f, m, m->error, sizeof(m->error));
	if (ret == 0) {
		ret = device_start(&m->device, f->host, &spec, m, m->error, sizeof(m->error));
		if (ret == 0)
			return;
		keep_forget(f, m->settings->options.name);
	}
	fleet_did_not_start(f, m);
}

static void adopt(struct fleet *f, struct member *m, void *found)
{
	struct device_spec spec;
	int ret;

	fleet_fill_spec(f, m, &spec);
	spec.found = found;
	spec.parked_fd = parked_fd(f, m);
	keep_recovering(f, m);
	keep_sweep(f, m);
	ret = device_recover(&m->device, f->host, &spec, &m->past->device, m, m->error,
			     sizeof(m->error));
	m->past->begun = ret == 0;
	if (ret == 0)
		return;
	if (ret != -EBUSY || ring_clock_ns() >= m->past->until_ns) {
		fleet_did_not_start(f, m);
		return;
	}
	m->device = NULL;
	m->state = MEMBER_WAITING;
	ev_timer_again(f->ev, &f->retry);
}

static void start(struct fleet *f, struct member *m, void *found)
{
	if (m->past)
		adopt(f, m, found);
	else
		start_new(f, m, found);
}

/* ---- asking before ---- */

void fleet_forget_probe(struct member *m)
{
	probe_free(m->probe);
	m->probe = NULL;
	m->probe_after_ns = 0;
}

/* The sweep looks again, also when nobody else wakes it up. */
static void ask_later(struct fleet *f, struct member *m, uint64_t in_ns)
{
	m->probe_after_ns = ring_clock_ns() + in_ns;
	ev_timer_again(f->ev, &f->retry);
}

/* From a turn of the control reactor. */
static void on_probe_ended(void *fleet)
{
	fleet_check(fleet);
}

static void ask(struct fleet *f, struct member *m)
{
	int ret = 0;

	if (!f->prober)
		ret = prober_new(&f->prober, f->host->ctl->reactor, on_probe_ended, f);
	if (ret == 0)
		ret = probe_begin(&m->probe, f->prober, m->settings);
	if (ret == -EAGAIN) {
		ask_later(f, m, 0);
	} else if (ret < 0) {
		snprintf(m->error, sizeof(m->error), "cannot ask its backend: %s", errname(ret));
		fleet_did_not_start(f, m);
	}
}

/* The words are in m->error. */
static void probe_failed(struct fleet *f, struct member *m)
{
	if (!m->past || ring_clock_ns() >= m->past->until_ns) {
		fleet_did_not_start(f, m);
		return;
	}
	if (!m->past->told)
		log_warn("device cannot be adopted yet", "device=%s reason=\"%s\"",
			 m->settings->options.name, m->error);
	m->past->told = true;
	ask_later(f, m, PROBE_RETRY_NS);
}

static void probe_has_ended(struct fleet *f, struct member *m)
{
	struct probe *probe = m->probe;
	const char *words;
	int ret = probe_result(probe, &words);

	m->probe = NULL;
	snprintf(m->error, sizeof(m->error), "%s", ret < 0 ? words : "");
	if (ret < 0)
		probe_failed(f, m);
	else
		start(f, m, probe_found(probe));
	probe_free(probe);
}

void fleet_start_probed(struct fleet *f)
{
	list_for_each (node, &f->members) {
		struct member *m = list_entry(node, struct member, node);

		if (m->state != MEMBER_STARTING || m->device)
			continue;
		if (m->probe && probe_ended(m->probe))
			probe_has_ended(f, m);
		else if (!m->probe && ring_clock_ns() >= m->probe_after_ns)
			ask(f, m);
		else if (!m->probe)
			ev_timer_again(f->ev, &f->retry);
	}
}

void fleet_start(struct fleet *f, struct member *m)
{
	ASSERT(!m->device && !m->probe);
	begin_start(m);
	if (backend_spec_probes(m->settings->backend))
		ask(f, m);
	else
		start(f, m, NULL);
}
