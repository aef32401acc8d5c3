/*
 * What the lowest backend of a stack asks another machine before it is opened. Owns nothing. Any
 * thread. Failure modes: the backend's own, in its words.
 */
#include <stdio.h>

#include "storage/spec.h"
#include "base/errname.h"

bool backend_spec_is_examined(const struct backend_spec *spec)
{
	return backend_spec_bottom(spec, NULL)->ops->examine != NULL;
}

int backend_spec_examine(const struct backend_spec *spec, void **ret_found, char *error,
			 size_t error_bytes)
{
	const struct backend_spec *bottom = backend_spec_bottom(spec, NULL);
	int ret;

	error[0] = '\0';
	ret = bottom->ops->examine(bottom->config, ret_found, error, error_bytes);
	if (ret < 0 && error[0] == '\0')
		snprintf(error, error_bytes, "%s: %s", bottom->ops->name, errname(ret));
	return ret;
}

void backend_spec_examine_free(const struct backend_spec *spec, void *found)
{
	const struct backend *ops = backend_spec_bottom(spec, NULL)->ops;

	if (ops->found_free)
		ops->found_free(found);
}
