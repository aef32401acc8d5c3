/* Every backend there is, in one table. docs/backends.md: what a new one needs. */
#include "storage/registry.h"

#include <string.h>

const struct backend *const backend_registry[] = {
	&backend_null,	   &backend_mem,    &backend_file,  &backend_nbd,   &backend_pattern,
	&backend_throttle, &backend_stripe, &backend_delay, &backend_fault, NULL,
};

const struct backend *backend_find(const char *name)
{
	for (const struct backend *const *b = backend_registry; *b; b++)
		if (strcmp((*b)->name, name) == 0)
			return *b;
	return NULL;
}
