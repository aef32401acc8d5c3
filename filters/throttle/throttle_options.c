/*
 * The options of throttle and which of them go together: QEMU's rules (throttle_is_valid in its
 * util/throttle.c) under libvirt's names. Main thread.
 */
#include <stdio.h>
#include <string.h>

#include "filters/throttle/throttle.h"
#include "base/util.h"

#define RATE(bucket) offsetof(struct throttle_config, limits.rate[bucket])

/* Three options per bucket; what: "bytes of reads and writes together". */
#define RATE_OPTIONS(key, bucket, kind, what)                                                      \
	{ .name = key,                                                                             \
	  .type = kind,                                                                            \
	  .offset = RATE(bucket) + offsetof(struct throttle_rate, avg),                            \
	  .def = "0",                                                                              \
	  .help = "At most this many " what " per second. 0: no limit." },                         \
		{ .name = key "_max",                                                              \
		  .type = kind,                                                                    \
		  .offset = RATE(bucket) + offsetof(struct throttle_rate, max),                    \
		  .def = "0",                                                                      \
		  .help = "The rate during a burst, at least " key                                 \
			  ". 0: no bursts beyond the amount of a tenth of a second." },            \
	{                                                                                          \
		.name = key "_max_length", .type = OPTION_UINT,                                    \
		.offset = RATE(bucket) + offsetof(struct throttle_rate, max_length_s), .def = "1", \
		.help = "The number of seconds that a burst at the rate of " key "_max may last."  \
	}

const struct option throttle_options[] = {
	RATE_OPTIONS("total_bytes_sec", THROTTLE_TOTAL_BYTES, OPTION_SIZE,
		     "bytes, reads and writes together,"),
	RATE_OPTIONS("read_bytes_sec", THROTTLE_READ_BYTES, OPTION_SIZE, "bytes read"),
	RATE_OPTIONS("write_bytes_sec", THROTTLE_WRITE_BYTES, OPTION_SIZE,
		     "bytes written (discarded and zeroed ones too)"),
	RATE_OPTIONS("total_iops_sec", THROTTLE_TOTAL_IOPS, OPTION_UINT,
		     "requests, reads and writes together,"),
	RATE_OPTIONS("read_iops_sec", THROTTLE_READ_IOPS, OPTION_UINT, "reads"),
	RATE_OPTIONS("write_iops_sec", THROTTLE_WRITE_IOPS, OPTION_UINT,
		     "writes (discards and write zeroes too)"),
	{ .name = "size_iops_sec",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct throttle_config, limits.size_iops_bytes),
	  .def = "0",
	  .help = "For limits of requests, a request longer than this counts as several, in "
		  "proportion to its length. 0: each request counts as one." },
	{ .name = "group",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct throttle_config, group),
	  .min = 1,
	  .max = 63,
	  .help = "Devices of one group share one set of limits and take turns. Each device "
		  "either sets the same limits, or sets none and uses those of the group." },
	OPTION_END,
};

static const char *const rate_names[THROTTLE_BUCKET_NR] = {
	[THROTTLE_TOTAL_BYTES] = "total_bytes_sec", [THROTTLE_READ_BYTES] = "read_bytes_sec",
	[THROTTLE_WRITE_BYTES] = "write_bytes_sec", [THROTTLE_TOTAL_IOPS] = "total_iops_sec",
	[THROTTLE_READ_IOPS] = "read_iops_sec",	    [THROTTLE_WRITE_IOPS] = "write_iops_sec",
};

const char *throttle_rate_name(enum throttle_bucket bucket)
{
	return rate_names[bucket];
}

/* What the checks of one bucket look at and write to. */
struct check {
	const struct throttle_limits *limits;
	const struct yaml_node *map;
	struct config_errors *e;
};

/* "total_iops_sec_max: <what>" where that option stands. */
static void throttle_refuse(const struct check *c, const char *name, const char *suffix,
			    const char *what)
{
	char key[64];

	snprintf(key, sizeof(key), "%s%s", name, suffix);
	config_errors_add(c->e, yaml_pos(c->map, key), "%s: %s", key, what);
}

static void throttle_check_range(const struct check *c, enum throttle_bucket bucket)
{
	const struct throttle_rate *rate = &c->limits->rate[bucket];
	char what[64];

	snprintf(what, sizeof(what), "must be within [0, %llu]", THROTTLE_VALUE_MAX);
	if (rate->avg > THROTTLE_VALUE_MAX)
		throttle_refuse(c, rate_names[bucket], "", what);
	if (rate->max > THROTTLE_VALUE_MAX)
		throttle_refuse(c, rate_names[bucket], "_max", what);
}

static void check_burst(const struct check *c, enum throttle_bucket bucket)
{
	const struct throttle_rate *rate = &c->limits->rate[bucket];
	const char *name = rate_names[bucket];
	char what[128];

	if (rate->max && !rate->avg) {
		snprintf(what, sizeof(what), "requires %s", name);
		throttle_refuse(c, name, "_max", what);
	} else if (rate->max && rate->max < rate->avg) {
		snprintf(what, sizeof(what), "%llu cannot be lower than %s: %llu",
			 (unsigned long long)rate->max, name, (unsigned long long)rate->avg);
		throttle_refuse(c, name, "_max", what);
	}
	if (rate->max_length_s == 0)
		throttle_refuse(c, name, "_max_length", "the burst length cannot be 0");
	else if (rate->max_length_s > 1 && !rate->max)
		throttle_refuse(c, name, "_max_length", "burst length set without burst rate");
	else if (rate->max_length_s > 1 && rate->max_length_s > THROTTLE_VALUE_MAX / rate->max)
		throttle_refuse(c, name, "_max_length",
				"burst length too high for this burst rate");
}

/* total, then its read, then its write. */
static void check_conflict(const struct check *c, enum throttle_bucket total)
{
	const struct throttle_rate *rate = &c->limits->rate[total];

	if (rate[0].avg && (rate[1].avg || rate[2].avg))
		throttle_refuse(c, rate_names[total], "",
				"total and read/write values cannot be used at the same time");
	if (rate[0].max && (rate[1].max || rate[2].max))
		throttle_refuse(c, rate_names[total], "_max",
				"total and read/write values cannot be used at the same time");
}

static bool any_iops(const struct throttle_limits *limits)
{
	return limits->rate[THROTTLE_TOTAL_IOPS].avg || limits->rate[THROTTLE_READ_IOPS].avg ||
	       limits->rate[THROTTLE_WRITE_IOPS].avg;
}

void throttle_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct throttle_config *throttle = config;
	const struct check c = { .limits = &throttle->limits, .map = map, .e = e };

	for (int i = 0; i < THROTTLE_BUCKET_NR; i++) {
		throttle_check_range(&c, i);
		check_burst(&c, i);
	}
	check_conflict(&c, THROTTLE_TOTAL_BYTES);
	check_conflict(&c, THROTTLE_TOTAL_IOPS);
	if (c.limits->size_iops_bytes && !any_iops(c.limits))
		throttle_refuse(&c, "size_iops_sec", "", "requires an iops value to be set");
}
