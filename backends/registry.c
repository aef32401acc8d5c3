/* Every backend there is, in one table. docs/backends.md: what a new one needs. */
#include "storage/registry.h"

#include <string.h>

/* test/made_up adds a row of its own. */
#ifdef UBLKD_ONE_MORE_BACKEND
extern const struct backend UBLKD_ONE_MORE_BACKEND;
#define ONE_MORE_ROW &UBLKD_ONE_MORE_BACKEND,
#else
#define ONE_MORE_ROW
#endif

const struct backend *const backend_registry[] = {
	&backend_null,	   &backend_mem,   &backend_file,      &backend_nbd,
	&backend_nvme_tcp, &backend_rbd,   &backend_pattern,   &backend_throttle,
	&backend_stripe,   &backend_delay, &backend_fault,     &backend_cache,
	&backend_qcow2,	   &backend_http,  &backend_s3,	       &backend_s3_disk,
	&backend_shared,   &backend_zoned, &backend_integrity, ONE_MORE_ROW NULL,
};

const struct backend *backend_find(const char *name)
{
	for (const struct backend *const *b = backend_registry; *b; b++)
		if (strcmp((*b)->name, name) == 0)
			return *b;
	return NULL;
}
