/*
 * What is known of a request by itself: its name, its bytes, wherever they are, and the errno of
 * its end. Reactor threads; names: any.
 *
 * Failure modes: the driver copies less than asked for (memory of ours that the system cannot give
 * any more): EIO.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "storage/backend.h"
#include "base/util.h"
#include "reactor/ring.h"

/*
 * As long as most requests: the driver walks through a request's pages from its start for every
 * piece. Never written, so not const: that would put them into the program's file.
 */
static uint8_t zeroes[BACKEND_ZEROES_BYTES];

void *backend_data_zeroes(void)
{
	return zeroes;
}

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
	if (!backend_io_in_memory(io))
		return backend_data_to_driver(io, at_bytes, from, bytes);
	memcpy((uint8_t *)io->buf + at_bytes, from, bytes);
	return 0;
}

int backend_data_put_zeroes(struct backend_io *io, uint32_t at_bytes, size_t bytes)
{
	int ret = 0;

	if (backend_io_in_memory(io)) {
		memset((uint8_t *)io->buf + at_bytes, 0, bytes);
		return 0;
	}
	while (bytes > 0 && ret == 0) {
		size_t now_bytes = MIN(bytes, BACKEND_ZEROES_BYTES);

		ret = backend_data_put(io, at_bytes, zeroes, now_bytes);
		at_bytes += (uint32_t)now_bytes;
		bytes -= now_bytes;
	}
	return ret;
}

static size_t pieces_bytes(const struct iovec *iov, unsigned nr)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < nr; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

int backend_data_put_pieces(struct backend_io *io, uint32_t at_bytes, const struct iovec *iov,
			    unsigned nr)
{
	ssize_t n;

	if (nr == 1)
		return backend_data_to_driver(io, at_bytes, iov->iov_base, iov->iov_len);
	n = ring_pwritev(io->driver_fd, iov, nr, io->driver_pos + at_bytes);
	return n == (ssize_t)pieces_bytes(iov, nr) ? 0 : -EIO;
}

int backend_data_get(struct backend_io *io, uint32_t at_bytes, void *to, size_t bytes)
{
	if (!backend_io_in_memory(io))
		return backend_data_from_driver(io, at_bytes, to, bytes);
	memcpy(to, (uint8_t *)io->buf + at_bytes, bytes);
	return 0;
}

int backend_errno_map(int err)
{
	switch (err) {
	case -ENOSPC:
	case -EIO:
	case -EOPNOTSUPP:
	case -ETIMEDOUT:
	case -ENOLINK:
	case -EREMOTEIO:
	case -ENODATA:
	case -EILSEQ:
	case -ENOMEM:
	case -ETOOMANYREFS: /* BLK_STS_ZONE_OPEN_RESOURCE */
	case -EOVERFLOW:    /* BLK_STS_ZONE_ACTIVE_RESOURCE */
		return err;
	case -EDQUOT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}
const char *backend_op_name(enum backend_op op)
{
	static const char *const name[BACKEND_OP_NR] = {
		[BACKEND_READ] = "read",
		[BACKEND_WRITE] = "write",
		[BACKEND_FLUSH] = "flush",
		[BACKEND_DISCARD] = "discard",
		[BACKEND_WRITE_ZEROES] = "write_zeroes",
		[BACKEND_ZONE_APPEND] = "zone_append",
		[BACKEND_ZONE_MANAGE] = "zone_manage",
	};

	return op < BACKEND_OP_NR ? name[op] : "?";
}
