/* errno -> "ENAME". glibc has strerrorname_np only since 2.32 and only under _GNU_SOURCE. */
#include "base/errname.h"

#include <string.h>

const char *errname(int err)
{
	const char *name = strerrorname_np(err < 0 ? -err : err);

	return name ? name : "E?";
}
