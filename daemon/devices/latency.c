/*
 * Resets and boundaries of histograms. Owns the readings that are subtracted. Main thread.
 *
 * Happy path: latency_reset keeps a copy of the counters; latency_view_read subtracts it. Failure
 * mode: no memory for the copy, then nothing is reset.
 */
#include "daemon/devices/latency.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct latency_base {
	struct histogram histogram[BACKEND_OP_NR][QUEUE_LAYER_NR];
};

struct latency_boundaries {
	size_t nr;
	uint64_t ns[];
};

void latency_fini(struct latency_view *v)
{
	free(v->base);
	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		free(v->boundaries[op]);
	*v = (struct latency_view){ 0 };
}

int latency_reset(struct latency_view *v, const struct device_stats *now, uint32_t ops)
{
	if (!v->base)
		v->base = calloc(1, sizeof(*v->base));
	if (!v->base)
		return -ENOMEM;
	for (unsigned op = 0; op < BACKEND_OP_NR; op++)
		if (ops >> op & 1)
			memcpy(v->base->histogram[op], now->op[op].layer,
			       sizeof(v->base->histogram[op]));
	return 0;
}

static int latency_check_boundaries(const uint64_t *ns, size_t nr)
{
	uint64_t before_ns = 0;

	if (nr > LATENCY_BOUNDARIES_MAX)
		return -E2BIG;
	for (size_t i = 0; i < nr; i++) {
		if (ns[i] <= before_ns)
			return -EINVAL;
		before_ns = ns[i];
	}
	return 0;
}

static struct latency_boundaries *copy_boundaries(const uint64_t *ns, size_t nr)
{
	struct latency_boundaries *b = malloc(sizeof(*b) + nr * sizeof(ns[0]));

	if (!b)
		return NULL;
	b->nr = nr;
	memcpy(b->ns, ns, nr * sizeof(ns[0]));
	return b;
}

/* Makes a copy for each op. Returns 0, or -ENOMEM with none left. */
static int copy_for_each(struct latency_boundaries *copy[static BACKEND_OP_NR], uint32_t ops,
			 const uint64_t *ns, size_t nr)
{
	for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
		if (nr == 0 || !(ops >> op & 1))
			continue;
		copy[op] = copy_boundaries(ns, nr);
		if (copy[op])
			continue;
		while (op-- > 0)
			free(copy[op]);
		return -ENOMEM;
	}
	return 0;
}

int latency_set(struct latency_view *v, const struct device_stats *now, uint32_t ops,
		const uint64_t *boundary_ns, size_t nr)
{
	struct latency_boundaries *copy[BACKEND_OP_NR] = { NULL };
	int ret = latency_check_boundaries(boundary_ns, nr);

	if (ret == 0)
		ret = copy_for_each(copy, ops, boundary_ns, nr);
	if (ret < 0)
		return ret;
	ret = latency_reset(v, now, ops);
	for (unsigned op = 0; op < BACKEND_OP_NR; op++) {
		struct latency_boundaries *unused = copy[op];

		if (ret == 0 && (ops >> op & 1)) {
			unused = v->boundaries[op];
			v->boundaries[op] = copy[op];
		}
		free(unused);
	}
	return ret;
}

const uint64_t *latency_boundaries(const struct latency_view *v, enum backend_op op, size_t *ret_nr)
{
	*ret_nr = v->boundaries[op] ? v->boundaries[op]->nr : 0;
	return v->boundaries[op] ? v->boundaries[op]->ns : NULL;
}

void latency_view_read(const struct latency_view *v, const struct device_stats *now,
		       enum backend_op op, enum queue_layer layer, struct histogram *ret_histogram)
{
	*ret_histogram = now->op[op].layer[layer];
	if (v->base)
		histogram_subtract(ret_histogram, &v->base->histogram[op][layer]);
}
