/* From what a backend can and a configuration asks for to what the block layer is told. */
#ifndef UBLK_DEVICE_PARAMS_H
#define UBLK_DEVICE_PARAMS_H

#include "storage/backend.h"
#include "ublk/device/device.h"
#include "ublk/ublk_abi.h"

#define PARAMS_WORDS_BYTES 192

/* As many queues as are wanted and the backend serves. */
uint32_t params_queues(uint32_t wanted, const struct backend_limits *limits);

/* Fills params for SET_PARAMS; pure. path: as chosen. */
void params_fill(struct ublk_params *params, const struct device_spec *spec,
		 const struct backend_limits *limits, enum data_path path);

/*
 * NULL when a backend with these limits can still serve a device that was made with params and has
 * the queues of spec; otherwise why not, in buf or static.
 */
const char *params_incompatible(const struct ublk_params *params, const struct device_spec *spec,
				const struct backend_limits *limits,
				char buf[static PARAMS_WORDS_BYTES]);

#endif
