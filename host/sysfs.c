/* See sysfs.h. Failure mode: what cannot be read is not there. */
#include "host/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

bool sysfs_line(char *line, size_t bytes, const char *path_fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	FILE *file;
	bool read;

	line[0] = '\0';
	va_start(ap, path_fmt);
	vsnprintf(path, sizeof(path), path_fmt, ap);
	va_end(ap);
	file = fopen(path, "re");
	if (!file)
		return false;
	read = fgets(line, (int)bytes, file) != NULL;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return read;
}

bool sysfs_parse_dev(const char *text, dev_t *ret_dev)
{
	unsigned major, minor;

	if (sscanf(text, "%u:%u", &major, &minor) != 2)
		return false;
	*ret_dev = makedev(major, minor);
	return true;
}

bool sysfs_dev_of(const char *name, dev_t *ret_dev)
{
	char line[64];

	return sysfs_line(line, sizeof(line), "/sys/class/block/%s/dev", name) &&
	       sysfs_parse_dev(line, ret_dev);
}

int sysfs_stat(const char *path, struct sysfs_node *ret_node)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) < 0)
		return -errno;
	*ret_node = (struct sysfs_node){
		.block =
			S_ISBLK(stx.stx_mode) ? makedev(stx.stx_rdev_major, stx.stx_rdev_minor) : 0,
		.file_system = makedev(stx.stx_dev_major, stx.stx_dev_minor),
	};
	return 0;
}
