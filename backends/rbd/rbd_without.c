/*
 * rbd where ublkd was built without Ceph's headers: its settings are known, and refused with the
 * cure.
 */
#include <errno.h>
#include <stdio.h>

#include "backends/rbd/rbd_config.h"
#include "storage/registry.h"

static int without_check(char *error, size_t error_bytes)
{
	snprintf(error, error_bytes,
		 "this ublkd was built without Ceph RBD: install librbd-dev, and build it again");
	return -ENOSYS;
}

int (*const ceph_library_check)(char *error, size_t error_bytes) = without_check;

static int ceph_refuse_open(struct backend_device *device)
{
	return without_check(device->error, sizeof(device->error));
}

static enum backend_submit ceph_refuse(struct backend_io *io)
{
	io->result = -EIO;
	return BACKEND_DONE;
}

const struct backend backend_rbd = {
	.name = "rbd",
	.summary = "an image of a Ceph cluster (RADOS block device); not in this build",
	.options = ceph_options,
	.config_bytes = sizeof(struct ceph_config),
	.uri = &ceph_backend_uri,
	.check = ceph_check,
	.open = ceph_refuse_open,
	.submit = ceph_refuse,
};
