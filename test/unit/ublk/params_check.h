/* What the driver is told of a device, and whether a device that is taken over still fits it. */
#ifndef TEST_UNIT_UBLK_PARAMS_CHECK_H
#define TEST_UNIT_UBLK_PARAMS_CHECK_H

#include "base/util.h"
#include "ublk/device/params.h"

/* "fits", or why not. */
static inline const char *params_words(const struct ublk_params *params,
				       const struct device_spec *spec,
				       const struct backend_limits *limits)
{
	static char buf[PARAMS_WORDS_BYTES];
	const char *words = params_incompatible(params, spec, limits, buf);

	return words ? words : "fits";
}

static const struct device_spec device = {
	.queues = 1, .depth = 64, .logical_block_bytes = 4096, .max_io_bytes = MIB(1)
};

static inline const char *fits(const struct ublk_params *params,
			       const struct backend_limits *limits)
{
	return params_words(params, &device, limits);
}

#endif
