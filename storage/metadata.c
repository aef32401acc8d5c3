/*
 * What can be asked of a tree about the metadata that it keeps: of its top, where alone such a node
 * stands; and how the metadata of a request are moved. Failure modes: as in data.c.
 */
#include "storage/metadata.h"

#include <errno.h>

#include "base/util.h"
#include "reactor/ring.h"
#include "storage/backend.h"

/* Buffers start on pages of their own, as those of data do. */
#define METADATA_BUFFER_ALIGN 4096u

const char *const backend_checksum_names[] = { "none", "ip", "crc", "nvme", NULL };

bool backend_integrity_look(const struct backend_queue *top,
			    struct backend_integrity_look *ret_look)
{
	if (!top->device->ops->look_integrity)
		return false;
	top->device->ops->look_integrity(top, ret_look);
	return true;
}

bool backend_spec_has_integrity(const struct backend_spec *spec)
{
	return spec->ops->has_integrity;
}

uint64_t backend_spec_metadata_bytes(const struct backend_spec *spec, uint32_t max_io_bytes,
				     uint32_t block_bytes)
{
	if (!spec->ops->metadata_bytes)
		return 0;
	return round_up(
		(uint64_t)spec->ops->metadata_bytes(spec->config, max_io_bytes, block_bytes),
		METADATA_BUFFER_ALIGN);
}

unsigned backend_tuple_bytes(enum backend_checksum checksum)
{
	switch (checksum) {
	case BACKEND_CHECKSUM_IP:
	case BACKEND_CHECKSUM_CRC:
		return 8;
	case BACKEND_CHECKSUM_NVME:
		return 16;
	case BACKEND_CHECKSUM_NONE:
	case BACKEND_CHECKSUM_NR:
		break;
	}
	return 0;
}

int backend_metadata_put(const struct backend_io *io, const void *from, size_t bytes)
{
	ssize_t n = ring_pwrite(io->driver_fd, from, bytes, io->driver_pos + BACKEND_METADATA_POS);

	return n == (ssize_t)bytes ? 0 : -EIO;
}

int backend_metadata_get(const struct backend_io *io, void *to, size_t bytes)
{
	ssize_t n = ring_pread(io->driver_fd, to, bytes, io->driver_pos + BACKEND_METADATA_POS);

	return n == (ssize_t)bytes ? 0 : -EIO;
}
