/*
 * What the lowest backend of a stack asks another machine before it is opened. Owns nothing. Any
 * thread. Failure modes: the backend's own, in its words.
 */
#include <stdio.h>

#include "backends/backend.h"
#include "base/errname.h"

static const struct backend_spec *bottom_of(const struct backend_spec *spec)
{
	while (spec->child)
		spec = spec->child;
	return spec;
}

bool backend_spec_probes(const struct backend_spec *spec)
{
	return bottom_of(spec)->ops->probe != NULL;
}

int backend_spec_probe(const struct backend_spec *spec, void **ret_found, char *error,
		       size_t error_bytes)
{
	const struct backend_spec *bottom = bottom_of(spec);
	int ret;

	error[0] = '\0';
	ret = bottom->ops->probe(bottom->config, ret_found, error, error_bytes);
	if (ret < 0 && error[0] == '\0')
		snprintf(error, error_bytes, "%s: %s", bottom->ops->name, errname(ret));
	return ret;
}

void backend_spec_probe_free(const struct backend_spec *spec, void *found)
{
	const struct backend *ops = bottom_of(spec)->ops;

	if (ops->probe_free)
		ops->probe_free(found);
}
