/* One write to sysfs. Failure mode: no rights, or /sys is read-only: a crash then means a longer
 * pause. */
#include "daemon/io_timeout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"

/* The block layer rounds up to whole seconds anyway (blk_add_timer). */
#define TIMEOUT_MS "1000"

static int write_timeout(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, TIMEOUT_MS, strlen(TIMEOUT_MS)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

void io_timeout_shorten(const struct device_host *host, const struct device *device)
{
	static bool told;
	struct device_info info;
	char path[64];
	int ret;

	if (ctl_notices_end(host->ctl))
		return;
	device_info(device, &info);
	snprintf(path, sizeof(path), "/sys/block/ublkb%lld/queue/io_timeout", (long long)info.id);
	ret = write_timeout(path);
	if (ret == 0 || told)
		return;
	told = true;
	log_warn("after a crash or in an upgrade requests may pause for 30 s",
		 "path=%s error=%s cure=\"Linux 6.16, or let the daemon write there\"", path,
		 errname(ret));
}
