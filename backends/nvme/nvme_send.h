/* What admin and I/O queues send alike. Reactor thread. */
#ifndef BACKENDS_NVME_NVME_SEND_H
#define BACKENDS_NVME_NVME_SEND_H

#include "base/crc32c.h"
#include "backends/nvme/protocol/nvme_pdu.h"
#include "net/stream.h"

/*
 * The data of a PDU behind its head, and their digest if there is one, in memory of the owner's
 * that stays until it is sent, as the data do. One piece, or two.
 */
static inline void nvme_send_data(struct stream *s, const struct nvme_wire *wire, const void *data,
				  uint32_t bytes, uint8_t digest[static NVME_DIGEST_BYTES])
{
	stream_send(s, data, bytes);
	if (!wire->data_digest)
		return;
	nvme_pdu_data_digest(digest, crc32c(0, data, bytes));
	stream_send(s, digest, NVME_DIGEST_BYTES);
}

#endif
