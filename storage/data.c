/*
 * Bytes in and out of a request that has no buffer in our memory, or has one. Owns nothing; reactor
 * threads. Failure modes: the driver copies less than asked for (memory of ours that the system
 * cannot give any more): EIO, as half of a request is none.
 */
#include <errno.h>
#include <string.h>

#include "storage/backend.h"
#include "base/util.h"
#include "reactor/ring.h"

/*
 * As long as most requests: the driver walks through a request's pages from its start for every
 * piece. Never written, so not const: that would put them into the program's file.
 */
#define ZEROES_BYTES MIB(1)

static uint8_t zeroes[ZEROES_BYTES];

int backend_data_to_driver(const struct backend_io *io, uint32_t at_bytes, const void *from,
			   size_t bytes)
{
	ssize_t n = ring_pwrite(io->driver_fd, from, bytes, io->driver_pos + at_bytes);

	return n == (ssize_t)bytes ? 0 : -EIO;
}

int backend_data_from_driver(const struct backend_io *io, uint32_t at_bytes, void *to, size_t bytes)
{
	ssize_t n = ring_pread(io->driver_fd, to, bytes, io->driver_pos + at_bytes);

	return n == (ssize_t)bytes ? 0 : -EIO;
}

int backend_data_put(struct backend_io *io, uint32_t at_bytes, const void *from, size_t bytes)
{
	if (!io->buf)
		return backend_data_to_driver(io, at_bytes, from, bytes);
	memcpy((uint8_t *)io->buf + at_bytes, from, bytes);
	return 0;
}

int backend_data_put_zeroes(struct backend_io *io, uint32_t at_bytes, size_t bytes)
{
	int ret = 0;

	if (io->buf) {
		memset((uint8_t *)io->buf + at_bytes, 0, bytes);
		return 0;
	}
	while (bytes > 0 && ret == 0) {
		size_t now_bytes = MIN(bytes, ZEROES_BYTES);

		ret = backend_data_put(io, at_bytes, zeroes, now_bytes);
		at_bytes += (uint32_t)now_bytes;
		bytes -= now_bytes;
	}
	return ret;
}

int backend_data_get(struct backend_io *io, uint32_t at_bytes, void *to, size_t bytes)
{
	if (!io->buf)
		return backend_data_from_driver(io, at_bytes, to, bytes);
	memcpy(to, (uint8_t *)io->buf + at_bytes, bytes);
	return 0;
}

uint8_t backend_spec_data(const struct backend_spec *spec)
{
	uint8_t data = BACKEND_DATA_ANY;

	for (; spec; spec = spec->child)
		data &= spec->ops->data;
	return data;
}
