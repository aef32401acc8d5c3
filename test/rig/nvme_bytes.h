/* Bytes of an NVMe/TCP target, one after the other, for tests. */
#ifndef TEST_RIG_NVME_BYTES_H
#define TEST_RIG_NVME_BYTES_H

#include <stdbool.h>

#include "base/crc32c.h"
#include "backends/nvme/protocol/nvme_proto.h"
#include "base/assert.h"

struct bytes {
	size_t nr;
	uint8_t at[65536];
};

static inline uint8_t *bytes_room(struct bytes *b, size_t nr)
{
	ASSERT(nr <= sizeof(b->at) - b->nr);
	b->nr += nr;
	memset(b->at + b->nr - nr, 0, nr);
	return b->at + b->nr - nr;
}

/* A header, with its digest; the caller fills in what is special: at its start. */
struct pdu {
	uint8_t type, flags, hlen, pdo;
	uint32_t plen;
};

static inline uint8_t *add_header(struct bytes *b, struct pdu pdu)
{
	uint8_t *at = bytes_room(b, pdu.hlen);

	at[0] = pdu.type;
	at[1] = pdu.flags;
	at[2] = pdu.hlen;
	at[3] = pdu.pdo;
	nvme_put32(at + 4, pdu.plen);
	return at;
}

static inline void add_header_digest(struct bytes *b, const uint8_t *header)
{
	uint32_t crc = crc32c(0, header, header[2]);

	nvme_put32(bytes_room(b, 4), crc);
}

static inline uint8_t *add_icresp(struct bytes *b, uint8_t cpda, uint8_t digests,
				  uint32_t maxh2cdata)
{
	uint8_t *at = add_header(b, (struct pdu){ NVME_PDU_ICRESP, 0, 128, 0, 128 });

	at[10] = cpda;
	at[11] = digests;
	nvme_put32(at + 12, maxh2cdata);
	return at;
}

static inline uint8_t *add_response(struct bytes *b, bool digest, uint16_t cid, uint16_t status)
{
	uint8_t *at = add_header(
		b, (struct pdu){ NVME_PDU_CAPSULE_RESP, digest, 24, 0, 24 + 4u * digest });

	nvme_put16(at + 20, cid);
	nvme_put16(at + 22, (uint16_t)(status << 1));
	if (digest)
		add_header_digest(b, at);
	return at;
}

static inline uint8_t *add_r2t(struct bytes *b, bool digest, uint16_t cid, uint16_t ttag,
			       uint32_t offset, uint32_t bytes)
{
	uint8_t *at = add_header(b, (struct pdu){ NVME_PDU_R2T, digest, 24, 0, 24 + 4u * digest });

	nvme_put16(at + 8, cid);
	nvme_put16(at + 10, ttag);
	nvme_put32(at + 12, offset);
	nvme_put32(at + 16, bytes);
	if (digest)
		add_header_digest(b, at);
	return at;
}

/* Byte i of a command's buffer. */
static inline uint8_t data_byte(uint32_t i)
{
	return (uint8_t)(i * 7 + (i >> 8));
}

/* flags: LAST, SUCCESS; digests: NVME_DIGEST_*; pdo 0: the least. */
static inline void add_data(struct bytes *b, unsigned digests, uint8_t flags, uint16_t cid,
			    uint32_t offset, uint32_t bytes, uint8_t pdo)
{
	bool header = digests & NVME_DIGEST_HEADER, data = digests & NVME_DIGEST_DATA;
	uint8_t least = (uint8_t)(24 + 4 * header), *at, *payload;

	pdo = pdo ? pdo : least;
	at = add_header(b, (struct pdu){ NVME_PDU_C2H_DATA,
					 (uint8_t)(flags | (header ? NVME_PDU_FLAG_HDGST : 0) |
						   (data ? NVME_PDU_FLAG_DDGST : 0)),
					 24, pdo, pdo + bytes + 4u * data });
	nvme_put16(at + 8, cid);
	nvme_put32(at + 12, offset);
	nvme_put32(at + 16, bytes);
	if (header)
		add_header_digest(b, at);
	if (pdo > least)
		memset(bytes_room(b, (size_t)(pdo - least)), 0xee, (size_t)(pdo - least));
	payload = bytes_room(b, bytes);
	for (uint32_t i = 0; i < bytes; i++)
		payload[i] = data_byte(offset + i);
	if (data)
		nvme_put32(bytes_room(b, 4), crc32c(0, payload, bytes));
}

#endif
