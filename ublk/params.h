/* From what a backend can and a configuration wishes to what the block layer is told. */
#ifndef UBLK_PARAMS_H
#define UBLK_PARAMS_H

#include "backends/backend.h"
#include "ublk/device.h"
#include "ublk/ublk_abi.h"

/* Fills params for SET_PARAMS; pure. path: as chosen. */
void params_fill(struct ublk_params *params, const struct device_spec *spec,
		 const struct backend_limits *limits, enum data_path path);

#endif
