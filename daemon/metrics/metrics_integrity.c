/* Metadata as metrics, of devices that keep some. Main thread. */
#include <inttypes.h>

#include "base/util.h"
#include "daemon/metrics/metrics_internal.h"
#include "ublk/device/inflight.h"

static const struct integrity_metric {
	const char *name, *help;
	size_t offset;
} integrity_metrics[] = {
	{ "ublkd_integrity_reads", "Reads that brought their metadata.",
	  offsetof(struct backend_integrity_look, reads) },
	{ "ublkd_integrity_writes", "Writes that brought their metadata.",
	  offsetof(struct backend_integrity_look, writes) },
	{ "ublkd_integrity_forgotten",
	  "Discards, write zeroes and writes without metadata, which leave none behind.",
	  offsetof(struct backend_integrity_look, forgotten) },
	{ "ublkd_integrity_held", "Requests that waited for another one on the same bytes.",
	  offsetof(struct backend_integrity_look, held) },
};

static void write_integrity_metric(const struct writer *w, const struct integrity_metric *m)
{
	struct backend_integrity_look look;

	metrics_family(w, m->name, "counter", m->help);
	for (size_t i = 0; i < w->nr; i++)
		if (w->devices[i].device && device_integrity(w->devices[i].device, &look))
			fprintf(w->out, "%s_total{device=\"%s\"} %" PRIu64 "\n", m->name,
				w->devices[i].label,
				*(const uint64_t *)((const char *)&look + m->offset));
}

void metrics_write_integrity(const struct writer *w)
{
	for (size_t m = 0; m < ARRAY_SIZE(integrity_metrics); m++)
		write_integrity_metric(w, &integrity_metrics[m]);
}
