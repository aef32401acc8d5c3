/* Which trees two configurations share. Any thread. Owns nothing. */
#include "storage/sharing.h"

#include <string.h>

#include "storage/spec.h"

static const char *shared_name_of(const struct backend_spec *spec)
{
	return spec->ops && spec->ops->shared && spec->child ? spec->ops->shared->name(spec->config)
							     : NULL;
}

/* Whether a node of this tree shares something under this name: something else than other_than. */
static bool shares(const struct backend_spec *spec, const char *name,
		   const struct backend_spec *other_than)
{
	const char *here = shared_name_of(spec);

	if (here && strcmp(here, name) == 0 &&
	    (!other_than || !backend_spec_equal(spec->child, other_than)))
		return true;
	for (const struct backend_spec *c = spec->child; c; c = c->sibling)
		if (shares(c, name, other_than))
			return true;
	return false;
}

const struct backend_spec *backend_spec_shares(const struct backend_spec *a,
					       const struct backend_spec *b, bool only_another)
{
	const struct backend_spec *found = NULL;
	const char *name = shared_name_of(a);

	if (name && shares(b, name, only_another ? a->child : NULL))
		return a;
	for (const struct backend_spec *c = a->child; c && !found; c = c->sibling)
		found = backend_spec_shares(c, b, only_another);
	return found;
}
