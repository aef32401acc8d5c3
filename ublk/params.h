/* From what a backend can and a configuration wishes to what the block layer is told. */
#ifndef UBLK_PARAMS_H
#define UBLK_PARAMS_H

#include "backends/backend.h"
#include "ublk/device.h"
#include "ublk/ublk_abi.h"

/* Fills params for SET_PARAMS; pure. path: as chosen. */
void params_fill(struct ublk_params *params, const struct device_spec *spec,
		 const struct backend_limits *limits, enum data_path path);

/*
 * NULL when a backend with these limits can still serve a device that was made with params;
 * otherwise why not, a static string.
 */
const char *params_misfit(const struct ublk_params *params, const struct device_spec *spec,
			  const struct backend_limits *limits);

#endif
