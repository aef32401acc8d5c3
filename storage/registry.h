/* The tables of the backends, for the registry and the tests; others ask backend_find. */
#ifndef STORAGE_REGISTRY_H
#define STORAGE_REGISTRY_H

#include "storage/backend.h"

extern const struct backend backend_delay;
extern const struct backend backend_fault;
extern const struct backend backend_file;
extern const struct backend backend_http;
extern const struct backend backend_integrity;
extern const struct backend backend_mem;
extern const struct backend backend_nbd;
extern const struct backend backend_nvme_tcp;
extern const struct backend backend_null;
extern const struct backend backend_pattern;
extern const struct backend backend_qcow2;
extern const struct backend backend_rbd;
extern const struct backend backend_s3;
extern const struct backend backend_s3_disk;
extern const struct backend backend_shared;
extern const struct backend backend_stripe;
extern const struct backend backend_cache;
extern const struct backend backend_throttle;
extern const struct backend backend_zoned;

#endif
