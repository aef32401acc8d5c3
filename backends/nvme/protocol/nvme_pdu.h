/*
 * Writes the PDUs of a host on NVMe/TCP: TCP 3.6. Pure, any thread, no allocation.
 *
 * A PDU with data is a head, written here, then the data where they are, then (with data digests)
 * 4 bytes of nvme_pdu_data_digest:
 *
 *	nr = nvme_pdu_capsule(head, &wire, sqe, data_bytes);
 *	iov: head of nr bytes; data; if (wire.data_digest && data_bytes > 0) digest of 4 bytes
 */
#ifndef BACKENDS_NVME_NVME_PDU_H
#define BACKENDS_NVME_NVME_PDU_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_proto.h"

/* Of one connection, from ICReq and ICResp. */
struct nvme_wire {
	bool header_digest, data_digest;
	uint8_t cpda; /* the controller's alignment of data: in dwords, from 0; at most 31 */
	uint8_t hpda; /* the host's, the same */
	uint32_t maxh2cdata_bytes; /* data in one H2CData, at least NVME_MAXH2CDATA_MIN */
	uint32_t r2t_nr;	   /* R2Ts under way for one command, from 1 */
};

/*
 * PDO is a multiple of the alignment, which may be any number of dwords up to 32: of 72 bytes and a
 * header digest 144 are the second multiple.
 */
#define NVME_PDU_HEAD_BYTES_MAX 144u

/* ICReq: asks for what `wire` says of digests, hpda, r2t_nr. */
void nvme_pdu_icreq(uint8_t buf[static NVME_PDU_IC_BYTES], const struct nvme_wire *wire);

/* Each returns the bytes of the head. data_bytes: in the capsule, 0 for none. */
uint32_t nvme_pdu_capsule(uint8_t buf[static NVME_PDU_HEAD_BYTES_MAX], const struct nvme_wire *wire,
			  const uint8_t sqe[static NVME_SQE_BYTES], uint32_t data_bytes);

struct nvme_h2c {
	uint16_t cid, ttag;	  /* ttag: of the R2T, as it came */
	uint32_t at_bytes, bytes; /* of the command's buffer; bytes: 1 to maxh2cdata_bytes */
	bool last;		  /* of this R2T */
};
uint32_t nvme_pdu_h2c_data(uint8_t buf[static NVME_PDU_HEAD_BYTES_MAX],
			   const struct nvme_wire *wire, const struct nvme_h2c *h);

/* The bytes of H2CData that may come next of the rest of an R2T. */
uint32_t nvme_pdu_h2c_bytes(const struct nvme_wire *wire, uint32_t left_bytes);

/* crc: crc32c of the data. */
void nvme_pdu_data_digest(uint8_t buf[static NVME_DIGEST_BYTES], uint32_t crc);

/*
 * H2CTermReq, sent as the last PDU before the connection is closed: TCP 3.6.2.5. header: of the PDU
 * in error, at most 128 bytes. Returns its bytes.
 */
uint32_t nvme_pdu_term(uint8_t buf[static NVME_PDU_TERM_BYTES_MAX], enum nvme_fes fes, uint32_t fei,
		       const uint8_t *header, uint32_t header_bytes);

/* "C2HData"; NULL: unknown. "invalid PDU header field"; "an unknown error". */
const char *nvme_pdu_name(uint8_t type);
const char *nvme_fes_words(uint16_t fes);

#endif
