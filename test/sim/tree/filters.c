/*
 * Stacks of filters. Cancelling, closing and the limits' changes meet requests that wait in a
 * throttle or a delay, on the reactors of several queues, and of several devices in one group.
 */
#include "test/sim/tree/filters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/node.h"
#include "storage/registry.h"
#include "filters/throttle/throttle.h"
#include "test/sim/world.h"

void *sim_parse_options(const struct backend *ops, const char *yaml)
{
	struct config_errors errors;
	struct yaml_doc doc;
	void *config = calloc(1, ops->config_bytes);
	int ret;

	config_errors_init(&errors, "sim");
	ret = yaml_parse(&doc, yaml, strlen(yaml), &errors);
	if (ret == 0)
		ret = option_parse(ops->options, doc.root, NULL, config, ops->config_bytes,
				   &errors);
	if (ret == 0 && ops->check)
		ops->check(config, doc.root, &errors);
	if (config_errors_any(&errors)) {
		fputs(config_errors_text(&errors), stderr);
		sim_fail("options: %s", yaml);
	}
	yaml_free(&doc);
	config_errors_fini(&errors);
	return config;
}

static const char *choose_throttle(char *yaml, size_t bytes)
{
	static const char *const some[] = {
		"total_iops_sec: 100000",
		"total_iops_sec: 300",
		"read_iops_sec: 1000\nwrite_iops_sec: 200\nsize_iops_sec: 16k",
		"total_bytes_sec: 20M\ntotal_bytes_sec_max: 100M\ntotal_bytes_sec_max_length: 3",
		/* Often shared: there the owner of the timer leaves while others wait. */
		"group: g\ntotal_iops_sec: 300",
		"group: g\ntotal_iops_sec: 300",
		"group: g",
		"group: g",
		"size_iops_sec: 0",
	};

	snprintf(yaml, bytes, "%s", some[sim_below(ARRAY_SIZE(some))]);
	return yaml;
}

static const char *choose_delay(char *yaml, size_t bytes)
{
	static const char *const names[] = { "fixed", "exponential", "pareto" };

	snprintf(yaml, bytes, "all: %lluus\nread: 1us\ndistribution: %s\nseed: %llu\nmax: 1s",
		 (unsigned long long)sim_skewed(1, 20000), names[sim_below(ARRAY_SIZE(names))],
		 (unsigned long long)sim_below(1000));
	return yaml;
}

/* Filters of the registry that are not chosen below, in turn by idx; NULL: there are fewer. */
static const struct backend *other_filter(uint64_t idx)
{
	for (const struct backend *const *b = backend_registry; *b; b++) {
		bool known =
			*b == &backend_fault || *b == &backend_delay || *b == &backend_throttle;

		if (!known && (*b)->children == backend_one_child && !(*b)->is_zoned &&
		    (*b)->test_options && idx-- == 0)
			return *b;
	}
	return NULL;
}

static const struct backend *choose_other(char *yaml, size_t bytes)
{
	uint64_t nr = 0;
	const struct backend *ops;

	while (other_filter(nr))
		nr++;
	if (nr == 0 || !sim_one_in(2))
		return NULL;
	ops = other_filter(sim_below(nr));
	snprintf(yaml, bytes, "%s", ops->test_options);
	return ops;
}

struct backend_spec *sim_filters_add(struct sim_filters *f, const struct backend_spec *child)
{
	unsigned i = f->nr++;
	char yaml[200];
	const struct backend *ops = choose_other(yaml, sizeof(yaml));

	switch (ops ? UINT64_MAX : sim_below(5)) {
	case UINT64_MAX:
		break;
	case 0:
		ops = &backend_fault;
		snprintf(yaml, sizeof(yaml), "rate: 0");
		break;
	case 1:
	case 2:
		ops = &backend_delay;
		choose_delay(yaml, sizeof(yaml));
		break;
	default:
		ops = &backend_throttle;
		choose_throttle(yaml, sizeof(yaml));
	}
	f->config[i] = sim_parse_options(ops, yaml);
	f->spec[i] = (struct backend_spec){ .ops = ops, .config = f->config[i], .child = child };
	return &f->spec[i];
}

const struct backend_spec *sim_filters_choose(struct sim_filters *f,
					      const struct backend_spec *bottom)
{
	sim_filters_fini(f);
	if (sim.defect != DEFECT_NONE || sim.cut.on)
		return bottom;
	while (f->nr < SIM_STACK_MAX && sim_one_in(2))
		bottom = sim_filters_add(f, bottom);
	return bottom;
}

void sim_filters_fini(struct sim_filters *f)
{
	for (unsigned i = 0; i < f->nr; i++) {
		option_free(f->spec[i].ops->options, f->config[i]);
		free(f->config[i]);
	}
	f->nr = 0;
}

void sim_filters_retune(struct backend_device *top)
{
	struct backend_device *throttle = throttle_find(top);
	struct throttle_limits limits;

	if (!throttle)
		return;
	throttle_get(throttle, &limits);
	for (int i = THROTTLE_TOTAL_IOPS; i < THROTTLE_BUCKET_NR; i++)
		if (limits.rate[i].avg)
			limits.rate[i].avg = sim_skewed(100, 1000000);
	throttle_update(throttle, &limits);
}
