/* NBD requests as bytes. Pure, any thread. "Request message" and "Request types" of proto.md. */
#ifndef BACKENDS_NBD_NBD_REQUEST_H
#define BACKENDS_NBD_NBD_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/nbd/nbd_proto.h"

#define NBD_REQUEST_BYTES 28u
#define NBD_EXTENDED_REQUEST_BYTES 32u
#define NBD_REQUEST_BYTES_MAX NBD_EXTENDED_REQUEST_BYTES

/* FLUSH and DISC: no offset, no length. */
struct nbd_request {
	uint16_t cmd;	/* enum nbd_cmd */
	uint16_t flags; /* enum nbd_cmd_flags; never PAYLOAD_LEN, which is set here */
	uint64_t cookie;
	uint64_t offset_bytes;
	uint64_t length_bytes;
};

/*
 * The header; behind one of a WRITE go length_bytes of data. Returns its size: 28 compact, 32
 * extended. A compact one has 32 bits of length: more is asserted.
 */
uint32_t nbd_request_encode(uint8_t buf[static NBD_REQUEST_BYTES_MAX], const struct nbd_request *r,
			    bool extended);

/*
 * True when the command may be sent with these flags to an export with these transmission flags
 * ("Transmission flags", "Command flags"): what the server did not offer must not be asked for.
 * meta: a metadata context was negotiated.
 */
bool nbd_request_allowed(const struct nbd_request *r, uint16_t transmission_flags, bool meta);

/* What a server that closes cleanly is told last. Returns its size, as nbd_request_encode. */
uint32_t nbd_request_encode_disc(uint8_t buf[static NBD_REQUEST_BYTES_MAX], bool extended);

#endif
