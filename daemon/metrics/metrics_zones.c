/* Zones as metrics, of devices that have some. Main thread. */
#include <inttypes.h>

#include "base/util.h"
#include "daemon/metrics/metrics_internal.h"
#include "ublk/device/inflight.h"

static void write_condition(const struct writer *w, const struct snapshot *s, const char *condition,
			    uint32_t nr)
{
	fprintf(w->out, "ublkd_zones{device=\"%s\",condition=\"%s\"} %" PRIu32 "\n", s->label,
		condition, nr);
}

static void write_conditions(const struct writer *w)
{
	struct backend_zones_look look;

	metrics_family(w, "ublkd_zones", "gauge", "Zones in each condition.");
	for (size_t i = 0; i < w->nr; i++) {
		const struct snapshot *s = &w->devices[i];

		if (!s->device || !device_zones(s->device, &look))
			continue;
		write_condition(w, s, "conventional", look.conventional_nr);
		write_condition(w, s, "empty", look.empty_nr);
		write_condition(w, s, "implicit_open", look.implicit_nr);
		write_condition(w, s, "explicit_open", look.explicit_nr);
		write_condition(w, s, "closed", look.closed_nr);
		write_condition(w, s, "full", look.full_nr);
	}
}

static const struct zone_metric {
	const char *name, *help;
	size_t offset;
} zone_metrics[] = {
	{ "ublkd_zone_resets", "Zones that were reset.",
	  offsetof(struct backend_zones_look, resets) },
	{ "ublkd_zone_finishes", "Zones that were finished by a command.",
	  offsetof(struct backend_zones_look, finishes) },
	{ "ublkd_zone_refused_writes",
	  "Writes that did not begin at a write pointer, or found no room.",
	  offsetof(struct backend_zones_look, refused) },
	{ "ublkd_zone_redone_writes",
	  "Writes that the daemon before had begun and that the driver sent again.",
	  offsetof(struct backend_zones_look, redone) },
	{ "ublkd_zone_commits", "Times that write pointers were made durable.",
	  offsetof(struct backend_zones_look, commits) },
};

static void write_zone_metric(const struct writer *w, const struct zone_metric *m)
{
	struct backend_zones_look look;

	metrics_family(w, m->name, "counter", m->help);
	for (size_t i = 0; i < w->nr; i++)
		if (w->devices[i].device && device_zones(w->devices[i].device, &look))
			fprintf(w->out, "%s_total{device=\"%s\"} %" PRIu64 "\n", m->name,
				w->devices[i].label,
				*(const uint64_t *)((const char *)&look + m->offset));
}

void metrics_write_zones(const struct writer *w)
{
	write_conditions(w);
	for (size_t m = 0; m < ARRAY_SIZE(zone_metrics); m++)
		write_zone_metric(w, &zone_metrics[m]);
}
