/*
 * Encodes the host's PDUs. Owns nothing; any thread. A head is: common header, the type's own
 * fields, the header digest, padding up to the controller's alignment. Nothing fails: what cannot
 * be sent is a bug of the caller.
 */
#include "backends/nvme/protocol/nvme_pdu.h"

#include "base/crc32c.h"
#include "base/assert.h"
#include "base/util.h"

/*
 * Writes the common header, and what comes behind the type's own fields, which are written before.
 * TCP 3.6.1: PDO is where data begin, 0 without; DDGSTF is for PDUs with data. Returns the bytes.
 */
static uint32_t pdu_head(uint8_t *buf, const struct nvme_wire *wire, enum nvme_pdu_type type,
			 uint8_t flags, uint32_t hlen, uint32_t data_bytes)
{
	uint32_t head = hlen + (wire->header_digest ? NVME_DIGEST_BYTES : 0), bytes = head;

	ASSERT(wire->cpda <= NVME_PDU_ALIGN_MAX);
	if (data_bytes > 0) {
		uint32_t align = (wire->cpda + 1u) * 4;

		bytes = (head + align - 1) / align * align;
		flags |= wire->data_digest ? NVME_PDU_FLAG_DDGST : 0;
	}
	ASSERT(bytes <= NVME_PDU_HEAD_BYTES_MAX);
	buf[0] = type;
	buf[1] = flags | (wire->header_digest ? NVME_PDU_FLAG_HDGST : 0);
	buf[2] = (uint8_t)hlen;
	buf[3] = data_bytes > 0 ? (uint8_t)bytes : 0;
	nvme_put32(buf + 4,
		   bytes + data_bytes + (flags & NVME_PDU_FLAG_DDGST ? NVME_DIGEST_BYTES : 0));
	if (wire->header_digest)
		nvme_put32(buf + hlen, crc32c(0, buf, hlen));
	memset(buf + head, 0, bytes - head);
	return bytes;
}

void nvme_pdu_icreq(uint8_t buf[static NVME_PDU_IC_BYTES], const struct nvme_wire *wire)
{
	ASSERT(wire->hpda <= NVME_PDU_ALIGN_MAX && wire->r2t_nr >= 1);
	memset(buf, 0, NVME_PDU_IC_BYTES);
	buf[0] = NVME_PDU_ICREQ;
	buf[2] = NVME_PDU_IC_BYTES;
	nvme_put32(buf + 4, NVME_PDU_IC_BYTES);
	/* PFV at 8 is 0: the one version there is. */
	buf[10] = wire->hpda;
	buf[11] = (wire->header_digest ? NVME_DIGEST_HEADER : 0) |
		  (wire->data_digest ? NVME_DIGEST_DATA : 0);
	nvme_put32(buf + 12, wire->r2t_nr - 1);
}

uint32_t nvme_pdu_capsule(uint8_t buf[static NVME_PDU_HEAD_BYTES_MAX], const struct nvme_wire *wire,
			  const uint8_t sqe[static NVME_SQE_BYTES], uint32_t data_bytes)
{
	memcpy(buf + NVME_PDU_COMMON_BYTES, sqe, NVME_SQE_BYTES);
	return pdu_head(buf, wire, NVME_PDU_CAPSULE_CMD, 0, NVME_PDU_CMD_BYTES, data_bytes);
}

uint32_t nvme_pdu_h2c_data(uint8_t buf[static NVME_PDU_HEAD_BYTES_MAX],
			   const struct nvme_wire *wire, const struct nvme_h2c *h)
{
	ASSERT(h->bytes > 0 && h->bytes <= wire->maxh2cdata_bytes);
	nvme_put16(buf + 8, h->cid);
	nvme_put16(buf + 10, h->ttag);
	nvme_put32(buf + 12, h->at_bytes);
	nvme_put32(buf + 16, h->bytes);
	nvme_put32(buf + 20, 0);
	return pdu_head(buf, wire, NVME_PDU_H2C_DATA, h->last ? NVME_PDU_FLAG_LAST : 0,
			NVME_PDU_DATA_BYTES, h->bytes);
}

uint32_t nvme_pdu_h2c_bytes(const struct nvme_wire *wire, uint32_t left_bytes)
{
	return MIN(left_bytes, wire->maxh2cdata_bytes);
}

void nvme_pdu_data_digest(uint8_t buf[static NVME_DIGEST_BYTES], uint32_t crc)
{
	nvme_put32(buf, crc);
}

uint32_t nvme_pdu_term(uint8_t buf[static NVME_PDU_TERM_BYTES_MAX], enum nvme_fes fes, uint32_t fei,
		       const uint8_t *header, uint32_t header_bytes)
{
	uint32_t bytes = NVME_PDU_TERM_BYTES + header_bytes;

	ASSERT(bytes <= NVME_PDU_TERM_BYTES_MAX);
	memset(buf, 0, NVME_PDU_TERM_BYTES);
	buf[0] = NVME_PDU_H2C_TERM;
	buf[2] = NVME_PDU_TERM_BYTES;
	nvme_put32(buf + 4, bytes);
	nvme_put16(buf + 8, fes);
	nvme_put32(buf + 10, fei);
	if (header_bytes > 0)
		memcpy(buf + NVME_PDU_TERM_BYTES, header, header_bytes);
	return bytes;
}

const char *nvme_pdu_name(uint8_t type)
{
	static const char *const names[] = {
		[NVME_PDU_ICREQ] = "ICReq",
		[NVME_PDU_ICRESP] = "ICResp",
		[NVME_PDU_H2C_TERM] = "H2CTermReq",
		[NVME_PDU_C2H_TERM] = "C2HTermReq",
		[NVME_PDU_CAPSULE_CMD] = "CapsuleCmd",
		[NVME_PDU_CAPSULE_RESP] = "CapsuleResp",
		[NVME_PDU_H2C_DATA] = "H2CData",
		[NVME_PDU_C2H_DATA] = "C2HData",
		[NVME_PDU_R2T] = "R2T",
	};

	return type < ARRAY_SIZE(names) ? names[type] : NULL;
}

const char *nvme_fes_words(uint16_t fes)
{
	static const char *const words[] = {
		[NVME_FES_HEADER_FIELD] = "an invalid field in a PDU header",
		[NVME_FES_SEQUENCE] = "a PDU out of sequence",
		[NVME_FES_HEADER_DIGEST] = "a wrong header digest",
		[NVME_FES_OUT_OF_RANGE] = "data out of range",
		[NVME_FES_LIMIT] = "more data than its limit",
		[NVME_FES_UNSUPPORTED] = "an unsupported parameter",
	};

	return fes < ARRAY_SIZE(words) && words[fes] ? words[fes] : "an unknown error";
}
