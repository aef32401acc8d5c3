/* mkdir -p of the folder of a path. Any thread; nothing is owned. */
#include "daemon/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int path_make_parent(const char *path, mode_t mode)
{
	char folder[PATH_MAX];

	if (strlen(path) >= sizeof(folder))
		return -ENAMETOOLONG;
	strcpy(folder, path);
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(folder, mode) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return 0;
}

void path_folder(const char *path, char folder[static PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(folder, PATH_MAX, ".");
	else
		snprintf(folder, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}
