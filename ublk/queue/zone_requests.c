/*
 * What a queue of a zoned device does beside the rest (storage/zones.h): requests of zones become
 * the backend's, and their answers the driver's. The queue's reactor. Apart from tag.c, whose path
 * knows nothing of it.
 *
 * Happy path: decode on the way down, an APPEND's bytes are fetched; at the end of a turn, before
 * its COMMITs, zone_requests_answer goes through what is done: an APPEND says in the place of the
 * buffer's address where its bytes are, a REPORT's zones are put into the request. Failure modes: a
 * report that cannot be put, EIO; a request that is longer than a buffer, EIO.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "storage/zones.h"
#include "ublk/queue/io_error.h"
#include "ublk/queue/queue_internal.h"

#define ZONE_SECTOR_SHIFT 9

/* -1: no action. */
static int zone_action_of(unsigned ublk_op)
{
	switch (ublk_op) {
	case UBLK_IO_OP_REPORT_ZONES:
		return BACKEND_ZONE_REPORT;
	case UBLK_IO_OP_ZONE_RESET:
		return BACKEND_ZONE_RESET;
	case UBLK_IO_OP_ZONE_RESET_ALL:
		return BACKEND_ZONE_RESET_ALL;
	case UBLK_IO_OP_ZONE_OPEN:
		return BACKEND_ZONE_OPEN;
	case UBLK_IO_OP_ZONE_CLOSE:
		return BACKEND_ZONE_CLOSE;
	case UBLK_IO_OP_ZONE_FINISH:
		return BACKEND_ZONE_FINISH;
	default:
		return -1;
	}
}

bool zone_request_is(unsigned ublk_op)
{
	return ublk_op == UBLK_IO_OP_ZONE_APPEND || zone_action_of(ublk_op) >= 0;
}

static int decode_append(struct tag_io *io, uint64_t length_bytes)
{
	struct backend_io *request = &io->request;

	if (length_bytes > io->queue->setup.max_io_bytes)
		return -EIO;
	return io->bytes_are == TAG_BYTES_BY_HAND
		       ? backend_data_from_driver(request, 0, request->buf, request->length_bytes)
		       : 0;
}

/* In place of sectors the descriptor has a number of zones. */
static int decode_report(struct tag_io *io, uint64_t zone_nr)
{
	uint64_t bytes = zone_nr * BACKEND_ZONE_REPORT_BYTES;

	if (zone_nr == 0 || bytes > io->queue->setup.max_io_bytes)
		return -EIO;
	io->request.length_bytes = (uint32_t)bytes;
	if (io->bytes_are == TAG_BYTES_BY_HAND)
		memset(io->request.buf, 0, bytes);
	return 0;
}

int zone_request_decode(struct tag_io *io, unsigned ublk_op, uint64_t length_bytes)
{
	struct backend_io *request = &io->request;
	int action = zone_action_of(ublk_op);

	request->op = io->flight_key.op = action < 0 ? BACKEND_ZONE_APPEND : BACKEND_ZONE_MANAGE;
	request->flags = 0;
	if (action < 0)
		return decode_append(io, length_bytes);
	request->zone = (uint8_t)action;
	request->length_bytes = 0;
	if (action == BACKEND_ZONE_REPORT)
		return decode_report(io, length_bytes >> ZONE_SECTOR_SHIFT);
	return 0;
}

static bool is_report(const struct tag_io *io)
{
	return io->request.op == BACKEND_ZONE_MANAGE && io->request.zone == BACKEND_ZONE_REPORT;
}

/*
 * The request's buffer may be longer than its zones, and what a COMMIT leaves of it would be asked
 * for again, from a place where no zone belongs: the answer is the longest there is, which the
 * driver cuts to the request (__ublk_complete_rq).
 */
static void answer_report(struct tag_io *io)
{
	const struct backend_io *request = &io->request;
	int ret = 0;

	if (io->bytes_are == TAG_BYTES_BY_HAND)
		ret = backend_data_to_driver(request, 0, request->buf, request->length_bytes);
	if (ret < 0)
		io_error_tell(io, ret);
	io->element.result = ret < 0 ? ret : (int32_t)io->queue->setup.max_io_bytes;
}

void zone_requests_answer(struct queue *q)
{
	for (unsigned i = 0; i < q->commit_nr; i++) {
		struct tag_io *io = q->commits[i];

		io->copy_addr = 0;
		if (io->element.result < 0)
			continue;
		if (io->request.op == BACKEND_ZONE_APPEND)
			io->copy_addr = io->request.offset_bytes >> ZONE_SECTOR_SHIFT;
		else if (is_report(io) && !io->committing)
			answer_report(io);
	}
}
